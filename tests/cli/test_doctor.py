from dataclasses import replace

import pytest

from catro_deploy.cli import doctor
from tests.agent.measured import DEVICE
from tests.cli.conftest import document


def test_the_doctor_finds_what_the_tests_need(catro):
    result = catro("doctor", "--json")
    found = {finding["name"]: finding for finding in document(result)["findings"]}
    assert result.exit_code == 0
    assert found["ONNX Runtime on the CPU"]["state"] == "works"
    assert "CPUExecutionProvider" in found["ONNX Runtime on the CPU"]["detail"]
    assert all(finding["remedy"] for finding in found.values() if finding["state"] != "works")
    assert all(finding["state"] == "works" for finding in found.values() if finding["needed"])
    assert {"CUDA", "TensorRT", "C++ compiler", "disk", "cache", "memory", "data"} <= set(found)


def test_what_is_needed_and_missing_exits_with_1_and_says_how_to_get_it(catro, monkeypatch):
    monkeypatch.setattr(doctor, "PACKAGES", ("torch", "no-such-package"))
    result = catro("doctor")
    assert result.exit_code == 1
    assert "pip install no-such-package" in result.stdout
    assert "Needed and not working: no-such-package" in result.stderr


def test_a_check_that_raises_is_a_finding():
    def fail():
        raise OSError("libfoo.so: cannot open\nmore")

    finding = doctor._try("x", fail, needed=True, remedy="reinstall")
    assert finding == doctor.Finding("x", "broken", "OSError: libfoo.so: cannot open", True, "reinstall")


def test_a_folder_that_cannot_be_written_is_a_finding(monkeypatch):
    monkeypatch.chdir("/proc/self")  # not even root can write there
    found = doctor._disk()
    assert (found.state, found.needed) == ("broken", False)
    assert "cannot be written" in found.detail
    assert "--run" in found.remedy


def test_a_cache_that_cannot_be_written_is_needed(catro, folder, monkeypatch):
    (folder / "file").touch()
    monkeypatch.setenv("CATRO_CACHE", str(folder / "file"))
    result = catro("doctor")
    assert result.exit_code == 1
    assert "Needed and not working: cache" in result.stderr
    assert "CATRO_CACHE" in result.stdout


def test_missing_data_names_what_to_do(catro, folder):
    (folder / "catro.toml").write_text('[data]\nname = "gtsrb"\nroot = "nowhere"\n')
    result = catro("doctor", "--json")
    data = next(f for f in document(result)["findings"] if f["name"] == "data")
    assert data["state"] == "missing"
    assert "--download" in data["remedy"]


def test_broken_settings_are_a_finding(catro, folder):
    (folder / "catro.toml").write_text("[data]\nnme = 1\n")
    found = document(catro("doctor", "--json"))["findings"]
    assert found[-1]["state"] == "broken"
    assert "Did you mean name?" in found[-1]["detail"]


@pytest.mark.parametrize(
    ("sets", "state"), [(["avx2", "avx512_vnni"], "works"), (["avx2"], "missing"), (None, "works")]
)
def test_it_says_what_the_processor_does_with_integers(monkeypatch, sets, state):
    from catro_deploy.agent import facts

    monkeypatch.setattr(facts, "device_facts", lambda: replace(DEVICE, instruction_sets=sets))
    found = doctor._integers()
    assert (found.state, found.needed) == (state, False)
