"""Fits the roofline's parameters to convolutions measured on a V100; see benchmarks/roofline/evaluate.py."""

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares
from scipy.stats import spearmanr

from catro_deploy.latency.kernels import Kernels
from catro_deploy.latency.roofline import Conv, alone_us

__all__ = ["FITTED", "FORMS", "RATES", "V100", "Figures", "accuracy", "fit", "plain", "predict", "split", "width_pairs"]

Records = NDArray[np.void]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Figures:
    """A GPU, following the protocol ``Gpu``."""

    sms: int
    clock_mhz: float
    fp32_flop_per_clock_per_sm: float
    fp16_flop_per_clock_per_sm: float
    int8_flop_per_clock_per_sm: float
    bandwidth_gb_s: float
    l2_mib: float | None


V100 = Figures(80, 1530, 128, 1024, 512, 900, 6)
RATES = {"fp32": 128.0, "fp16": 1024.0, "int8": 512.0}
SEED = 0
# Errors beyond this (of the logarithm) weigh less: the fit must not follow kernels that fell back to something else.
OUTLYING = 0.15
ALL = 1e9

# Found by trying multiples: those that input channels, those of a first layer, and all channels in memory are rounded
# up to; and the narrowest tile. The other parameters are fitted, starting from DENSE and DEPTHWISE; FIXED holds those
# that the kernels of a precision do not use.
FOUND = {
    "fp32": {"element_bytes": 4, "in_multiple": 4, "first_multiple": 4, "memory_multiple": 1, "least_columns": 32},
    "fp16": {"element_bytes": 2, "in_multiple": 32, "first_multiple": 8, "memory_multiple": 8, "least_columns": 64},
    "int8": {"element_bytes": 1, "in_multiple": 4, "first_multiple": 4, "memory_multiple": 4, "least_columns": 32},
}
FIXED = {"fp32": {"store_cycles": 0.0}, "fp16": {"winograd": 1.0}, "int8": {"winograd": 1.0}}
DENSE = {
    "launch_us": 10.0,
    "layout_us": 4.0,
    "efficiency": 0.95,
    "feed": 80.0,
    "store_cycles": 0.2,
    "block_outputs": 10000.0,
    "quick_outputs": 5000.0,
    "quick_gain": 0.4,
    "winograd": 1.6,
    "bandwidth": 0.8,
}
DEPTHWISE = {"depthwise_layout_us": 2.0, "depthwise_efficiency": 0.1, "depthwise_bandwidth": 0.5}
FITTED = (*DENSE, *DEPTHWISE)
AT_MOST = {"efficiency": 1.0, "bandwidth": 1.0, "depthwise_efficiency": 1.0, "depthwise_bandwidth": 1.0}

# Simpler forms: parameters that are not fitted but have these values, so that a part of the formula has no effect.
FORMS: dict[str, dict[str, float]] = {
    "all parts": {},
    "no quick kernels": {"quick_outputs": ALL, "quick_gain": 1.0},
    "no least block": {"block_outputs": 0.0, "quick_outputs": 0.0},
    "no feeding": {"feed": ALL},
    "no storing": {"store_cycles": 0.0},
    "no Winograd": {"winograd": 1.0},
    "no layout changes": {"layout_us": 0.0},
    "tiles in waves only": {
        "quick_outputs": ALL,
        "quick_gain": 1.0,
        "block_outputs": 0.0,
        "feed": ALL,
        "store_cycles": 0.0,
        "winograd": 1.0,
        "layout_us": 0.0,
    },
}


def split(records: Records) -> tuple[Records, Records]:
    """A random tenth to fit on, and the rest to evaluate on."""
    order = np.random.default_rng(SEED).permutation(len(records))
    tenth = len(records) // 10
    return records[np.sort(order[:tenth])], records[np.sort(order[tenth:])]


def as_conv(records: Records, depthwise: bool) -> Conv:
    """The records, all depthwise or none, as input of the roofline."""
    outputs = np.ceil(records["in_size"] / records["stride"]) ** 2 * records["batch"]
    return Conv(
        outputs,
        records["in_channels"],
        records["out_channels"],
        records["kernel"] ** 2,
        records["stride"],
        addition=records["fused"],
        depthwise=depthwise,
    )


def predict(records: Records, kernels: Kernels, precision: str) -> Floats:
    """Microseconds for each of ``records``."""
    latency_us = np.empty(len(records))
    for depthwise in (False, True):
        chosen = records["depthwise"] == depthwise
        latency_us[chosen] = alone_us(as_conv(records[chosen], depthwise), V100, kernels, RATES[precision])
    return latency_us


def fit(records: Records, precision: str, without: dict[str, float] | None = None) -> Kernels:
    """Fit all parameters, rounded to four digits, except those given by ``without``."""
    given = FIXED[precision] | (without or {})
    start: dict[str, Any] = FOUND[precision] | DENSE | DEPTHWISE | given | {"clock_mhz": V100.clock_mhz}
    kernels = Kernels(**start)
    dense = records[~records["depthwise"]]
    # A depthwise convolution with one tap is a scaling, and TensorRT folds scalings into other layers.
    depthwise = records[records["depthwise"] & (records["kernel"] > 1)]
    kernels = _fit(dense, kernels, precision, [name for name in DENSE if name not in given])
    return _fit(depthwise, kernels, precision, list(DEPTHWISE))


def _fit(records: Records, kernels: Kernels, precision: str, names: list[str]) -> Kernels:
    """Robust least squares on the logarithm, over the logarithms of the parameters, from several starts."""
    conv = as_conv(records, bool(records["depthwise"][0]))
    measured = np.log(records["latency_us"])
    upper = np.log([AT_MOST.get(name, ALL) for name in names])
    lower = np.full(len(names), np.log(1e-3))
    middle = np.log([getattr(kernels, name) for name in names])
    draw = np.random.default_rng(SEED)

    def with_values(logs: Floats) -> Kernels:
        rounded: dict[str, Any] = {n: float(f"{v:.4g}") for n, v in zip(names, np.exp(logs), strict=True)}
        return replace(kernels, **rounded)

    def errors(logs: Floats) -> Floats:
        unrounded: dict[str, Any] = dict(zip(names, map(float, np.exp(logs)), strict=True))
        return np.log(alone_us(conv, V100, replace(kernels, **unrounded), RATES[precision])) - measured

    fits = []
    for spread in (0.0, 0.5, 0.5):
        start = np.clip(middle + draw.normal(0, spread, len(names)), lower + 0.02, upper - 0.02)
        # Steps well above the width of a stair in the predictions, whose slope is zero or infinite.
        found = least_squares(
            errors,
            start,
            bounds=(lower, upper),
            loss="soft_l1",
            f_scale=OUTLYING,
            x_scale=0.2,
            diff_step=3e-3,
            max_nfev=80,
        )
        fits.append(found)
    return with_values(min(fits, key=lambda fit: float(fit.cost)).x)


def plain(train: Records, rest: Records, precision: str) -> Floats:
    """Microseconds for each of ``rest`` by the textbook roofline, fitted on ``train``: three parameters.

    A launch, plus the longer of arithmetic at a share of the peak and memory at a share of the bandwidth.
    """
    element_bytes = FOUND[precision]["element_bytes"]

    def latency_us(records: Records, logs: Floats) -> Floats:
        launch_us, efficiency, bandwidth = np.exp(logs)
        outputs = np.ceil(records["in_size"] / records["stride"]) ** 2 * records["batch"]
        inputs = np.where(records["depthwise"], 1, records["in_channels"])
        weights = inputs * records["out_channels"] * records["kernel"] ** 2
        moved = records["in_size"] ** 2 * records["batch"] * records["in_channels"]
        moved = moved + outputs * records["out_channels"] * (1.0 + records["fused"]) + weights
        compute = 2 * outputs * weights / (V100.sms * V100.clock_mhz * RATES[precision] * efficiency)
        return launch_us + np.maximum(compute, moved * element_bytes / (V100.bandwidth_gb_s * 1e3 * bandwidth))

    measured = np.log(train["latency_us"])
    start = np.log([10.0, 0.5, 0.5])
    found = least_squares(
        lambda logs: np.log(latency_us(train, logs)) - measured, start, loss="soft_l1", f_scale=OUTLYING, x_scale=0.2
    )
    return latency_us(rest, found.x)


def accuracy(predicted: Floats, measured: Floats) -> dict[str, float]:
    """Errors of predictions against measurements, as shares of 1; ``bias`` is the median of the relative errors."""
    error = predicted / measured - 1
    within = {f"within_{share}": float(np.mean(np.abs(error) <= share / 100)) for share in (10, 20, 30)}
    rank = float(spearmanr(predicted, measured).statistic)
    return {
        "n": len(error),
        "rmspe": float(np.sqrt(np.mean(error**2))),
        **within,
        "spearman": rank,
        "bias": float(np.median(error)),
    }


def width_pairs(predicted: Floats, records: Records) -> dict[str, float]:
    """How well the estimate predicts the cost of another width of a layer: random pairs that differ only in channels.

    ``ratio_within_20``: share of pairs whose ratio of latencies is predicted within 20%. ``order``: share of pairs
    measured 10% or more apart for which the estimate identifies the slower one.
    """
    shuffled = np.random.default_rng(SEED).permutation(len(records))
    shape = records[["depthwise", "batch", "in_size", "kernel", "stride", "fused"]][shuffled]
    order = shuffled[np.argsort(shape, kind="stable")]
    one, other = order[:-1], order[1:]
    alike = np.all([records[name][one] == records[name][other] for name in shape.dtype.names or ()], axis=0)
    ratio = np.log(predicted[one] / predicted[other])[alike]
    true = np.log(records["latency_us"][one] / records["latency_us"][other])[alike]
    apart = np.abs(true) >= np.log(1.1)
    return {
        "pairs": int(alike.sum()),
        "ratio_within_20": float(np.mean(np.abs(np.expm1(ratio - true)) <= 0.2)),
        "order": float(np.mean((ratio * true > 0)[apart])),
    }


assert {field.name for field in fields(Kernels)} == {*FOUND["fp32"], *FITTED, "clock_mhz"}
