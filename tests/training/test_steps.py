import pytest
from torch import nn

from catro_deploy.training.compute import choose_hardware
from catro_deploy.training.objective import Objective
from catro_deploy.training.stepper import Stepper
from catro_deploy.training.steps import step_lines
from tests.training.helpers import options, small_network


def test_steps_are_reported_and_few_ones_are_warned_of():
    assert step_lines(880, 22, 16) == ["880 training steps: 40 epochs of 22, batches of 16 images"]
    assert step_lines(100, 350, 128)[0] == "100 training steps: 1 epoch of 350, batches of 128 images"
    first, warning = step_lines(99, 3, 128)
    assert first.startswith("99 training steps: 33 epochs of 3")
    assert warning.endswith("change a network little: set more epochs or a smaller batch_size (now 128)")


@pytest.mark.parametrize(
    ("recipe", "batch", "kept"), [("gentle", 16, True), ("gentle", 128, False), ("none", 16, False)]
)
def test_batch_norms_keep_accurate_statistics_in_small_batches(recipe, batch, kept):
    model = small_network()
    hardware = choose_hardware(model, "cpu", amp=False)
    stepper = Stepper(model, Objective(hardware), options(recipe=recipe, batch_size=batch), hardware)
    stepper.train()
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    assert model.training
    assert [norm.training for norm in norms] == [not kept] * 2
