"""search.json and quantize.json: the candidates that were tried, the choice, and the figures behind it."""

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

# Prefixes of the names of ONNX Runtime's integer operators.
INTEGER = ("QLinear", "QGemm", "ConvInteger", "MatMulInteger")


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The metric by which candidates are compared on the validation images.

    ``metric_reason`` is the reason why it is not accuracy; empty if it is. ``original_validation_accuracy`` is None
    without labels. ``largest_kl_nats`` bounds the divergence, as ``statistics.divergence.scaled_kl_nats`` computes it;
    None if divergence is not used.
    """

    metric: Metric
    metric_reason: str
    validation_images: PositiveCount
    original_validation_accuracy: Share | None
    largest_kl_nats: Divergence | None = None


@dataclass(frozen=True)
class Point:
    """One budget that was tried: a share of the original's latency.

    Attributes:
        share: the requested share of the original's latency.
        speedup: the measured speedup; None, like all that follow, if no network met the budget.
        validation_accuracy: after a short fine-tuning, a fraction; None without labels.
        macs_share: the share of the original's multiply-accumulates.
        agreement: the share of validation images for which it predicts the same class as the original.
        mean_kl_nats: the divergence of its outputs from the original's on these images.
        change_ci95: 95% interval of the change in accuracy from the original, fractions; None without labels.
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
    """point.json of a trial's folder: a budget whose trial has finished."""


@dataclass(frozen=True, kw_only=True)
class FrontPoint(Point):
    """A point of the front: its ``budget`` in the syntax of ``--budget``, the points lost, and if that is allowed."""

    budget: str
    drop_points: Points | None
    kept: bool


@dataclass(frozen=True, kw_only=True)
class Search(Decision, Record):
    """The smallest ``budget`` that loses at most ``max_drop`` points after ``epochs``, and all budgets tried."""

    budget: str
    max_drop: NonNegative
    epochs: Count
    front: tuple[FrontPoint, ...]

    def __post_init__(self) -> None:
        """Check that a network met the budget."""
        if not any(point.budget == self.budget and point.speedup is not None for point in self.front):
            raise ValueError("budget must be the budget of a front point that a network met")

    @property
    def chosen(self) -> FrontPoint:
        """The point of the chosen budget."""
        return next(point for point in self.front if point.budget == self.budget)


@dataclass(frozen=True)
class Candidate:
    """The pruned network in one precision.

    Attributes:
        score: accuracy on the validation images or, if that is the metric, agreement with the original; a fraction.
        agreement: the share of validation images for which it predicts the same class as the original.
        mean_kl_nats: the divergence of its outputs from the original's on these images; None if a logit is not finite.
        speedup: the speedup over the original.
        us: its median latency in microseconds.
        scaled_kl_nats: its divergence at the best common scale of its logits; None if divergence is not used.
        accuracy: on these images, whatever the metric; None without labels.
    """

    score: Share
    agreement: Share
    mean_kl_nats: Divergence | None
    speedup: Speedup
    us: Positive
    scaled_kl_nats: Divergence | None = None
    accuracy: Share | None = None


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
    """Quantisation-aware fine-tuning: the layers kept in floating point before and after it; None means all layers."""

    history: History
    kept_before: tuple[str, ...] | None
    kept: tuple[str, ...] | None
    used: bool


def computes_in_integers(operator: str) -> bool:
    """Whether ``operator``, a name in ``Quantized.operators``, is an integer operator of a runtime."""
    return operator.startswith(INTEGER) or operator.endswith("_I8")


@dataclass(frozen=True)
class Quantized:
    """How a precision was made.

    Attributes:
        kept: the parts that stay in a higher precision; None if the precision was abandoned.
        form, seven_bit_weights, sensitivity, remarks, qat, operators, calibration_images, images_sha256: for int8 only.
            ``operators`` counts the nodes after optimisation for a CPU, by OpenVINO if the network is for it, else by
            ONNX Runtime; it is empty if int8 was abandoned or the runtime is not installed here.
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
        """The number of nodes in ``operators`` that compute in integers."""
        return sum(count for name, count in self.operators.items() if computes_in_integers(name))


@dataclass(frozen=True, kw_only=True)
class Quantize(Decision, Record):
    """The served precision, and why the others (``lost``) are not served.

    ``asked`` is the requested precision or ``auto``, ``own`` is the target's own precision, and ``least_score`` is the
    score that had to be reached.
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
        """``served``, or the reason why the precision is not."""
        return "served" if precision == self.shipped else self.lost.get(precision, "")

    @property
    def by_latency(self) -> list[tuple[Precision, Candidate]]:
        """The candidates, fastest first."""
        return sorted(self.candidates.items(), key=lambda item: item[1].speedup.ratio)

    @property
    def integers(self) -> Quantized | None:
        """How the int8 network was made; None if int8 was not tried."""
        return self.made.get("int8")
