import json
import os
from dataclasses import replace

import pytest
import torch
from safetensors import safe_open
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


def changed(path, **changes):
    """Write the state in ``path`` again with changed metadata."""
    with safe_open(path, framework="pt") as file:
        record = json.loads(file.metadata()["training"])
    save_file({"weight": torch.zeros(2)}, path, metadata={"training": json.dumps(record | changes)})


WRONG = {
    "fingerprint": [3, None],
    "epochs": [3, "ab", [3], [{}], [{"epoch": 0}]],
    "baseline": ["0.5", 1.5, True, float("nan"), []],
    "scaler": [None, 3, {"scale": "65536"}, {"scale": [1]}],
    "probe": [3, {}, {"steps": 50}],
    "partial": [3, {}, {"losses": "12", "seconds": 1.0, "size": 8}, {"losses": [], "seconds": -1.0, "size": 8},
                {"losses": [None], "seconds": 1.0, "size": 8}, {"losses": [], "seconds": 1.0, "size": 0.5}],
    "other": [1],
}  # fmt: skip


@pytest.mark.parametrize("key", WRONG)
def test_a_value_of_a_wrong_type_or_out_of_range_is_refused_by_name(tmp_path, key):
    path = tmp_path / "state.safetensors"
    for value in WRONG[key]:
        write_state(path, state())
        changed(path, **{key: value})
        with pytest.raises(CheckpointError, match=rf"cannot be read \(ValueError: {key}"):
            read_state(path)


@pytest.mark.parametrize("deep", ["[" * 100_000, '{"scaler": ' * 100_000, '{"fingerprint": "a", "x": ' + "[" * 100_000])
def test_nesting_beyond_reason_is_refused(tmp_path, deep):
    path = tmp_path / "state.safetensors"
    save_file({"weight": torch.zeros(2)}, path, metadata={"training": deep})
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_state(path)


@pytest.mark.timeout(30)
def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.safetensors")
    with pytest.raises(CheckpointError, match="not a regular file"):
        read_state(tmp_path / "pipe.safetensors")


def test_numbers_of_the_loss_scaling_stay_what_they_are(tmp_path):
    """PyTorch requires growth_interval to be an integer."""
    path = tmp_path / "state.safetensors"
    scaler = {"scale": 65536.0, "growth_interval": 2000}
    write_state(path, replace(state(), scaler=scaler))
    assert [*map(repr, read_state(path).scaler.items())] == [*map(repr, scaler.items())]


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
