"""What the report says about engines and further modes."""

from dataclasses import replace

from catro_deploy.records import Mode, ModeTimes, Speedup, Times, Trtexec
from catro_deploy.report.engines import engine_table, engine_words, mode_table, mode_words
from tests.report.made import make_bench, make_build, make_report

TIMES, HALF = Times(2000.0, 2100.0, 2500.0, 2000.0, 0.0, 9), Times(1000.0, 1050.0, 1250.0, 1000.0, 0.0, 9)


def report(*modes: Mode, **changes):
    """A report on the first mode, where the original takes 2 ms and the pruned network 1 ms, and on further ones."""
    further = tuple(ModeTimes(TIMES, HALF, Speedup(2.0, (1.9, 2.1)), mode, ()) for mode in modes[1:])
    return make_report(bench=make_bench(2.0, 1.9, 2.1, 2000, mode=modes[0], further=further, **changes))


def test_one_mode_needs_no_table():
    assert report(Mode(1)).modes == ()
    assert mode_table(report(Mode(1))) is None


def test_modes_stand_in_rows():
    table = mode_table(report(Mode(1, transfers=False, cuda_graph=True), Mode(8, transfers=True, cuda_graph=False)))
    assert [row[:3] for row in table.rows] == [("1", "not counted", "yes"), ("8", "counted", "no")]
    assert table.rows[0][3:5] == ("2.00 ms", "1.00 ms")
    assert table.rows[0][-1].startswith("2.0")
    assert {len(row) for row in table.rows} == {len(table.head)}


def test_batches_on_a_cpu():
    found = report(Mode(1), Mode(4))
    table = mode_table(found)
    assert [row[0] for row in table.rows] == ["1", "4"]
    assert table.head == ("Images", "Original, p50", "Pruned, p50", "Speedup (95% CI)")
    assert {len(row) for row in table.rows} == {len(table.head)}
    assert "GPU" not in mode_words(found)


def test_the_spread_over_rebuilds():
    found = make_report(build=make_build())
    rows = engine_table(found).rows
    assert rows[0] == ("original", "61 s", "3", "none", "")
    assert rows[1][-1] == "1.111"
    assert "TensorRT 10.3.0 for its Orin (compute capability 8.7, 8 SMs)" in engine_words(found)


def test_the_mode_that_counts_is_named():
    graph, plain = Mode(1, transfers=False, cuda_graph=True), Mode(1, transfers=False, cuda_graph=False)
    assert "The first row is the one that counts: launched as one CUDA graph." in mode_words(report(graph, plain))
    assert "The first row is the one that counts: launched layer by layer." in mode_words(report(plain, graph))


def test_an_engine_on_a_jetson_and_its_dla():
    layers = {"Layers": [{"Name": "a", "LayerType": "DLA"}, {"Name": "b", "LayerType": "Reformat"}]}
    built = make_build()
    place = replace(built.original.place, module="Jetson Orin NX", power_mode="15W")
    engine = replace(built.original, place=place, layers=layers, settings={"dla": 0})
    found = make_report(build=replace(built, original=engine))
    assert engine_table(found).rows[0][2] == "2 (1 on the DLA)"
    assert "for its Orin of a Jetson Orin NX (compute capability 8.7, 8 SMs, power mode 15W)" in engine_words(found)


def test_a_second_opinion_is_quoted():
    other = Trtexec("10.3.0", Mode(1, transfers=False, cuda_graph=True), TIMES, HALF)
    modes = Mode(1, transfers=False, cuda_graph=True), Mode(8, transfers=False, cuda_graph=True)
    words = mode_words(report(*modes, trtexec=other))
    assert "trtexec 10.3.0" in words
    assert "2.00 ms (original) and 1.00 ms (pruned)" in words
    assert "trtexec" not in mode_words(report(*modes))
