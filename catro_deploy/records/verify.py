"""verify.json: accuracy of both networks on the test images, and agreement."""

from dataclasses import dataclass, field
from typing import Literal

from catro_deploy.records.base import Divergence, NonNegative, Points, PositiveCount, Record, Share

__all__ = [
    "Accuracy",
    "Agreement",
    "ByRuntime",
    "ClassAccuracy",
    "ClassAgreement",
    "Metric",
    "OtherRuntime",
    "Precision",
    "Precisions",
    "PrunedAgreement",
    "Recovery",
    "Verdict",
    "Verify",
]

Metric = Literal["accuracy", "agreement"]
"""The metric by which networks are compared."""
Precision = Literal["fp32", "fp16", "int8"]


@dataclass(frozen=True)
class ClassAccuracy:
    """Accuracy on the test images of one class, a fraction, in PyTorch and in the runtime that will serve."""

    name: str
    images: PositiveCount
    torch: Share
    runtime: Share


@dataclass(frozen=True)
class Accuracy:
    """Accuracy of one network on the test images, and the agreement of PyTorch and the runtime; fractions.

    Without labels there are no accuracies: ``torch`` and ``runtime`` are None, and ``per_class`` is empty.
    ``largest_logit_difference`` is None if a logit is not finite.
    """

    torch: Share | None
    runtime: Share | None
    agreement: Share
    largest_logit_difference: NonNegative | None
    per_class: tuple[ClassAccuracy, ...]


@dataclass(frozen=True)
class Agreement:
    """Agreement of a network with a reference network on the same images.

    Attributes:
        share: the share of images for which both predict the same class, 0 to 1.
        mean_kl_nats: mean over the images of KL(reference || network) of their softmax outputs, in nats; None if a
            logit is not finite.
    """

    share: Share
    mean_kl_nats: Divergence | None


@dataclass(frozen=True)
class ClassAgreement:
    """How many ``images`` the reference assigns to class ``name``, and the ``share`` on which the network agrees."""

    name: str
    images: PositiveCount
    share: Share


@dataclass(frozen=True)
class PrunedAgreement(Agreement):
    """Agreement of the pruned network with the original on the test images, in total and by the original's predictions.

    ``accuracy_change_ci95`` is the 95% interval of the change in accuracy by pruning, in points; None without labels.
    """

    per_class: tuple[ClassAgreement, ...] = ()
    accuracy_change_ci95: tuple[Points, Points] | None = None


@dataclass(frozen=True)
class Recovery:
    """Accuracy of each network on the same test images or, without labels, agreement with the original; fractions.

    All are computed in PyTorch in float32. ``reconstructed`` is None if no layer was solved again, ``finetuned`` if no
    training changed the network.
    """

    metric: Metric
    images: PositiveCount
    original: Share
    cut: Share
    reconstructed: Share | None
    finetuned: Share | None


@dataclass(frozen=True)
class Verdict:
    """Both networks' accuracy, the percentage points lost in the runtime, their agreement, and problems.

    ``accuracy_drop_points`` is None for images without labels.
    """

    original: Accuracy
    pruned: Accuracy
    accuracy_drop_points: Points | None
    agreement_with_original: PrunedAgreement
    problems: tuple[str, ...]

    @property
    def lost_points(self) -> float:
        """The loss that ``max_drop`` limits: the drop in accuracy or, without labels, 100% minus the agreement."""
        drop, agreement = self.accuracy_drop_points, self.agreement_with_original
        return round(100 * (1 - agreement.share) if drop is None else drop, 9)


@dataclass(frozen=True)
class Precisions:
    """The precision in which each network runs."""

    original: Precision
    pruned: Precision


@dataclass(frozen=True)
class ByRuntime:
    """One network in another runtime: its accuracy, and its agreement with PyTorch."""

    accuracy: Share | None
    agreement: Share
    largest_logit_difference: NonNegative | None


@dataclass(frozen=True)
class OtherRuntime:
    """Both networks in ONNX Runtime in float32 on this machine, in addition to another runtime or precision."""

    runtime: str
    original: ByRuntime
    pruned: ByRuntime


@dataclass(frozen=True, kw_only=True)
class Verify(Verdict, Record):
    """The verdict, its images, and the limits.

    ``labelled``: whether the test images have labels. ``max_drop`` is the allowed loss in points, if given.
    ``onnxruntime`` is None if the served network itself runs in ONNX Runtime in float32. ``also`` holds the verdicts on
    further targets, keyed by the user's names for them. ``warnings`` are about the images.
    """

    target: str
    classes: tuple[str, ...]
    test_images: PositiveCount
    labelled: bool
    tolerance: NonNegative
    precision: Precisions
    runtime: str
    recovery: Recovery | None
    onnxruntime: OtherRuntime | None
    max_drop: NonNegative | None
    passed: bool
    also: dict[str, Verdict] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check that both networks have the same classes."""
        if len(self.original.per_class) != len(self.pruned.per_class):
            raise ValueError("original.per_class and pruned.per_class must have the same classes")
