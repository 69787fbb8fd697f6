"""``device``: adding, listing and checking devices; and engines of a remote device, over a real sshd.

The tutorial in tests/docs is a complete run on such a device.
"""

import json
import os
import re
import shlex
import sys

import pytest

from catro_deploy import pipeline
from catro_deploy.files import file_hash
from catro_deploy.settings import PruneSettings, Settings
from catro_deploy.targets import load_target
from catro_deploy.transports.sides import sides_of
from tests.cli.conftest import document
from tests.tiny import command, exit_code_of
from tests.transports.sshd import MISSING, script, serving


@pytest.fixture(autouse=True)
def own_config(tmp_path, monkeypatch):
    monkeypatch.setenv("CATRO_CONFIG", str(tmp_path / "config"))


@pytest.fixture
def far(tmp_path, monkeypatch):
    """This machine as a remote device, added by the command line."""
    if MISSING:
        pytest.skip(MISSING)
    folder = tmp_path / "sshd"
    folder.mkdir()
    with serving(folder):
        monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
        where = ("--ssh", "far", "--python", sys.executable, "--folder", str(tmp_path / "far"))
        added = command("device", "add", "far", "--target", "x86-cpu", *where)
        assert added.exit_code == 0, added.stderr
        yield


def test_force_changes_the_given_values_only(catro):
    missing = catro("device", "add", "van", "--force", "--python", "venv/bin/python")
    assert missing.exit_code == 2
    assert "--ssh USER@HOST --target TARGET" in missing.stderr
    added = ("--ssh", "ubuntu@10.0.0.7", "--target", "x86-cpu", "--folder", "models")
    assert catro("device", "add", "van", *added).exit_code == 0
    taken = catro("device", "add", "van", "--python", "venv/bin/python")
    assert taken.exit_code == 2
    assert "You have a device 'van' already" in taken.stderr
    assert catro("device", "add", "van", "--force", "--python", "venv/bin/python").exit_code == 0
    (van,) = document(catro("device", "list", "--json"))
    assert van["python"] == "venv/bin/python"
    assert (van["ssh"], van["target"], van["folder"]) == ("ubuntu@10.0.0.7", "x86-cpu", "models")


def test_devices_are_added_listed_and_removed(catro):
    assert "None yet" in catro("device", "list").stdout
    added = catro(
        "device", "add", "van", "--ssh", "ubuntu@10.0.0.7", "--target", "x86-cpu", "--python", "venv/bin/python"
    )
    assert added.exit_code == 0
    assert "Try it: catro-deploy device check van" in added.stdout
    assert re.search(
        r"^van +x86-cpu +ubuntu@10\.0\.0\.7 +venv/bin/python +\.cache/catro-deploy",
        catro("device", "list").stdout,
        re.M,
    )
    assert document(catro("device", "list", "--json"))[0]["ssh"] == "ubuntu@10.0.0.7"
    assert catro("device", "remove", "van").stdout == "Removed van.\n"
    assert document(catro("device", "list", "--json")) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("device", "add", "van", "--ssh", "-oProxyCommand=x", "--target", "x86-cpu"), "cannot be a device's ssh"),
        (
            ("device", "add", "van", "--ssh", "van", "--target", "x86-cpu", "--python", ""),
            "'' cannot be a device's python. Name a command or a path on the device",
        ),
        (("device", "add", "van", "--ssh", "van", "--target", "jetson-orim"), "Did you mean jetson-orin"),
        (("device", "add", "van", "--ssh", "van", "--target", "jetson-xavier-nx"), "there are estimates only"),
        (("device", "check", "van"), "There is no device 'van'. You have none yet."),
        (("prune", "--device", "van"), "There is no device 'van'. You have none yet."),
    ],
)
def test_what_cannot_be_is_refused(catro, arguments, said):
    done = catro(*arguments)
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("targets", [("van",), ("x86-cpu@van", "x86-cpu"), ("x86-cpu", "van")])
def test_a_device_named_as_a_target_is_pointed_out(catro, targets):
    """Following "did you mean x86-cpu" would measure on this machine instead."""
    assert catro("device", "add", "van", "--ssh", "van", "--target", "x86-cpu").exit_code == 0
    done = catro("prune", *(word for target in targets for word in ("--target", target)))
    assert done.exit_code == 2
    said = " ".join(done.stderr.split())
    assert "but you have a device 'van'" in said
    assert "--device van, a further one if it is written --target x86-cpu@van" in said


def test_a_device_is_of_one_target(catro):
    assert catro("device", "add", "van", "--ssh", "van", "--target", "x86-cpu").exit_code == 0
    done = catro("prune", "--device", "van", "--target", "jetson-orin")
    assert done.exit_code == 2
    assert "The device van belongs to target x86-cpu, but the target is jetson-orin" in " ".join(done.stderr.split())


def test_a_device_of_a_target_file_is_found_from_every_folder(catro, tmp_path, monkeypatch):
    sources = '[sources]\nthreads = "One for each core."\n'
    (tmp_path / "my-box.toml").write_text(f'extends = "arm-cpu"\ntitle = "My box"\nthreads = 2\n{sources}')
    monkeypatch.chdir(tmp_path)
    assert catro("device", "add", "van", "--ssh", "van", "--target", "my-box.toml").exit_code == 0
    assert "measuring: on your device van" in catro("targets", "show", "my-box.toml").stdout
    given = Settings(prune=PruneSettings(target="my-box.toml", device="van"))
    assert pipeline.with_target_of_device(given) == given
    (also,) = sides_of(Settings(prune=PruneSettings(also=["my-box.toml@van"])))[1:]
    assert also.device == "van"
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    found = pipeline.with_target_of_device(Settings(prune=PruneSettings(device="van")))
    assert load_target(found.prune.target).title == "My box"


def test_a_check_shows_what_the_device_is(far):
    checked = command("device", "check", "far")
    assert checked.exit_code == 0, checked.stderr
    assert checked.stdout.startswith("far (far) works.\n")
    assert "  runtime: onnxruntime " in checked.stdout
    facts = json.loads(command("device", "check", "far", "--json").stdout)["facts"]
    assert facts["cores"] >= 1


def test_the_doctor_examines_a_device(far):
    done = command("doctor", "--device", "far")
    assert done.exit_code == 0, done.stderr
    words = [line.split() for line in done.stdout.splitlines()]
    lines = {line[1]: line[0] for line in words if len(line) > 1}  # long paths are wrapped
    assert (lines["ssh"], lines["numpy"], lines["onnxruntime"]) == ("works", "works", "works")


def test_the_doctor_explains_a_device_that_does_not_answer(catro):
    assert catro("device", "add", "van", "--ssh", "ssh://127.0.0.1:1", "--target", "x86-cpu").exit_code == 0
    done = catro("doctor", "--device", "van")
    assert done.exit_code == 1
    assert "Nothing answers at its ssh port" in " ".join(done.stdout.split())
    assert "Needed and not working: ssh." in done.stderr


@pytest.fixture
def far_gpu(tmp_path, monkeypatch, tensorrt_there):
    """This machine as a remote device, with test doubles of TensorRT and of a GPU that exist only on that device."""
    if MISSING:
        pytest.skip(MISSING)
    folder = tmp_path / "sshd"
    folder.mkdir()
    variables = " ".join(f"{name}={shlex.quote(value)}" for name, value in tensorrt_there.items())
    python = script(tmp_path / "python", f'{variables} exec {sys.executable} "$@"')
    with serving(folder):
        monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
        where = ("--ssh", "far", "--python", str(python), "--folder", str(tmp_path / "far"))
        added = command("device", "add", "van", "--target", "jetson-orin", *where)
        assert added.exit_code == 0, added.stderr
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("far_gpu")
def test_engines_are_built_and_measured_far_away_and_copied_here(tiny, tmp_path):
    done = command("run", "--target", "jetson-orin", "--budget", "50%flops", "--run", "run")
    assert done.exit_code == exit_code_of(tiny / "run"), done.stderr
    assert "on van, your only device of the target jetson-orin" in done.stderr
    assert "building the TensorRT engine of pruned.fp16.onnx" in done.stderr
    build = json.loads((tiny / "run" / "build.json").read_text())
    assert file_hash(tiny / "run" / "pruned.engine") == build["pruned"]["engine_sha256"]
    assert len(list((tmp_path / "far" / "engines").glob("*.engine"))) == 2
    bench = json.loads((tiny / "run" / "bench.json").read_text())
    assert bench["environment"]["reached"].startswith("van, by ssh")
    assert bench["environment"]["runtime"].startswith("tensorrt")
