import pytest
import torch
from safetensors.torch import save_file

from catro_deploy.errors import CheckpointError
from catro_deploy.records import Epoch, Probe
from catro_deploy.training.state import Partial, State, read_state, tensors_hash, write_state


def state():
    shared = torch.arange(6.0).view(2, 3)
    return State(
        fingerprint="abc",
        epochs=(Epoch(1, 0.5, 0.1, None, 1.25), Epoch(2, 0.1 + 0.2, 0.05, 0.75, 1.0)),
        baseline=1 / 3,
        model={"a.weight": shared, "tied.weight": shared, "counter": torch.tensor(3)},
        momentum={"a.weight": torch.full((2, 3), 1e-30)},
        ema={},
        best={"a.weight": shared + 1},
        scaler={"scale": 65536.0},
        probe=Probe(50, (0.001, 0.003, 0.009), (0.1 + 0.2, 0.25, None), 0.4, 0.003),
        partial=Partial((0.1 + 0.2, 1 / 3), 61.5, 128),
    )


def test_what_was_written_is_read(tmp_path):
    path = tmp_path / "state.safetensors"
    write_state(path, state())
    read, written = read_state(path), state()
    for part in ("model", "momentum", "ema"):
        own, theirs = getattr(read, part), getattr(written, part)
        assert own.keys() == theirs.keys()
        assert all(torch.equal(own[name], theirs[name]) for name in own)
    assert (read.fingerprint, read.epochs, read.baseline, read.scaler, read.probe, read.partial) == (
        written.fingerprint,
        written.epochs,
        written.baseline,
        written.scaler,
        written.probe,
        written.partial,
    )
    assert [p.name for p in tmp_path.iterdir()] == ["state.safetensors"]


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
def test_a_cut_file_is_refused_with_what_to_do(tmp_path, share):
    path = tmp_path / "state.safetensors"
    write_state(path, state())
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(CheckpointError) as caught:
        read_state(path)
    assert "Delete it" in caught.value.hint
    assert str(path) in caught.value.problem


@pytest.mark.parametrize("metadata", [None, {"training": "{"}, {"training": "{}"}, {"training": "[]"}])
def test_another_safetensors_file_is_refused(tmp_path, metadata):
    path = tmp_path / "other.safetensors"
    save_file({"weight": torch.zeros(2)}, path, metadata=metadata)
    with pytest.raises(CheckpointError, match=r"other\.safetensors"):
        read_state(path)


def test_the_hash_sees_names_types_shapes_and_values():
    base = {"a": torch.zeros(2, 2)}
    others = [
        {"b": torch.zeros(2, 2)},
        {"a": torch.zeros(4)},
        {"a": torch.zeros(2, 2, dtype=torch.int32)},
        {"a": torch.tensor([[0.0, 0.0], [0.0, 1.0]])},
        {},
    ]
    hashes = {tensors_hash(tensors) for tensors in (base, *others)}
    assert len(hashes) == 6
    assert tensors_hash({"a": torch.zeros(2, 2)}) == tensors_hash(base)
    assert tensors_hash({"a": torch.tensor(1), "b": torch.tensor([], dtype=torch.bfloat16)})
