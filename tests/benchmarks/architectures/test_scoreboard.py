"""The scoreboard: how its page shows results, and one small model taken through all steps."""

import argparse
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from benchmarks.architectures.check import (
    LATENCY,
    PASSED,
    STEPS,
    Outcomes,
    _check_reconstructed,
    _check_traced,
    check_architecture,
)
from benchmarks.architectures.huggingface import model_name
from benchmarks.architectures.page import page as scoreboard_page
from benchmarks.architectures.scoreboard import (
    bring_up_to_date,
    check_in_own_process,
    faults,
    is_done,
    size_of,
    wants_latency,
)
from catro_deploy.models import build_model

ENVIRONMENT = {"processor": "a processor", "python": "3.11", "torch": "2.11", "date": "2026-01-01"}


def row(**changed: object) -> dict[str, object]:
    whole = {
        "steps": dict.fromkeys(STEPS, PASSED),
        "size": 64,
        "channels": 200,
        "prunable_share": 0.9,
        "macs_share": 0.497,
        "agreement_cut": 0.31,
        "agreement_reconstructed": 0.96,
        "kl_cut": 0.4,
        "kl_reconstructed": 0.02,
        "deviation": 3e-7,
        "onnx_deviation": 2e-6,
        "stays": {},
    }
    return whole | changed


def page(**rows: dict[str, object]) -> str:
    return scoreboard_page(
        {"rows": {name.replace("__", ":"): of for name, of in rows.items()}, "out_of_scope": {}}
        | {"environment": ENVIRONMENT}
    )


def line_of(name: str, text: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {name} |")]
    return line.strip("| ").split(" | ")


def test_a_model_that_passes_all_is_counted_and_shown():
    text = page(torchvision__small=row(), timm__other=row(), timm__stiff=row(macs_share=0.58))
    assert "**1 of 1** convolutional networks of torchvision pass every step, 1 of them at half" in text
    assert "**2 of 2** convolutional networks of timm pass every step, 1 of them at half" in text
    assert "Failed steps" not in text
    cells = ["small", "64", "90%", "50%", "9 of 9", "31% → 96%", "4e-01 → 2e-02", "3e-07", "2e-06"]
    assert line_of("small", text)[:9] == cells


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (
            {"steps": dict.fromkeys(STEPS, PASSED) | {"onnx": "ModelError: a | b"}},
            "| torchvision:small | onnx | ModelError: a \\| b |",
        ),
        ({"steps": {}, "ended": "not done after 5 s"}, "| torchvision:small | process | not done after 5 s |"),
        (
            {"steps": {"build": PASSED}, "ended": "ended with exit code -9: "},
            "| torchvision:small | process | ended with exit code -9: |",
        ),
    ],
)
def test_a_model_that_fails_is_not_counted_and_says_where(broken, said):
    text = page(torchvision__small=row(**broken), torchvision__whole=row())
    assert "**1 of 2** convolutional networks of torchvision" in text
    assert said in text


def test_a_model_whose_steps_are_missing_has_not_passed():
    assert "**0 of 1**" in page(torchvision__small=row(steps={"build": PASSED, "trace": PASSED}))


def test_rows_from_before_a_step_count_by_those_that_they_have_and_are_marked():
    older = row(steps={step: PASSED for step in STEPS if step not in ("macs", "reconstruct")})
    text = page(torchvision__small=older, torchvision__new=row())
    assert "**2 of 2** convolutional networks of torchvision pass every step" in text
    assert "7 of 9" in line_of("small", text)
    assert "1 rows predate some of the steps" in text
    assert "predate" not in page(torchvision__new=row())


def test_a_failed_pruning_by_latency_counts():
    steps = dict.fromkeys(STEPS, PASSED)
    assert "**0 of 1**" in page(torchvision__small=row(steps=steps | {"latency": "MissedError: too slow"}))
    text = page(torchvision__small=row(steps=steps | {"latency": PASSED}, latency_share=0.591, latency_macs_share=0.62))
    assert "0.59x, 62%" in line_of("small", text)


def test_the_most_frequent_reasons_have_their_share_of_the_channels():
    stays = {
        "the logits": 10,
        "they are mixed in layer1.0 (net.py:64)": 30,
        "they are mixed in layer2.0 (net.py:64)": 20,
        "no rule for foo": 20,
        "constant": 2,
    }
    assert line_of("small", page(torchvision__small=row(stays=stays)))[-1] == (
        "they are mixed (25%); no rule for foo (10%); 1 more"
    )


def asked(**changed: object) -> argparse.Namespace:
    return argparse.Namespace(
        **({"size": 64, "again": False, "failed": False, "latency": False, "macs": False, "limit": 60} | changed)
    )


@pytest.mark.parametrize(
    ("found", "wanted", "done"),
    [
        (row(), {}, True),
        (None, {}, False),
        (row(), {"again": True}, False),
        (row(), {"macs": True}, False),
        (row(), {"size": 96}, False),
        (row(steps={"build": "ModelError"}), {}, True),
        (row(steps={"build": "ModelError"}), {"failed": True}, False),
        (row(ended="not done after 5 s"), {"failed": True}, False),
        (row(steps={step: PASSED for step in STEPS if step != "reconstruct"}), {}, False),
    ],
)
def test_a_row_is_run_again_only_where_it_must(found, wanted, done):
    assert is_done(found, "torchvision:resnet18", asked(**wanted)) == done


@pytest.mark.parametrize(
    ("found", "asked_for", "wanted"),
    [
        (row(), True, True),
        (row(), False, False),
        (row(steps=dict.fromkeys((*STEPS, LATENCY), PASSED)), True, False),
        (row(steps={"build": "ModelError"}), True, False),
    ],
)
def test_latency_is_asked_of_what_passed_all_else(found, asked_for, wanted):
    assert wants_latency(found, asked(latency=asked_for)) == wanted


def test_deep_stems_get_images_that_they_can_read():
    assert size_of("torchvision:resnet18", 64) == 64
    assert size_of("torchvision:inception_v3", 64) == 96
    assert size_of("torchvision:inception_v3", 128) == 128


def test_a_model_that_takes_too_long_is_ended_and_says_so():
    assert faults(check_in_own_process("torchvision:resnet18", asked(limit=0.01))) == {
        "process": "not done after 0.01 s"
    }


@pytest.mark.parametrize(("size", "kept"), [(64, {"latency_share": 0.58}), (32, {})])
def test_the_latency_of_a_model_is_kept_when_the_rest_is_checked_again(size, kept):
    before = row(steps={LATENCY: PASSED}, size=64, latency_share=0.58)
    found = bring_up_to_date("torchvision:resnet18", before, asked(limit=0.01, again=True, size=size))
    steps = {LATENCY: PASSED} if kept else {}
    assert found == {"size": size, "steps": steps, "ended": "not done after 0.01 s"} | kept


@pytest.mark.slow
def test_a_model_that_cannot_be_built_says_so():
    found = check_in_own_process("torchvision:no_such_net", asked())
    assert list(faults(found)) == ["build"]
    assert "no_such_net" in found["steps"]["build"]


@pytest.mark.slow
def test_a_small_network_passes_every_step_and_reconstruction_brings_it_closer_to_the_original(tmp_path):
    found = check_architecture("torchvision:squeezenet1_1", 32, tmp_path)
    assert found["steps"] == dict.fromkeys(STEPS, PASSED)
    assert 0.4 < found["macs_share"] <= 0.5
    assert found["prunable_share"] > 0.9
    assert found["kl_reconstructed"] < 0.5 * found["kl_cut"]
    assert found["agreement_reconstructed"] > found["agreement_cut"]


def test_channels_of_layers_whose_weights_are_computed_count_as_prunable():
    layers = nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 8, 3)), nn.ReLU(), nn.Conv2d(8, 8, 3)
    outcomes = Outcomes()
    _check_traced(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)).eval(), 8, outcomes)
    assert outcomes.figures["prunable_share"] == 1.0


def test_a_reconstruction_that_leads_away_from_the_original_fails():
    def network(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return nn.Sequential(nn.Flatten(), nn.Linear(12, 4))

    original, near, far = network(0), network(0), network(1)
    with torch.no_grad():
        near[1].bias[0] += 0.1
    batches = [(torch.randn(5, 3, 2, 2, generator=torch.Generator().manual_seed(0)), torch.zeros(5))]
    plan = SimpleNamespace(reconstructed=True)
    figures: dict[str, float] = {}
    _check_reconstructed(SimpleNamespace(original=original, model=near, plan=plan), far, batches, figures)
    assert 0 < figures["kl_reconstructed"] < figures["kl_cut"]
    assert figures["agreement_reconstructed"] >= figures["agreement_cut"]
    with pytest.raises(ArithmeticError, match=r"\bKL\b"):
        _check_reconstructed(SimpleNamespace(original=original, model=far, plan=plan), near, batches, figures)


def test_networks_of_transformers_are_built_from_the_folders_that_are_written(tmp_path):
    pytest.importorskip("transformers")
    assert model_name("torchvision:resnet18", tmp_path) == "torchvision:resnet18"
    assert size_of("transformers:resnet", None) == 224
    model = build_model(model_name("transformers:efficientnet", tmp_path), 1000)
    assert round(sum(parameter.numel() for parameter in model.parameters()) / 1e6, 1) == 5.3  # as in the paper, for B0
