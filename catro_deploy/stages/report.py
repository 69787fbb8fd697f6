"""``report``: what the run recorded, as report.json, report.md and report.html."""

from dataclasses import replace

from catro_deploy.files import write_text
from catro_deploy.progress import Progress
from catro_deploy.records import Bench, Build, Finetune, Quantize, Runtimes, Search, Shipped, Variants, Verify
from catro_deploy.records.report import Report
from catro_deploy.report.build import RunRecords, build_report
from catro_deploy.report.comparison import compare, run_before
from catro_deploy.report.html import to_html
from catro_deploy.report.markdown import to_markdown
from catro_deploy.report.unchecked import unchecked_words
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.plan import load_plan
from catro_deploy.runs.records import load, load_if_there, save
from catro_deploy.settings import AUTO, TARGETS_OWN, Settings
from catro_deploy.targets import load_target
from catro_deploy.transports import device_of
from catro_deploy.transports.reach import reachable
from catro_deploy.transports.registry import HERE

__all__ = ["report"]


def report(settings: Settings, run: RunFolder, progress: Progress) -> Report:
    """Write the three reports of ``run`` from its records, and return what report.json holds.

    ``settings`` are only used for what was searched, whether a precision was requested, and what may be lost.

    For a target that cannot be reached there are no measurements: verify.json and bench.json are not read, and the
    report says what was not checked.

    Raises:
        RunFolderError: the plan or the JSON of a stage is missing or broken; the error names the stage to run.
        TargetError: the plan's target is not known.
    """
    plan = load_plan(run)
    target = load_target(plan.target)
    records = RunRecords(
        name=run.path.resolve().name,
        plan=plan,
        finetune=load_if_there(Finetune, run),
        search=load(Search, run) if settings.prune.budget == AUTO else None,
        variants=load_if_there(Variants, run) if settings.search.enabled else None,
        variant_taken=settings.search.take or 1,
        shipped=load_if_there(Shipped, run),
    )
    if reachable(target, device_of(plan.settings.get("device", HERE), run)):
        records = _measured(records, settings, run)
    else:
        unchecked = unchecked_words(plan, settings.verify.max_drop, can_be_added=reachable(target, "any"))
        records = replace(records, unchecked=unchecked)
    earlier = run_before(run)
    content = replace(build_report(records), before=compare(earlier, run) if earlier else None)
    save(content, run)
    write_text(run.report("md"), to_markdown(content))
    write_text(run.report("html"), to_html(content))
    return content


def _measured(records: RunRecords, settings: Settings, run: RunFolder) -> RunRecords:
    """``records`` with those that were measured on the target."""
    return replace(
        records,
        verify=load(Verify, run),
        bench=load(Bench, run),
        build=load_if_there(Build, run),
        runtimes=load(Runtimes, run) if settings.bench.runtimes else None,
        quantize=load(Quantize, run) if settings.quantize.precision != TARGETS_OWN else None,
    )
