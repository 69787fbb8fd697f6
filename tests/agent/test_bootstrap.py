"""The bootstrap, which stores and starts the agent on a device, trusts nothing that other users could have changed."""

import ast
import hashlib
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from catro_deploy.transports.agent_file import PACKAGE, bootstrap

AGENT = b'import os, sys; print(\'{"event": "result", "result": \' + repr(len(sys.argv)) + \'}\')'
DIGEST = hashlib.sha256(AGENT).hexdigest()
OTHER = 54321
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")


def call(folder: Path | str, *action: object, stdin: bytes = b"", **options) -> dict:
    words = [
        sys.executable,
        "-c",
        bootstrap(),
        str(folder),
        "agent.pyz",
        DIGEST,
        "token",
        *[str(one) for one in action],
    ]
    done = subprocess.run(words, input=stdin, capture_output=True, check=False, **options)
    assert not done.stderr, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def install(folder: Path | str, **options) -> dict:
    return call(folder, "install", len(AGENT), 0, stdin=AGENT, **options)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_agent_is_installed_for_its_user_alone_and_run(tmp_path):
    home = tmp_path / "a" / "b"
    assert call(home, "run", "verb") == {"event": "missing", "arrived": 0}
    assert install(home)["event"] == "result"
    assert call(home, "run", "verb")["result"] == 2
    assert [mode(path) for path in (home.parent, home, home / "agent.pyz")] == [0o700, 0o700, 0o600]


def test_an_agent_that_was_cut_off_is_continued(tmp_path):
    assert call(tmp_path, "install", len(AGENT), 0, stdin=AGENT[:20])["problem"] == "The agent did not arrive intact."
    assert call(tmp_path, "run", "verb") == {"event": "missing", "arrived": 20}
    assert call(tmp_path, "install", len(AGENT), 20, stdin=AGENT[20:])["event"] == "result"
    assert [path.name for path in tmp_path.iterdir()] == ["agent.pyz"]


def test_an_installation_that_fails_leaves_nothing(tmp_path):
    assert call(tmp_path, "install", len(AGENT), 0, stdin=AGENT[:-1] + b"?")["event"] == "error"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("planted", ["file", "link"])
def test_another_program_under_the_agents_name_is_not_run(tmp_path, planted):
    program = tmp_path / ("agent.pyz" if planted == "file" else "elsewhere")
    program.write_bytes(AGENT if planted == "link" else AGENT + b"\n")
    if planted == "link":
        (tmp_path / "agent.pyz").symlink_to(program)
    assert call(tmp_path, "run", "verb")["event"] == "missing"


def test_a_link_in_place_of_the_upload_is_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    home = tmp_path / "home"
    home.mkdir()
    (home / ".agent.pyz.token.part").symlink_to(victim)
    assert call(home, "install", len(AGENT), 8, stdin=AGENT[8:])["event"] == "error"
    assert install(home)["event"] == "result"
    assert victim.read_bytes() == b"precious"


@pytest.mark.parametrize("where", [".", "home", "home/files"])
def test_a_folder_that_all_can_write_to_is_refused(tmp_path, where):
    (tmp_path / "home" / "files").mkdir(parents=True)
    (tmp_path / where).chmod(0o777)
    for answer in (install(tmp_path / "home"), call(tmp_path / "home", "run", "verb")):
        assert answer["problem"].endswith("is not a safe place for models and programs: all users can write to it.")
        assert f"chmod go-w {(tmp_path / where).resolve()}" in answer["hint"]


def test_others_may_write_above_if_they_cannot_rename(tmp_path):
    (tmp_path / "sticky").mkdir()
    (tmp_path / "sticky").chmod(0o1777)
    assert install(tmp_path / "sticky" / "home")["event"] == "result"
    assert install(tmp_path / "sticky")["event"] == "error"


@as_root
@pytest.mark.parametrize("where", [".", "home", "home/files"])
def test_a_folder_of_another_user_is_refused(tmp_path, where):
    (tmp_path / "home" / "files").mkdir(parents=True)
    os.chown(tmp_path / where, OTHER, OTHER)
    assert f"it belongs to the user {OTHER}" in install(tmp_path / "home")["problem"]


@as_root
def test_a_link_of_another_user_is_refused(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "home").symlink_to(tmp_path / "mine")
    assert install(tmp_path / "home")["event"] == "result"
    os.chown(tmp_path / "home", OTHER, OTHER, follow_symlinks=False)
    assert "another user has put a link there" in call(tmp_path / "home", "run", "verb")["problem"]


@as_root
def test_a_group_of_several_users_may_not_write(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home").chmod(0o770)
    assert install(tmp_path / "home")["event"] == "result"  # root's own group
    os.chown(tmp_path / "home", 0, OTHER)
    assert "a group can write to it" in install(tmp_path / "home")["problem"]


def test_models_of_earlier_versions_become_unreadable_for_others(tmp_path):
    (tmp_path / "files").mkdir()
    (tmp_path / "files").chmod(0o755)
    install(tmp_path)
    assert mode(tmp_path / "files") == 0o700


def test_the_home_folder_can_be_named_by_a_tilde(tmp_path):
    assert install("~/x", env={"HOME": str(tmp_path)}, cwd=tmp_path)["event"] == "result"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    assert "home folder of ~nobody-here/x" in install("~nobody-here/x", cwd=tmp_path)["problem"]


def test_modules_of_the_working_folder_are_not_imported(tmp_path):
    for name in ("json", "hashlib", "base64", "grp"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported')")
    assert install(tmp_path / "home", cwd=tmp_path)["event"] == "result"


def test_older_pythons_can_read_it():
    ast.parse((PACKAGE / "agent" / "bootstrap.py").read_text(), feature_version=(3, 6))
