"""The file size and the feature-map memory of widths: predictions against written files."""

import pytest

from catro_deploy.catro.gains import CostTables
from catro_deploy.graph.coupling.trace import trace
from catro_deploy.graph.fx.depth import find_branches
from catro_deploy.latency.candidate import candidate_files
from catro_deploy.latency.memory import PeakMemory, Step, peak_memory
from catro_deploy.latency.size import SizeCost
from catro_deploy.progress import Silent
from catro_deploy.pruning.cutting import of_widths
from catro_deploy.transports.execution import Use
from tests.stages.conftest import lively
from tests.tiny import SIZE

SHAPE = (3, SIZE, SIZE)


def use_in(precision: str) -> Use:
    return Use("x86-cpu", "onnxruntime", precision, threads=1, batch=1)


def test_the_largest_step_counts():
    memory = PeakMemory((Step(10.0, {"a": 4.0}), Step(0.0, {"a": 2.0, "b": 8.0})))
    assert memory.predict({"a": 5, "b": 1}) == 30.0
    assert memory.predict({"a": 5, "b": 9}) == 82.0
    first, second = memory.rows({"a": (1, 5), "b": (0, 2)})
    assert isinstance(first, CostTables)
    assert (first.constant, list(first.single["a"]), list(first.single["b"])) == (10.0, [4.0, 20.0], [0.0, 0.0])
    assert (second.constant, list(second.single["a"]), list(second.single["b"])) == (0.0, [2.0, 10.0], [0.0, 16.0])


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_memory_and_size_are_those_of_the_files_at_all_widths(precision):
    """Two residual blocks of 32 channels on 16x16 images: at full width, narrow, and with one block dropped."""
    model = lively()
    network = trace(model, SHAPE)
    groups = [group for group in network.groups if not group.fixed]
    use, full = use_in(precision), {group.name: group.width for group in groups}
    memory = peak_memory(model, network, groups, use, 18, Silent().note)
    branches = find_branches(model, network)
    narrow = {name: max(3, width // 3) for name, width in full.items()}
    gone = full | dict.fromkeys(branches[0].groups, 0)
    with candidate_files(use, 18, SHAPE) as files:
        whole = files.footprint(model)
        size = SizeCost(network.layers, groups, precision, whole.file_bytes)
        for widths in (full, narrow):
            found = files.footprint(of_widths(model, network, branches, widths))
            assert memory.predict(widths) == found.memory_bytes
            assert size.predict(widths) == pytest.approx(found.file_bytes, rel=0.05 if precision == "fp32" else 0.1)
        found = files.footprint(of_widths(model, network, branches, gone))
        assert found.memory_bytes == memory.predict(gone) == memory.predict(full)  # the other block needs the same
        assert found.file_bytes < size.predict(gone) < size.predict(full)


def test_memory_by_hand():
    """In a block, the stream and both maps of the branch are held together, at 16x16 positions."""
    model = lively()
    network = trace(model, SHAPE)
    groups = [group for group in network.groups if not group.fixed]
    memory = peak_memory(model, network, groups, use_in("fp32"), 18, Silent().note)
    stream, inside = groups[0].name, [group.name for group in groups[1:]]
    widths = {stream: 20, **dict.fromkeys(inside, 9)}
    assert memory.predict(widths) == 4 * SIZE * SIZE * (20 + 9 + 20)
