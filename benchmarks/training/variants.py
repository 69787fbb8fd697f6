"""What the benchmarks of variants of a training step share: the command line, and figures of interleaved turns."""

import argparse
import statistics
from collections.abc import Sequence

__all__ = ["CLASSES", "arguments", "medians_ms", "ratio_quartiles"]

MODELS = ["cifar_resnet20@32", "cifar_resnet56@32", "torchvision:resnet50@96", "torchvision:mobilenet_v2@96"]
CLASSES = 10


def arguments(description: str | None) -> argparse.Namespace:
    """Read the command line of the benchmark with this ``description``."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=MODELS, help="names with the height and width of the images")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--turns", type=int, default=15)
    return parser.parse_args()


def medians_ms(turns_ms: Sequence[Sequence[float]]) -> list[float]:
    """The median of each variant over the turns."""
    return [statistics.median(column) for column in zip(*turns_ms, strict=True)]


def ratio_quartiles(turns_ms: Sequence[Sequence[float]], variant: int, reference: int) -> list[float]:
    """Quartiles, over the turns, of the time of a ``variant`` divided by that of the ``reference``."""
    return statistics.quantiles([turn[variant] / turn[reference] for turn in turns_ms], n=4)
