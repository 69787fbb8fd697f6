"""Latencies are compared in one direction: records hold a speedup, and a ratio follows from it in one place."""

from dataclasses import fields, is_dataclass

from catro_deploy import records
from catro_deploy.records import Speedup, figures, overview


def test_the_share_of_the_latency_follows_from_the_speedup():
    speedup = Speedup(2.0, (1.6, 2.5))
    assert speedup.ratio == 0.5
    assert speedup.ratio_ci95 == (0.4, 0.625)


def test_no_record_stores_a_latency_in_the_other_direction():
    members = [kind for module in (records, figures, overview) for kind in vars(module).values()]
    kinds = [kind for kind in members if isinstance(kind, type) and is_dataclass(kind)]
    assert Speedup in kinds
    assert {one.name for kind in kinds for one in fields(kind) if "ratio" in one.name.split("_")} == {"trace_ratio"}
