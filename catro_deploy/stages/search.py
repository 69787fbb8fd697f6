"""``search``: the smallest latency at which accuracy on validation images falls by no more than is allowed.

A few budgets, each pruned and fine-tuned for a short while; the interval between the smallest that keeps the accuracy
and the largest that does not is halved, on a logarithmic scale. The network found is then fine-tuned in full.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from catro_deploy.data.base import Subset
from catro_deploy.errors import DataError, MissedError, SettingsError
from catro_deploy.files import write_json
from catro_deploy.plans import load_plan
from catro_deploy.progress import Progress
from catro_deploy.report.latency import latency_record
from catro_deploy.report.wording import points
from catro_deploy.runs import RunFolder
from catro_deploy.settings import Settings
from catro_deploy.stages.finetune import finetune
from catro_deploy.stages.original import open_original
from catro_deploy.stages.prune import prune
from catro_deploy.stages.trials import shortened, trial_folder
from catro_deploy.targets import load_target
from catro_deploy.training.device import choose_device
from catro_deploy.training.evaluate import accuracy, predict
from catro_deploy.transports.reach import require_reachable

__all__ = ["Point", "halve", "search"]

POINTS = 5
FIRST, LEAST = 0.5, 0.1


@dataclass(frozen=True)
class Point:
    """One budget that was tried: a share of the original's latency.

    Attributes:
        share: of the original's latency, as asked.
        ratio: the same as measured; None, like all that follow, if no network met the budget.
        validation_accuracy: after a short fine-tuning, a fraction.
        macs_share: of the original's multiply-accumulates.
    """

    share: float
    ratio: float | None = None
    validation_accuracy: float | None = None
    macs_share: float | None = None

    @property
    def budget(self) -> str:
        """As ``--budget`` takes it."""
        return f"{self.share:g}x"

    def drop_points(self, original_accuracy: float) -> float | None:
        """Percentage points of accuracy lost; negative if it rose."""
        if self.validation_accuracy is None:
            return None
        return round((original_accuracy - self.validation_accuracy) * 100, 9)


def search(settings: Settings, run: RunFolder, progress: Progress) -> dict[str, Any]:
    """Find the smallest budget whose validation drop is within ``[verify] max_drop``; write and return search.json.

    A budget whose trial has ended is not tried again; one that was interrupted goes on.

    Raises:
        TargetError: the target cannot be measured from here.
        SettingsError: nothing says what may be lost.
        DataError: there are no validation images.
        MissedError: no budget that was tried keeps the accuracy; search.json is not written.
    """
    require_reachable(load_target(settings.prune.target), settings.prune.device, "search")
    allowed = settings.verify.max_drop
    if allowed is None:
        raise SettingsError("A search needs to know what may be lost.", "Say so in points: --max-drop 0.5")
    original = _original_accuracy(settings)

    def keeps(point: Point) -> bool:
        drop = point.drop_points(original)
        return drop is not None and drop <= allowed

    def attempt(share: float) -> bool:
        point = _try(share, settings, run, progress)
        tried.append(point)
        drop = point.drop_points(original)
        outcome = "no network meets it" if drop is None else f"{points(-drop)} points on validation images"
        progress.note(f"search {len(tried)} of {POINTS}: {point.budget}, {outcome}")
        return keeps(point)

    tried: list[Point] = []
    found = halve(attempt)
    if found is None:
        raise MissedError(
            f"None of the budgets {', '.join(point.budget for point in tried)} keeps the accuracy on validation "
            f"images within {allowed:g} points after a short fine-tuning.",
            "Allow more (--max-drop), fine-tune longer (--epochs), or name a budget (--budget 0.9x).",
        )
    ordered = sorted(tried, key=lambda point: point.share)
    content = {
        "budget": Point(found).budget,
        "max_drop": allowed,
        "original_validation_accuracy": original,
        "epochs": shortened(settings).finetune.epochs,
        "front": [
            {"budget": point.budget, **asdict(point), "drop_points": point.drop_points(original), "kept": keeps(point)}
            for point in ordered
        ],
    }
    write_json(run.search, content)
    return content


def halve(keeps: Callable[[float], bool]) -> float | None:
    """The smallest of ``POINTS`` shares that ``keeps`` the accuracy, None if none does.

    Taken to be monotone: below a share that does not keep it, none is tried.
    """
    low, high, share = LEAST, 1.0, FIRST
    best: float | None = None
    for _ in range(POINTS):
        if keeps(share):
            best = high = share
        else:
            low = share
        share = round(math.sqrt(low * high), 3)
    return best


def _original_accuracy(settings: Settings) -> float:
    """Of the unpruned network on the validation images of the wanted classes, a fraction."""
    original = open_original(settings)
    held_out = Subset(original.dataset.validation, original.wanted)
    if not len(held_out.labels):
        raise DataError(
            "There are no validation images of these classes, so no budget can be searched by accuracy.",
            "Hold some out ([data] validation), or name a budget: --budget 0.5x",
        )
    mean, std = settings.model.mean, settings.model.std
    device = choose_device(settings.finetune.compute)
    logits = predict(original.model, held_out, mean, std, settings.verify.batch_size, device)
    return accuracy(logits, held_out.labels)


def _try(share: float, settings: Settings, run: RunFolder, progress: Progress) -> Point:
    """Prune to ``share`` of the original's latency and fine-tune for a short while, in a folder of its own.

    What is left there in the end is point.json, and the pruned network for who goes on with it.
    """
    pruning = settings.prune.model_copy(update={"budget": Point(share).budget})
    asked = settings.model_copy(update={"prune": pruning})
    folder = trial_folder(asked, run)
    result = folder.path / "point.json"
    if result.is_file():
        return Point(**folder.read_json(result, "run"))
    with folder.lock():
        point = _prune_and_finetune(share, shortened(asked), folder, progress)
        write_json(result, asdict(point))
        for file in folder.path.glob("*"):
            if file not in (result, folder.plan, folder.pruned_weights, folder.path / ".lock"):
                file.unlink()
    return point


def _prune_and_finetune(share: float, tried: Settings, folder: RunFolder, progress: Progress) -> Point:
    try:
        plan = load_plan(folder) if folder.plan.is_file() else prune(tried, folder, progress)
    except MissedError:
        return Point(share)
    history = finetune(tried, folder, progress)
    record = latency_record(plan)
    assert record is not None
    (ratio,) = [one["ratio"] for one in record["rounds"] if one["taken"]]
    return Point(share, ratio, history.validation_accuracy, plan.pruned_macs / plan.original_macs)
