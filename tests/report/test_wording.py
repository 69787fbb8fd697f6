import pytest

from catro_deploy.report import wording
from catro_deploy.report.build import build_report
from tests.report.made import make_bench, make_plan, make_verify


@pytest.mark.parametrize(
    ("speedup", "accuracies", "expected"),
    [
        (
            (1.84, 1.80, 1.88),
            (0.9944, 0.9912),
            "1.84x faster (95% CI 1.80 to 1.88), accuracy 99.44% -> 99.12% (-0.32 points)",
        ),
        (
            (0.87, 0.85, 0.89),
            (0.99, 0.99),
            "SLOWER: 0.87x the original's speed (95% CI 0.85 to 0.89), accuracy unchanged at 99.00%",
        ),
        (
            (1.01, 0.98, 1.04),
            (0.98, 0.99),
            "no difference beyond the noise: 1.01x the original's speed (95% CI 0.98 to 1.04), "
            "accuracy 98.00% -> 99.00% (+1.00 points)",
        ),
        (
            (1.05, 1.001, 1.10),
            (0.9999, 1.0),
            "1.050x faster (95% CI 1.001 to 1.100), accuracy 99.99% -> 100.00% (+0.01 points)",
        ),
        (
            (1.05, 1.0, 1.10),
            (0.5, 0.5),
            "no difference beyond the noise: 1.05x the original's speed (95% CI 1.00 to 1.10), "
            "accuracy unchanged at 50.00%",
        ),
    ],
)
def test_verdict(speedup, accuracies, expected):
    report = build_report(make_plan(), make_verify(*accuracies), make_bench(*speedup), None, "a-run")

    assert report["verdict"] == expected


def test_verdict_names_a_budget_that_was_not_met():
    report = build_report(make_plan(pruned_macs=600), make_verify(), make_bench(), None, "a-run")

    assert report["verdict"].endswith("; OVER BUDGET: 60.00% of the MACs where 50.00% were allowed")


@pytest.mark.parametrize(
    ("fraction", "text"),
    [(0.9944, "99.44%"), (1, "100.00%"), (0, "0.00%"), (0.99998, "99.998%"), (0.00001, "0.001%")],
)
def test_percent_never_rounds_to_all_or_nothing(fraction, text):
    assert wording.percent(fraction) == text


@pytest.mark.parametrize(("number", "text"), [(0.3, "+0.30"), (-0.004, "-0.004"), (0, "0.00")])
def test_points_never_round_to_nothing(number, text):
    assert wording.points(number) == text


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0.0123, "0.0123"), (0.6118, "0.612"), (1.849, "1.85"), (12.34, "12.3"), (1234.5, "1,234")],
)
def test_ms_has_three_digits(milliseconds, text):
    assert wording.ms(milliseconds) == text


@pytest.mark.parametrize(
    ("number", "text"), [(999_999, "999,999"), (40_551_808, "40.6 M"), (4.1e9, "4.1 G"), (250e6, "250 M")]
)
def test_large(number, text):
    assert wording.large(number) == text


@pytest.mark.parametrize(
    ("key", "content", "name", "text"),
    [
        ("clock_mhz_before", 3720.1, "clock before", "3,720 MHz"),
        ("temperatures_c.thermal zone0", 54.0, "temperatures: thermal zone0", "54 °C"),
        ("memory_bytes", 16 * 2**30, "memory", "16.0 GiB"),
        ("warmup_s", 2.0, "warmup", "2 s"),
        ("other_load_cores", 0.01234567, "other load cores", "0.01235"),
        ("governor", None, "governor", "not recorded"),
        ("ignore", [], "ignore", "none"),
        ("flags", ["avx2", "fma"], "flags", "avx2, fma"),
        ("prune_first", True, "prune first", "yes"),
    ],
)
def test_recorded_values_carry_their_units(key, content, name, text):
    assert (wording.label(key), wording.value(key, content)) == (name, text)


def test_shorten_keeps_the_end_that_tells_names_apart():
    assert wording.shorten("features.denseblock1.conv2", 12, keep="end") == "…lock1.conv2"
    assert wording.shorten("Speed limit 30", 8) == "Speed l…"
    assert wording.shorten("short", 8) == "short"
