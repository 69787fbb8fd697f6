"""``verify``: accuracy of both networks on the test images, by PyTorch and by the runtime that will serve."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from catro_deploy import networks
from catro_deploy.data import open_dataset
from catro_deploy.data.base import Split, Subset
from catro_deploy.device.reach import require_measurable
from catro_deploy.errors import DataError, MissedError
from catro_deploy.files import file_hash, write_json
from catro_deploy.plans import load_plan
from catro_deploy.progress import Progress, Task
from catro_deploy.records import Accuracy, ClassAccuracy, Plan
from catro_deploy.runs import RunFolder
from catro_deploy.runtimes import Runner, check_metadata, open_runner
from catro_deploy.settings import Settings, VerifySettings
from catro_deploy.targets import load_target
from catro_deploy.training.augment import normalise

__all__ = ["Verdict", "accuracy", "judge", "verify"]

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Verdict:
    """Both networks' accuracy, the percentage points lost in the runtime, and what is wrong."""

    original: Accuracy
    pruned: Accuracy
    accuracy_drop_points: float
    problems: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


def verify(settings: Settings, run: RunFolder, progress: Progress) -> Verdict:
    """Run both networks of ``run`` on all test images, in PyTorch and in the runtime; write verify.json.

    Raises:
        TargetError: networks cannot be run on the target from here.
        RunFolderError, ModelError: the plan, the weights or an ONNX file is missing, corrupt, or stale.
        DataError: the dataset is not the plan's, or a class has no test image.
        MissedError: runtime and PyTorch differ by more than the tolerance, a logit is not finite, or more
            accuracy is lost than ``max_drop`` allows. verify.json is written before.
    """
    target = load_target(settings.prune.target)
    require_measurable(target, "verify")
    plan = load_plan(run)
    test = _test_images(settings, plan)
    found: dict[str, Accuracy] = {}
    chosen: dict[Literal["original", "finetuned"], Path] = {
        "original": run.original_onnx,
        "finetuned": run.pruned_onnx,
    }
    with progress.task("Verifying on the test images", 2 * len(test.labels)) as task:
        for weights, path in chosen.items():
            model = networks.load(run, weights=weights)
            with open_runner(target.runtime, run.require(path, "export"), target.threads) as runner:
                check_metadata(runner, {"network": path.stem, "plan_sha256": file_hash(run.plan)})
                found[path.stem] = accuracy(model, runner, test, plan, settings.verify.batch_size, task)
                runtime = f"{runner.name} {runner.version}"
    verdict = judge(found["original"], found["pruned"], settings.verify)
    content = {
        "target": target.name,
        "classes": plan.classes,
        "test_images": len(test.labels),
        "tolerance": settings.verify.tolerance,
        "runtime": runtime,
        **asdict(verdict),
        "max_drop": settings.verify.max_drop,
        "passed": verdict.passed,
    }
    write_json(run.verify, _finite(content))
    if not verdict.passed:
        raise MissedError("\n".join(verdict.problems), f"All figures are in {run.verify}.")
    return verdict


def _test_images(settings: Settings, plan: Plan) -> Subset:
    channels, height, width = plan.input_shape
    dataset = open_dataset(settings.data, (height, width), channels)
    names = tuple(dataset.classes[i] for i in plan.class_indices if i < len(dataset.classes))
    if names != plan.classes:
        raise DataError(
            f"{dataset.name} has the classes {', '.join(names)}; the plan has {', '.join(plan.classes)}.",
            "Point [data] at the dataset that the network was pruned with.",
        )
    test = Subset(dataset.test, plan.class_indices)
    images = np.bincount(test.labels, minlength=len(names))
    if empty := [name for name, count in zip(names, images, strict=True) if count == 0]:
        raise DataError(
            f"There is no test image of: {', '.join(empty)}.",
            "Add some, or prune without these classes (prune.classes): their accuracy cannot be shown.",
        )
    return test


def accuracy(model: nn.Module, runner: Runner, test: Split, plan: Plan, batch_size: int, task: Task) -> Accuracy:
    """Run all images of ``test`` through ``model`` (in eval mode, on the CPU) and ``runner``, and compare.

    Both get the same normalised arrays. A model file made for one image at a time gets one at a time.
    """
    labels = test.labels
    by_torch, by_runtime = [], []
    for start in range(0, len(labels), batch_size):
        indices = np.arange(start, min(start + batch_size, len(labels)))
        images = normalise(test.images(indices), plan.mean, plan.std)
        with torch.inference_mode():
            by_torch.append(model(images).numpy())
        by_runtime.append(_infer(runner, images.numpy()))
        task.advance(len(indices))
    return compare(np.concatenate(by_torch), np.concatenate(by_runtime), labels, plan.classes)


def _infer(runner: Runner, images: Floats) -> Floats:
    if runner.batch is None:
        return runner.infer(images)
    return np.concatenate([runner.infer(images[i : i + 1]) for i in range(len(images))])


def compare(by_torch: Floats, by_runtime: Floats, labels: NDArray[np.int64], names: Sequence[str]) -> Accuracy:
    """Accuracies of two sets of logits, both (images, classes), and how far they are apart."""
    answers = {"torch": _answers(by_torch), "runtime": _answers(by_runtime)}
    right = {side: given == labels for side, given in answers.items()}
    per_class = tuple(
        ClassAccuracy(
            name,
            int((labels == k).sum()),
            float(right["torch"][labels == k].mean()),
            float(right["runtime"][labels == k].mean()),
        )
        for k, name in enumerate(names)
    )
    return Accuracy(
        torch=float(right["torch"].mean()),
        runtime=float(right["runtime"].mean()),
        agreement=float((answers["torch"] == answers["runtime"]).mean()),
        largest_logit_difference=float(np.abs(by_torch - by_runtime).max()),
        per_class=per_class,
    )


def _answers(logits: Floats) -> NDArray[np.int64]:
    """The class of each image; -1, which is never right, where a logit is not finite."""
    return np.where(np.isfinite(logits).all(axis=1), logits.argmax(axis=1), -1)


def judge(original: Accuracy, pruned: Accuracy, limits: VerifySettings) -> Verdict:
    """Hold both networks against ``limits``."""
    problems = []
    for name, result in (("original", original), ("pruned", pruned)):
        difference = result.largest_logit_difference
        if not math.isfinite(difference):
            problems.append(f"The {name} network gives logits that are not finite.")
        elif difference > limits.tolerance:
            problems.append(
                f"The {name} network's logits differ by {difference:.3g} between PyTorch and the runtime; "
                f"verify.tolerance allows {limits.tolerance:g}."
            )
    drop = 100 * (original.runtime - pruned.runtime)
    if limits.max_drop is not None and drop > limits.max_drop:
        problems.append(f"Pruning cost {drop:.2f} points of accuracy; verify.max_drop allows {limits.max_drop:g}.")
    return Verdict(original, pruned, drop, tuple(problems))


def _finite(content: Any) -> Any:  # noqa: ANN401 - whatever JSON can hold
    """``content`` with null in place of NaN and infinity, which JSON does not have."""
    if isinstance(content, dict):
        return {key: _finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content
