"""torch-pruning at widths of ours."""

import pytest

from benchmarks.peers import prune_to_widths
from catro_deploy.runs.folder import RunFolder
from catro_deploy.settings import load_settings


@pytest.mark.parametrize("inner", [1, 5, 9, 12])
@pytest.mark.parametrize("importance", ["FPGMImportance", "GroupMagnitudeImportance"])
def test_each_group_keeps_as_many_channels_as_it_is_told(tiny, importance, inner):
    settings, run = load_settings(tiny / "catro.toml", {}), RunFolder(tiny / "peer")
    widths = {"conv1": inner, "conv2": 7, "fc": 3}
    plan = prune_to_widths(settings, run, importance, widths)
    assert {group.name: len(group.kept) for group in plan.groups} == widths
    first, second = 8 * 8 * 3 * 9 * inner, 8 * 8 * 9 * (inner * 7 + 7 * 7)
    assert plan.pruned_macs == first + second + 7 * 3
    assert run.pruned_weights.is_file()
