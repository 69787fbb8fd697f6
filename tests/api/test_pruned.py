import copy
import dataclasses
import json

import numpy as np
import pytest
import torch
from torch import nn

import catro_deploy
from catro_deploy import PrunedModel
from catro_deploy.data.pixels import normalise
from catro_deploy.errors import CatroWarning, DataError, ModelError, NumericsError, SettingsError
from catro_deploy.files import file_hash
from catro_deploy.runtimes import open_runner
from tests.api.test_prune import MEAN, QUICK, STD, alone, loader
from tests.graph.onnx.test_export import assert_same_as_torch
from tests.stages.test_prune import SHAPE, lively
from tests.tiny import RECONSTRUCTION
from tests.training.conftest import one_thread  # noqa: F401 - this network is small too

TRAINING = {"recipe": "none", "epochs": 4, "learning_rate": 0.05, "compute": "cpu"}


def same(one, other):
    mine, theirs = one.state_dict(), other.state_dict()
    return mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)


def test_fine_tuning_learns_the_wanted_classes_of_a_loader_of_all(pruned):
    history = pruned.finetune(loader(), validation=loader("validation"), **TRAINING)
    assert history.images == 48
    assert len(history.epochs) == 4
    assert history.epochs[-1].loss < history.epochs[0].loss
    assert history.validation_accuracy == 1.0
    assert not pruned.model.training


def test_without_epochs_nothing_is_trained(pruned):
    before = copy.deepcopy(pruned.model)
    history = pruned.finetune(loader(), validation=loader("validation"), **TRAINING | {"epochs": 0})
    assert history.epochs == ()
    assert history.validation_accuracy == history.baseline_validation_accuracy
    assert same(pruned.model, before)


def test_the_network_from_before_is_kept_where_training_made_it_worse(pruned):
    """This learning rate destroys everything that the network had learnt."""
    trained = pruned.finetune(loader(), validation=loader("validation"), **TRAINING)
    before = copy.deepcopy(pruned.model)
    ruin = TRAINING | {"epochs": 1, "steps": 1, "learning_rate": 50.0}
    with pytest.warns(CatroWarning, match=r"learning_rate") as warned:
        history = pruned.finetune(loader(), validation=loader("validation"), **ruin)
    assert warned[0].filename == __file__
    assert same(pruned.model, before)
    assert history.validation_accuracy == trained.validation_accuracy == 1.0
    assert history.epochs[-1].validation_accuracy < 1
    unjudged = pruned.finetune(loader(), **ruin)
    assert unjudged.validation_accuracy is None
    assert not same(pruned.model, before)


class Interrupted:
    """A loader whose second pass is interrupted by the user."""

    def __init__(self):
        self.passes = 0

    def __iter__(self):
        self.passes += 1
        for batch in loader():
            yield batch
            if self.passes == 2:
                raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("given", "options", "error"),
    [
        (loader(), {"learning_rate": 1e30}, NumericsError),
        (Interrupted(), {}, KeyboardInterrupt),
        (loader(), {"validation": iter(loader("validation"))}, DataError),
    ],
)
def test_a_training_that_fails_leaves_the_network_as_it_was(pruned, given, options, error):
    before = copy.deepcopy(pruned.model)
    with pytest.raises(error):
        pruned.finetune(given, **TRAINING | options)
    assert same(pruned.model, before)
    assert not any(module.training for module in pruned.model.modules())
    assert all(parameter.grad is None for parameter in pruned.model.parameters())
    assert pruned.finetune(loader(), **TRAINING).epochs


def test_a_reconstructed_network_is_fine_tuned_gently(pruned):
    reconstructed = dataclasses.replace(pruned, plan=dataclasses.replace(pruned.plan, reconstruction=RECONSTRUCTION))
    history = reconstructed.finetune(loader(), epochs=4, compute="cpu")
    assert max(epoch.learning_rate for epoch in history.epochs) < 0.004


@pytest.mark.parametrize("mixing", [{"mixup": 1.0}, {"cutmix": 1.0}], ids=str)
def test_mixed_images_are_learned(pruned, mixing):
    plain = copy.deepcopy(pruned)
    plain.finetune(loader(), **TRAINING)
    history = pruned.finetune(loader(), **TRAINING, **mixing)
    assert history.epochs[-1].loss < history.epochs[0].loss
    assert not same(pruned.model, plain.model)


@pytest.mark.parametrize("distill", [0.0, 0.5])
def test_fine_tuning_leaves_the_original_alone(pruned, distill):
    original, before = copy.deepcopy(pruned.original), copy.deepcopy(pruned.model)
    history = pruned.finetune(loader(), distill=distill, **TRAINING)
    assert history.validation_accuracy is None
    assert same(pruned.original, original)
    assert not same(pruned.model, before)


def test_frozen_layers_stay_and_are_named(pruned):
    *frozen, head = (module for module in pruned.model.modules() if isinstance(module, nn.Conv2d | nn.Linear))
    for module in frozen:
        module.requires_grad_(False)
    before = copy.deepcopy(frozen), copy.deepcopy(head)
    with pytest.warns(CatroWarning, match=r"parameters are not trained, since .*: conv1\.weight"):
        pruned.finetune(loader(), **TRAINING)
    assert all(torch.equal(new.weight, old.weight) for new, old in zip(frozen, before[0], strict=True))
    assert not torch.equal(head.weight, before[1].weight)
    pruned.model.requires_grad_(False)
    with pytest.raises(ModelError, match=r"requires_grad_\(True\)"):
        pruned.finetune(loader(), **TRAINING)


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"epoch": 3}, SettingsError, r"finetune\.epoch\b.*\bepochs\b"),
        ({"progress": True}, SettingsError, "progress = True has no methods task and note"),
        ({"randaugment": 9}, SettingsError, r"\brandaugment\b.*\bloader\b"),
        ({"batch_size": 8, "crop_scale": 0.5}, SettingsError, r"\bbatch_size or crop_scale\b.*\bloader\b"),
        ({"validation": iter(loader("validation"))}, DataError, r"validation loader is a .*Iter.*only once"),
        ({"validation": [(torch.zeros(2, *SHAPE), torch.tensor([1, 1]))]}, DataError, "validation.* wanted classes"),
    ],
)
def test_what_does_not_fit_fine_tuning_is_named(pruned, options, error, said):
    with pytest.raises(error, match=said):
        pruned.finetune(loader(), **TRAINING | options)


@pytest.mark.parametrize("recipe", ["auto", "none", "paper"])
def test_images_alone_are_enough_to_learn_from_the_original(pruned, recipe):
    before, images = copy.deepcopy(pruned.model), torch.cat(alone())
    history = pruned.finetune([(part,) for part in images.split(10)], recipe=recipe, epochs=4, compute="cpu")
    assert (history.images, len(history.epochs), history.validation_accuracy) == (72, 4, None)
    assert not same(pruned.model, before)
    pruned.model.load_state_dict(before.state_dict())
    labelled = [(part, torch.zeros(len(part), dtype=torch.int64)) for part in images.split(10)]
    again = pruned.finetune(labelled, recipe=recipe, distill=1.0, epochs=4, compute="cpu")
    assert [epoch.loss for epoch in again.epochs] == [epoch.loss for epoch in history.epochs]


def test_images_alone_may_be_validated_on_labelled_images(pruned):
    history = pruned.finetune(alone(), validation=loader("validation"), **TRAINING)
    assert 0 <= history.validation_accuracy <= 1


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"distill": 0.5}, SettingsError, r"distill = 0\.5\b"),
        ({"validation": alone("validation")}, DataError, r"PrunedModel\.agreement"),
    ],
)
def test_what_images_alone_cannot_do_is_named(pruned, options, error, said):
    with pytest.raises(error, match=said) as caught:
        pruned.finetune(alone(), **TRAINING | options)
    assert caught.value.hint


def test_the_onnx_files_compute_the_same_and_describe_themselves(pruned, tmp_path):
    pruned.save(tmp_path / "saved")
    for which, network in (("pruned", pruned.model), ("original", pruned.original)):
        file = pruned.export(tmp_path / f"{which}.onnx", network=which)
        assert_same_as_torch(network, file, 1, SHAPE)
        with open_runner("onnxruntime", file, 1) as runner:
            metadata = dict(runner.metadata)
        assert json.loads(metadata["classes"]) == ["across", "even"]
        assert json.loads(metadata["mean"]) == list(MEAN)
        assert (metadata["network"], metadata["plan_sha256"]) == (which, file_hash(tmp_path / "saved" / "plan.json"))
        assert "model" not in metadata


def test_a_dynamic_batch_takes_any_number_of_images(pruned, tmp_path):
    assert_same_as_torch(pruned.model, pruned.export(tmp_path / "any.onnx", dynamic_batch=True), 5, SHAPE)


def test_a_file_of_raw_pixels_gives_the_probabilities_of_normalised_ones(pruned, tmp_path):
    file = pruned.export(tmp_path / "raw.onnx", input="uint8", layout="nhwc", output="softmax")
    pixels = torch.randint(0, 256, (1, *SHAPE), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode(), open_runner("onnxruntime", file, 1) as runner:
        expected = pruned.model(normalise(pixels, MEAN, STD)).softmax(1).numpy()
        found = runner.infer(pixels.permute(0, 2, 3, 1).contiguous().numpy())
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_raw_pixels_need_mean_and_std(pruned, tmp_path):
    unknown = dataclasses.replace(pruned, plan=dataclasses.replace(pruned.plan, mean=(), std=()))
    with pytest.raises(SettingsError, match=r'\bmean\b.*\bstd\b.*input="float"'):
        unknown.export(tmp_path / "raw.onnx", input="uint8")


@pytest.mark.parametrize("network", ["Pruned", "finetuned", None])
def test_a_network_that_there_is_not_is_not_exported(pruned, tmp_path, network):
    with pytest.raises(SettingsError, match=rf'{network!r}(?s:.)*"pruned"(?s:.)*"original"'):
        pruned.export(tmp_path / "a.onnx", network=network)
    assert not list(tmp_path.iterdir())


def test_what_is_unknown_of_the_images_is_not_in_the_file(tmp_path):
    pruned = catro_deploy.prune(lively(), loader(), **QUICK)
    with open_runner("onnxruntime", pruned.export(tmp_path / "a.onnx"), 1) as runner:
        assert not {"mean", "std", "pixels", "model"} & set(runner.metadata)


def test_an_opset_that_does_not_fit_is_refused(pruned, tmp_path):
    with pytest.raises(SettingsError, match=r"export\.opset = 7\b"):
        pruned.export(tmp_path / "a.onnx", opset=7)
    assert not list(tmp_path.iterdir())


def test_agreement_with_the_original_needs_no_labels(pruned):
    alone = [images for images, _ in loader("test")]
    found = pruned.agreement(alone)
    assert found == pruned.agreement(loader("test"))
    with torch.inference_mode():
        predictions = [network(torch.cat(alone)).argmax(1) for network in (pruned.original, pruned.model)]
    assert found.share == pytest.approx(float((predictions[0] == predictions[1]).float().mean()))
    assert found.mean_kl_nats > 0
    assert found == pruned.agreement([alone[0][:0], *alone])
    with pytest.raises(DataError, match="empty"):
        pruned.agreement([alone[0][:0]])
    same_network = PrunedModel(pruned.original, pruned.original, pruned.plan).agreement(alone)
    assert (same_network.share, same_network.mean_kl_nats) == (1, 0)


def test_printed_it_is_a_few_lines_of_what_it_saved(pruned):
    lines = repr(pruned).splitlines()
    assert 3 <= len(lines) <= 6
    assert max(map(len, lines)) <= 100
    plan = pruned.plan
    assert f"{len(plan.classes)} of {plan.model_classes} classes" in lines[0]
    assert f"{plan.pruned_params:,} ({plan.pruned_params / plan.original_params:.1%})" in str(pruned)
    assert "Conv2d" not in str(pruned)
