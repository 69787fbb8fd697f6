"""Values kept in memory or in a file are returned unchanged, and memory is accounted for."""

import pytest
import torch

from catro_deploy.graph.fx.activations import Activations, MemoryLimit


def test_memory_is_given_back():
    limit = MemoryLimit(1000)
    values = Activations(limit)
    values.append(torch.ones(10, 5, 5))
    assert limit.file.written_bytes == 0
    values.take([0, 1], 1)
    assert (limit.left_bytes, values.claimed_bytes, values.spilled_bytes) == (600, 400, 0)
    values.append(torch.ones(10, 5, 2))
    values.append(torch.ones(10, 10, 2))  # 800 bytes do not fit beside the 800 in use
    assert (limit.left_bytes, values.claimed_bytes, values.spilled_bytes) == (200, 800, 800)
    assert limit.file.written_bytes == 800
    values.close()
    assert (limit.left_bytes, values.claimed_bytes, values.spilled_bytes) == (1000, 0, 0)


def test_what_was_spilled_comes_back_equal(tmp_path):
    value = torch.randn(3, 4, 2, 2)
    values = Activations(MemoryLimit(0, tmp_path))
    values.append(value.clone())
    assert torch.equal(values[0], value)
    values.take([3, 1], 1)
    assert torch.equal(values[0], value[:, [3, 1]])
    assert list(tmp_path.iterdir()) == []  # the file has no name that a killed run could leave behind


def test_what_is_replaced_batch_by_batch_needs_no_more_room(tmp_path):
    limit = MemoryLimit(0, tmp_path)
    before, after = Activations(limit), Activations(limit)
    for batch in range(4):
        before.append(torch.full((10,), float(batch)))
    for batch in range(4):
        before.release(batch)
        after.append((torch.full((4,), float(batch)), torch.full((6,), -float(batch))))
    assert limit.file.size_bytes == 4 * 40
    assert [after[batch][1].tolist() for batch in range(4)] == [[-float(batch)] * 6 for batch in range(4)]


@pytest.mark.parametrize("limit_bytes", [0, 2**20])
def test_tuples_and_numbers_come_back_too(limit_bytes):
    pair = (torch.arange(6.0).reshape(2, 3), [torch.tensor(2.5), 7])
    values = Activations(MemoryLimit(limit_bytes))
    values.append(pair)
    values.append(8)
    first, (second, number) = values[0]
    assert torch.equal(first, pair[0])
    assert second == 2.5
    assert (number, values[1]) == (7, 8)
    values.close()


@pytest.mark.parametrize("limit_bytes", [0, 2**20])
def test_what_is_handed_out_may_be_written_over(limit_bytes):
    value = torch.ones(3)
    values = Activations(MemoryLimit(limit_bytes))
    values.append(value)
    value.zero_()
    values[0].zero_()
    assert torch.equal(values[0], torch.ones(3))
    values.close()


def test_what_is_only_read_is_handed_out_without_a_copy():
    value = torch.ones(3, 4)
    values = Activations(MemoryLimit(2**20), only_read=True)
    values.append(value)
    first, again = values[0], values[0]  # both are held: a second copy might otherwise reuse the memory of the first
    assert first.data_ptr() == again.data_ptr() != value.data_ptr()
    values.take([1, 0], 1)
    assert torch.equal(values[0], torch.ones(3, 2))
    values.close()


def test_what_is_on_another_device_is_kept_there():
    limit = MemoryLimit(2**20)
    values = Activations(limit)
    values.append(torch.ones(3, device="meta"))
    assert values[0].device.type == "meta"
    assert (values.claimed_bytes, limit.left_bytes) == (12, 2**20 - 12)
    values.close()
    assert limit.left_bytes == 2**20


@pytest.mark.parametrize("limit_bytes", [0, 2**20])
def test_images_with_channels_last_come_back_so(limit_bytes):
    value = torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    values = Activations(MemoryLimit(limit_bytes), only_read=True)
    values.append(value)
    assert torch.equal(values[0], value)
    assert values[0].is_contiguous(memory_format=torch.channels_last)
    values.take([2, 0], 1)
    assert torch.equal(values[0], value[:, [2, 0]])
