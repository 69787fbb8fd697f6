"""What decides whether a profile fits."""

from dataclasses import replace

import pytest

from catro_deploy.agent.results import FactsResult, facts_record
from catro_deploy.errors import UsageError
from catro_deploy.graph.onnx.interface import Interface
from catro_deploy.latency.profile.fingerprint import DECIDING, device_facts, differences, digest, fingerprint
from catro_deploy.transports.execution import Use
from tests.agent.measured import DEVICE
from tests.latency.profile.quick import USE

RAW = Interface("uint8", mean=(0.5,), std=(0.5,))
FACTS = FactsResult(DEVICE, "onnxruntime 1.31.0")


def changed(**facts: object) -> FactsResult:
    """``FACTS`` with other ``facts`` of the device."""
    return replace(FACTS, device=replace(DEVICE, **facts))


def test_the_fingerprint_holds_what_decides_times_and_nothing_else():
    assert fingerprint(FACTS, USE) == {
        "cpu_model": "Acme 9000",
        "instruction_sets": ["avx2"],
        "governor": None,
        "highest_clock_mhz": 3600.0,
        "runtime": "onnxruntime 1.31.0",
        "precision": "fp32",
        "threads": 1,
        "batch": 1,
    }


@pytest.mark.parametrize("fact", DECIDING)
def test_each_deciding_fact_makes_another_fingerprint(fact):
    other = replace(FACTS, runtime="another") if fact == "runtime" else changed(**{fact: "another"})
    assert fingerprint(other, USE) != fingerprint(FACTS, USE)


@pytest.mark.parametrize(
    "change",
    [{"threads": 2}, {"batch": 4}, {"precision": "fp16"}, {"interface": RAW}, {"kept_in_float": ("stem",)}],
)
def test_each_other_use_makes_another_fingerprint(change):
    assert fingerprint(FACTS, replace(USE, **change)) != fingerprint(FACTS, USE)


def test_a_new_kernel_or_more_memory_does_not():
    assert fingerprint(changed(kernel="6.2", memory_bytes=16), USE) == fingerprint(FACTS, USE)


def test_differences_are_named():
    here = fingerprint(FACTS, USE)
    assert differences(here, dict(here)) == []
    assert differences(here, here | {"threads": 4, "governor": "powersave"}) == [
        "governor: powersave there, None here",
        "threads: 4 there, 1 here",
    ]
    assert differences({"a": 1}, {"a": 1, "b": 2}) == ["b: 2 there, None here"]


def test_the_agent_says_what_this_device_is():
    facts = device_facts(USE)
    assert set(DECIDING) <= set(facts_record(facts))
    assert facts.runtime.startswith("onnxruntime ")
    assert fingerprint(facts, USE) == fingerprint(device_facts(USE), USE)


def test_a_runtime_that_is_not_known_is_an_error():
    with pytest.raises(UsageError, match="'tflite'"):
        device_facts(Use("x86-cpu", "tflite", "fp32", 1, 1))


def test_digests_are_equal_for_equal_parts_alone():
    assert digest(1, {"a": 1, "b": 2}) == digest(1, {"b": 2, "a": 1})
    assert digest(1, ("a",)) == digest(1, ["a"])
    assert len({digest(), digest(1), digest([1]), digest("1"), digest(1, 1)}) == 5
