"""A network run from some place on computes what the whole network does."""

import pytest
import torch

from catro_deploy.graph.coupling.trace import trace
from catro_deploy.graph.fx.activations import MemoryLimit
from catro_deploy.graph.fx.depth import find_branches
from catro_deploy.reconstruction.graphs import OriginalGraph
from catro_deploy.reconstruction.suffix import Suffix
from tests.graph.networks import Branches, randomised
from tests.graph.residual import Written
from tests.reconstruction.networks import SHAPE, Stream, images, noted_images

NETWORKS = {"stream": Stream, "branches": Branches, "written in place": Written}


@pytest.mark.parametrize("limit", [2**30, 0])
@pytest.mark.parametrize("name", NETWORKS)
def test_at_every_place_the_logits_are_those_of_the_module(name, limit):
    module = OriginalGraph.of(randomised(NETWORKS[name]()), SHAPE).module
    batches = images(7, batch=4)
    with torch.inference_mode():
        expected = [module(batch) for batch in batches]
        suffix = Suffix(module, batches, MemoryLimit(limit))
        for place in range(len(module.graph.nodes)):
            suffix.advance(place)
            for _ in range(2):  # the kept values are neither used up nor overwritten
                for found, wanted in zip(suffix.logits(), expected, strict=True):
                    torch.testing.assert_close(found, wanted, rtol=0, atol=0)
        suffix.close()


def test_places_may_be_passed_over_and_weights_behind_may_change():
    module = OriginalGraph.of(randomised(Stream()), SHAPE).module
    batches = images(5, batch=3)
    place = next(at for at, node in enumerate(module.graph.nodes) if node.name == "out1")
    with torch.inference_mode():
        suffix = Suffix(module, batches, MemoryLimit(2**30))
        suffix.advance(place)
        suffix.advance(2)  # already past it
        module.get_submodule("out1").weight.mul_(2)
        for found, batch in zip(suffix.logits(), batches, strict=True):
            torch.testing.assert_close(found, module(batch), rtol=0, atol=0)
        module.get_submodule("stem").weight.mul_(2)  # before the place: the kept values are the old ones
        assert not torch.allclose(next(suffix.logits()), module(batches[0]))


@pytest.mark.parametrize("limit", [2**30, 0])
def test_copies_without_a_branch_compute_the_same_from_there_as_from_the_images(limit):
    """Activations overwrite the kept streams in this network."""
    model = randomised(Written())
    original, batches = OriginalGraph.of(model, SHAPE), images(5, batch=3)
    branches = find_branches(model, trace(model, SHAPE))
    assert len(branches) > 1
    suffix = Suffix(original.module, batches, MemoryLimit(limit))
    for branch in branches:
        cut = original.cut({}, [branch.name])
        remaining = {node.name for node in cut.module.graph.nodes}
        with torch.inference_mode():
            suffix.move(next(at for at, node in enumerate(original.module.graph.nodes) if node.name not in remaining))
            for module in (cut.module, original.module, cut.module):
                for found, batch in zip(suffix.logits(module), batches, strict=True):
                    torch.testing.assert_close(found, module(batch), rtol=0, atol=0)
    suffix.close()


def test_it_moves_back():
    module, batches = OriginalGraph.of(randomised(Stream()), SHAPE).module, images(5, batch=3)
    limit = MemoryLimit(2**30)
    with torch.inference_mode():
        suffix = Suffix(module, batches, limit)
        for place in (12, 3, 7):
            suffix.move(place)
            for found, batch in zip(suffix.logits(), batches, strict=True):
                torch.testing.assert_close(found, module(batch), rtol=0, atol=0)
        suffix.close()
    assert limit.left_bytes == 2**30


def test_all_memory_is_given_back():
    limit = MemoryLimit(2**20)
    module = OriginalGraph.of(randomised(Stream()), SHAPE).module
    with torch.inference_mode():
        suffix = Suffix(module, images(5, batch=3), limit)
        suffix.advance(12)
        assert limit.left_bytes < 2**20
        suffix.close()
    assert limit.left_bytes == 2**20


def test_images_are_put_together_only_for_nodes_that_read_them():
    module = OriginalGraph.of(randomised(Stream()), SHAPE).module
    batches, read = noted_images([3, 2])
    suffix = Suffix(module, batches, MemoryLimit(2**30))
    with torch.inference_mode():
        suffix.advance(len(module.graph.nodes) // 2)
        assert read == [3, 2]
        list(suffix.logits())
    suffix.close()
    assert read == [3, 2]
