"""Which networks are timed, how often, and what is kept of it."""

from benchmarks.timed_widths import TimedWidths
from catro_deploy.budget import Budget
from catro_deploy.latency.candidate import CandidateLatency
from catro_deploy.records import GroupPlan, Speedup


def kept(*widths):
    return [GroupPlan(f"conv{i}", 16, tuple(range(width)), (f"conv{i}",)) for i, width in enumerate(widths)]


def test_what_meets_the_budget_is_measured_twice_at_length_and_serves_all_importances(tmp_path):
    slow, fast, misjudged = (
        [("quick", 60.0)],
        [("quick", 52.0), ("standard", 30.0), ("standard", 45.0)],
        [("quick", 40.0)],
    )
    latencies = iter([*slow, *fast, *misjudged, ("standard", 55.0)])

    def measure(protocol):
        expected, found = next(latencies)
        assert protocol == expected
        return CandidateLatency(found, 100.0, Speedup(100 / found, (1.0, 9.0)), ())

    first, second = TimedWidths(tmp_path / "widths.json"), TimedWidths(tmp_path / "widths.json")
    half = Budget.parse("0.5x")
    assert first.latencies_us(kept(12, 16), measure, half) == (60, 100)  # more than 10% above the budget
    assert first.latencies_us(kept(8, 16), measure, half) == (45, 100)
    assert first.latencies_us(kept(8, 12), measure, half) == (55, 100)
    assert second.latencies_us(kept(8, 16), measure, half) == (45, 100)
    assert second.ratio(kept(8, 16)) == 0.45
    assert next(latencies, None) is None


def test_a_network_is_measured_again_after_its_latency_was_forgotten(tmp_path):
    timed, calls = TimedWidths(tmp_path / "widths.json"), []

    def measure(protocol):
        calls.append(protocol)
        return CandidateLatency(90.0, 100.0, Speedup(1.1, (1.0, 1.2)), ())

    for widths in (kept(8, 16), kept(8, 8), kept(8, 16)):
        timed.latencies_us(widths, measure, Budget.parse("0.5x"))
    assert len(calls) == 2
    timed.forget(kept(8, 16))
    for widths in (kept(8, 16), kept(8, 8)):
        timed.latencies_us(widths, measure, Budget.parse("0.5x"))
    assert len(calls) == 3
