import pytest
import torch

from catro_deploy.reconstruction import obs
from catro_deploy.reconstruction.least_squares import RIDGE
from catro_deploy.reconstruction.obs import Consumer, eliminate


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def consumer(width, k, outputs, seed, scale=1.0, extra=0):
    rows = drawn(200, width * k + extra, seed=seed) @ drawn(width * k + extra, width * k + extra, seed=seed + 1)
    columns = torch.arange(width * k).view(width, k)
    return Consumer(
        rows.T @ rows, drawn(width * k + extra, outputs, seed=seed + 2), torch.arange(width), columns, scale
    )


def refit_error(one, gone):
    """The error without the columns of ``gone``, by solving again."""
    size = len(one.gram)
    damped = one.gram + RIDGE * one.gram.diagonal().mean() * torch.eye(size)
    kept = torch.tensor([c for c in range(size) if c not in set(one.columns[list(gone)].flatten().tolist())])
    moved = one.weights.clone()
    moved[kept] -= torch.linalg.solve(damped[kept][:, kept], damped[kept] @ one.weights)
    return float((moved * (damped @ moved)).sum()) / one.scale


@pytest.mark.parametrize("collected", [1, 5, 32])
@pytest.mark.parametrize(("k", "extra", "outputs"), [(1, 0, 4), (3, 0, 4), (2, 4, 4), (1, 0, 9), (2, 1, 15)])
def test_every_step_is_the_cheapest_of_all_by_refitting_each(monkeypatch, k, extra, outputs, collected):
    monkeypatch.setattr(obs, "COLLECTED", collected)
    consumers = [consumer(6, k, outputs, 0, extra=extra), consumer(6, 2, 5, 10, scale=3.0)]
    gone = []
    for step in eliminate(consumers, 6):
        left = [channel for channel in range(6) if channel not in gone]
        totals = {c: sum(refit_error(one, [*gone, c]) for one in consumers) for c in left}
        assert step.dropped == min(totals, key=totals.get)
        gone.append(step.dropped)
        assert step.error == pytest.approx(totals[step.dropped], rel=1e-6)
    assert len(gone) == 5


def test_a_copy_of_a_channel_goes_first_and_costs_nothing():
    rows = drawn(100, 5)
    rows[:, 3] = rows[:, 1]
    one = Consumer(rows.T @ rows, drawn(5, 2, seed=1), torch.arange(5), torch.arange(5)[:, None], 1.0)
    steps = eliminate([one], 5)
    first = next(steps)
    assert first.dropped in (1, 3)
    assert first.error < 0.01 * next(steps).error


def test_a_consumer_that_reads_some_channels_only():
    whole, part = consumer(5, 1, 3, 0), consumer(3, 1, 3, 20)
    part = Consumer(part.gram, part.weights, torch.tensor([0, 2, 4]), part.columns, 1.0)
    dropped = [step.dropped for step in eliminate([whole, part], 5)]
    assert len(set(dropped)) == 4
