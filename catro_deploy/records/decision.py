"""search.json and quantize.json: what was tried, what was chosen, and by which figures."""

from dataclasses import dataclass, field
from typing import Any

from catro_deploy.records.base import (
    Count,
    Divergence,
    NonNegative,
    Number,
    Points,
    Positive,
    PositiveCount,
    Record,
    Share,
)
from catro_deploy.records.bench import Speedup
from catro_deploy.records.finetune import History
from catro_deploy.records.verify import Metric, Precision

__all__ = [
    "Candidate",
    "Decision",
    "FrontPoint",
    "Point",
    "Qat",
    "Quantize",
    "Quantized",
    "Search",
    "Sensitivity",
    "TriedPoint",
    "computes_in_integers",
]

# How ONNX Runtime's operators in integers begin.
INTEGER = ("QLinear", "QGemm", "ConvInteger", "MatMulInteger")


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The metric of the candidates on the validation images.

    ``metric_reason`` says why it is not accuracy; it is empty if it is. ``original_validation_accuracy`` is None
    without labels. ``largest_kl_nats`` bounds the divergence, by ``statistics.divergence.scaled_kl_nats``; it is None
    where divergence is not used."""

    metric: Metric
    metric_reason: str
    validation_images: PositiveCount
    original_validation_accuracy: Share | None
    largest_kl_nats: Divergence | None = None


@dataclass(frozen=True)
class Point:
    """One budget that was tried: a share of the original's latency.

    Attributes:
        share: of the original's latency, as asked.
        speedup: as measured; None, like all that follow, if no network met the budget.
        validation_accuracy: after a short fine-tuning, a fraction; None without labels.
        macs_share: of the original's multiply-accumulates.
        agreement: the share of validation images that it gives the same class as the original.
        mean_kl_nats: of its answers from the original's, on them.
        change_ci95: 95% interval of the change of accuracy from the original's, fractions; None without labels.
        scaled_kl_nats: as ``mean_kl_nats``, at the best common scale of its logits.
    """

    share: Share
    speedup: Speedup | None = None
    validation_accuracy: Share | None = None
    macs_share: NonNegative | None = None
    agreement: Share | None = None
    mean_kl_nats: Divergence | None = None
    change_ci95: tuple[Number, Number] | None = None
    scaled_kl_nats: Divergence | None = None


@dataclass(frozen=True)
class TriedPoint(Point, Record):
    """point.json of a trial's folder: a budget whose trial has ended."""


@dataclass(frozen=True, kw_only=True)
class FrontPoint(Point):
    """A point of the front: its ``budget`` as ``--budget`` takes it, the points lost, and whether that is allowed."""

    budget: str
    drop_points: Points | None
    kept: bool


@dataclass(frozen=True, kw_only=True)
class Search(Decision, Record):
    """The smallest ``budget`` that loses at most ``max_drop`` points after ``epochs``, and all that were tried."""

    budget: str
    max_drop: NonNegative
    epochs: Count
    front: tuple[FrontPoint, ...]

    def __post_init__(self) -> None:
        """Check that a network met the budget."""
        if not any(point.budget == self.budget and point.speedup is not None for point in self.front):
            raise ValueError("budget must be that of a point of the front that a network met")

    @property
    def chosen(self) -> FrontPoint:
        """The point of the budget that was chosen."""
        return next(point for point in self.front if point.budget == self.budget)


@dataclass(frozen=True)
class Candidate:
    """The pruned network in one precision.

    Attributes:
        score: accuracy on the validation images or, where that is what counts, agreement with the original; a fraction.
        agreement: the share of validation images that it gives the same class as the original.
        mean_kl_nats: of its answers from the original's, on them; None where a logit is not finite.
        speedup: over the original.
        us: the median of its latency.
        scaled_kl_nats: its divergence at the best common scale of its logits; None where that does not count.
    """

    score: Share
    agreement: Share
    mean_kl_nats: Divergence | None
    speedup: Speedup
    us: Positive
    scaled_kl_nats: Divergence | None = None


@dataclass(frozen=True)
class Sensitivity:
    """The cost of quantising one ``layer`` alone.

    Attributes:
        drop_points: percentage points of accuracy lost.
        error: mean squared difference of logits, as a share of their mean square.
    """

    layer: str
    drop_points: Points
    error: NonNegative


@dataclass(frozen=True)
class Qat:
    """Quantisation-aware fine-tuning: the layers that stay in floating point before and after it; None means all."""

    history: History
    kept_before: tuple[str, ...] | None
    kept: tuple[str, ...] | None
    used: bool


def computes_in_integers(operator: str) -> bool:
    """Whether this is one of a runtime's operators in integers, by its name in ``Quantized.operators``."""
    return operator.startswith(INTEGER) or operator.endswith("_I8")


@dataclass(frozen=True)
class Quantized:
    """How a precision was made.

    Attributes:
        kept: the parts that stay in more bits; None if the precision was given up.
        form, seven_bit_weights, sensitivity, remarks, qat, operators, calibration_images, images_sha256: of int8 only;
            ``operators`` counts its nodes after optimisation for a CPU, by OpenVINO if it is for that, else by ONNX
            Runtime, and is empty if it was given up or the runtime is not installed here.
    """

    kept: tuple[str, ...] | None
    form: str = ""
    seven_bit_weights: bool = False
    sensitivity: tuple[Sensitivity, ...] = ()
    remarks: tuple[str, ...] = ()
    qat: Qat | None = None
    operators: dict[str, Count] = field(default_factory=dict)
    calibration_images: Count = 0
    images_sha256: str = ""

    @property
    def integer_nodes(self) -> int:
        """How many of its ``operators`` compute in integers."""
        return sum(count for name, count in self.operators.items() if computes_in_integers(name))


@dataclass(frozen=True, kw_only=True)
class Quantize(Decision, Record):
    """Which precision is served, and why the others (``lost``) are not.

    ``asked`` is a precision or ``auto``, ``own`` the target's own; ``least_score`` had to be kept.
    """

    asked: str
    own: Precision
    shipped: Precision
    least_score: Number
    candidates: dict[Precision, Candidate]
    lost: dict[Precision, str]
    made: dict[Precision, Quantized]
    protocol: str
    environment: dict[str, Any]

    def outcome(self, precision: Precision) -> str:
        """``served``, or why it is not."""
        return "served" if precision == self.shipped else self.lost.get(precision, "")

    @property
    def by_latency(self) -> list[tuple[Precision, Candidate]]:
        """The candidates, the fastest first."""
        return sorted(self.candidates.items(), key=lambda item: item[1].speedup.ratio)

    @property
    def integers(self) -> Quantized | None:
        """How the network in integers was made; None if that was not tried."""
        return self.made.get("int8")
