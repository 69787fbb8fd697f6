import itertools
import math

import pytest
import torch

from catro_deploy.training import compiling
from catro_deploy.training.compute import Hardware
from catro_deploy.training.objective import Objective, distillation_loss
from tests.training.helpers import Recorder, small_network

CPU = Hardware(torch.device("cpu"), None, torch.contiguous_format)


def softened(row, temperature):
    exponentials = [math.exp(value / temperature) for value in row]
    return [e / sum(exponentials) for e in exponentials]


def by_definition(student, teacher, temperature):
    """T^2 * mean over rows of sum p * log(p / q), computed element by element."""
    total = 0.0
    for s_row, t_row in zip(student, teacher, strict=True):
        q, p = softened(s_row, temperature), softened(t_row, temperature)
        total += sum(pi * math.log(pi / qi) for pi, qi in zip(p, q, strict=True))
    return temperature**2 * total / len(student)


STUDENT = [[1.0, -2.0, 0.5], [0.0, 0.3, 3.0]]
TEACHER = [[2.0, 1.0, -1.0], [-0.5, 4.0, 0.1]]


@pytest.mark.parametrize("temperature", [1.0, 4.0, 10.0])
def test_distillation_loss_is_its_definition(temperature):
    loss = distillation_loss(torch.tensor(STUDENT), torch.tensor(TEACHER), temperature)
    assert loss.item() == pytest.approx(by_definition(STUDENT, TEACHER, temperature), rel=1e-5)


def test_equal_outputs_cost_nothing():
    assert distillation_loss(torch.tensor(STUDENT), torch.tensor(STUDENT), 4.0).item() == pytest.approx(0, abs=1e-6)


def test_objective_mixes_by_its_share():
    class Fixed(torch.nn.Module):
        def forward(self, images):
            return torch.tensor(TEACHER)

    labels = torch.tensor([0, 2])
    objective = Objective(CPU, teacher=Fixed(), distill=0.3, temperature=2.0)
    cross_entropy = -(math.log(softened(STUDENT[0], 1)[0]) + math.log(softened(STUDENT[1], 1)[2])) / 2
    expected = 0.7 * cross_entropy + 0.3 * by_definition(STUDENT, TEACHER, 2.0)
    assert objective(torch.tensor(STUDENT), torch.zeros(2, 3, 4, 4), labels).item() == pytest.approx(expected, rel=1e-5)


def test_label_smoothing_by_hand():
    # Two equal logits: every target costs log 2, smoothed or not; (2, 0) with 0.2: 0.9 * a + 0.1 * b.
    objective = Objective(CPU, label_smoothing=0.2)
    right, wrong = -math.log(softened([2.0, 0.0], 1)[0]), -math.log(softened([2.0, 0.0], 1)[1])
    loss = objective(torch.tensor([[2.0, 0.0]]), torch.zeros(1, 3, 4, 4), torch.tensor([0]))
    assert loss.item() == pytest.approx(0.9 * right + 0.1 * wrong, rel=1e-5)


def test_no_gradient_reaches_the_teacher():
    teacher = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 3))
    logits = torch.zeros(2, 3, requires_grad=True)
    Objective(CPU, teacher=teacher, distill=1.0)(logits, torch.rand(2, 1, 2, 2), torch.tensor([0, 1])).backward()
    assert logits.grad is not None
    assert all(p.grad is None for p in teacher.parameters())


def test_the_output_of_a_network_counts_whatever_becomes_of_its_normalisation():
    teacher = small_network(seed=5).eval()
    images, labels = torch.rand(4, 3, 8, 8), torch.tensor([0, 1, 0, 1])
    logits = torch.tensor([[0.5, -0.5, 0.1]] * 4)
    with torch.no_grad():
        expected = distillation_loss(logits, teacher(images), 4.0)
    teacher.train()  # the objective evaluates it in eval mode all the same
    found = Objective(CPU, teacher=teacher, distill=1.0)(logits, images, labels)
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)


def test_a_teacher_without_a_graph_teaches():
    class Untraceable(torch.nn.Module):
        def forward(self, images):
            return torch.tensor(TEACHER) if images.sum() == 0 else torch.zeros(2, 3)

    objective = Objective(CPU, teacher=Untraceable(), distill=1.0, temperature=2.0)
    found = objective(torch.tensor(STUDENT), torch.zeros(2, 3, 4, 4), torch.tensor([0, 2]))
    assert found.item() == pytest.approx(by_definition(STUDENT, TEACHER, 2.0), rel=1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(("seconds", "taken"), [([1.0, 2.0], True), ([2.0, 1.0], False)])
def test_a_compiled_teacher_says_the_same(monkeypatch, seconds, taken):
    clock = itertools.cycle(seconds)
    monkeypatch.setattr(compiling, "_seconds", lambda *arguments: next(clock))
    images, labels, logits = torch.rand(4, 3, 8, 8), torch.tensor([0, 1, 0, 1]), torch.tensor([[0.5, -0.5, 0.1]] * 4)
    objective, recorder = Objective(CPU, teacher=small_network(seed=5), distill=1.0), Recorder()
    expected = objective(logits, images, labels)
    objective.compile(images, recorder)
    assert objective(logits, images, labels).item() == pytest.approx(expected.item(), rel=1e-5)
    assert len(recorder.notes) == (0 if taken else 1)


def test_nothing_is_compiled_without_a_teacher():
    recorder = Recorder()
    Objective(CPU).compile(torch.rand(4, 3, 8, 8), recorder)
    assert recorder.notes == []


def test_a_teacher_that_views_maps_as_rows_teaches():
    class Viewing(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.head = torch.nn.Conv2d(3, 4, 3), torch.nn.Linear(4 * 36, 3)

        def forward(self, images):
            maps = self.conv(images)
            return self.head(maps.view(maps.shape[0], -1))

    teacher, images, logits = Viewing().eval(), torch.rand(2, 3, 8, 8), torch.zeros(2, 3)
    found = Objective(CPU, teacher=teacher, distill=1.0)(logits, images, torch.tensor([0, 1]))
    with torch.no_grad():
        expected = distillation_loss(logits, teacher(images), 4.0)
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)
