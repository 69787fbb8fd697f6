"""What an NVIDIA GPU makes of ResNet-50 in PyTorch: fp16, channels_last, cuDNN, CUDA graphs.

    benchmarks/gpu.sh FOLDER                          9 minutes at most, on a GPU
    benchmarks/gpu.sh FOLDER --device cpu --quick     dry run: a tiny network on the CPU, times that say nothing

Needs Python 3.11, torch and numpy. Parts: the staircase of single convolutions; a cost model from the times of layers,
fitted on some whole networks of random widths and judged by others; what width, depth and both reach at half of the
latency. Each writes its own JSON file into FOLDER as soon as it is done, and stops in time.

Layers are timed alone, in a chain of repetitions with weights of their own. Among their neighbours they find other
things in the caches; the fit on whole networks corrects what that adds up to, not where.
"""

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from common import environment, table
from gpu_cost import Model, cost_rows, measure_cost
from gpu_device import CpuDevice, Device, GpuDevice
from gpu_layers import Bench, Scale, choose_kernels
from gpu_network import FoldedResNet, Fusion
from gpu_reach import measure_reach, reach_rows
from gpu_resnet import RESNET50, TINY
from gpu_staircase import measure_staircases, staircase_rows

from catro_deploy.agent.measure import no_garbage_collection
from catro_deploy.errors import CatroError
from catro_deploy.files import write_json

FULL = Scale(
    RESNET50, batches=(1, 32), swept=(8, 256), repeats=20, rounds=3, block_us=2000.0, together=24,
    candidates=(7, 5, 3), networks=120, warmup_s=3.0,
)  # fmt: skip
QUICK = Scale(
    TINY, batches=(1, 2), swept=(8, 24), repeats=3, rounds=2, block_us=300.0, together=8,
    candidates=(3,), networks=36, warmup_s=0.1,
)  # fmt: skip
# Seconds at most of each part; what one leaves is not used by the next. All in all less than 9 minutes.
KERNELS_S, STAIRCASE_S, COST_S, REACH_S = 40.0, 110.0, 130.0, 35.0
# fp16 through 53 layers; wrong kernels are off by far more.
AGREEMENT = 0.02
DRY_RUN = "CPU DRY RUN: a tiny network in fp32 on this CPU. It shows that the script runs; no time in it is a GPU's."


class Session:
    """Parts one after the other, each with a file of its own in ``folder``; ends before ``limit_s`` have passed."""

    def __init__(self, folder: Path, device: Device, quick: bool, limit_s: float) -> None:
        self.folder, self.device, self.quick = folder, device, quick
        self.ends = time.monotonic() + limit_s
        self.broken = False

    def part(self, name: str, limit_s: float, work: Callable[[float], dict[str, Any]]) -> dict[str, Any]:
        """Give ``work`` until when it may run, and write what it returns. An error ends this part, not the others."""
        before, now = self.device.state(), time.monotonic()
        until = min(now + limit_s, self.ends)
        content: dict[str, Any]
        if until <= now:
            content = {"error": "The time was up before this part."}
        else:
            try:
                content = work(until)
            except (CatroError, RuntimeError, LookupError, ValueError) as error:
                content = {"error": f"{type(error).__name__}: {error}"}
        self.broken |= "error" in content
        machine = {**environment(), **self.device.facts(), "before": before, "after": self.device.state()}
        notes = {"dry_run": self.device.dry_run, "quick": self.quick, "precision": str(self.device.dtype)}
        write_json(self.folder / f"{name}.json", {"machine": machine, **notes, **content})
        seconds = time.monotonic() - now
        print(f"{name}: {content.get('error', 'done')} ({seconds:.0f} s)", file=sys.stderr, flush=True)
        return content


def warm_up(device: Device, bench: Bench) -> None:
    """Run until clocks have settled."""
    ends = time.monotonic() + bench.scale.warmup_s
    while time.monotonic() < ends:
        device.times_us(bench.reference, 20)


def check(bench: Bench) -> dict[str, Any]:
    """Compare logits with those of plain kernels in float32. Where fused kernels are wrong all run plain.

    Raises:
        RuntimeError: plain kernels are wrong, too.
    """
    full = bench.scale.resnet.widths
    odd = {name: width - 1 for name, width in full.items()}
    # Kernels that were found before stay; the many that are needed only here need not be the fastest.
    bench.device.tune(False)
    for by_kind in (bench.fusion.by_kind, {}):
        bench.fusion.by_kind = by_kind
        errors = [_error(widths, batch, bench) for widths in (full, odd) for batch in bench.scale.batches]
        if all(error <= AGREEMENT for error in errors):
            return {"relative_errors": errors, "all_plain": not by_kind}
    raise RuntimeError(f"Logits differ from those in float32 by {errors} of their norm.")


def _error(widths: Mapping[str, int], batch: int, bench: Bench) -> float:
    network = FoldedResNet(bench.scale.resnet, widths, batch, bench.device, bench.fusion)
    found, expected = network().float(), network.in_float32()
    return float((found - expected).norm() / expected.norm())


def kernels(bench: Bench, until: float) -> dict[str, Any]:
    """Which kernels run: what all other parts stand on."""
    chosen = choose_kernels(bench, until - time.monotonic())
    checked = check(bench)
    bench.device.tune(bool(chosen["tuned"]))
    return {**chosen, "check": checked, "failed": bench.failed}


def cost_and_reach(session: Session, bench: Bench, batch: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The cost model at one batch and what follows from it; no file of the latter where there is no model."""
    models: list[Model] = []

    def cost(until: float) -> dict[str, Any]:
        model, content = measure_cost(batch, bench, until)
        models.append(model)
        return content

    found = session.part(f"cost_model_batch{batch}", COST_S, cost)
    if not models:
        return found, {"error": "There is no cost model."}
    return found, session.part(f"reach_batch{batch}", REACH_S, lambda until: measure_reach(models[0], bench, until))


def measure_all(session: Session, scale: Scale) -> str:
    """All parts; tables of what was measured."""
    device = session.device
    # Of another size, so that its kernels, which need not be the fastest, are not kept for layers that are measured.
    device.tune(False)
    larger = replace(scale.resnet, image=scale.resnet.image + 32)
    bench = Bench(device, scale, device.prepare(FoldedResNet(larger, larger.widths, 1, device, Fusion())))
    warm_up(device, bench)
    session.part("kernels", KERNELS_S, lambda until: kernels(bench, until))
    stairs = session.part("staircase", STAIRCASE_S, lambda until: measure_staircases(bench, until))
    found = [cost_and_reach(session, bench, batch) for batch in scale.batches]
    costs = [cost for cost, _ in found if "error" not in cost]
    reaches = [reach for _, reach in found if "error" not in reach]
    tables = [table(*staircase_rows(stairs))] if "error" not in stairs else []
    return "\n\n".join([*tables, table(*cost_rows(costs)), table(*reach_rows(reaches))])


def main() -> int:
    """Measure, print, write; 1 if a part failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="FOLDER", help="for the JSON files")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--quick", action="store_true", help="a tiny network, to see that everything runs")
    parser.add_argument("--limit-s", type=float, default=490.0, help="seconds until no part goes on (%(default)s)")
    args = parser.parse_args()
    if args.device == "cpu" and not args.quick:
        parser.error("on a CPU only --quick: ResNet-50 would take hours, and its times would say nothing of a GPU")
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("torch finds no CUDA device; for a dry run: --device cpu --quick")
    with torch.inference_mode(), no_garbage_collection():
        device: Device = GpuDevice() if args.device == "cuda" else CpuDevice()
        print(DRY_RUN if device.dry_run else f"{device.facts()['gpu']}, at most {args.limit_s:.0f} s", flush=True)
        session = Session(args.out, device, args.quick, args.limit_s)
        print(f"\n{measure_all(session, QUICK if args.quick else FULL)}")
    if device.dry_run:
        print("\n" + DRY_RUN)
    return int(session.broken)


if __name__ == "__main__":
    sys.exit(main())
