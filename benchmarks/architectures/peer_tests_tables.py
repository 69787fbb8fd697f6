"""The tables of docs/results.md on the networks of torch-pruning's tests."""

from collections.abc import Mapping
from typing import Any

from benchmarks.architectures.check import PASSED
from benchmarks.architectures.peer_checks import CUT, EQUAL, HISTORY, IMPORTANCES, ONNX, PICKLED, RELOAD, STATE
from benchmarks.architectures.peer_networks import LEFT_OUT, NETWORKS
from benchmarks.common import table

__all__ = ["peer_tables"]

OURS = {CUT: "cut", EQUAL: "equal to the masked original", RELOAD: "saved and loaded", ONNX: "ONNX"}
THEIRS = {CUT: "cut and runs", HISTORY: "from its history", STATE: "its state dict", PICKLED: "pickled", ONNX: "ONNX"}
SIDES = {"ours": ("catro-deploy", OURS), "theirs": ("torch-pruning", THEIRS)}

HEADS = ("network", "tests", "by", "MACs", "cut, runs", "equal", "loaded, no pickle", "`state_dict`", "pickled", "ONNX")


def peer_tables(rows: Mapping[str, Any]) -> list[str]:
    """The number of passes, the table of all networks, the failures with reasons, and the tests that are left out."""
    lines = [cells(name, row, side) for name, row in rows.items() for side in SIDES]
    faults = [fault for name, row in rows.items() for fault in _faults(name, row)]
    parts = [_summary(rows), table(HEADS, lines)]
    if faults:
        parts.append(table(("network", "by", "step", "outcome"), faults))
    missing = [network for network in NETWORKS if network.title not in rows]
    unmeasured = "was not measured with both; see [architectures](architectures.md)"
    reasons = [(one.tests, f"{one.title} {unmeasured}") for one in missing]
    reasons += LEFT_OUT
    left = "\n".join(f"- {', '.join(f'`test_{test}`' for test in tests)}: {why}." for tests, why in reasons)
    return [*parts, f"Left out:\n\n{left}"]


def cells(name: str, row: Mapping[str, Any], side: str) -> list[str]:
    """A line of the table: the results of ``side`` (``ours``, ``theirs``) for the network ``name``."""
    title, _ = SIDES[side]
    found = row[side]
    steps: Mapping[str, str] = found["steps"]
    share = f"{found['macs_share']:.0%}" if steps.get(CUT) == PASSED else "-"
    columns = (CUT, EQUAL, RELOAD, "", "", ONNX) if side == "ours" else (CUT, "", HISTORY, STATE, PICKLED, ONNX)
    tests = ", ".join(row["tests"])
    return [name, tests, title, share, *(_mark(steps, step) for step in columns)]


def _mark(steps: Mapping[str, str], step: str) -> str:
    if step not in steps:
        return ""
    return "yes" if steps[step] == PASSED else "no"


def _summary(rows: Mapping[str, Any]) -> str:
    counts = []
    for side, (title, labels) in SIDES.items():
        passed = {
            label: sum(row[side]["steps"].get(step) == PASSED for row in rows.values())
            for step, label in labels.items()
        }
        counts.append(f"{title}: " + ", ".join(f"{label} {count}" for label, count in passed.items()))
    return f"Of {len(rows)} networks: " + "; ".join(counts) + "."


def _faults(name: str, row: Mapping[str, Any]) -> list[list[str]]:
    """Failed steps, and ratios at which torch-pruning failed; without failures inherent to its state dict."""
    found = []
    for side, (title, labels) in SIDES.items():
        steps = row[side]["steps"]
        wrong = {step: outcome for step, outcome in steps.items() if outcome != PASSED and step != STATE}
        found += [[name, title, labels[step], _escaped(outcome)] for step, outcome in wrong.items()]
    theirs = row["theirs"]
    if theirs.get("refused") and theirs["steps"].get(CUT) == PASSED:
        instead = "" if theirs["importance"] == IMPORTANCES[0] else f"; cut by `{theirs['importance']}` instead"
        found.append([name, "torch-pruning", f"{theirs['refused']} ratios", _escaped(theirs["refusal"]) + instead])
    return found


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")
