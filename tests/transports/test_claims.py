import subprocess
import sys

from catro_deploy.resources import cache_folder
from catro_deploy.transports.claims import claimed

WORK = 64 * "a"
KILLED = f"""
import os
from catro_deploy.transports.claims import claimed
with claimed("{WORK}") as claim:
    print(claim.name, flush=True)
    os._exit(9)
"""


def claims_below(monkeypatch, tmp_path):
    monkeypatch.setenv("CATRO_CACHE", str(tmp_path))
    return cache_folder() / "claims"


def test_the_same_work_at_once_is_two_jobs(monkeypatch, tmp_path):
    folder = claims_below(monkeypatch, tmp_path)
    with claimed(WORK) as first, claimed(WORK) as second, claimed(64 * "b") as other:
        assert len({first.name, second.name, other.name}) == 3
        for claim in (first, second, other):
            claim.drop()
    assert not list(folder.iterdir())


def test_what_was_not_dropped_is_taken_over_even_from_a_killed_process(monkeypatch, tmp_path):
    folder = claims_below(monkeypatch, tmp_path)
    killed = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, check=False)
    assert killed.returncode == 9
    with claimed(WORK) as claim:
        assert claim.name == killed.stdout.strip()
        claim.drop()
    with claimed(WORK) as claim:
        assert claim.name != killed.stdout.strip()
    assert len(list(folder.iterdir())) == 1
