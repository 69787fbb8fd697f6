"""The networks of torch-pruning's own tests, reimplemented, pruned by catro-deploy and by torch-pruning.

    python -m benchmarks.architectures.peer_tests                  # all
    python -m benchmarks.architectures.peer_tests --only 'Split'   # some, again

Both prune each network to half of the multiply-accumulates (architectures/peer_checks.py): can it be cut, does the cut
network compute the same as the masked original, can it be saved and loaded without pickle, and does its ONNX file
compute the same in ONNX Runtime? A failed step is an outcome.
"""

import argparse
import re
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from benchmarks.architectures.peer_checks import check_both
from benchmarks.architectures.peer_networks import NETWORKS
from benchmarks.architectures.peer_tests_tables import peer_tables
from benchmarks.common import environment, read_result, write_result

RESULT = "peer_tests.json"
PACKAGES = ("torch-pruning", "torchvision", "onnxruntime")


def main() -> None:
    """Check the requested networks, write the results, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", type=re.compile, default=re.compile(""), help="networks whose names match this pattern"
    )
    args = parser.parse_args()
    torch.set_num_threads(1)
    stored: dict[str, Any] = read_result(RESULT).get("rows", {})
    rows: dict[str, Any] = {}
    for network in NETWORKS:
        if args.only.search(network.title):
            with tempfile.TemporaryDirectory() as work:
                rows[network.title] = {"tests": list(network.tests), **check_both(network, Path(work))}
        elif network.title in stored:
            rows[network.title] = stored[network.title]
        content = {"rows": rows, "environment": environment() | {name: version(name) for name in PACKAGES}}
    write_result(RESULT, content)
    print("\n\n".join(peer_tables(rows)))


if __name__ == "__main__":
    main()
