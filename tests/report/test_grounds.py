"""What a careful reader asks first."""

from dataclasses import replace

from catro_deploy.agent.device import ClockRange, MeasuredClocks
from catro_deploy.agent.wire import to_json
from catro_deploy.report.grounds import conditions, how_measured
from tests.report.made import make_bench, make_plan, make_report, make_verify

CLOCKS = MeasuredClocks({"GPU": ClockRange(306.0, 918.0, 1020.0, 1020.0, 40)}, ())


def rows(**environment: object) -> dict[str, str]:
    report = make_report(make_plan(), make_verify(), make_bench())
    return dict(conditions(replace(report, environment=report.environment | environment)))


def test_inferences_that_do_not_count_are_reported():
    """A bench of an older version counted all inferences."""
    report = make_report(make_plan(), make_verify(), make_bench())
    assert report.protocol is not None
    assert "calls (A B A B ...), after warm-up" in how_measured(report)
    settled = replace(report, protocol=replace(report.protocol, settling=2))
    assert "calls (A B A B ...) without the first 2 of each turn, after warm-up" in how_measured(settled)


def test_clocks_while_measuring_are_shown():
    recorded = {f"{key}_during": value for key, value in to_json(CLOCKS).items()}
    assert rows(**recorded)["GPU clock while measuring"] == "306 to 1020 MHz, median 918 MHz"


def test_what_was_not_recorded_is_left_out():
    for recorded in ({}, {"clocks_mhz_during": "fast", "throttled_during": []}):
        assert not [name for name in rows(**recorded) if "clock" in name]
