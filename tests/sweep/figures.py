"""Made-up measurements of a sweep cell."""

from catro_deploy.records.sweep import CellFigures

__all__ = ["FIGURES"]

FIGURES = CellFigures(
    metric="accuracy",
    score=0.9,
    score_ci95=(0.85, 0.95),
    original_score=0.95,
    change_points=-5.0,
    change_ci95=(-8.0, -2.0),
    images=200,
    decided_by=0.9,
    original_decided_by=0.96,
    latency_ms=0.5,
    latency_ci95=(0.48, 0.52),
    original_ms=1.0,
    ratio=0.5,
    ratio_ci95=(0.48, 0.52),
    precision="fp32",
    file="ship/pruned.onnx",
    bytes=1500,
)
