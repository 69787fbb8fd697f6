"""Files that an agent keeps on a device do not pile up."""

import os
import time

from catro_deploy.agent.locks import locked
from catro_deploy.agent.store import LOCK, UNUSED_S, Store


def test_what_was_unused_for_long_is_deleted_and_the_rest_stays(tmp_path):
    store, long_ago = Store(tmp_path), time.time() - UNUSED_S - 60
    for age in ("old", "new"):
        for folder in ("files", "jobs"):
            (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / "files" / age).write_text(age)
        (tmp_path / f"agent-{age}.pyz").write_text(age)
        (tmp_path / "jobs" / age).mkdir()
        (tmp_path / "jobs" / age / "log.txt").write_text(age)
    for path in (tmp_path / "files" / "old", tmp_path / "agent-old.pyz", tmp_path / "jobs" / "old"):
        os.utime(path, (long_ago, long_ago))
    store.tidy()
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {"files/new", "agent-new.pyz", "jobs/new/log.txt"}


def test_nothing_is_deleted_while_a_job_runs_whatever_the_clock_says(tmp_path):
    store, long_ago = Store(tmp_path), time.time() - UNUSED_S - 60
    (store.job(64 * "a") / "files").mkdir(parents=True)
    (tmp_path / "agent-running.pyz").touch()
    for path in (tmp_path / "agent-running.pyz", store.job(64 * "a")):
        os.utime(path, (long_ago, long_ago))
    with locked(store.job(64 * "a") / LOCK, "1"):
        os.utime(store.job(64 * "a"), (long_ago, long_ago))
        store.tidy()
        assert (store.job(64 * "a") / "files").is_dir()
        assert (tmp_path / "agent-running.pyz").is_file()
    store.tidy()
    assert {path.name for path in tmp_path.iterdir()} == {"jobs"}
    assert not list((tmp_path / "jobs").iterdir())
