"""Settings for profiling a tiny network in a few seconds, and a made-up profile."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from catro_deploy.calibration import ProfileProtocol
from catro_deploy.latency.profile import LatencyProfile
from catro_deploy.latency.table import Cell, Fit
from catro_deploy.progress import Silent, Task
from catro_deploy.records import CostErrors, Staircase
from catro_deploy.transports.execution import Use
from tests.tiny import SIZE, TinyNet

SHAPE = (3, SIZE, SIZE)
USE = Use("x86-cpu", "onnxruntime", "fp32", 1, 1)
PROTOCOL = ProfileProtocol(
    candidates=3,
    squares=2,
    limit_s=60.0,
    rounds=3,
    block_ms=1.0,
    min_runs=4,
    max_runs=20,
    together=8,
    disagreement=5.0,
    held_out=4,
    seed=0,
)


class Told(Silent):
    """Records the progress bars: title, steps, and steps that were done before."""

    def __init__(self) -> None:
        self.bars: list[tuple[str, float, float]] = []

    @contextmanager
    def task(self, title: str, total: float, done: float = 0) -> Iterator[Task]:
        self.bars.append((title, total, done))
        with super().task(title, total, done) as task:
            yield task


def tiny_network(seed: int = 0) -> TinyNet:
    torch.manual_seed(seed)
    return TinyNet(3).eval()


def made_profile(**changes: object) -> LatencyProfile:
    """Two layers of one shape at two pairs of widths, a third at one; numbers that the file stores exactly."""
    cells = {
        "dense kernel 9 stride 1 positions 64 8->8 Conv 3x3+Relu": {
            (4, 8): Cell(12.25, 1, 0.031, 3),
            (8, 8): Cell(20.5, 2, 0.0, 1),
        },
        'odd, "quoted"': {(8, 5): Cell(0.125, 1.5, 0.5, 2)},
    }
    conv, head = cells
    content = {
        "target": "x86-cpu",
        "device": {"cpu_model": "Acme 9000", "cores": 2, "governor": None, "runtime": "onnxruntime 1.31.0"},
        "fingerprint": {"cpu_model": "Acme 9000", "threads": 1},
        "network": "0123456789abcdef",
        "measured": "2026-01-31",
        "seconds": 12.5,
        "networks": 18,
        "disagreement": 0.04,
        "original_us": 123.5,
        "shapes": {"a": conv, "b": conv, "head": head},
        "staircases": {"a": Staircase(((3, 10.5), (4, 11.0), (8, 20.0)), (3, 4, 8), 4)},
        "fit": Fit(1.01, -1.5, 8.0),
        "errors": CostErrors(5, 0.8, 1.0, 0.034, 0.97),
        "cells": cells,
    }
    return LatencyProfile(**(content | changes))
