"""plan.json: written, read and checked without torch."""

from pathlib import Path

from catro_deploy.records import Plan
from catro_deploy.records.files import write_record
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.records import load

__all__ = ["load_plan", "save_plan"]


def save_plan(plan: Plan, path: Path) -> None:
    """Write ``plan`` as JSON, whole or not at all."""
    write_record(plan, path)


def load_plan(run: RunFolder) -> Plan:
    """Read the plan of a run.

    Raises:
        RunFolderError: it is missing, not a plan, or of another format.
    """
    return load(Plan, run)
