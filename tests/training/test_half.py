"""Training in float16 with loss scaling, as on GPUs without bfloat16; here on the CPU, which is slow at it."""

import dataclasses

import pytest
import torch

from catro_deploy.training import splits
from catro_deploy.training.compute import choose_hardware
from catro_deploy.training.state import read_state
from tests.training.helpers import STEPS, Recorder, assert_same_bits, small_network, train, without_seconds


@pytest.fixture(autouse=True)
def _in_float16(monkeypatch):
    def chosen(*arguments):
        return dataclasses.replace(choose_hardware(*arguments), dtype=torch.float16)

    monkeypatch.setattr(splits, "choose_hardware", chosen)


def test_it_learns(tmp_path):
    model, history = train(tmp_path, epochs=10)
    assert history.validation_accuracy == 1.0
    assert all(p.dtype == torch.float32 for p in model.parameters())


def test_steps_whose_gradients_overflow_are_left_out_until_the_scale_fits(tmp_path):
    class Loud(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = small_network()

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return 300 * self.network(images)

    scales = []

    def look():
        scales.append(read_state(tmp_path / "state.safetensors").scaler["scale"])

    model, _ = train(tmp_path, model=Loud(), progress=Recorder(at_step=STEPS + 1, act=look), learning_rate=1e-6)
    assert scales[0] < 2**16  # the initial scale
    assert all(torch.isfinite(p).all() for p in model.parameters())


def test_what_was_stopped_resumes_to_the_same_bits(tmp_path):
    unbroken, history = train(tmp_path / "a", epochs=4)

    def stop():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "b", progress=Recorder(at_step=2 * STEPS + 1, act=stop), epochs=4)
    resumed, resumed_history = train(tmp_path / "b", epochs=4)
    assert_same_bits(unbroken, resumed)
    assert without_seconds(history) == without_seconds(resumed_history)
