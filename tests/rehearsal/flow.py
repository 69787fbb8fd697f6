"""What a user does with a device on the command line."""

import json
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.tiny import PROTOCOL, command, exit_code_of
from tests.transports.sshd import Server

__all__ = ["Rehearsal", "read", "same_as_here"]

NAME = "van"
BUDGET = ("--budget", "50%flops")
FAR_FOLDER = ".cache/catro-deploy"
POLL_S, LIMIT_S = 0.05, 1200
LARGEST_DIFFERENCE = 1e-6
START_THE_AGENT = (
    "import os, sys; os.chdir('catro-bundle'); os.execv(sys.executable, [sys.executable, 'agent.pyz', 'do'])"
)


@dataclass(frozen=True)
class Rehearsal:
    """A device ``van`` of ``target`` behind ``server``: ``python`` is its Python, ``home`` its user's home."""

    server: Server
    target: str
    python: Path
    home: Path

    def add(self) -> None:
        """Register the device on the command line."""
        options = ("--ssh", "far", "--target", self.target, "--python", str(self.python))
        # The login user's home is not that of the device's user: ``~`` stands for the latter, as it is expanded there.
        done = command("device", "add", NAME, *options, "--folder", f"~/{FAR_FOLDER}")
        assert done.exit_code == 0, done.stderr

    def facts(self) -> dict[str, Any]:
        """The facts that ``device check`` reports."""
        done = command("device", "check", NAME, "--json")
        assert done.exit_code == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)["facts"]
        return found

    def doctor(self, code: int = 0) -> dict[str, dict[str, Any]]:
        """Findings of ``doctor --device`` by name."""
        done = command("doctor", "--device", NAME, "--json")
        assert done.exit_code == code, done.stderr
        return {finding["name"]: finding for finding in json.loads(done.stdout)["findings"]}

    def run(self, *flags: str) -> Path:
        """Prune the tiny network for the device, verify and benchmark it there, and return the run folder."""
        done = command("run", "--device", NAME, *BUDGET, *flags, "--run", "run")
        assert done.exit_code == exit_code_of(Path("run")), done.stderr
        return Path("run")

    def run_with_a_cut(self) -> Path:
        """The same, with all connections cut once the bench has begun to measure."""
        Path("long.toml").write_text(PROTOCOL.replace("seconds = 0.05", "seconds = 1.0"))
        with self._cut() as cuts:
            long = ("-o", "bench.protocol=./long.toml")
            done = command("run", "--device", NAME, *BUDGET, *long, "--run", "run")
        assert done.exit_code == exit_code_of(Path("run")), done.stderr
        assert cuts
        lost = f"the connection to {NAME} was lost; the job continues there"
        assert lost in done.stderr or f"{NAME} cannot be reached; trying again" in done.stderr
        return Path("run")

    def carried(self) -> Path:
        """Verify and benchmark a run with a bundle that is carried to the device and back; return the run folder."""
        done = command("run", "--target", self.target, *BUDGET, "--run", "carried")
        assert done.exit_code == 0, done.stderr
        assert "cannot be reached from here" in done.stderr
        packed = command("bundle", "--run", "carried")
        assert packed.exit_code == 0, packed.stderr
        shutil.rmtree(self.home / "catro-bundle", ignore_errors=True)
        with tarfile.open("carried/bundle.tar") as tar:
            tar.extractall(self.home, filter="data")
        there = subprocess.run(
            [self.python, "-c", START_THE_AGENT], capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        assert there.returncode == 0, there.stdout + there.stderr
        taken = command("import", str(self.home / "catro-bundle" / "result.json"), "--run", "carried")
        assert taken.exit_code == exit_code_of(Path("carried"), "verify", "bench"), taken.stderr
        return Path("carried")

    @contextmanager
    def _cut(self) -> Iterator[list[int]]:
        cuts: list[int] = []
        over = threading.Event()

        def cut() -> None:
            while not over.wait(POLL_S):
                with suppress(FileNotFoundError):  # jobs that have finished are removed
                    events = (self.home / FAR_FOLDER / "jobs").glob("*/events.jsonl")
                    if any(b'"progress"' in path.read_bytes() for path in events):
                        cuts.append(self.server.drop_connections())
                        return

        thread = threading.Thread(target=cut)
        thread.start()
        try:
            yield cuts
        finally:
            over.set()
            thread.join()


def read(run: Path, name: str) -> dict[str, Any]:
    """A record of a run folder."""
    found: dict[str, Any] = json.loads((run / f"{name}.json").read_text())
    return found


def same_as_here(verify: dict[str, Any]) -> bool:
    """Whether the logits of both networks equal those of PyTorch on this computer, except for rounding."""
    differences = [verify[name]["largest_logit_difference"] for name in ("original", "pruned")]
    return max(differences) < LARGEST_DIFFERENCE
