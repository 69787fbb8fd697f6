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
"""The metric that networks are compared by."""
Precision = Literal["fp32", "fp16", "int8"]


@dataclass(frozen=True)
class ClassAccuracy:
    """Accuracy on the test images of one class: a fraction, by PyTorch and by the runtime that will serve."""

    name: str
    images: PositiveCount
    torch: Share
    runtime: Share


@dataclass(frozen=True)
class Accuracy:
    """Accuracy of one network on the test images, and how PyTorch and the runtime agree; fractions.

    Without labels there are no accuracies: ``torch`` and ``runtime`` are None, and ``per_class`` is empty.
    ``largest_logit_difference`` is None where a logit is not finite.
    """

    torch: Share | None
    runtime: Share | None
    agreement: Share
    largest_logit_difference: NonNegative | None
    per_class: tuple[ClassAccuracy, ...]


@dataclass(frozen=True)
class Agreement:
    """How a network agrees with a reference network on the same images.

    Attributes:
        share: of the images to which both give the same class, 0 to 1.
        mean_kl_nats: mean over the images of KL(reference || network) of their softmax outputs, in nats; None where a
            logit is not finite.
    """

    share: Share
    mean_kl_nats: Divergence | None


@dataclass(frozen=True)
class ClassAgreement:
    """How many ``images`` the reference gives the class ``name``, and the ``share`` of them that the network does."""

    name: str
    images: PositiveCount
    share: Share


@dataclass(frozen=True)
class PrunedAgreement(Agreement):
    """Agreement of the pruned network with the original on the test images, in total and by the original's answers.

    ``accuracy_change_ci95`` is the 95% interval of what pruning changed accuracy by, in points; None without labels.
    """

    per_class: tuple[ClassAgreement, ...] = ()
    accuracy_change_ci95: tuple[Points, Points] | None = None


@dataclass(frozen=True)
class Recovery:
    """Accuracy, or without labels agreement with the original, of each network on the same test images; fractions.

    All in PyTorch, in float32. ``reconstructed`` is None if no layer was solved again, ``finetuned`` if no training
    changed the network.
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
        """The loss that ``max_drop`` limits: the drop of accuracy, or without labels 100% minus the agreement."""
        drop, agreement = self.accuracy_drop_points, self.agreement_with_original
        return round(100 * (1 - agreement.share) if drop is None else drop, 9)


@dataclass(frozen=True)
class Precisions:
    """In which precision each network runs."""

    original: Precision
    pruned: Precision


@dataclass(frozen=True)
class ByRuntime:
    """One network by another runtime: its accuracy, and how it agrees with PyTorch."""

    accuracy: Share | None
    agreement: Share
    largest_logit_difference: NonNegative | None


@dataclass(frozen=True)
class OtherRuntime:
    """Both networks by ONNX Runtime in float32 on this machine, in addition to another runtime or precision."""

    runtime: str
    original: ByRuntime
    pruned: ByRuntime


@dataclass(frozen=True, kw_only=True)
class Verify(Verdict, Record):
    """The verdict, its images, and the limits.

    ``labelled``: whether the test images have labels. ``max_drop`` is the allowed loss in points, if given.
    ``onnxruntime`` is None where the served network runs by it in float32. ``also`` are the verdicts on further
    targets, by the user's names for them.
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

    def __post_init__(self) -> None:
        """Check that both networks have the same classes."""
        if len(self.original.per_class) != len(self.pruned.per_class):
            raise ValueError("original.per_class and pruned.per_class must be of the same classes")
