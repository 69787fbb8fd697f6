"""Learning rates as pure functions of the step."""

import math
from typing import Literal

__all__ = ["learning_rate_factor"]

STEP_DECAY = 0.1


def learning_rate_factor(
    schedule: Literal["cosine", "step"], step: int, total_steps: int, warmup_steps: int = 0
) -> float:
    """The factor of the highest learning rate at ``step`` (0 .. total_steps - 1).

    It rises linearly to 1 over the first ``warmup_steps``. Then ``cosine`` decays from 1 along half a cosine, which
    would reach 0 at ``total_steps``; ``step`` stays at 1 and drops to a tenth from the middle of ``total_steps`` on, as
    in the CATRO paper.
    """
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    if schedule == "step":
        return STEP_DECAY if 2 * step >= total_steps else 1.0
    share_done = (step - warmup_steps) / (total_steps - warmup_steps)
    return (1 + math.cos(math.pi * share_done)) / 2
