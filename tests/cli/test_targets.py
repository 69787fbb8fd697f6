import re

import pytest

from catro_deploy import resources
from tests.cli.conftest import document

BOX = 'extends = "jetson-orin"\ntitle = "The box at press 3"\n[gpu]\nsms = 4\n[sources.gpu]\nsms = "counted"\n'


@pytest.fixture(autouse=True)
def own(tmp_path, monkeypatch):
    """The user's folder for targets; the working folder contains a file to add to it."""
    monkeypatch.setenv("CATRO_CONFIG", str(tmp_path / "config"))
    (tmp_path / "box.toml").write_text(BOX)
    return tmp_path / "config" / "targets"


def test_the_list_holds_what_comes_with_the_package(catro):
    listed = catro("targets", "list").stdout
    lines = {line.split()[0]: line for line in listed.splitlines()}
    for name in resources.names("targets"):
        assert lines[name].endswith("shipped")
    assert re.search(r"^x86-cpu +x86 CPU, ONNX Runtime +cpu +onnxruntime +fp32 +shipped$", listed, re.MULTILINE)
    assert re.search(r"^jetson-orin +Jetson AGX .* +jetson +tensorrt +fp16 +shipped$", listed, re.MULTILINE)
    by_name = {target["name"]: target for target in document(catro("targets", "list", "--json"))}
    assert tuple(by_name) == resources.names("targets")
    assert (by_name["x86-cpu"]["origin"], by_name["x86-cpu"]["shadows_shipped"]) == ("shipped", False)


@pytest.mark.parametrize("name", ["x86-cpu", "jetson-orin", "x86-gpu"])
def test_show_prints_each_figure_and_its_source(catro, name):
    content = document(catro("targets", "show", name, "--json"))
    shown = catro("targets", "show", name).stdout
    words = " ".join(shown.split())
    assert all(" ".join(source.split()) in words for source in content["sources"].values())
    for figure in content["sources"]:
        assert re.search(rf"^{re.escape(figure)}: \S", shown, re.MULTILINE)
    assert f"from: shipped, {resources.find('targets', name)}\n" in shown
    assert content["measurable_here"] == (name == "x86-cpu")


def test_show_computes_the_peaks(catro):
    shown = catro("targets", "show", "jetson-orin").stdout
    assert "\ngpu.sms: 8\n" in shown
    assert "\npeak fp16: 10.03e12 operations/s, computed" in shown  # 8 SMs x 2048 x 0.612 GHz
    assert document(catro("targets", "show", "jetson-orin", "--json"))["peak_flops"]["fp16"] == 8 * 2048 * 612e6
    assert "peak" not in catro("targets", "show", "x86-cpu").stdout


def test_a_target_is_added_listed_and_shown(catro, own):
    added = catro("targets", "add", "box.toml")
    assert (added.exit_code, added.stdout) == (0, f"Added box: {own / 'box.toml'}\n")
    assert re.search(r"^box +The box at press 3 .* yours *$", catro("targets", "list").stdout, re.MULTILINE)
    assert f"from: yours, {own / 'box.toml'}\n" in catro("targets", "show", "box").stdout
    named = document(catro("targets", "add", "box.toml", "--name", "press", "--json"))
    assert named == {"name": "press", "origin": "yours", "file": str(own / "press.toml"), "shadows_shipped": False}


def test_one_that_shadows_a_shipped_one_says_so(catro, own):
    added = catro("targets", "add", "box.toml", "--name", "jetson-orin")
    assert "It replaces the jetson-orin that comes with catro-deploy." in added.stderr
    by_name = {target["name"]: target for target in document(catro("targets", "list", "--json"))}
    assert by_name["jetson-orin"]["shadows_shipped"]
    assert by_name["jetson-orin"]["gpu"]["sms"] == 4
    assert "from: yours, shadows shipped, " in catro("targets", "show", "jetson-orin").stdout


def test_adding_twice_is_refused_and_can_be_forced(catro, own):
    catro("targets", "add", "box.toml")
    again = catro("targets", "add", "box.toml")
    assert again.exit_code == 2
    assert "You have a target 'box' already" in again.stderr
    assert "--force" in again.stderr
    assert catro("targets", "add", "box.toml", "--force").exit_code == 0


@pytest.mark.parametrize("arguments", [("box.toml", "--name", "a b"), ("catro.toml",), ("missing.toml",)])
def test_what_cannot_be_added_exits_with_2(catro, own, arguments):
    result = catro("targets", "add", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Traceback" not in result.stderr
    assert not own.exists()


def test_one_bad_file_does_not_hide_the_others(catro, own):
    own.mkdir(parents=True)
    (own / "bad.toml").write_text("title = 7")
    listed = catro("targets", "list")
    assert listed.exit_code == 0
    assert "x86-cpu" in listed.stdout
    assert f"Left out: {own / 'bad.toml'} is not a target" in listed.stderr
    assert catro("targets", "show", "bad").exit_code == 2


def test_a_file_is_shown_without_adding_it(catro, folder):
    assert "from: file, box.toml\n" in catro("targets", "show", "box.toml").stdout


def test_show_says_where_networks_can_be_measured(catro):
    assert "measuring: on this machine\n" in catro("targets", "show", "x86-cpu").stdout
    assert "measuring: on a device of yours: catro-deploy device add" in catro("targets", "show", "jetson-orin").stdout
    assert catro("device", "add", "van", "--ssh", "van", "--target", "jetson-orin").exit_code == 0
    assert "measuring: on your device van\n" in catro("targets", "show", "jetson-orin").stdout
