"""report.json: the records of a run, combined."""

from dataclasses import asdict, dataclass
from typing import Any

from catro_deploy.records.base import Record
from catro_deploy.records.bench import BenchmarkApp, Energy, Protocol, Speedup, Trtexec
from catro_deploy.records.budgets import BudgetFigures, BudgetUsed, DeviceFigures
from catro_deploy.records.decision import Quantize, Search
from catro_deploy.records.figures import (
    AgreementFigures,
    ClassFigures,
    Dropped,
    EngineFigures,
    GroupFigures,
    Histogram,
    ImageFigures,
    InputFigures,
    Interval,
    Latency,
    LatencyFigures,
    MacsShare,
    ModeFigures,
    NetworkFigures,
    Verification,
)
from catro_deploy.records.finetune import Finetune
from catro_deploy.records.overview import Comparison
from catro_deploy.records.plan import ReconstructionPlan
from catro_deploy.records.runtimes import Runtimes
from catro_deploy.records.ship import Shipped
from catro_deploy.records.variants import Variants
from catro_deploy.records.verify import Recovery

__all__ = ["Report"]


@dataclass(frozen=True, kw_only=True)
class Report(Record):
    """The content of the report in all its forms.

    Accuracies and agreements are fractions, drops are percentage points. Latencies are in milliseconds, but in
    microseconds if a name ends in ``_us`` and in a budget that counts them. What was not measured is None or empty.
    """

    name: str
    verdict: str
    measured: str
    target: str
    model: str
    classes: tuple[str, ...]
    class_indices: tuple[int, ...]
    model_classes: int
    input: InputFigures
    budget: str
    macs_share: MacsShare
    settings: dict[str, Any]
    images: ImageFigures
    budget_used: BudgetUsed
    budgets: tuple[BudgetFigures, ...]
    devices: tuple[DeviceFigures, ...]
    original: NetworkFigures
    pruned: NetworkFigures
    speedup: Speedup | None
    modes: tuple[ModeFigures, ...]
    trtexec: Trtexec | None
    benchmark_app: BenchmarkApp | None
    energy: Energy | None
    runtimes: Runtimes | None
    quantize: Quantize | None
    ship: Shipped | None
    unchecked: str
    engines: dict[str, EngineFigures]
    labelled: bool
    accuracy_drop_points: float | None
    agreement: AgreementFigures | None
    recovery: Recovery | None
    reconstruction: ReconstructionPlan | None
    validation_accuracy: float | None
    validation_accuracy_ci95: Interval | None
    original_validation_accuracy: float | None
    per_class: tuple[ClassFigures, ...]
    groups: tuple[GroupFigures, ...]
    search_path: tuple[tuple[str, int], ...]
    dropped: Dropped
    latency_plan: LatencyFigures | None
    search: Search | None
    variants: Variants | None
    variant_taken: int
    finetune: Finetune | None
    verification: Verification | None
    warnings: tuple[str, ...]
    protocol: Protocol | None
    environment: dict[str, Any]
    versions: dict[str, str]
    latency_histogram: Histogram | None
    before: Comparison | None = None

    @property
    def conditions(self) -> dict[str, Any]:
        """Environment and protocol of the measurement, as recorded."""
        return self.environment | {"protocol": asdict(self.protocol) if self.protocol else {}}

    @property
    def latencies(self) -> tuple[Latency, Latency] | None:
        """The latencies of the original and the pruned network; None if they were not measured."""
        before, after = self.original.latency_ms, self.pruned.latency_ms
        return (before, after) if before and after else None

    @property
    def accuracy_change_ci95(self) -> Interval | None:
        """The 95% interval of the change in accuracy, in points; None if it was not recorded."""
        return self.agreement.accuracy_change_ci95 if self.agreement else None
