"""Engines run the steps of a sweep: an engine accepts jobs as far as they fit, and forwards their events."""

from dataclasses import dataclass
from typing import Protocol

from catro_deploy.sweep.cells import Cell
from catro_deploy.sweep.orders import Event, Order
from catro_deploy.sweep.steps import Needs, Step

__all__ = ["LOST", "Engine", "Job"]

LOST = "lost"
"""The event of a job whose machine was lost, or that was killed there: another attempt continues from its folder."""


@dataclass(frozen=True, eq=False)
class Job:
    """Steps of a cell for one process; ``attempt`` is the 1-based number of this attempt at them."""

    cell: Cell
    steps: tuple[Step, ...]
    needs: Needs
    attempt: int = 1

    @property
    def order(self) -> Order:
        """The order that is sent to the process."""
        return Order(tuple(step.stages for step in self.steps), self.cell.text, str(self.cell.run.path.absolute()))


class Engine(Protocol):
    """Runs jobs side by side."""

    def fits(self, job: Job) -> bool:
        """Whether ``job`` may be started now, in addition to the running jobs."""

    def start(self, job: Job) -> None:
        """Start ``job``."""

    def next(self) -> tuple[Job, Event]:
        """Wait for the next event of a job; after ``end``, ``error``, ``killed`` or ``lost`` the job no longer runs."""

    def stop(self) -> None:
        """Stop all jobs; returns when none is running any more."""
