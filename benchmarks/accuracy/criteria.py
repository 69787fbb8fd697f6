"""Channel criteria at equal widths, all reconstructed alike: without training, after 100 steps, after three epochs.

    python -m benchmarks.accuracy.criteria --cifar10 FOLDER --gtsrb FOLDER --weights FOLDER \\
        [--trainings none '100 steps']

catro: error of the next layers, weighted by what separates the wanted classes' logits; obs: the same, unweighted;
ratio: the trace ratio of what the next layers can reconstruct (criteria_ratio.py); paper: Algorithm 1 of the paper; l1:
L1 norms. The same share of channels is kept everywhere, so that only the choice of channels differs. Agreement with the
original is measured on validation images, accuracy on test images. Completed rows are stored in
benchmarks/results/criteria.json. Prints a table.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from benchmarks.accuracy.criteria_ratio import kept_by_ratio
from benchmarks.accuracy.reconstruction import settings_of
from benchmarks.accuracy.reconstruction_rows import TRAININGS
from benchmarks.accuracy.reconstruction_rows import Row as Trained
from benchmarks.common import environment, read_result, table, write_result
from catro_deploy.data.base import Subset
from catro_deploy.graph.coupling.trace import trace
from catro_deploy.graph.fx.features import Labelled
from catro_deploy.progress import Silent
from catro_deploy.pruning.classifier import prune_classifier
from catro_deploy.pruning.cutting import Classifier, Cut, Pruned, cut_classifier
from catro_deploy.pruning.scoring import score_channels
from catro_deploy.pruning.selection import choose_channels
from catro_deploy.reconstruction.reconstructor import Reconstructor
from catro_deploy.records import GroupPlan, Keep
from catro_deploy.settings import Settings, follow_recipe
from catro_deploy.stages.original import Original, open_original
from catro_deploy.stages.prune import pruning_batches
from catro_deploy.statistics.agreement import agreement_of
from catro_deploy.training import TrainingJob, accuracy, fit, predict

RESULT = "criteria.json"
CRITERIA = ("catro", "obs", "ratio", "paper", "l1")
# Network and task -> case of benchmarks/accuracy/reconstruction.py, wanted classes, share of the MACs.
PAIRS: Mapping[str, tuple[str, tuple[str, ...], str]] = {
    "ResNet-20, CIFAR-10": ("resnet20-cifar10", (), "30%flops"),
    "ResNet-20, vehicles of CIFAR-10": ("resnet20-cifar10", ("airplane", "automobile", "ship", "truck"), "15%flops"),
    "ResNet-20, cat and dog": ("resnet20-cifar10", ("cat", "dog"), "15%flops"),
    "ResNet-20, GTSRB speed limits": ("resnet20-gtsrb", ("speed_limits",), "10%flops"),
    "ResNet-20, GTSRB direction signs": ("resnet20-gtsrb", ("direction_signs",), "10%flops"),
    "ResNet-56, CIFAR-10": ("resnet56-cifar10", (), "30%flops"),
}


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("gtsrb", "cifar10", "weights"):
        parser.add_argument(f"--{name}", type=Path, default=Path("weights" if name == "weights" else "data"))
    parser.add_argument("--pairs", nargs="+", choices=PAIRS, default=list(PAIRS))
    parser.add_argument("--trainings", nargs="+", choices=TRAININGS, default=["none", "100 steps"])
    return parser.parse_args()


def settings_for(pair: str, training: str, args: argparse.Namespace) -> Settings:
    """The settings shared by all criteria."""
    case, classes, budget = PAIRS[pair]
    settings = settings_of(Trained(case, budget, "ours", "gentle", training), args)
    prune = settings.prune.model_copy(update={"classes": list(classes), "allocation": "uniform"})
    return settings.model_copy(update={"prune": prune})


def chosen(
    criterion: str, original: Original, batches: Sequence[Labelled], settings: Settings, widths: Mapping[str, int]
) -> Sequence[GroupPlan]:
    """The channels that ``criterion`` keeps in each group."""
    network = trace(original.model, original.input_shape)
    if criterion != "ratio":
        scored = score_channels(original.model, network, batches, settings.prune, Silent())
        return choose_channels(original.model, network, scored, widths, batches, settings.prune, Silent())
    keeper = _keeper(original, batches, settings)
    by_class: dict[int, list[torch.Tensor]] = {}
    for images, label in batches:
        by_class.setdefault(label, []).append(images)
    groups = [group for group in network.groups if keeper.follows(group) and widths[group.name] < group.width]
    kept = kept_by_ratio(keeper.graph, groups, widths, keeper.images, list(by_class.values()))
    return [GroupPlan(g.name, g.width, kept.get(g.name, tuple(range(g.width))), g.producers) for g in network.groups]


def _keeper(original: Classifier, batches: Sequence[Labelled], settings: Settings) -> Reconstructor:
    images = torch.cat([images[: max(1, 1024 // len(batches))] for images, _ in batches])
    mixed = images[torch.randperm(len(images), generator=torch.Generator().manual_seed(0))]
    network = trace(original.model, original.input_shape)
    return Reconstructor(original.model, network, list(mixed.split(128)), settings.prune, Silent())


def pruned_by(criterion: str, original: Original, batches: Sequence[Labelled], settings: Settings) -> Pruned:
    """The network pruned by ``criterion`` and reconstructed."""
    own = settings.prune.model_copy(update={"criterion": criterion if criterion in ("catro", "obs", "l1") else "catro"})
    found = prune_classifier(original, batches, settings.model_copy(update={"prune": own}), Silent())
    if criterion in ("catro", "obs", "l1"):
        return found
    widths = {group.name: len(group.kept) for group in found.plan.groups}
    groups = chosen(criterion, original, batches, settings, widths)
    network = trace(original.model, original.input_shape, settings.prune.ignore)
    cut = cut_classifier(original, network, Cut(groups), batches[0][0], settings)
    keeps = dict(cut.plan.keeps)
    if not original.has_whole_head:
        keeps[original.head] = Keep(None, keeps[original.head].inputs)
    model, _ = _keeper(original, batches, settings).reconstructed(cut.model, keeps, ())
    return Pruned(model, cut.plan)


def judge(pair: str, criterion: str, training: str, args: argparse.Namespace) -> dict[str, Any]:
    """Prune, train, and compare with the original."""
    settings = settings_for(pair, training, args)
    original = open_original(settings)
    pruned = pruned_by(criterion, original, pruning_batches(original, settings), settings)
    train, validation, test = (
        Subset(split, original.wanted)
        for split in (original.dataset.train, original.dataset.validation, original.dataset.test)
    )
    pixels, options = (original.mean, original.std), follow_recipe(settings.finetune, reconstructed=True)
    if options.epochs:
        with tempfile.TemporaryDirectory() as folder:
            state = Path(folder) / "state.safetensors"
            distill, temperature = options.distill or 0.0, options.temperature
            job = TrainingJob(
                pruned.model, train, validation, options, *pixels, "fine-tuning", original.model, distill, temperature
            )
            fit(job, state, Silent())
    device = torch.device("cpu")
    predictions = [predict(model, validation, *pixels, 256, device) for model in (original.model, pruned.model)]
    return {
        "pair": pair,
        "criterion": criterion,
        "training": training,
        "agreement": agreement_of(predictions[0].numpy(), predictions[1].numpy()).share,
        "accuracy": accuracy(predict(pruned.model, test, *pixels, 256, device), test.labels),
        "macs_share": pruned.plan.pruned_macs / pruned.plan.original_macs,
    }


def results_table(rows: Iterable[Mapping[str, Any]]) -> str:
    """One line per network and training for which every criterion has a result, and the means by training."""
    found = {(row["pair"], row["training"], row["criterion"]): row for row in rows}
    whole = {
        (pair, training): [found[pair, training, criterion] for criterion in CRITERIA]
        for pair in PAIRS
        for training in TRAININGS
        if all((pair, training, criterion) in found for criterion in CRITERIA)
    }
    lines = [
        [pair, f"{mine[0]['macs_share']:.0%}", training, *(_cell([row]) for row in mine)]
        for (pair, training), mine in whole.items()
    ]
    for training in TRAININGS:
        same = [mine for (_, of), mine in whole.items() if of == training]
        if len(same) > 1:
            lines.append([f"mean of {len(same)}", "", training, *(_cell(rows) for rows in zip(*same, strict=True))])
    return table(["network, task", "MACs", "training", *CRITERIA], lines)


def _cell(rows: Sequence[Mapping[str, Any]]) -> str:
    return f"{mean(row['agreement'] for row in rows):.1%} / {mean(row['accuracy'] for row in rows):.2%}"


def main() -> None:
    """Run the missing rows, print the table."""
    args = arguments()
    torch.set_num_threads(1)
    for training in args.trainings:
        for pair in args.pairs:
            for criterion in CRITERIA:
                name = f"{pair}, {criterion}, {training}"
                rows = read_result(RESULT).get("rows", {})
                if name not in rows:
                    print(f"{name} ...", file=sys.stderr, flush=True)
                    rows[name] = judge(pair, criterion, training, args)
                    write_result(RESULT, {"rows": rows, "environment": environment()})
    print(results_table(read_result(RESULT)["rows"].values()))


if __name__ == "__main__":
    main()
