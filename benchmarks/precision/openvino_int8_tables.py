"""The tables of benchmarks.precision.openvino_int8."""

from collections.abc import Mapping
from typing import Any

from benchmarks.common import table

FORM_HEADS = (
    "network, unpruned", "float32, test", "ours, test", "NNCF, test", "NNCF by min-max, test",
    "ours over NNCF, speed (10% to 90%)", "integer nodes, ours", "integer nodes, NNCF",
)  # fmt: skip
WORTH_HEADS = (
    "network", "budget", "MACs", "original, test", "int8, test", "against the original in ONNX Runtime, float32",
    "against the original in OpenVINO, float32", "against the original in int8 by NNCF",
)  # fmt: skip
BASES = ("onnxruntime fp32", "openvino fp32", "nncf int8")


def machine_tables(rows: Mapping[str, Any]) -> list[str]:
    """Both tables of one machine."""
    worth = [line for row in rows.values() for line in worth_cells(row)]
    return [table(FORM_HEADS, [form_cells(row) for row in rows.values()]), table(WORTH_HEADS, worth)]


def form_cells(row: Mapping[str, Any]) -> list[str]:
    """One line of the first table: the result of quantisation alone."""
    integer = row["integer"]
    return [
        row["title"],
        *(_accuracy(row, name) for name in ("openvino fp32", "ours int8", "nncf int8", "nncf int8, min-max")),
        _spread(row["speedup"]["nncf int8"]["ours int8"]),
        str(integer["ours int8"]),
        str(integer["nncf int8"]),
    ]


def worth_cells(row: Mapping[str, Any]) -> list[list[str]]:
    """Lines of the second table: the unpruned network, by NNCF and by us, and the network at each budget."""
    pruned = [(f"{budget} int8", budget) for budget in row["macs"]]
    return [
        [
            row["title"],
            budget,
            f"{row['macs'].get(budget, 1.0):.0%}",
            _accuracy(row, "onnxruntime fp32"),
            _accuracy(row, name),
            *(_spread(row["speedup"][base][name]) for base in BASES),
        ]
        for name, budget in (("nncf int8", "unpruned, NNCF"), ("ours int8", "unpruned, ours"), *pruned)
    ]


def _accuracy(row: Mapping[str, Any], name: str) -> str:
    accuracy = row["accuracy"].get(name)
    return "" if accuracy is None else f"{accuracy:.2%}"


def _spread(found: list[float]) -> str:
    median, low, high = found
    return f"{median:.2f}x ({low:.2f} to {high:.2f})"
