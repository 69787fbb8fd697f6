"""plan.json: written, read and checked without torch."""

from pathlib import Path

from catro_deploy.errors import RunFolderError
from catro_deploy.files import write_text
from catro_deploy.records import Plan
from catro_deploy.runs.folder import RunFolder

__all__ = ["PLAN_FORMAT", "load_plan", "plan_text", "save_plan"]

PLAN_FORMAT = 1


def plan_text(plan: Plan) -> str:
    """``plan`` as JSON, as it stands in plan.json."""
    from pydantic import TypeAdapter

    return TypeAdapter(Plan).dump_json(plan, indent=1).decode() + "\n"


def save_plan(plan: Plan, path: Path) -> None:
    """Write ``plan`` as JSON, whole or not at all."""
    write_text(path, plan_text(plan))


def load_plan(run: RunFolder) -> Plan:
    """Read the plan of a run.

    Raises:
        RunFolderError: it is missing, not a plan, or of a later version.
    """
    from pydantic import TypeAdapter, ValidationError

    path = run.require(run.plan, "prune")
    try:
        plan = TypeAdapter(Plan).validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        raise RunFolderError(
            f"{path} is not a plan: {'.'.join(map(str, first['loc'])) or 'the file'}: {first['msg']}.",
            f"Make it again: catro-deploy prune --run {run.path} --force",
        ) from None
    if plan.format != PLAN_FORMAT:
        raise RunFolderError(
            f"{path} has format {plan.format}; this version reads {PLAN_FORMAT}.", "Update catro-deploy."
        )
    return plan
