"""How much accuracy of a pruned network is recovered by re-estimating batch norm statistics, before any training.

    python -m benchmarks.accuracy.batch_norm --gtsrb FOLDER --checkpoint gtsrb_resnet20.pth \\
        [--budgets 75% 50% 25% 9.25%]

ResNet-20 on GTSRB's speed limits, pruned by CATRO and by L1 norms to the same widths (chosen by multiply-accumulates).
The means and variances of its batch norms are reset and estimated on the plain training images (torch's ``update_bn``).
Accuracy is on validation images. Prints a table; writes benchmarks/results/batch_norm.json.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch

from benchmarks.common import environment, table, write_result
from benchmarks.rows import BATCH_SIZE, retake_statistics_
from catro_deploy import networks
from catro_deploy.data.base import Subset
from catro_deploy.progress import Silent
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.plan import load_plan
from catro_deploy.settings import load_settings
from catro_deploy.stages.logits import dataset_of
from catro_deploy.stages.prune import prune
from catro_deploy.training import accuracy, predict

METHODS = {"catro": ("catro", "greedy"), "l1": ("l1", "greedy")}


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gtsrb", type=Path, required=True)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--budgets", nargs="+", default=["75%", "50%", "25%", "9.25%"], help="shares of the MACs")
    return parser.parse_args()


def run_row(budget: str, method: str, args: argparse.Namespace) -> dict[str, Any]:
    """Prune to ``budget`` and evaluate before and after re-estimating the statistics."""
    criterion, allocation = METHODS[method]
    pixels = {"mean": [0.3403, 0.3121, 0.3214], "std": [0.2724, 0.2608, 0.2669]}
    pruning = {"classes": ["speed_limits"], "budget": f"{budget}flops", "criterion": criterion}
    settings = load_settings(
        None,
        {
            "model": {"name": "cifar_resnet20", "checkpoint": args.checkpoint, **pixels},
            "data": {"name": "gtsrb", "root": args.gtsrb},
            "prune": {**pruning, "allocation": allocation},
        },
    )
    with tempfile.TemporaryDirectory() as folder:
        run = RunFolder(Path(folder))
        prune(settings, run, Silent())
        plan = load_plan(run)
        data = dataset_of(settings, plan)
        train, validation = (Subset(split, plan.class_indices) for split in (data.train, data.validation))

        def judged(network: torch.nn.Module) -> float:
            logits = predict(network, validation, plan.mean, plan.std, BATCH_SIZE)
            return accuracy(logits, validation.labels)

        network = networks.load(run, weights="pruned")
        row = {"budget": budget, "method": method, "original": judged(networks.load(run, weights="original"))}
        row["pruned"] = judged(network)
        retake_statistics_(network, train, plan)
        row["re_estimated"] = judged(network)
        return row


def main() -> None:
    """Prune and evaluate, print the table, write the results."""
    args = arguments()
    rows = [run_row(budget, method, args) for budget in args.budgets for method in METHODS]
    write_result("batch_norm.json", {"rows": rows, "environment": environment()})
    heads = ("MACs", "method", "original", "pruned", "statistics re-estimated")
    cells = [
        [row["budget"], row["method"], *(f"{row[name]:.2%}" for name in ("original", "pruned", "re_estimated"))]
        for row in rows
    ]
    print(table(heads, cells))


if __name__ == "__main__":
    main()
