"""``report``: what the run recorded, as report.json, report.md and report.html."""

from typing import Any

from catro_deploy.files import write_json, write_text
from catro_deploy.progress import Progress
from catro_deploy.report.build import build_report
from catro_deploy.report.comparison import compare, run_before
from catro_deploy.report.html import to_html
from catro_deploy.report.markdown import to_markdown
from catro_deploy.report.unchecked import unchecked_words
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.plan import load_plan
from catro_deploy.settings import AUTO, TARGETS_OWN, Settings
from catro_deploy.targets import load_target
from catro_deploy.transports import device_of
from catro_deploy.transports.reach import reachable
from catro_deploy.transports.registry import HERE

__all__ = ["report"]


def report(settings: Settings, run: RunFolder, progress: Progress) -> dict[str, Any]:
    """Write the three reports of ``run`` from its records, and return what report.json holds.

    ``settings`` say only whether the budget was searched, whether a precision was asked for, and what may be lost.

    Of a target that cannot be measured from here, there are no measurements: verify.json and bench.json are not read,
    and the report says what was not checked.

    Raises:
        RunFolderError: the plan or the JSON of a stage is missing or broken; it names the stage to run.
        TargetError: the plan's target is not known.
    """
    plan = load_plan(run)
    verify, bench, unchecked = None, None, ""
    target = load_target(plan.target)
    if reachable(target, device_of(plan.settings.get("device", HERE), run)):
        verify, bench = run.read_json(run.verify, "verify"), run.read_json(run.bench, "bench")
    else:
        unchecked = unchecked_words(plan, settings.verify.max_drop, can_be_added=reachable(target, "any"))
    build = run.read_json(run.build, "build") if bench and run.build.is_file() else None
    finetune = run.read_json(run.finetune, "finetune") if run.finetune.is_file() else None
    search = run.read_json(run.search, "run") if settings.prune.budget == AUTO else None
    quantized = bench is not None and settings.quantize.precision != TARGETS_OWN
    quantize = run.read_json(run.quantize, "quantize") if quantized else None
    shipped = run.read_json(run.shipped, "ship") if run.shipped.is_file() else None
    name = run.path.resolve().name
    content = build_report(plan, verify, bench, finetune, name, search, build, quantize, shipped, unchecked)
    earlier = run_before(run)
    content |= {"before": compare(earlier, run) if earlier else None}
    write_json(run.report("json"), content)
    write_text(run.report("md"), to_markdown(content))
    write_text(run.report("html"), to_html(content))
    return content
