"""``variants``: prune to one measured budget with different settings, and take the result nearest to the original.

With several budgets, each has its own variants; the smallest latency whose best variant keeps the accuracy is taken.
"""

from collections.abc import Sequence

from catro_deploy.assessment.basis import Basis
from catro_deploy.errors import MissedError
from catro_deploy.progress import Progress
from catro_deploy.records import TriedVariant, Variant, Variants
from catro_deploy.records.variants import BUDGET
from catro_deploy.report.variants import dominating
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.records import save
from catro_deploy.settings import Settings
from catro_deploy.stages.decided import changed, require_comparable
from catro_deploy.stages.halving import Ended, Halving
from catro_deploy.stages.held_out import HeldOut, held_out_of
from catro_deploy.stages.original import open_original
from catro_deploy.stages.other_runtimes import other_runtimes
from catro_deploy.stages.ways import Available, smaller_sizes, with_budget
from catro_deploy.units import counted

__all__ = ["variants"]


def variants(settings: Settings, run: RunFolder, progress: Progress) -> Variants:
    """Compare the variants of ``settings`` that [search] allows, in as much time as it allows; write variants.json.

    A finished step of a variant is not repeated; an interrupted one is resumed.

    Raises:
        TargetError: the target cannot be measured from here.
        SettingsError: the budget is not measured.
        DataError: there are no validation images.
        MissedError: no network of any variant meets the budget, and none that meets another one is within the allowed
            loss; variants.json is not written.
    """
    require_comparable(settings)
    original, knobs = open_original(settings), settings.search.knobs
    available = Available(
        smaller_sizes(original) if "input_size" in knobs else (),
        other_runtimes(settings, original, run, progress) if "runtime" in knobs else {},
    )
    return _searched(settings, run, held_out_of(settings, progress), progress, available)


def _searched(
    settings: Settings,
    run: RunFolder,
    held_out: HeldOut,
    progress: Progress,
    available: Available,
) -> Variants:
    own = str(settings.prune.budget)
    budgets = dict.fromkeys(["", *(one for one in settings.search.budgets if one != own)])
    limit_s = 60 * settings.search.minutes / len(budgets)
    ended: list[Ended] = []
    found: list[list[Variant]] = []
    for budget in budgets:
        changes = {BUDGET: budget} if budget else {}
        if len(budgets) > 1:
            progress.note(f"variants of the budget {budget or own}")
        asked = changed(settings, changes)
        one = Halving(asked, run, held_out, progress, available, limit_s).run()
        ended.append(one)
        found.append([_variant(tried, changes | with_budget(tried.changes, asked, available)) for tried in one.tried])
    best = _chosen([of[0] for of in found], held_out.basis, settings.verify.max_drop)
    if best is None:
        raise _missed(own, [of[0] for of in found], sum(map(len, found)))
    record = Variants(
        variants=(best, *(one for of in found for one in of if one is not best)),
        validation_images=len(held_out.images.labels),
        minutes=sum(one.seconds for one in ended) / 60,
        left_out=sum(one.left_out for one in ended),
        screened=sum(one.screened for one in ended),
    )
    save(record, run)
    for number in dominating(record):
        progress.note(f"variant {number} is faster and nearer to the original than the one taken: --take {number}")
    return record


def _variant(tried: TriedVariant, changes: dict[str, str]) -> Variant:
    own = {name: value for name, value in vars(tried).items() if name != "format"}
    return Variant(**own | {"changes": changes})


def _chosen(best: Sequence[Variant], basis: Basis, allowed: float | None) -> Variant | None:
    """Of the ``best`` variants of the budgets, the fastest that loses no more than is ``allowed``; else the first.

    None if that would be the first, and it does not meet its budget.
    """
    if allowed is not None and len(best) > 1:
        limits = basis.limits(basis.original_score, 0.0, allowed)
        met = [one for one in best if one.kl_nats]
        kept = [one for one in met if basis.keeps(basis.recorded_score(one) or 0.0, one.kl_nats[-1], limits)]
        if kept:
            return min(kept, key=lambda one: one.speedup.ratio if one.speedup else 1.0)
    return best[0] if best[0].kl_nats else None


def _missed(own: str, best: Sequence[Variant], tried: int) -> MissedError:
    """The error for a budget ``own`` that no network meets; ``best`` are the best variants of all budgets."""
    met = [one.changes[BUDGET] for one in best if one.kl_nats]
    several = ", ".join([own, *(one.changes[BUDGET] for one in best[1:] if not one.kl_nats)])
    problem = f"No network of {counted(tried, 'variant')} meets the budget {several}."
    if not met:
        return MissedError(problem, "Allow more (--budget), or run without --search to see what stays.")
    return MissedError(
        f"{problem} Networks were found for {', '.join(met)}.",
        f"Continue with one of these, whose finished prunings are reused: --budget {met[0]}",
    )
