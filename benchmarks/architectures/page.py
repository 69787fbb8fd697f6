"""docs/architectures.md, made of what benchmarks/architectures/scoreboard.py found."""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.architectures.check import PASSED, STEPS
from benchmarks.common import table

__all__ = ["page"]

SOURCES = {"torchvision": "torchvision", "timm": "timm", "transformers": "Hugging Face transformers"}
# Reasons to show of each model.
SHOWN = 2
HALF = 0.5

HEAD = """\
# Architectures

<!-- Written by benchmarks/architectures/scoreboard.py. Do not edit. -->

{counts}

Each model is built with random weights, its normalisations given the statistics of the images, which are noise around a
pattern of each class: this says what can be pruned and whether all stays consistent, not how accurate it is afterwards.
The steps, all by the code that `catro-deploy` runs:

- **build, trace**: the network by its name, its layers, and which channels are coupled;
- **macs**: the multiply-accumulates (MACs) by which widths are chosen are those that `torch.utils.flop_counter` counts,
  of the network and of it with half of its channels (where there is attention or a product of feature maps, which count
  as in the whole network, no fewer);
- **prune**: channels scored on features of the images, chosen and cut to half of the MACs, or to the next tenth above
  that can be met where much must stay;
- **equal**: before reconstruction, the original in full width with zeros in place of the cut channels gives the same
  logits, to 1e-4 of the largest;
- **reconstruct**: with its layers solved again, the network is no further from the original's answers (KL divergence)
  than right after the cut;
- **reload**: built again from plan and weights in a run folder, it gives the very same logits;
- **onnx**: exported, it gives the same logits in ONNX Runtime, to 1e-4 of the largest;
- **train**: three steps of fine-tuning, loss and weights finite;
- **latency**, where the column has a figure: layers timed (protocol `quick`), widths chosen by latency, candidates
  measured interleaved with the original in ONNX Runtime, one thread, until one has 0.6x of its time or, where so much
  must stay, the next tenth that can be met. The column says what was measured, and the share of the MACs that this
  takes.

"Prunable" is the share of the channels of all layers (logits not counted) that may be dropped. What may not be, with
reasons, is computed as it is, and its cost is counted. "Agreement" is the share of the images that it was pruned by to
which the network gives the original's answer, right after the cut and reconstructed; "KL", in nats, is the divergence
from the original's answers likewise. "Deviation" is that of "equal", "ONNX" that of ONNX Runtime.
"""

OLDER = """
{count} rows are from before there were all steps, and have fewer: they were not tried again since.
"""

FOOT = """\
## Make this page again

    python -m benchmarks.architectures.scoreboard --timm --huggingface

Rows come from several machines, the newest from {processor}, Python {python}, torch {torch}, {date}.
`--size 64 --only PATTERN` takes a quick look at some of them.
"""


def page(result: Mapping[str, Any]) -> str:
    """The page for ``result``: ``rows`` by model, ``out_of_scope`` with what is said to them, and ``environment``."""
    rows: Mapping[str, Mapping[str, Any]] = result["rows"]
    by_source = {
        title: {name.partition(":")[2]: row for name, row in rows.items() if name.startswith(f"{source}:")}
        for source, title in SOURCES.items()
    }
    counts = [
        f"**{sum(map(_is_whole, of.values()))} of {len(of)}** convolutional networks of {title} pass every step, "
        f"{sum(_is_whole(row) and row['macs_share'] <= HALF for row in of.values())} of them at half of their MACs."
        for title, of in by_source.items()
        if of
    ]
    older = sum(map(_is_older, rows.values()))
    parts = [HEAD.format(counts="\n".join(counts)) + (OLDER.format(count=older) if older else "")]
    for title, of in by_source.items():
        if of:
            parts.append(f"## {title}\n\n{_models_table(of)}\n")
    if wrong := {name: row for name, row in rows.items() if not _is_whole(row)}:
        parts.append(f"## What does not pass\n\n{_faults_table(wrong)}\n")
    if result["out_of_scope"]:
        parts.append(_out_of_scope(result["out_of_scope"]))
    parts.append(FOOT.format(**result["environment"]))
    return "\n".join(parts)


def _models_table(rows: Mapping[str, Mapping[str, Any]]) -> str:
    measured = any("latency_share" in row for row in rows.values())
    heads = ["model", "images", "prunable", "MACs kept", "steps", "agreement", "KL", "deviation", "ONNX"]
    heads += ["by latency: time, MACs"] if measured else []
    lines = []
    for name, row in rows.items():
        cells = [name, row["size"], _percent(row, "prunable_share"), _percent(row, "macs_share"), _steps(row)]
        cells += [_before_and_after(row, "agreement", _percent), _before_and_after(row, "kl", _small)]
        cells += [_small(row, "deviation"), _small(row, "onnx_deviation")]
        if measured:
            share = row.get("latency_share")
            cells.append(f"{share:.2f}x, {_percent(row, 'latency_macs_share')}" if share else "")
        lines.append([*cells, _reasons(row)])
    return table([*heads, "what stays, and why"], lines)


def _faults_table(rows: Mapping[str, Mapping[str, Any]]) -> str:
    lines = []
    for name, row in rows.items():
        wrong = [(step, outcome) for step, outcome in row["steps"].items() if outcome != PASSED]
        wrong += [("process", row["ended"])] if "ended" in row else []
        lines += [[name, step, _cell(outcome)] for step, outcome in wrong]
    return table(["model", "step", "what went wrong"], lines)


def _out_of_scope(refused: Mapping[str, str]) -> str:
    said = Counter(" ".join(message.split()) for message in refused.values())
    names = ", ".join(name.partition(":")[2] for name in refused)
    message, _ = said.most_common(1)[0]
    # The first name stands for the others: the message is the same for all of them.
    return f"## Out of scope\n\nVision transformers: {names}. Who asks for one is told, for instance:\n\n> {message}\n"


def _is_whole(row: Mapping[str, Any]) -> bool:
    """Whether it came to the last step and passed all that there were when it was run."""
    steps = row["steps"]
    return "ended" not in row and STEPS[-1] in steps and all(outcome == PASSED for outcome in steps.values())


def _steps(row: Mapping[str, Any]) -> str:
    done = sum(outcome == PASSED for outcome in row["steps"].values())
    return f"{done} of {max(len(STEPS), len(row['steps']))}"


def _is_older(row: Mapping[str, Any]) -> bool:
    """Whether it is from before there were all steps."""
    return _is_whole(row) and not row["steps"].keys() >= set(STEPS)


def _percent(row: Mapping[str, Any], key: str) -> str:
    return f"{row[key]:.0%}" if key in row else ""


def _small(row: Mapping[str, Any], key: str) -> str:
    return f"{row[key]:.0e}" if key in row else ""


def _before_and_after(row: Mapping[str, Any], figure: str, shown: Callable[[Mapping[str, Any], str], str]) -> str:
    """A figure of the network right after the cut and of the reconstructed one."""
    both = [shown(row, f"{figure}_{network}") for network in ("cut", "reconstructed")]
    return " → ".join(both) if all(both) else ""


def _reasons(row: Mapping[str, Any]) -> str:
    """The most frequent reasons, each with its share of all channels; the names of modules are left out."""
    found: Counter[str] = Counter()
    for reason, channels in row.get("stays", {}).items():
        if reason != "the logits":
            found[_general(reason)] += channels
    shown = [f"{_cell(reason)} ({channels / row['channels']:.0%})" for reason, channels in found.most_common(SHOWN)]
    return "; ".join(shown + ([f"{len(found) - SHOWN} more"] if len(found) > SHOWN else []))


def _general(reason: str) -> str:
    """``reason`` without the place in the model that it names and what an error says of it."""
    return re.sub(r"\s*\bin \S+ \(\S+:\d+\)", "", reason.partition(": ")[0]).strip().rstrip(",")


def _cell(text: str) -> str:
    """``text`` on one line of a table."""
    return " ".join(text.replace("|", "\\|").split())
