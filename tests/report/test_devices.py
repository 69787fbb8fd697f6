"""The table of one network on several targets."""

from dataclasses import replace

from catro_deploy.records import Speedup
from catro_deploy.report.cards import cards
from catro_deploy.report.devices import device_figures, devices_table
from catro_deploy.report.tables import title
from tests.report.made import make_bench, make_plan, make_report, make_verify


def measured_on(reached, **also):
    bench = make_bench(also=also)
    return replace(bench, environment={**bench.environment, "reached": reached})


def test_each_column_says_where_it_was_measured():
    """Columns of the same target differ in nothing else."""
    bench = measured_on("this machine", **{"x86-cpu@far": measured_on("far, by ssh to far.local")})
    table = devices_table(replace(make_report(), devices=device_figures(make_plan(), bench, make_verify())))
    assert table is not None
    assert table.head == ("", "x86-cpu", "x86-cpu@far")
    assert ("Measured on", "this machine", "far, by ssh to far.local") in table.rows
    assert bench.speedup.ci95 == (1.8, 1.88)
    assert ("95% CI", *["0.532x to 0.556x"] * 2) in table.rows


def test_title_and_verdict_name_each_of_several_targets():
    far = replace(measured_on("far"), speedup=Speedup(0.9, (0.85, 0.95)))
    bench = measured_on("this machine", **{"x86-cpu@far": far})
    report = make_report(bench=bench, verify=make_verify())
    assert title(report).endswith(", pruned for x86-cpu and x86-cpu@far")
    speeds = "on x86-cpu 1.84x faster (95% CI 1.80 to 1.88), on x86-cpu@far SLOWER: 0.90x the original's speed (95% CI "
    assert report.verdict.startswith(speeds)
    assert cards(report)[0].name == "Speed on x86-cpu"
    three = replace(report, devices=(*report.devices, replace(report.devices[0], name="board")))
    assert title(three).endswith(", pruned for x86-cpu, x86-cpu@far and board")


def test_one_target_has_no_table():
    assert devices_table(make_report()) is None
