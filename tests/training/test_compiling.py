"""torch.compile is used where it works and is faster, and only there."""

import itertools

import pytest
import torch
from torch import nn
from torch._dynamo.exc import TorchDynamoException

from catro_deploy.training import compiling
from catro_deploy.training.compiling import compiler_options
from catro_deploy.training.compute import Hardware, choose_hardware
from catro_deploy.training.world import World
from tests.training.helpers import Recorder, assert_same_bits, small_network, train


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_where_compiling_fails_training_continues_without(tmp_path):
    import torch._inductor.config as inductor

    plain, _ = train(tmp_path / "a", epochs=1)
    recorder = Recorder()
    with inductor.patch({"cpp.cxx": ("/no/such/compiler",), "force_disable_caches": True}):
        fallen_back, _ = train(tmp_path / "b", epochs=1, compile=True, progress=recorder)
    assert any("torch.compile does not work here" in note for note in recorder.notes)
    assert_same_bits(plain, fallen_back)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_a_compiled_training_learns(tmp_path):
    recorder = Recorder()
    _, history = train(tmp_path, epochs=10, compile=True, progress=recorder)
    assert not any("does not work" in note for note in recorder.notes)
    assert history.validation_accuracy == 1.0


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(("seconds", "taken"), [([1.0, 2.0], True), ([2.0, 1.0], False)])
def test_what_compiling_makes_slower_stays_as_it_is(monkeypatch, seconds, taken):
    """In every turn the compiled network takes the first of ``seconds`` and the other one the second."""
    clock = itertools.cycle(seconds)
    monkeypatch.setattr(compiling, "_seconds", lambda *arguments: next(clock))
    model, recorder = small_network(), Recorder()
    hardware = choose_hardware(model, "cpu", amp=False)
    chosen = compiling.compiled(model, torch.rand(4, 3, 8, 8), hardware, recorder)
    assert (chosen is not model) is taken
    assert recorder.notes == (
        [] if taken else ["torch.compile makes a step 2.00 times as long here; training continues without it"]
    )


@pytest.mark.filterwarnings("default")
def test_on_a_gpu_networks_are_compiled_to_cuda_graphs():
    model = nn.Conv2d(3, 4, 3)
    options = compiler_options(model, Hardware(torch.device("cuda"), None, torch.channels_last))
    assert options.items() >= torch._inductor.list_mode_options("reduce-overhead").items()
    torch.compile(model, options=options)  # unknown option names are rejected


@pytest.mark.filterwarnings("default")
def test_processes_that_train_together_compile_without_cuda_graphs():
    hardware = Hardware(torch.device("cuda"), None, torch.channels_last)
    assert compiler_options(nn.Conv2d(3, 4, 3), hardware, World(0, 2)) == {"triton.cudagraphs": False}
    assert compiler_options(nn.Conv2d(3, 4, 3), hardware, World(0, 1)) == {"triton.cudagraphs": True}


def eager(model, options):
    """Replaces torch.compile."""
    return model


class Watched(nn.Module):
    """A network that records at each step whether gradients of an earlier step still exist."""

    def __init__(self):
        super().__init__()
        self.layers, self.stale = nn.Sequential(nn.Flatten(), nn.Linear(12, 2)), []

    def forward(self, images):
        self.stale.append(any(parameter.grad is not None for parameter in self.parameters()))
        return self.layers(images)


def test_no_trial_step_adds_to_the_gradients_of_another(monkeypatch):
    """CUDA graphs overwrite their gradients in the next run; see pytorch#169545."""
    monkeypatch.setattr(torch, "compile", eager)
    model = Watched()
    compiling.compiled(model, torch.rand(4, 3, 2, 2), choose_hardware(model, "cpu", amp=False), Recorder())
    assert len(model.stale) == 1 + 2 * compiling.TURNS
    assert not any(model.stale)
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize(("error", "hidden"), [(TorchDynamoException, True), (RuntimeError, False)])
def test_only_what_the_compiler_raises_is_replaced_by_eager_training(monkeypatch, error, hidden):
    def fail(model, options):
        def forward(images):
            raise error("the reason\nand more")

        return forward

    monkeypatch.setattr(torch, "compile", fail)
    model, recorder = small_network(), Recorder()
    arguments = (model, torch.rand(4, 3, 8, 8), choose_hardware(model, "cpu", amp=False), recorder)
    if hidden:
        assert compiling.compiled(*arguments) is model
        assert recorder.notes == ["torch.compile does not work here; training continues without it: the reason"]
    else:
        with pytest.raises(error, match="the reason"):
            compiling.compiled(*arguments)
