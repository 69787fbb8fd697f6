"""Latencies of convolutions that TensorRT ran on an NVIDIA V100: ``latency/v100_tensorrt_*.csv.gz`` of the real data.

They come from the op profiler of alibaba/lightweight-neural-architecture-search (Apache-2.0), which does not state the
version of TensorRT. Judging by the magnitude of the numbers, its column is in milliseconds.
"""

import csv
import gzip
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["PRECISIONS", "conv_table", "read"]

PRECISIONS = ("fp32", "fp16", "int8")
RECORD = np.dtype(
    [
        ("depthwise", np.bool_),
        ("batch", np.int64),
        ("in_channels", np.int64),
        ("in_size", np.int64),
        ("out_channels", np.int64),
        ("kernel", np.int64),
        ("stride", np.int64),
        ("fused", np.bool_),
        ("latency_us", np.float64),
    ]
)


def read(folder: Path, precision: str) -> NDArray[np.void]:
    """All measurements in ``precision`` below ``folder``, which CATRO_TEST_DATA names, in the order of the file.

    Returns:
        One record per row with the fields of ``RECORD``: images are squares of side ``in_size`` in pixels, ``kernel``
        and ``stride`` apply to each axis, ``fused`` means that a residual addition runs inside the convolution.
    """
    with gzip.open(folder / "latency" / f"v100_tensorrt_{precision}.csv.gz", "rt", encoding="utf-8") as file:
        return np.array([_record(row) for row in csv.DictReader(file)], dtype=RECORD)


def conv_table(
    records: NDArray[np.void], kernel: int, stride: int, h: int, batch: int, fused: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Latencies of one regular convolution over its widths.

    Returns:
        The measured input widths and output widths, ascending, and latencies in microseconds
        ``[in width, out width]``, NaN where a pair is missing.
    """
    rows = records[
        ~records["depthwise"]
        & (records["kernel"] == kernel)
        & (records["stride"] == stride)
        & (records["in_size"] == h)
        & (records["batch"] == batch)
        & (records["fused"] == fused)
    ]
    in_widths, row = np.unique(rows["in_channels"], return_inverse=True)
    out_widths, column = np.unique(rows["out_channels"], return_inverse=True)
    latency_us = np.full((len(in_widths), len(out_widths)), np.nan)
    latency_us[row, column] = rows["latency_us"]
    return in_widths, out_widths, latency_us


def _record(row: dict[str, Any]) -> tuple[Any, ...]:
    if row["in_h"] != row["in_w"]:
        raise ValueError(f"not a square image: {row}")
    shape = (int(row[name]) for name in ("batch", "in_channels", "in_h", "out_channels", "kernel", "stride"))
    fused = row["elementwise_fused"] == "1"
    return (row["conv_type"] == "Depthwise", *shape, fused, float(row["latency_ms"]) * 1000)
