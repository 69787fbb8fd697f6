"""Fit the roofline's parameters on a random tenth of the measurements on a V100, and evaluate its errors.

    python -m benchmarks.roofline.evaluate --data FOLDER

FOLDER holds latency/v100_tensorrt_*.csv.gz. Errors are evaluated on the other nine tenths, and on latencies published
for other GPUs, on which nothing is tuned. Prints tables; writes benchmarks/results/roofline.json,
calibration/roofline/v100.toml and docs/roofline.md. The same data give the same figures.
"""

import argparse
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from benchmarks.common import CHECKOUT, DOCS, environment, table, write_result
from benchmarks.roofline.fit import (
    FITTED,
    FORMS,
    SEED,
    V100,
    Records,
    accuracy,
    fit,
    plain,
    predict,
    split,
    width_pairs,
)
from benchmarks.roofline.published import ROWS, Published, estimate_ms
from catro_deploy.files import write_text
from catro_deploy.latency.kernels import Kernels
from catro_deploy.toml import toml_tables
from tests import v100

RESULT = "roofline.json"
PARAMETERS = CHECKOUT / "calibration" / "roofline" / "v100.toml"
PAGE = DOCS / "roofline.md"
TEXT = Path(__file__).with_name("page.md")
HEAD = """\
# How TensorRT's kernels use a GPU: parameters of the roofline, described in catro_deploy/latency/kernels.py.
# Written by benchmarks/roofline/evaluate.py; errors are in docs/roofline.md. Do not edit.

"""
SOURCE = {
    "dataset": "Op profiler of alibaba/lightweight-neural-architecture-search (Apache-2.0)",
    "measured": "Convolutions, each by itself, with TensorRT (version not stated) on an NVIDIA V100",
    "unit": "Not stated; milliseconds by the size of the numbers",
    "gpu": "NVIDIA V100 datasheet, from memory, not verified. Its clock while measuring is not stated, but the fastest "
    "layers in fp32 and int8 reach 0.99 to 1.00 of the peak at 1530 MHz, so it was no lower.",
}
SIZES = ((1, 9), (10, 32), (33, 96), (97, 480))
SHOWN = ("rmspe", "within_10", "within_20")
HEADS = ("n", "RMSPE", "±10%", "±20%", "±30%", "Spearman", "median error")


def groups(records: Records) -> dict[str, Any]:
    """The groups for which errors are reported: title to mask."""
    depthwise, batch, size = records["depthwise"], records["batch"], records["in_size"]
    found = {
        "all": np.ones(len(records), bool),
        "batch 1": batch == 1,
        "batch 32 to 128": batch > 1,
        "regular": ~depthwise,
        "depthwise, kernel 3 to 7": depthwise & (records["kernel"] > 1),
        "depthwise, kernel 1": depthwise & (records["kernel"] == 1),
        "regular, smaller than its kernel": ~depthwise & (size < records["kernel"]),
        "regular with an addition": ~depthwise & records["fused"],
    }
    for kernel in (1, 3, 5, 7):
        for stride in (1, 2):
            shape = (records["kernel"] == kernel) & (records["stride"] == stride)
            found[f"regular {kernel}x{kernel}, stride {stride}, batch 1"] = shape & ~depthwise & (batch == 1)
            found[f"regular {kernel}x{kernel}, stride {stride}, batch 32 to 128"] = shape & ~depthwise & (batch > 1)
    for low, high in SIZES:
        inside = (size >= low) & (size <= high)
        found[f"{low} to {high} pixels, batch 1"] = inside & (batch == 1)
        found[f"{low} to {high} pixels, batch 32 to 128"] = inside & (batch > 1)
    return found


def judge(folder: Path, precision: str) -> tuple[Kernels, dict[str, Any]]:
    """Fit on a tenth, and compute the errors on the rest."""
    train, rest = split(v100.read(folder, precision))
    kernels = fit(train, precision)
    predicted, measured = predict(rest, kernels, precision), rest["latency_us"]
    forms = {name: accuracy(predict(rest, fit(train, precision, f), precision), measured) for name, f in FORMS.items()}
    forms["textbook roofline"] = accuracy(plain(train, rest, precision), measured)
    return kernels, {
        "fitted_on": len(train),
        "judged_on": len(rest),
        "fitted_errors": accuracy(predict(train, kernels, precision), train["latency_us"]),
        "groups": {name: accuracy(predicted[mask], measured[mask]) for name, mask in groups(rest).items()},
        "forms": forms,
        "widths": {
            "batch 1": width_pairs(predicted[rest["batch"] == 1], rest[rest["batch"] == 1]),
            "batch 32 to 128": width_pairs(predicted[rest["batch"] > 1], rest[rest["batch"] > 1]),
        },
        "slower_than_twice": float(np.mean(measured > 2 * predicted)),
    }


def span(shares: Iterable[float]) -> str:
    """The smallest and the largest share."""
    found = sorted(shares)
    return f"{found[0]:.0%} to {found[-1]:.0%}"


def cells(errors: dict[str, float]) -> list[str]:
    """One row of a table of errors."""
    within = [f"{errors[f'within_{share}']:.0%}" for share in (10, 20, 30)]
    return [f"{errors['n']}", f"{errors['rmspe']:.0%}", *within, f"{errors['spearman']:.3f}", f"{errors['bias']:+.0%}"]


def error_table(judged: dict[str, Any], names: list[str]) -> str:
    """Errors by precision and group."""
    rows = [[p, name, *cells(judged[p]["groups"][name])] for p in judged for name in names]
    return table(["", "layers", *HEADS], rows)


def form_table(judged: dict[str, Any]) -> str:
    """The contribution of each part of the formula."""
    rows = [
        [name, *(" ".join(f"{one['forms'][name][key]:.0%}" for key in SHOWN) for one in judged.values())]
        for name in ["textbook roofline", *reversed(FORMS)]
    ]
    return table(["form", *(f"{p}: RMSPE, ±10%, ±20%" for p in judged)], rows)


def width_table(judged: dict[str, Any]) -> str:
    """How well another width of the same layer is predicted."""
    rows = [
        [p, batch, pairs["pairs"], f"{pairs['ratio_within_20']:.0%}", f"{pairs['order']:.0%}"]
        for p, one in judged.items()
        for batch, pairs in one["widths"].items()
    ]
    return table(["", "", "pairs of widths", "ratio within ±20%", "slower one identified"], rows)


def published_table(rows: list[tuple[Published, float]]) -> str:
    """Estimates compared with published latencies."""
    heads = [
        "network",
        "system",
        "precision",
        "batch",
        "published ms",
        "estimate ms",
        "estimate / published",
        "figures",
    ]
    lines = [
        [r.network, r.system, r.precision, r.batch, r.ms, f"{ms:.3f}", f"{ms / r.ms:.2f}", r.figures] for r, ms in rows
    ]
    return table(heads, lines)


def write_parameters(kernels: dict[str, Kernels], judged: dict[str, Any]) -> None:
    """Write calibration/roofline/v100.toml."""
    lots = ", ".join(f"{one['fitted_on']} {p}" for p, one in judged.items())
    fitted = f"On a random tenth (seed {SEED}): {lots} convolutions. The layers' multiples were found by trying."
    tables = {"source": SOURCE | {"fitted": fitted}, "gpu": asdict(V100)}
    tables |= {p: {k: v for k, v in asdict(one).items() if k != "clock_mhz"} for p, one in kernels.items()}
    write_text(PARAMETERS, HEAD + toml_tables(tables))


def write_page(kernels: dict[str, Kernels], judged: dict[str, Any], rows: list[tuple[Published, float]]) -> None:
    """Write docs/roofline.md."""
    names = list(next(iter(judged.values()))["groups"])
    shapes = [name for name in names if name.startswith("regular ") and "stride" in name]
    sizes = [name for name in names if "pixels" in name]
    ratios = sorted(ms / row.ms for row, ms in rows)
    values = {
        "fitted": " / ".join(str(one["fitted_on"]) for one in judged.values()),
        "judged": " / ".join(str(one["judged_on"]) for one in judged.values()),
        "seed": SEED,
        "summary": error_table(judged, [name for name in names if name not in shapes + sizes]),
        "shapes": error_table(judged, shapes),
        "sizes": error_table(judged, sizes),
        "widths": width_table(judged),
        "forms": form_table(judged),
        "published": published_table(rows),
        "within_10": span(one["groups"]["all"]["within_10"] for one in judged.values()),
        "within_20": span(one["groups"]["all"]["within_20"] for one in judged.values()),
        "fit_within_20": span(one["fitted_errors"]["within_20"] for one in judged.values()),
        "order": span(pairs["order"] for one in judged.values() for pairs in one["widths"].values()),
        "far": span(1 - one["groups"]["batch 1"]["within_20"] for one in judged.values()),
        "lowest": f"{ratios[0]:.2f}",
        "highest": f"{ratios[-1]:.2f}",
        "middle": f"{np.median(ratios):.2f}",
        "rows": len(rows),
        "slow": " / ".join(f"{one['slower_than_twice']:.1%}" for one in judged.values()),
        "parameters": table(["parameter", *kernels], [[n, *(getattr(k, n) for k in kernels.values())] for n in FITTED]),
        "count": len(FITTED) - 1,
    }
    write_text(PAGE, Template(TEXT.read_text(encoding="utf-8")).substitute(values))


def main() -> None:
    """Fit, evaluate, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    args = parser.parse_args()
    kernels: dict[str, Kernels] = {}
    judged: dict[str, Any] = {}
    for precision in v100.PRECISIONS:
        kernels[precision], judged[precision] = judge(args.data, precision)
    write_parameters(kernels, judged)
    rows = [(row, estimate_ms(row)) for row in ROWS]  # with the parameters just written
    write_page(kernels, judged, rows)
    write_result(
        RESULT,
        {
            "environment": environment(),
            "seed": SEED,
            "kernels": {p: asdict(one) for p, one in kernels.items()},
            "held_out": judged,
            "published": [asdict(row) | {"estimate_ms": ms, "ratio": ms / row.ms} for row, ms in rows],
        },
    )
    print(PAGE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
