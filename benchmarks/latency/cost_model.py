"""How well a latency profile predicts held-out prunings: ResNet-20, MobileNetV2 and ResNet-50 on x86.

    python -m benchmarks.latency.cost_model                     # all three, about half an hour on a quiet machine
    python -m benchmarks.latency.cost_model --networks cifar_resnet20
    python -m benchmarks.latency.cost_model --runtime openvino

For each network, a latency profile is loaded or measured; then random prunings (each group at a random one of the
efficient widths) are timed as a whole in rounds of random order, with the original between any two. Predicted and
measured latencies are compared as shares of the original's. For comparison, multiply-accumulates are fitted to the same
prunings with a slope and an intercept (which favours them). Prunings at any widths, most of which were never measured,
are evaluated as well, although no allocation chooses them.

Weights are random: latency does not depend on them. Completed networks are stored in
benchmarks/results/cost_model.json, or cost_model_openvino.json, and not measured again without --force;
docs/cost_model.svg or cost_model_openvino.svg is drawn from it.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from torch import nn

from benchmarks.common import DOCS, environment, read_result, table, write_result
from benchmarks.latency.networks import NETWORKS, untrained
from catro_deploy.agent.events import Event, Sample
from catro_deploy.agent.jobs import ProfileJob, Variant
from catro_deploy.calibration import ProfileProtocol, load_profile_protocol
from catro_deploy.files import write_text
from catro_deploy.graph.coupling.trace import Network, trace
from catro_deploy.graph.cut.surgery import keeps_of
from catro_deploy.graph.onnx.export import export_onnx
from catro_deploy.graph.onnx.skeleton import WEIGHTS, Skeleton
from catro_deploy.latency.flops import FlopsCost
from catro_deploy.latency.profile.measuring import find_profile, measure_profile
from catro_deploy.latency.profile.subject import visits
from catro_deploy.latency.table import TableCost, prediction_errors
from catro_deploy.progress import Silent
from catro_deploy.transports import run_job
from catro_deploy.transports.execution import Use
from catro_deploy.transports.registry import HERE

# By runtime: the target, and the base name of results and picture.
TARGETS = {"onnxruntime": ("x86-cpu", "cost_model"), "openvino": ("x86-cpu-openvino", "cost_model_openvino")}
TARGETS_MET = {"within_10": 0.99, "rmspe": 0.035}
# Copies of the original that are timed: where a network is loaded in memory changes its latency by a few percent.
ORIGINALS = 5
# Visits to each network: the reference must be less noisy than the predictions that it is compared with.
ROUNDS = 32

Widths = Mapping[str, int]


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--runtime", choices=TARGETS, default="onnxruntime")
    parser.add_argument("--prunings", type=int, default=40)
    parser.add_argument("--protocol", default="standard")
    parser.add_argument("--force", action="store_true")
    return parser.parse_args()


def measure(name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Profile one network, time random prunings of it, and compare."""
    model, size = untrained(name), NETWORKS[name]
    target, _ = TARGETS[args.runtime]
    shape, use = (3, size, size), Use(target, args.runtime, "fp32", threads=1, batch=1)
    protocol = load_profile_protocol(args.protocol)
    known = None if args.force else find_profile(model, shape, use)
    profile = known or measure_profile(model, shape, use, protocol, Silent())
    network = trace(model, shape)
    groups = [group for group in network.groups if not group.fixed]
    cost = TableCost(network.layers, groups, profile.shapes, profile.cells, profile.fit, profile.staircases)
    flops = FlopsCost(network.layers, groups)
    full = {group.name: group.width for group in groups}
    generator = np.random.default_rng(1)

    def draw(choose: Callable[[str], Sequence[int]]) -> list[dict[str, int]]:
        return [{name: int(generator.choice(choose(name))) for name in full} for _ in range(args.prunings)]

    useful = draw(lambda group: profile.staircases[group].candidates)
    anywhere = draw(lambda group: range(3, full[group] + 1))
    shares, noise = latencies(model, network, [*useful, *anywhere], shape, use, protocol)
    predicted = [cost.predict(widths) / profile.original_us for widths in [*useful, *anywhere]]
    macs = np.array([flops.predict(widths) / flops.predict(full) for widths in useful])
    count = len(useful)
    fitted = np.polyval(np.polyfit(macs, shares[:count], 1, w=1 / np.array(shares[:count])), macs)
    return {
        "input": list(shape),
        "profile": {"seconds": profile.seconds, "networks": profile.networks, "disagreement": profile.disagreement}
        | {"held_out": asdict(profile.errors), "original_us": profile.original_us},
        "device": dict(profile.device),
        "prunings": asdict(prediction_errors(predicted[:count], shares[:count])),
        "by_macs": asdict(prediction_errors(fitted.tolist(), shares[:count])),
        "any_widths": asdict(prediction_errors(predicted[count:], shares[count:])),
        "points": [[predicted[i], shares[i]] for i in range(count)],
        "noise": noise,
        "environment": environment(),
    }


def latencies(
    model: nn.Module,
    network: Network,
    prunings: Sequence[Widths],
    shape: tuple[int, int, int],
    use: Use,
    protocol: ProfileProtocol,
) -> tuple[list[float], float]:
    """Latency of each network as a share of the original's, and the remaining error by noise, as a share.

    The error is that of a median over all rounds, estimated from the difference between medians over alternate rounds.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        export_onnx(model, shape, folder / "exported.onnx", opset=18, metadata={})
        skeleton = Skeleton(onnx.load(folder / "exported.onnx"), network.sizes)
        skeleton.write_weights(folder / WEIGHTS)
        reference = folder / "original.onnx"
        skeleton.write({}, reference)
        variants = []
        for place, widths in enumerate([*prunings, *[{}] * ORIGINALS]):  # the original is timed like the others
            keeps = keeps_of(network.groups, {name: range(w) for name, w in widths.items()}, network.sizes)
            skeleton.write(keeps, folder / f"{place}.onnx")
            variants.append(Variant(str(place), f"{place}.onnx", whole=True))
        mixed = tuple(variants[place] for place in np.random.default_rng(3).permutation(len(variants)))
        timing = replace(visits(protocol, protocol.together), rounds=ROUNDS)
        job = ProfileJob(use.runtime, use.threads, use.batch, 2, reference.name, mixed, timing)
        events: list[Event] = []
        run_job(HERE, job, folder, (), on_event=events.append)
        samples = {event.name: event for event in events if isinstance(event, Sample)}
    rounds = [np.array(s.whole_us) / np.array(s.reference_us) for s in (samples[v.name] for v in variants)]
    times = [float(np.median(of)) for of in rounds]
    original = float(np.median(times[len(prunings) :]))
    halves = np.array([[np.median(of[half::2]) / np.median(of) for half in (0, 1)] for of in rounds])
    noise = float(np.sqrt(np.mean(np.diff(halves, axis=1) ** 2)) / 2)
    return [time / original for time in times[: len(prunings)]], noise


def results_table(results: dict[str, dict[str, Any]]) -> str:
    """One line for each network and kind of prediction."""
    lines = []
    for name, result in results.items():
        for key, what in (("prunings", "profile"), ("any_widths", "profile, any widths"), ("by_macs", "MACs, fitted")):
            e = result[key]
            errors = [f"{e['within_5']:.1%}", f"{e['within_10']:.1%}", f"{e['rmspe']:.2%}", f"{e['spearman']:.3f}"]
            of_both = [f"{result['noise']:.1%}" if "noise" in result else "", f"{result['profile']['seconds']:.0f} s"]
            lines.append([name, what, e["networks"], *errors, *(of_both if key == "prunings" else ["", ""])])
    heads = ["network", "predicted by", "prunings", "within 5%", "within 10%", "RMSPE", "Spearman"]
    heads += ["noise of the measurement", "profile took"]
    return table(heads, lines)


def picture(results: dict[str, dict[str, Any]]) -> str:
    """Predicted over measured share of the original's latency, one square per network."""
    side, gap, squares = 220, 56, []
    for place, (name, result) in enumerate(results.items()):
        left = gap + place * (side + gap)
        top = max(max(pair) for pair in result["points"]) * 1.05
        scale = side / top
        dots = "".join(
            f'<circle cx="{left + measured * scale:.1f}" cy="{30 + side - predicted * scale:.1f}" r="3"/>'
            for predicted, measured in result["points"]
        )
        ten = [(0, 0, top / 1.1, top), (0, 0, top, top * 0.9)]
        bounds = "".join(
            f'<line x1="{left + x1 * scale:.1f}" y1="{30 + side - y1 * scale:.1f}" '
            f'x2="{left + x2 * scale:.1f}" y2="{30 + side - y2 * scale:.1f}" class="bound"/>'
            for x1, y1, x2, y2 in ten
        )
        ticks = "".join(
            f'<text x="{left + t * scale:.1f}" y="{30 + side + 16}" class="tick">{t:g}</text>'
            f'<text x="{left - 8}" y="{34 + side - t * scale:.1f}" class="tick end">{t:g}</text>'
            for t in np.arange(0, top, 0.25)
        )
        squares.append(
            f'<rect x="{left}" y="30" width="{side}" height="{side}" class="frame"/>{bounds}{dots}{ticks}'
            f'<text x="{left}" y="20" class="name">{name}, RMSPE {result["prunings"]["rmspe"]:.1%}</text>'
        )
    width, height = gap + len(results) * (side + gap), side + 84
    caption = (
        f'<text x="{gap}" y="{height - 12}" class="tick start">measured share of the original\'s latency, against '
    )
    caption += "predicted (upwards); lines: 10% apart</text>"
    style = (
        "text{font:12px sans-serif;fill:#333}.tick{font-size:11px;text-anchor:middle}.end{text-anchor:end}"
        ".start{text-anchor:start}.frame{fill:#fff;stroke:#999}.bound{stroke:#bbb;stroke-dasharray:4 3}"
        "circle{fill:#1f6feb;fill-opacity:.7}"
    )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
    back = f'<rect width="{width}" height="{height}" fill="#fff"/>'
    return f"{head}<style>{style}</style>{back}{''.join(squares)}{caption}</svg>\n"


def main() -> None:
    """Measure the networks that are missing, print the table, draw the picture."""
    args = arguments()
    _, title = TARGETS[args.runtime]
    results: dict[str, dict[str, Any]] = read_result(f"{title}.json").get("networks", {})
    for name in args.networks:
        if args.force or name not in results:
            print(f"{name} ...", file=sys.stderr, flush=True)
            results[name] = measure(name, args)
            results = {known: results[known] for known in NETWORKS if known in results}
            write_result(f"{title}.json", {"targets": TARGETS_MET, "networks": results})
    print(results_table(results))
    write_text(DOCS / f"{title}.svg", picture(results))


if __name__ == "__main__":
    main()
