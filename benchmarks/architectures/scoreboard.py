"""The scoreboard: which classifiers of torchvision, timm and transformers can be pruned, trained, saved and exported.

    python -m benchmarks.architectures.scoreboard                # every torchvision model, at its own size
    python -m benchmarks.architectures.scoreboard --timm         # the smallest member of each timm family, too
    python -m benchmarks.architectures.scoreboard --huggingface  # a member of each family of transformers, too
    python -m benchmarks.architectures.scoreboard --size 64 --only regnet --again  # a quick check of some, done or not
    python -m benchmarks.architectures.scoreboard --latency --only resnet  # and prune by measured latency: minutes each
    python -m benchmarks.architectures.scoreboard --macs         # only trace and count all again, seconds each

Each model runs the checks of architectures/check.py in a separate process: build; trace; count multiply-accumulates as
torch.utils.flop_counter does; score, choose and cut to half of them; the masked original computes the same;
reconstruction brings its predictions no further from the original's; saved and loaded it is the same; its ONNX file
computes the same in ONNX Runtime; three training steps. Weights are random, images are noise. After a failed step, the
later ones are still tried where that makes sense. Rows completed at this size are stored in
benchmarks/results/architectures.json and not run again. Prints failures; writes docs/architectures.md.
"""

import argparse
import json
import re
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.architectures.check import LATENCY, PASSED, STEPS, check_architecture, check_latency, check_macs
from benchmarks.architectures.huggingface import HUGGING_FACE, SIZE
from benchmarks.architectures.page import page
from benchmarks.common import DOCS, environment, read_result, write_result
from catro_deploy.errors import CatroError
from catro_deploy.files import write_text
from catro_deploy.models import build_model, library_size

RESULT = "architectures.json"
PAGE = DOCS / "architectures.md"
# Not convolutional networks: their channels meet in products of feature maps, and build_model rejects them.
TRANSFORMERS = re.compile(r"torchvision:(vit_|swin_|maxvit)")
# The smallest of each family of convolutional networks in timm, or one that is widely used.
TIMM = (
    "resnet10t", "resnetv2_18", "resnext26ts", "seresnet18", "ecaresnet26t", "skresnet18", "res2net50_48w_2s",
    "resnest14d", "regnetx_002", "regnety_002", "gernet_s", "mobilenetv2_035", "mobilenetv3_small_050",
    "mobilenetv4_conv_small_035", "mobileone_s0", "efficientnet_b0", "tinynet_e", "mixnet_s", "lcnet_035", "fbnetc_100",
    "fbnetv3_b", "mnasnet_small", "semnasnet_075", "spnasnet_100", "hardcorenas_a", "rexnet_100", "ghostnet_050",
    "ghostnetv2_100", "repghostnet_050", "repvgg_a0", "vgg11", "densenet121", "dpn48b", "cspresnet50", "cspdarknet53",
    "cs3darknet_focus_s", "ese_vovnet19b_dw", "selecsls42", "dla46_c", "hrnet_w18_small", "inception_v3",
    "inception_v4", "inception_resnet_v2", "xception41", "convnext_atto", "convnextv2_atto", "fasternet_t0",
    "starnet_s1", "nf_regnet_b0", "nfnet_l0",
)  # fmt: skip
# Below this height and width, their feature maps become smaller than their kernels.
LEAST_SIZE = {"inception": 96, "xception": 96}
LIMIT_S = 3600
CHECKS = {"architecture": check_architecture, "latency": check_latency, "macs": check_macs}


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--timm", action="store_true", help="also timm's families (needs timm)")
    parser.add_argument("--huggingface", action="store_true", help="also transformers' families (needs transformers)")
    parser.add_argument("--size", type=int, help="height and width of the images; default: each model's own")
    parser.add_argument("--only", type=re.compile, default=re.compile(""), help="models whose names match this pattern")
    parser.add_argument("--again", action="store_true", help="also run completed rows again")
    parser.add_argument("--failed", action="store_true", help="also run failed rows again")
    parser.add_argument("--latency", action="store_true", help="also prune by measured latency")
    parser.add_argument("--macs", action="store_true", help="only trace and count, again for every row")
    parser.add_argument("--jobs", type=int, default=1, help="models at a time, each on one thread")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="time limit for one model, in seconds")
    parser.add_argument("--check", help=argparse.SUPPRESS)
    return parser.parse_args()


def model_names(args: argparse.Namespace) -> list[str]:
    """The requested models, by their names in the settings."""
    import torchvision

    names = [f"torchvision:{name}" for name in torchvision.models.list_models(module=torchvision.models)]
    names += [f"timm:{name}" for name in TIMM if args.timm]
    names += HUGGING_FACE if args.huggingface else ()
    return [name for name in names if args.only.search(name)]


def size_of(name: str, asked: int | None) -> int:
    """Height and width of the images for the model ``name``: as requested, unless its maps would become too small."""
    if asked is None:
        asked = SIZE if name in HUGGING_FACE else library_size(name)
        assert asked is not None, f"{name} is not a model of torchvision, timm or transformers"
        return asked
    return max([asked, *(size for part, size in LEAST_SIZE.items() if part in name)])


def refusal(name: str) -> str:
    """The error for a model that is out of scope; empty if it can be built."""
    try:
        build_model(name, 10)
    except CatroError as error:
        return str(error)
    return ""


def bring_up_to_date(name: str, row: dict[str, Any] | None, args: argparse.Namespace) -> dict[str, Any]:
    """Run the checks of ``name`` that ``args`` request and ``row`` lacks."""
    if row is not None and args.macs:
        return with_more(row, check_in_own_process(name, args, "macs"))
    if row is None or not is_done(row, name, args):
        before, row = row, check_in_own_process(name, args)
        if before is not None and before["size"] == row["size"]:
            row = with_more(row, latency_part(before))
    if wants_latency(row, args):
        row = with_more(row, check_in_own_process(name, args, "latency"))
    return row


def latency_part(row: dict[str, Any]) -> dict[str, Any]:
    """The results of ``check_latency`` in ``row``."""
    steps = {step: outcome for step, outcome in row["steps"].items() if step == LATENCY}
    return {"steps": steps} | {key: value for key, value in row.items() if key.startswith(f"{LATENCY}_")}


def with_more(row: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """``row`` with the steps and figures ``found`` by a separate check."""
    steps = row["steps"] | found["steps"]
    known = {step: steps.pop(step) for step in (*STEPS, LATENCY) if step in steps}
    return {**row, **found, "steps": known | steps}


def check_in_own_process(name: str, args: argparse.Namespace, part: str = "architecture") -> dict[str, Any]:
    """Check a ``part`` of ``name`` in a separate process, which may crash, and is killed after ``args.limit`` s."""
    size = size_of(name, args.size)
    with tempfile.TemporaryDirectory() as work:
        task = {"name": name, "size": size, "work": work, "part": part}
        command = [sys.executable, "-m", __spec__.name, f"--check={json.dumps(task)}"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=args.limit, check=False)
        except subprocess.TimeoutExpired:
            return {"size": size, "steps": {}, "ended": f"not done after {args.limit:g} s"}
    if done.returncode == -signal.SIGKILL:
        return {"size": size, "steps": {}, "ended": "killed, as the system does when memory runs out"}
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [""])[-1]
        return {"size": size, "steps": {}, "ended": f"ended with exit code {done.returncode}: {last}"}
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def is_done(row: dict[str, Any] | None, name: str, args: argparse.Namespace) -> bool:
    """Whether ``row`` has all that ``args`` request for the model ``name``."""
    if args.again or args.macs or row is None or row["size"] != size_of(name, args.size):
        return False
    if not faults(row) and not row["steps"].keys() >= set(STEPS):
        return False  # it predates some of the steps
    return not (args.failed and faults(row))


def wants_latency(row: dict[str, Any], args: argparse.Namespace) -> bool:
    """Whether the network of ``row`` must also be pruned by latency: it passed all other steps and was not yet."""
    return bool(args.latency) and LATENCY not in row["steps"] and not faults(row)


def faults(row: dict[str, Any]) -> dict[str, str]:
    """The steps of ``row`` that failed, and why."""
    wrong = {name: outcome for name, outcome in row["steps"].items() if outcome != PASSED}
    if ended := row.get("ended"):
        wrong["process"] = ended
    return wrong


def main() -> None:
    """Check the models that are missing, write the results and the page."""
    args = arguments()
    if args.check:
        import torch

        torch.set_num_threads(1)
        task = json.loads(args.check)
        found = CHECKS[task["part"]](task["name"], task["size"], Path(task["work"]))
        print(json.dumps(found))
        return
    stored = read_result(RESULT)
    rows: dict[str, dict[str, Any]] = stored.get("rows", {})
    refused: dict[str, str] = stored.get("out_of_scope", {})
    names = model_names(args)
    refused |= {name: refusal(name) for name in names if TRANSFORMERS.match(name)}
    missing = [name for name in names if name not in refused and not is_done(rows.get(name), name, args)]
    missing += [name for name in names if name in rows and name not in missing and wants_latency(rows[name], args)]
    with ThreadPoolExecutor(args.jobs) as pool:
        checked = pool.map(lambda name: bring_up_to_date(name, rows.get(name), args), missing)
        for name, row in zip(missing, checked, strict=True):
            rows[name] = row
            content = {"rows": dict(sorted(rows.items())), "out_of_scope": refused, "environment": environment()}
            write_result(RESULT, content)
            write_text(PAGE, page(content))
            said = "; ".join(f"{step}: {fault}" for step, fault in faults(row).items()) or "passed"
            print(f"{name} at {row['size']}: {said}", flush=True)
    if stored and not missing:
        write_text(PAGE, page(stored))
    whole = [name for name in names if name in rows and not faults(rows[name])]
    print(f"{len(whole)} of {len([name for name in names if name not in refused])} passed {', '.join(STEPS)}")


if __name__ == "__main__":
    main()
