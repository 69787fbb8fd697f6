"""The reconstruction flags of ``prune`` take effect."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.tiny import command


def plan(folder: Path, *flags: str) -> dict[str, Any]:
    done = command("prune", "--run", "run", *flags)
    assert done.exit_code == 0, done.stderr
    found: dict[str, Any] = json.loads((folder / "run" / "plan.json").read_text())
    return found


@pytest.mark.parametrize(
    ("flags", "criterion", "worth", "allocation"),
    [
        ((), "catro", "auto", "flops"),
        (("--criterion", "obs"), "obs", "auto", "exact"),
        (("--worth", "measured"), "catro", "measured", "exact"),
        (("--criterion", "obs", "--worth", "scatter"), "obs", "scatter", "flops"),
    ],
)
def test_channels_are_chosen_and_widths_are_worth_what_the_flags_say(tiny, flags, criterion, worth, allocation):
    found = plan(tiny, *flags)
    assert (found["criterion"], found["settings"]["worth"], found["allocation"]) == (criterion, worth, allocation)
    assert found["reconstruction"]["kl_reconstructed"] <= found["reconstruction"]["kl_cut"]


def test_reconstruction_can_be_declined(tiny):
    assert plan(tiny, "--no-reconstruct")["reconstruction"] is None


def test_worth_cannot_be_measured_without_it(tiny):
    done = command("prune", "--run", "run", "--worth", "measured", "--no-reconstruct")
    assert done.exit_code == 2
    assert "reconstruct" in done.stderr
    assert not (tiny / "run" / "plan.json").exists()
