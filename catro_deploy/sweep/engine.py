"""What runs the steps of a sweep: an engine takes jobs as far as they fit, and hands on what they tell."""

from dataclasses import dataclass
from typing import Protocol

from catro_deploy.sweep.cells import Cell
from catro_deploy.sweep.orders import Event, Order
from catro_deploy.sweep.steps import Needs, Step

__all__ = ["LOST", "Engine", "Job"]

LOST = "lost"
"""The event of a job whose machine was lost, or that was killed there: another attempt goes on from its folder."""


@dataclass(frozen=True, eq=False)
class Job:
    """Steps of a cell for one process, and the how manieth attempt at them this is."""

    cell: Cell
    steps: tuple[Step, ...]
    needs: Needs
    attempt: int = 1

    @property
    def order(self) -> Order:
        """What the process is told."""
        return Order(tuple(step.stages for step in self.steps), self.cell.text, str(self.cell.run.path.absolute()))


class Engine(Protocol):
    """Runs jobs side by side."""

    def fits(self, job: Job) -> bool:
        """Whether ``job`` may be started now, beside those that run."""

    def start(self, job: Job) -> None:
        """Start ``job``."""

    def next(self) -> tuple[Job, Event]:
        """Wait for what a job tells; after ``end``, ``error``, ``killed`` or ``lost`` it runs no more."""

    def stop(self) -> None:
        """End all jobs; returns when none runs any more."""
