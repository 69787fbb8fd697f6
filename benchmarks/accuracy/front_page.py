"""docs/fronts.md and its pictures, generated from the results of benchmarks/accuracy/front.py."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.accuracy.front_picture import picture
from benchmarks.accuracy.front_points import Interval, Point, Verdict, Way, compare, original_of, points_of
from benchmarks.accuracy.front_rows import BUDGETS, OURS, TASKS, TRAINED, WAYS, rows_of
from benchmarks.accuracy.front_selection import is_selected
from benchmarks.accuracy.reconstruction_rows import CASES
from benchmarks.common import DOCS, read_result, table
from benchmarks.rows import gpu_of, lacks_feature_maps
from catro_deploy.files import write_text

__all__ = ["PAGE", "page", "pictures", "write_page"]

Results = Mapping[str, Mapping[str, Any]]

PAGE = DOCS / "fronts.md"
HEAD = """\
# Fronts of accuracy and latency

<!-- Written by benchmarks/accuracy/front.py. Do not edit. -->

Accuracy on the test images against the measured share of the original's latency, for networks pruned to five budgets.
Latency is measured again after pruning, with ONNX Runtime on one thread at batch size 1, interleaved with the original;
it may differ from the budget that was met before. All intervals are 95% intervals: bootstrap intervals for latency,
Wilson score intervals for accuracy on the given number of test images. The latter assume independent images: on GTSRB,
which has 30 of each physical sign, they are too narrow. The machine was also running other work.

**ours** is the default of `catro-deploy`, fine-tuned with the recipe `gentle`. **paper** is CATRO as in the paper, with
Algorithm 2 by multiply-accumulates and without reconstruction, fine-tuned with the recipe `fast`; its share of the
multiply-accumulates is chosen so that the latency budget is met. torch-pruning prunes all layers by one ratio, chosen
so that the budget is met. "Hessian" is its group importance by optimal brain damage, with the squared gradients of 256
single images; "random" is one random draw. FastNAS of NVIDIA's Model Optimizer scores widths (multiples of 8) by
accuracy on validation images and is given the largest share of the multiply-accumulates that meets the budget. Networks
of both tools are fine-tuned with a common recipe (`usual`: learning rate 0.05, no distillation) and with our `gentle`
recipe. Untrained networks without reconstruction are evaluated with re-estimated batch norm statistics.

Our front is the line through our points and the original. A point is **above** it if the lower end of its accuracy
exceeds the front drawn through the upper ends of our accuracies and the lower ends of our latencies, evaluated at the
upper end of the point's latency; **below** if the same holds with all ends exchanged; **level** otherwise; **faster**
if none of our networks is as fast.

```sh
python -m benchmarks.accuracy.front --gtsrb FOLDER --cifar10 FOLDER --photographs FOLDER --weights FOLDER \\
    --tasks TASK
```
"""
MISSING = """\
## Coverage

Rows measured so far, of those that the command above runs (one seed each): all methods without training; after
training, ours at all budgets and a selection of the others at 0.5x and 0.35x, to limit the number of trainings. Ten
epochs are compared for ResNet-20 on CIFAR-10 only: on the signs, ours has the original's accuracy after 3 epochs, and
larger networks take up to an hour per row. `--all` runs the others, too.
"""
# Minimum number of points of one method for which a picture shows more than the table.
FEWEST = 3
SIDES = ("above", "level", "below", "faster")
WORDS = {"none": "without training", "3 epochs": "after 3 epochs", "10 epochs": "after 10 epochs"}
# What a reader must know of the trainings of a task.
TRAINING_NOTES = {
    "efficientnet_lite0-photographs": "The five classes have 1,350 training images, so an epoch has few steps. "
    "Guessing gets 20% right.",
}
QUANTISED = {"resnet20-gtsrb": "gtsrb-resnet20"}


def write_page(results: Results) -> str:
    """Write the page and its pictures; return the text of the page."""
    text = page(results)
    write_text(PAGE, text)
    for name, drawn in pictures(results).items():
        write_text(DOCS / name, drawn)
    return text


def page(results: Results) -> str:
    """The page for ``results``, which are by row name."""
    sections = [part for task, training in _pairs(results) for part in _section(results, task, training)]
    return "\n".join([HEAD, *sections, MISSING, _missing(results)])


def pictures(results: Results) -> dict[str, str]:
    """The pictures by file name."""
    found = {}
    for task, training in _pairs(results):
        mine = _of(results, task, training)
        points, original = points_of(mine), original_of(mine)
        if original and _is_drawn(points):
            found[_file(task, training)] = picture(f"{CASES[task].title}, {WORDS[training]}", points, original)
    return found


def _is_drawn(points: Mapping[Way, Sequence[Point]]) -> bool:
    return max(map(len, points.values()), default=0) >= FEWEST


def _section(results: Results, task: str, training: str) -> Iterator[str]:
    mine = _of(results, task, training)
    points, original = points_of(mine), original_of(mine)
    title = f"{CASES[task].title}, {WORDS[training]}"
    yield f"## {title}\n"
    if _is_drawn(points):
        yield f"![{title}: accuracy against measured latency]({_file(task, training)})\n"
    if original:
        images = next(row["test_images"] for row in mine if "unmet" not in row)
        yield f"Original: {_ends(original.accuracy, 2, '%')} of {images:,} test images.\n"
    if training != "none" and task in TRAINING_NOTES:
        yield f"{TRAINING_NOTES[task]}\n"
    yield _table(mine, points, training) + "\n"
    if original:
        yield _verdicts(points, original, training) + "\n"
    yield from (f"{line}\n" for line in dict.fromkeys(_unmet(mine)))
    yield from (f"{line}\n" for line in _quantised(task))
    yield _machines(mine) + "\n"


def _table(rows: Sequence[Mapping[str, Any]], points: Mapping[Way, Sequence[Point]], training: str) -> str:
    """One line per method and recipe, one column per budget; cells hold accuracy and latency with their intervals."""
    lines = []
    for way in dict.fromkeys((row["pruning"], row["recipe"]) for row in _in_order(rows)):
        cells = {point.budget: _cell(point) for point in points.get(way, ())}
        cells |= {row["budget"]: "not met" for row in rows if (row["pruning"], row["recipe"]) == way and "unmet" in row}
        recipe = "-" if training == "none" else way[1]
        lines.append([way[0], recipe, *(cells.get(budget, "-") for budget in BUDGETS)])
    return table(["pruned by", "fine-tuned by", *BUDGETS], lines)


def _cell(point: Point) -> str:
    seeds = f" (mean of {point.seeds})" if point.seeds > 1 else ""
    return f"{_ends(point.accuracy, 2, '%')}{seeds}<br>{_ends(point.latency, 3, 'x')}"


def _ends(found: Interval, places: int, unit: str) -> str:
    return f"{found.value:.{places}f}{unit} ({found.low:.{places}f} to {found.high:.{places}f})"


def _verdicts(points: Mapping[Way, Sequence[Point]], original: Point, training: str) -> str:
    """The number of points of other methods by side of our front, and a sentence for each point above it."""
    others = [point for (pruning, _), found in points.items() if pruning != OURS for point in found]
    judged = [(point, verdict) for point in others if (verdict := compare(point, points, original))]
    if not judged:
        return "Nothing to compare yet."
    counts: Counter[str] = Counter(verdict.side for _, verdict in judged)
    text = "Points of other methods: " + ", ".join(f"{counts[side]} {side}" for side in SIDES) + "."
    budgets = {point.budget for (pruning, _), found in points.items() if pruning == OURS for point in found}
    missing = [budget for budget in BUDGETS if budget not in budgets]
    if missing:
        text += f" Our front lacks {', '.join(missing)}."
    above = [_sentence(point, verdict, training) for point, verdict in judged if verdict.side == "above"]
    return "\n".join([text, *([""] if above else []), *above])


def _sentence(point: Point, verdict: Verdict, training: str) -> str:
    recipe = "" if training == "none" else f", {point.way[1]} recipe,"
    where = f"at {point.budget} ({point.latency.value:.3f}x measured), {WORDS[training]}"
    return f"- {where[0].upper()}{where[1:]}, {point.way[0]}{recipe} is above ours by {verdict.gap:.1f} points."


def _unmet(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for row in _in_order(rows):
        if "unmet" in row:
            yield f"{row['pruning']} at {row['budget']}: {row['unmet'].splitlines()[0].rstrip('.')}."


def _quantised(task: str) -> Iterator[str]:
    """The result of quantisation alone, in another runtime."""
    for machine, found in read_result("openvino_int8.json").get("machines", {}).items():
        row = found["rows"].get(QUANTISED.get(task, ""), {})
        if "nncf int8" in row.get("accuracy", {}):
            names = [name for name in row["accuracy"] if name.startswith("nncf")]
            accuracies = " and ".join(f"{row['accuracy'][name]:.2%} ({name})" for name in names)
            share = 1 / row["speedup"]["openvino fp32"]["nncf int8"][0]
            yield (
                f"Not in the picture: the unpruned network, quantised to int8 by NNCF {row['peer']['nncf']}, takes "
                f"{share:.3f}x of its float32 latency in OpenVINO ({machine}); accuracy {accuracies}."
            )


def _machines(rows: Iterable[Mapping[str, Any]]) -> str:
    """Machines, versions and dates of the measurements of ``rows``, and how many were trained otherwise than most."""
    rows = list(rows)
    known = [row["environment"] for row in rows]
    dates = sorted({one["date"] for one in known})
    machines = sorted({f"{one['processor']}, {one['cores']} cores" for one in known})
    versions = sorted({f"PyTorch {one['torch']}" for one in known})
    more = {f"{name} {found}" for row in rows for name, found in row.get("versions", {}).items()}
    when = " to ".join(dict.fromkeys([dates[0], dates[-1]]))
    gpus = Counter(gpu for row in rows if (gpu := gpu_of(row)))
    by_gpu = [f"{count} of {len(rows)} trained on an {gpu}" for gpu, count in gpus.items()]
    older = sum(map(lacks_feature_maps, rows))
    recipe = [f"{older} of {len(rows)} trained without feature maps (`distill_features = 0`)"] if older else []
    return "; ".join([*machines, ", ".join([*versions, *sorted(more)]), when, *by_gpu, *recipe])


def _missing(results: Results) -> str:
    """One line per task, one column per training: how many of its rows are stored."""
    lines = []
    for task in TASKS:
        cells = []
        for training in TRAINED:
            wanted = list(filter(is_selected, rows_of([task], WAYS, BUDGETS, [training], [0])))
            cells.append(f"{sum(row.name in results for row in wanted)} of {len(wanted)}" if wanted else "-")
        lines.append([CASES[task].title, *cells])
    return table(["task", *(WORDS[training] for training in TRAINED)], lines) + "\n"


def _pairs(results: Results) -> list[tuple[str, str]]:
    """Tasks and trainings that have rows, in order."""
    return [(task, training) for task in TASKS for training in TRAINED if _of(results, task, training)]


def _of(results: Results, task: str, training: str) -> list[Mapping[str, Any]]:
    return [row for row in results.values() if (row["case"], row["training"]) == (task, training)]


def _in_order(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    ways, budgets = list(WAYS), list(BUDGETS)
    return sorted(
        rows,
        key=lambda row: (
            ways.index(row["pruning"]),
            WAYS[row["pruning"]].index(row["recipe"]),
            budgets.index(row["budget"]),
        ),
    )


def _file(task: str, training: str) -> str:
    return f"front_{task}_{training.replace(' ', '_')}.svg"
