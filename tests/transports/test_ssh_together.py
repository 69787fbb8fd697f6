"""Several processes that use one device at once: none disturbs another."""

import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from tests.transports.far import FACTS, Far, is_gone
from tests.transports.sshd import MISSING
from tests.transports.test_ssh import LONG, bench_job, started_host

pytestmark = [pytest.mark.skipif(bool(MISSING), reason=MISSING), pytest.mark.usefixtures("ssh_that_knows_it")]


@pytest.mark.slow
def test_identical_jobs_do_not_end_each_other(far, device, tmp_path, home):
    job = bench_job(tmp_path, protocol=LONG)
    first, second = far.events(job, tmp_path), Far(device).events(job, tmp_path)
    next(first)
    assert next(second)["text"].endswith("is measuring on the device")
    first.close()
    assert next(second)["event"] == "progress"
    second.close()
    assert not list((home / "jobs").iterdir())


@pytest.mark.slow
def test_ctrl_c_in_one_of_two_identical_commands_ends_only_its_own_job(far, tmp_path, home):
    with started_host(far, bench_job(tmp_path, protocol=LONG), tmp_path) as host:
        other = far.events(bench_job(tmp_path, protocol=replace(LONG, seconds=2.0)), tmp_path)
        same = far.events(bench_job(tmp_path, protocol=LONG), tmp_path)
        assert next(same)["event"] == "note"
        same.close()
        assert next(other)["event"] == "note"
        host.send_signal(signal.SIGINT)
        host.communicate(timeout=120)
    assert list(other)[-1]["event"] == "result"
    assert is_gone(home)


@pytest.mark.slow
def test_several_first_uses_of_a_device_at_once(device, home):
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: Far(device).result(FACTS), range(8)))
    assert len({facts.runtime for facts in found}) == 1
    assert not list((home / "jobs").iterdir())
    assert not list(home.glob(".*.part"))
