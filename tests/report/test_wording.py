import pytest

from catro_deploy.report import wording


@pytest.mark.parametrize(
    ("fraction", "text"),
    [(0.9944, "99.44%"), (1, "100.00%"), (0, "0.00%"), (0.99998, "99.998%"), (0.00001, "0.001%")],
)
def test_percent_never_rounds_to_all_or_nothing(fraction, text):
    assert wording.percent(fraction) == text


def test_what_was_not_recorded_has_no_percent():
    assert wording.percent(None) == "not recorded"


@pytest.mark.parametrize(("number", "text"), [(0.3, "+0.30"), (-0.004, "-0.004"), (0, "0.00")])
def test_points_never_round_to_nothing(number, text):
    assert wording.points(number) == text


@pytest.mark.parametrize(("after", "text"), [(498, "-50.2%"), (1100, "+10.0%"), (1000, "0.0%"), (999.9, "0.0%")])
def test_a_change_that_rounds_to_zero_has_no_sign(after, text):
    assert wording.change(1000, after) == text


def test_only_names_from_right_to_left_are_isolated():
    assert wording.isolated("stop (30)") == "stop (30)"
    assert wording.isolated("עצור") == "\u2068עצור\u2069"
    assert wording.isolated("30 كم") == "\u206830 كم\u2069"


@pytest.mark.parametrize(("loss", "text"), [(1.0, "1 point"), (0.5, "0.5 points"), (2.0, "2 points")])
def test_one_point_is_singular(loss, text):
    assert wording.loss_words(loss) == text


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0.0123, "0.0123"), (0.6118, "0.612"), (1.849, "1.85"), (12.34, "12.3"), (1234.5, "1,234")],
)
def test_ms_has_three_digits(milliseconds, text):
    assert wording.ms(milliseconds) == text


@pytest.mark.parametrize(
    ("us", "text"),
    [(0.05, "0.1 us"), (9.34, "9.3 us"), (397.6, "398 us"), (999.4, "999 us"), (999.6, "1.00 ms"), (12_340, "12.3 ms")],
)
def test_duration_changes_to_milliseconds_where_they_begin(us, text):
    assert wording.duration(us) == text


@pytest.mark.parametrize(
    ("number", "asked", "unit", "text"),
    [
        (0.4971, 0.5, "x", "0.497x"),
        (0.5, 0.5, "x", "0.500x"),
        (0.50004, 0.5, "x", "0.50004x"),
        (400.02, 400, "us", "400.02 us"),
        (1234.5, 400, "us", "1,234 us"),
    ],
)
def test_what_misses_a_budget_does_not_read_as_the_budget(number, asked, unit, text):
    assert wording.distinguished(number, asked, unit) == text


def test_a_page_has_signs_of_its_own():
    assert wording.typeset("95% CI -0.53 to -0.08, x86-cpu, 2026-11-23") == "95% CI −0.53 to −0.08, x86-cpu, 2026-11-23"
    assert wording.typeset("99% -> 98% (-1 points), 400 us of 400us") == "99% → 98% (−1 points), 400 µs of 400us"


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


def test_shorten_keeps_the_distinguishing_end():
    assert wording.shorten("features.denseblock1.conv2", 12, keep="end") == "…lock1.conv2"
    assert wording.shorten("Speed limit 30", 8) == "Speed l…"
    assert wording.shorten("short", 8) == "short"


def test_one_image_of_a_hundred_is_one_point():
    assert wording.one_image_words(100) == "one image is 1 point"
    assert wording.one_image_words(8) == "one image is 12.5 points"
    assert wording.one_image_words(320) == "one image is 0.31 points"
