"""What the report says of engines and of further modes."""

from catro_deploy.report.engines import engine_records, engine_table, mode_records, mode_table, mode_words

TIMES = {"p50_us": 2000.0, "p90_us": 2100.0, "p99_us": 2500.0}
HALF = {"p50_us": 1000.0, "p90_us": 1050.0, "p99_us": 1250.0}
SPEEDUP = {"median": 2.0, "ci95": [1.9, 2.1]}


def a_bench(*modes: dict) -> dict:
    first, *further = [{"mode": mode, "original": TIMES, "pruned": HALF, "speedup": SPEEDUP} for mode in modes]
    return first | {"further": further}


def test_one_mode_needs_no_table():
    assert mode_records(a_bench({"batch": 1})) == []
    assert mode_table({"modes": []}) is None


def test_modes_stand_in_rows():
    bench = a_bench(
        {"batch": 1, "transfers": False, "cuda_graph": True}, {"batch": 8, "transfers": True, "cuda_graph": False}
    )
    table = mode_table({"modes": mode_records(bench)})
    assert [row[:3] for row in table.rows] == [("1", "not counted", "yes"), ("8", "counted", "no")]
    assert table.rows[0][3:5] == ("2.00 ms", "1.00 ms")
    assert table.rows[0][-1].startswith("2.0")
    assert {len(row) for row in table.rows} == {len(table.head)}


def test_batches_on_a_cpu():
    table = mode_table({"modes": mode_records(a_bench({"batch": 1}, {"batch": 4}))})
    assert [row[:3] for row in table.rows] == [("1", "none", "none"), ("4", "none", "none")]


def test_the_spread_over_rebuilds():
    engine = {"seconds": 61.0, "engine_sha256": "ab", "place": {}, "settings": {}, "layers": {"Layers": [1, 2, 3]}}
    records = engine_records(
        {"original": engine | {"rebuilds_us": []}, "pruned": engine | {"rebuilds_us": [900.0, 990.0, 1000.0]}}
    )
    rows = engine_table({"engines": records}).rows
    assert rows[0] == ("original", "61 s", "3", "none", "")
    assert rows[1][-1] == "1.111"


def test_a_second_opinion_is_quoted():
    other = {"version": "10.3.0", "original": TIMES, "pruned": HALF}
    assert "trtexec 10.3.0" in mode_words({"trtexec": other})
    assert "2.00 ms (original) and 1.00 ms (pruned)" in mode_words({"trtexec": other})
    assert "trtexec" not in mode_words({"trtexec": None})
