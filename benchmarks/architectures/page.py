"""docs/architectures.md, generated from the results of benchmarks/architectures/scoreboard.py."""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.architectures.check import PASSED, STEPS
from benchmarks.common import table

__all__ = ["page"]

SOURCES = {"torchvision": "torchvision", "timm": "timm", "transformers": "Hugging Face transformers"}
# Number of reasons shown for each model.
SHOWN = 2
HALF = 0.5

HEAD = """\
# Architectures

<!-- Written by benchmarks/architectures/scoreboard.py. Do not edit. -->

{counts}

Each model is built with random weights. The images are noise around one pattern per class, and normalisations have
their statistics. This shows what can be pruned and whether the result is consistent, not how accurate it is. All steps
run the code of `catro-deploy`:

- **build, trace**: the network is built by its name, and its layers and coupled channels are found;
- **macs**: the multiply-accumulates (MACs) used to choose widths equal those counted by `torch.utils.flop_counter`, for
  the network and for the network with half of its channels (if it has attention or products of feature maps, which are
  counted as in the whole network, they are no fewer);
- **prune**: channels are scored on features of the images, chosen, and cut to half of the MACs or, if that cannot be
  met, to the next higher tenth that can;
- **equal**: before reconstruction, the original at full width with zeros in place of the cut channels gives the same
  logits, to within 1e-4 of the largest;
- **reconstruct**: after reconstruction, the network is no further from the original's outputs (KL divergence) than
  right after the cut;
- **reload**: rebuilt from the plan and weights in a run folder, the network gives identical logits;
- **onnx**: the exported network gives the same logits in ONNX Runtime, to within 1e-4 of the largest;
- **train**: three steps of fine-tuning run, with finite loss and weights;
- **latency**, where the column has a figure: layers are timed (protocol `quick`), widths chosen by latency, and
  candidates measured interleaved with the original in ONNX Runtime, on one thread, until one takes 0.6x of its time or,
  if that cannot be met, the next higher tenth that can. The column holds the measured share of the time and the share
  of the MACs.

"Prunable" is the share of the channels of all layers (logits not counted) that may be dropped. Channels that may not be
dropped, with reasons, are computed as before, and their cost is counted. "Agreement" is the share of the images used
for pruning on which the network gives the original's prediction, right after the cut and after reconstruction; "KL", in
nats, is the divergence from the original's outputs at the same stages. "Deviation" is that of step "equal", "ONNX" that
in ONNX Runtime.
"""

OLDER = """
{count} rows predate some of the steps and therefore have fewer: they have not been run again since.
"""

FOOT = """\
## Regenerating this page

    python -m benchmarks.architectures.scoreboard --timm --huggingface

Rows come from several machines, the newest from {processor}, Python {python}, torch {torch}, {date}.
`--size 64 --only PATTERN` quickly checks some of them.
"""


def page(result: Mapping[str, Any]) -> str:
    """The page for ``result``: ``rows`` by model, ``out_of_scope`` with the error of each, and ``environment``."""
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
        parts.append(f"## Failed steps\n\n{_faults_table(wrong)}\n")
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
    return table([*heads, "not prunable, and why"], lines)


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
    scope = f"Vision transformers: {names}. They are rejected, for instance with this error:"
    return f"## Out of scope\n\n{scope}\n\n> {message}\n"


def _is_whole(row: Mapping[str, Any]) -> bool:
    """Whether the model reached the last step and passed all steps that existed when it was run."""
    steps = row["steps"]
    return "ended" not in row and STEPS[-1] in steps and all(outcome == PASSED for outcome in steps.values())


def _steps(row: Mapping[str, Any]) -> str:
    done = sum(outcome == PASSED for outcome in row["steps"].values())
    return f"{done} of {max(len(STEPS), len(row['steps']))}"


def _is_older(row: Mapping[str, Any]) -> bool:
    """Whether the row predates some of the steps."""
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
    """``reason`` without the place in the model that it names and without the text of an error."""
    return re.sub(r"\s*\bin \S+ \(\S+:\d+\)", "", reason.partition(": ")[0]).strip().rstrip(",")


def _cell(text: str) -> str:
    """``text`` on one line of a table."""
    return " ".join(text.replace("|", "\\|").split())
