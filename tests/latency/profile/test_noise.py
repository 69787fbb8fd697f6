"""How a measurement deals with noise on the machine."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from catro_deploy.agent.events import Event, Sample
from catro_deploy.agent.results import ProfileResult
from catro_deploy.latency.profile import measure_profile, measuring
from tests.latency.profile.quick import PROTOCOL, SHAPE, USE, Told, tiny_network

STRICT = PROTOCOL.model_copy(update={"disagreement": 0.1})


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("CATRO_CACHE", str(tmp_path / "cache"))


def bursts(monkeypatch: pytest.MonkeyPatch, hits: Callable[[str], bool]) -> None:
    """Really time everything, then make all rounds of a network equal, except for those whose name ``hits`` selects.

    For these, the last round took twice as long as the others, while the reference network in between did not.
    """

    def rounds_us(measured_us: Sequence[float], last: float) -> tuple[float, ...]:
        median_us = float(np.median(measured_us))
        return (*[median_us] * (len(measured_us) - 1), last * median_us)

    def played(sample: Sample) -> Sample:
        last = 2.0 if hits(sample.name) else 1.0
        return replace(
            sample,
            nodes=tuple(replace(node, rounds_us=rounds_us(node.rounds_us, last)) for node in sample.nodes),
            whole_us=None if sample.whole_us is None else rounds_us(sample.whole_us, last),
            reference_us=rounds_us(sample.reference_us, 1.0),
        )

    def disturbed(*given: Any, on_event: Callable[[Event], None], **options: Any) -> ProfileResult:
        return run_job(*given, on_event=lambda of: on_event(played(of) if isinstance(of, Sample) else of), **options)

    run_job = measuring.run_job
    monkeypatch.setattr(measuring, "run_job", disturbed)


def test_a_noisy_machine_is_reported_and_a_quarter_of_the_networks_is_timed_again_at_most_twice(monkeypatch):
    bursts(monkeypatch, lambda name: True)
    progress = Told()
    profile = measure_profile(tiny_network(), SHAPE, USE, STRICT, progress)
    quarter = profile.networks // 4
    assert [bar[:2] for bar in progress.bars[2:4]] == [(f"Timing {quarter} networks again", quarter)] * 2
    assert profile.disagreement == pytest.approx(1)


def test_nothing_is_timed_again_when_the_time_is_up(monkeypatch):
    bursts(monkeypatch, lambda name: True)
    progress = Told()
    measure_profile(tiny_network(), SHAPE, USE, STRICT.model_copy(update={"limit_s": 1e-6}), progress)
    assert [bar[0] for bar in progress.bars if "again" in bar[0]] == []


def test_networks_that_a_burst_hit_are_timed_again_until_they_agree(monkeypatch):
    """Only the fourth and the eighth network of the squares are hit, and the fourth once more."""
    bursts(monkeypatch, lambda name: name.startswith(("square/3/", "square/7/", "again 0/0/")))
    progress = Told()
    profile = measure_profile(tiny_network(), SHAPE, USE, STRICT, progress)
    assert [title for title, _, _ in progress.bars if "again" in title] == [
        "Timing 2 networks again",
        "Timing 1 network again",
    ]
    assert profile.disagreement == pytest.approx(0)
