"""The paper's figures 5 and 6, reproduced: the path of Algorithm 2, and the channels kept for two tasks.

    python -m benchmarks.paper.figures --gtsrb FOLDER --checkpoint gtsrb_resnet20.pth

ResNet-20, cut to a tenth of its multiply-accumulates for GTSRB's speed limits and for its direction signs; no training.
Writes docs/paper_path.svg (speed limits) and docs/paper_kept.svg. The report of a run has both figures for that run.
"""

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.common import DOCS
from benchmarks.paper.rows import MAX_WIDTH, SUBTASKS
from catro_deploy.files import write_text
from catro_deploy.progress import Silent
from catro_deploy.records import Plan
from catro_deploy.runs.folder import RunFolder
from catro_deploy.settings import load_settings
from catro_deploy.stages.prune import prune

COLOURS = {"speed_limits": "#0060a0", "direction_signs": "#b45a00"}
LEFT, WIDE, ROW, TOP = 150, 560, 30, 40
STYLE = "text{font:12px sans-serif;fill:#222}.soft{fill:#666}.track{fill:#d8dce1}"


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gtsrb", type=Path, required=True)
    parser.add_argument("--checkpoint", type=Path, required=True)
    return parser.parse_args()


def pruned_for(task: str, args: argparse.Namespace) -> Plan:
    """The plan for one of the two tasks."""
    pixels = {"mean": [0.3403, 0.3121, 0.3214], "std": [0.2724, 0.2608, 0.2669]}
    sections = {
        "model": {"name": "cifar_resnet20", "checkpoint": args.checkpoint, **pixels},
        "data": {"name": "gtsrb", "root": args.gtsrb},
        "prune": {"classes": [task], "budget": f"{SUBTASKS[task, 90]}%flops", "max_width": MAX_WIDTH[90]},
    }
    with tempfile.TemporaryDirectory() as folder:
        return prune(load_settings(None, sections), RunFolder(Path(folder)), Silent())


def kept_picture(plans: Mapping[str, Plan]) -> str:
    """Two strips for each group of layers, one per task; on the right, the number of channels that both keep."""
    (first, one), (second, other) = plans.items()
    parts = [*legend(plans)]
    for row, (mine, theirs) in enumerate(zip(one.groups, other.groups, strict=True)):
        top, cell = TOP + row * ROW, WIDE / mine.width
        parts.append(f'<text x="{LEFT - 8}" y="{top + 14}" text-anchor="end">{mine.name}</text>')
        for task, group, y in ((first, mine, top), (second, theirs, top + 11)):
            parts.append(f'<rect class="track" x="{LEFT}" y="{y}" width="{WIDE}" height="10"/>')
            parts += [
                f'<rect fill="{COLOURS[task]}" x="{LEFT + channel * cell:.2f}" y="{y}" width="{cell:.2f}" height="10"/>'
                for channel in group.kept
            ]
        both = len(set(mine.kept) & set(theirs.kept))
        words = f"{len(mine.kept)} and {len(theirs.kept)}, {both} in both"
        parts.append(f'<text class="soft" x="{LEFT + WIDE + 8}" y="{top + 14}">{words}</text>')
    return drawn(parts, len(one.groups), "Channels that two tasks keep")


def path_picture(task: str, plan: Plan) -> str:
    """A silhouette for each group: its width over the iterations, as a share of its final width."""
    grown = {name for name, _ in plan.search_path}
    groups = [group for group in plan.groups if group.name in grown]
    count = len(plan.search_path)
    parts = [f'<text x="{LEFT}" y="22">{count} iterations, for {task}</text>']
    for row, group in enumerate(groups):
        bottom = TOP + row * ROW + 22
        steps = [(place, width) for place, (name, width) in enumerate(plan.search_path, 1) if name == group.name]
        ends = [place for place, _ in steps[1:]] + [count]
        parts.append(f'<text x="{LEFT - 8}" y="{bottom - 6}" text-anchor="end">{group.name}</text>')
        for (start, width), end in zip(steps, ends, strict=True):
            x, tall = LEFT + WIDE * start / count, 20 * width / len(group.kept)
            size = f'width="{WIDE * (end - start) / count:.2f}" height="{tall:.2f}"'
            parts.append(f'<rect fill="{COLOURS[task]}" x="{x:.2f}" y="{bottom - tall:.2f}" {size}/>')
        words = f"to {len(group.kept)} of {group.width}"
        parts.append(f'<text class="soft" x="{LEFT + WIDE + 8}" y="{bottom - 6}">{words}</text>')
    return drawn(parts, len(groups), "The path of Algorithm 2")


def legend(tasks: Sequence[str] | Mapping[str, Plan]) -> list[str]:
    """Names of the tasks in their colours."""
    return [
        f'<text x="{LEFT + 160 * place}" y="22" style="fill:{COLOURS[task]}">{task}</text>'
        for place, task in enumerate(tasks)
    ]


def drawn(parts: Sequence[str], rows: int, title: str) -> str:
    """The picture with its frame."""
    width, height = LEFT + WIDE + 160, TOP + rows * ROW + 10
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
    back = f'<title>{title}</title><style>{STYLE}</style><rect width="{width}" height="{height}" fill="#fff"/>'
    return f"{head}{back}{''.join(parts)}</svg>\n"


def main() -> None:
    """Prune for both tasks, draw."""
    args = arguments()
    plans = {task: pruned_for(task, args) for task in COLOURS}
    write_text(DOCS / "paper_kept.svg", kept_picture(plans))
    task, plan = next(iter(plans.items()))
    write_text(DOCS / "paper_path.svg", path_picture(task, plan))
    for one, other in zip(*(plan.groups for plan in plans.values()), strict=True):
        print(f"{one.name}: {len(one.kept)} and {len(other.kept)}, {len(set(one.kept) & set(other.kept))} in both")


if __name__ == "__main__":
    main()
