import pytest
from hypothesis import given
from hypothesis import strategies as st

from catro_deploy.training.schedule import learning_rate_factor


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (0, 0.25),  # four steps of warm-up
        (3, 1.0),
        (4, 1.0),  # cos 0
        (8, 0.75),  # a third of 12: (1 + cos 60 degrees) / 2
        (10, 0.5),  # half: (1 + cos 90 degrees) / 2
        (12, 0.25),  # two thirds
    ],
)
def test_cosine_by_hand(step, expected):
    assert learning_rate_factor("cosine", step, total_steps=16, warmup_steps=4) == pytest.approx(expected)


@pytest.mark.parametrize(("step", "expected"), [(0, 0.5), (1, 1.0), (4, 1.0), (5, 0.1), (9, 0.1)])
def test_step_by_hand(step, expected):
    assert learning_rate_factor("step", step, total_steps=10, warmup_steps=2) == pytest.approx(expected)


def test_an_odd_number_of_steps_drops_after_its_half():
    assert [learning_rate_factor("step", s, 3) for s in range(3)] == [1.0, 1.0, 0.1]


@given(total=st.integers(1, 300), warmup=st.integers(0, 100), schedule=st.sampled_from(["cosine", "step"]))
def test_it_climbs_then_never_climbs_again(total, warmup, schedule):
    warmup = min(warmup, total // 2)
    factors = [learning_rate_factor(schedule, step, total, warmup) for step in range(total)]
    assert all(0 < f <= 1 for f in factors)
    assert factors[:warmup] == sorted(factors[:warmup])
    assert factors[warmup:] == sorted(factors[warmup:], reverse=True)
