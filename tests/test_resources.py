import subprocess
import sys
from pathlib import Path, PureWindowsPath

import platformdirs
import pytest
from platformdirs.macos import MacOS
from platformdirs.unix import Unix
from platformdirs.windows import Windows

from catro_deploy import resources
from catro_deploy.errors import SettingsError, UsageError


def test_names_are_the_files_of_the_folder():
    assert resources.names("calibration/latency") == ("quick", "standard", "thorough")
    assert "x86-cpu" in resources.names("targets")


def test_a_name_gives_its_file():
    path = resources.find("targets", "x86-cpu")
    assert path.is_file()
    assert path.name == "x86-cpu.toml"


def test_an_unknown_name_gets_the_nearest_and_the_known_ones():
    with pytest.raises(SettingsError) as caught:
        resources.find("calibration/latency", "standart", SettingsError)
    assert "Did you mean standard?" in caught.value.problem
    assert "quick, standard, thorough" in caught.value.hint


@pytest.mark.parametrize("name", ["zzzzzz", "nope"])
def test_a_name_far_from_all_gets_no_suggestion(name):
    with pytest.raises(UsageError) as caught:
        resources.find("targets", name)
    assert "mean" not in caught.value.problem


@pytest.mark.parametrize("given", ["mine.toml", "./mine.toml", "sub/mine"])
def test_a_path_is_taken_as_one(tmp_path, monkeypatch, given):
    monkeypatch.chdir(tmp_path)
    Path("sub").mkdir()
    Path(given).write_text("")
    assert resources.find("targets", given) == Path(given)


def test_a_path_without_a_file_is_refused():
    with pytest.raises(UsageError, match=r"nowhere/x86-cpu\.toml"):
        resources.find("targets", "nowhere/x86-cpu.toml")


PLACES = ("CATRO_CONFIG", "CATRO_CACHE", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")
PLATFORMS = {"linux": Unix, "darwin": MacOS}


@pytest.mark.parametrize(
    ("platform", "variables", "config", "cache"),
    [
        ("linux", {}, "home/.config/catro-deploy", "home/.cache/catro-deploy"),
        ("linux", {"XDG_CONFIG_HOME": "{root}/xdg"}, "xdg/catro-deploy", "home/.cache/catro-deploy"),
        ("linux", {"XDG_CONFIG_HOME": "relative"}, "home/.config/catro-deploy", "home/.cache/catro-deploy"),
        ("linux", {"XDG_CACHE_HOME": "{root}/xdg"}, "home/.config/catro-deploy", "xdg/catro-deploy"),
        ("darwin", {}, "home/Library/Application Support/catro-deploy", "home/Library/Caches/catro-deploy"),
        ("darwin", {"XDG_CONFIG_HOME": "{root}/xdg"}, "xdg/catro-deploy", "home/Library/Caches/catro-deploy"),
        ("darwin", {"CATRO_CONFIG": "{root}/chosen"}, "chosen", "home/Library/Caches/catro-deploy"),
        ("linux", {"CATRO_CACHE": "{root}/chosen"}, "home/.config/catro-deploy", "chosen"),
    ],
)
def test_files_are_where_the_platform_has_them(tmp_path, monkeypatch, platform, variables, config, cache):
    for name in PLACES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(root=tmp_path))
    monkeypatch.setattr(platformdirs, "PlatformDirs", PLATFORMS[platform])
    assert (resources.config_folder(), resources.cache_folder()) == (tmp_path / config, tmp_path / cache)


def test_on_windows_settings_roam_and_caches_do_not(monkeypatch):
    for name in PLACES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WIN_PD_OVERRIDE_APPDATA", r"C:\Users\me\AppData\Roaming")
    monkeypatch.setenv("WIN_PD_OVERRIDE_LOCAL_APPDATA", r"C:\Users\me\AppData\Local")
    monkeypatch.setattr(platformdirs, "PlatformDirs", Windows)
    assert PureWindowsPath(resources.config_folder()) == PureWindowsPath(r"C:\Users\me\AppData\Roaming\catro-deploy")
    assert PureWindowsPath(resources.cache_folder()) == PureWindowsPath(r"C:\Users\me\AppData\Local\catro-deploy\Cache")


def test_a_user_without_a_home_still_has_the_shipped_targets(monkeypatch):
    def homeless(_):
        raise KeyError("uid not found")

    for name in PLACES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "")
    monkeypatch.setattr("pwd.getpwuid", homeless)
    assert resources.own_folder("targets") is None
    assert "x86-cpu" in resources.names("targets")
    with pytest.raises(UsageError) as caught:
        resources.cache_folder()
    assert "CATRO_CACHE" in caught.value.hint


def test_own_targets_join_the_shipped_ones_and_stand_before_them(tmp_path, monkeypatch):
    monkeypatch.setenv("CATRO_CONFIG", str(tmp_path))
    own = tmp_path / "targets"
    own.mkdir()
    for name in ("x86-cpu.toml", "press.toml", "notes.txt"):
        (own / name).write_text("")
    shipped = {path.stem for path in resources.folder("targets").glob("*.toml")}
    assert set(resources.names("targets")) == shipped | {"press"}
    found = {name: resources.find("targets", name) for name in ("x86-cpu", "press", "x86-gpu")}
    assert found["x86-cpu"] == own / "x86-cpu.toml"
    assert [resources.origin("targets", path) for path in found.values()] == ["yours", "yours", "shipped"]
    assert resources.origin("targets", tmp_path / "x.toml") == "file"


def test_protocols_are_never_shadowed(tmp_path, monkeypatch):
    monkeypatch.setenv("CATRO_CONFIG", str(tmp_path))
    (tmp_path / "calibration" / "latency").mkdir(parents=True)
    (tmp_path / "calibration" / "latency" / "standard.toml").write_text("")
    path = resources.find("calibration/latency", "standard")
    assert resources.origin("calibration/latency", path) == "shipped"


def test_of_several_that_are_as_near_the_first_is_named():
    with pytest.raises(UsageError, match=r"x86-cpu\?"):
        resources.find("targets", "x86")


def test_an_installed_package_reads_its_own_data(tmp_path):
    """In the layout of the wheel, the data is inside the package, and there is no checkout around it."""
    package = tmp_path / "catro_deploy"
    (package / "_data" / "targets").mkdir(parents=True)
    (package / "_data" / "targets" / "planted.toml").write_text("")
    for name in ("__init__.py", "errors.py", "resources.py", "suggestions.py"):
        (package / name).write_text((resources.PACKAGE / name).read_text())
    code = "from catro_deploy import resources; print(resources.find('targets', 'planted'), resources.names('targets'))"
    command = [sys.executable, "-c", code]
    answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == f"{package / '_data/targets/planted.toml'} ('planted',)"
