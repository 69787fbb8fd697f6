"""Records of a run, made by hand: every figure that the tests expect can be read off here."""

from typing import Any

from catro_deploy.records import CostErrors, GroupPlan, LatencyPlan, Plan, ReconstructionPlan, Round, Staircase

CLASSES = ("30 km/h", '<b>"Stop" & go</b> | *now*')


def make_plan(classes: tuple[str, ...] = CLASSES, groups: int = 2, **changes: Any) -> Plan:
    """The first group keeps 4 of 16 channels, further ones 8 of 16, and the head all."""
    pruned = [
        GroupPlan(f"layer{i}.conv1", 16, tuple(range(8 if i else 4)), (f"layer{i}.conv1",), 0.125, 3, 2.0)
        for i in range(groups - 1)
    ]
    head = GroupPlan("fc", len(classes), tuple(range(len(classes))), ("fc",), fixed="the answers")
    values: dict[str, Any] = {
        "model": "cifar_resnet20",
        "model_classes": 43,
        "input_shape": (3, 32, 32),
        "mean": (0.5, 0.25, 0.125),
        "std": (0.25, 0.5, 1.0),
        "classes": classes,
        "class_indices": tuple(range(1, len(classes) + 1)),
        "head": "fc",
        "target": "x86-cpu",
        "budget": "50%flops",
        "criterion": "catro",
        "allocation": "greedy",
        "groups": (*pruned, head),
        "keeps": {},
        "original_macs": 1000,
        "pruned_macs": 490,
        "original_params": 400,
        "pruned_params": 100,
        "settings": {"classes": ["speed_limits"], "d_min": 3},
    }
    return Plan(**(values | changes))


def make_latency(groups: int = 1, **changes: Any) -> LatencyPlan:
    """Two rounds, the second taken, and a branch that is gone, of 1000 us before.

    ``layer<i>.conv1``, of which there are ``groups``, takes ``600 / (i + 1)`` us at 16 channels and a quarter at 4.
    """
    names = [f"layer{i}.conv1" for i in range(groups)]
    kept = {name: 8 if i else 4 for i, name in enumerate(names)} | {"gone.conv1": 0}
    stairs = {
        name: Staircase(tuple((w, w * 37.5 / (i + 1)) for w in (2, 4, 8, 16)), (2, 4, 16), 1)
        for i, name in enumerate(names)
    }
    values: dict[str, Any] = {
        "how": "measured",
        "source": "latency profile of 2026-11-20: 363 networks",
        "budget_us": 500.0,
        "original_us": 1000.0,
        "predicted_us": 480.0,
        "rounds": (
            Round(490.0, 530.4, 1020.0, 0.52, (0.51, 0.53), dict.fromkeys(kept, 6)),
            Round(480.0, 494.9, 1010.0, 0.49, (0.48, 0.50), kept),
        ),
        "by_layer": {name: (600 / (i + 1), 150 / (i + 1)) for i, name in enumerate(names)}
        | {"gone.conv1": (120.0, 0.0), "gone.conv2": (80.0, 0.0)},
        "staircases": stairs | {"gone.conv1": Staircase(((4, 60.0), (8, 90.0), (16, 120.0)), (4, 8, 16), 4)},
        "errors": CostErrors(40, 0.9, 0.975, 0.031, 0.95),
        "gap": 0.0025,
        "warnings": ("6 layers have widths that were not measured.",),
    }
    return LatencyPlan(**(values | changes))


def make_timed_plan(budget: str = "0.5x", groups: int = 1, latency: LatencyPlan | None = None, **changes: Any) -> Plan:
    """A plan by latency, without the residual branch that ends in ``gone.conv2``."""
    by_latency: dict[str, Any] = {"budget": budget, "latency": latency or make_latency(groups)}
    return make_plan(groups=groups + 1, **({"dropped": ("gone.conv2",)} | by_latency | changes))


def make_estimate(**changes: Any) -> Plan:
    """A plan for a device that nobody reached."""
    none: dict[str, Any] = {"rounds": (), "errors": None, "gap": None}
    warnings = ("Latency on jetson-orin is an estimate.",)
    latency = make_latency(how="estimate", source="roofline of an Orin", warnings=warnings, **none)
    return make_timed_plan(latency=latency, target="jetson-orin", **changes)


def make_verify(
    before: float = 0.9944, after: float = 0.9912, classes: tuple[str, ...] = CLASSES, **changes: Any
) -> dict[str, Any]:
    """Every class has ``before`` and ``after``; PyTorch and the runtime agree."""

    def network(accuracy: float) -> dict[str, Any]:
        per_class = [{"name": n, "images": 2500, "torch": accuracy, "runtime": accuracy} for n in classes]
        return {
            "torch": accuracy,
            "runtime": accuracy,
            "agreement": 1.0,
            "largest_logit_difference": 2e-6,
            "per_class": per_class,
        }

    return {
        "target": "x86-cpu",
        "classes": list(classes),
        "test_images": 2500 * len(classes),
        "tolerance": 0.001,
        "runtime": "onnxruntime 1.31.1",
        "original": network(before),
        "pruned": network(after),
        "accuracy_drop_points": (before - after) * 100,
        "max_drop": None,
        "passed": True,
        "problems": [],
    } | changes


def make_agreement(share: float = 0.982, mean_kl_nats: float | None = 0.01234, **changes: Any) -> dict[str, Any]:
    """The original never gives the second class."""
    per_class = [{"name": CLASSES[0], "images": 5000, "share": share}]
    return {"share": share, "mean_kl_nats": mean_kl_nats, "per_class": per_class} | changes


def make_unlabelled(**changes: Any) -> dict[str, Any]:
    """verify.json of 5,000 images without labels, 98.2% of which get the original's answer."""
    network = {"torch": None, "runtime": None, "agreement": 1.0, "largest_logit_difference": 2e-6, "per_class": []}
    unknown = {"labelled": False, "original": network, "pruned": network, "accuracy_drop_points": None}
    return make_verify(**(unknown | {"agreement_with_original": make_agreement()} | changes))


def make_recovery(**changes: Any) -> dict[str, Any]:
    """Of a network that was reconstructed and fine-tuned."""
    shares = {"original": 0.9944, "cut": 0.1159, "reconstructed": 0.9275, "finetuned": 0.9912}
    return {"measure": "accuracy", "images": 5000, **shares} | changes


def make_reconstruction(layers: int = 12, **changes: Any) -> ReconstructionPlan:
    """Layer i is explained to a share of (i + 1) / (layers + 1), and a grouped one is left."""
    explained = {f"layer{i}.conv2": (i + 1) / (layers + 1) for i in range(layers)}
    values = {"kl_cut": 1.25, "kl_reconstructed": 0.0625, "explained": explained, "left": {"odd": "it is unusual"}}
    return ReconstructionPlan(**(values | changes))


def _timing(median_us: float) -> dict[str, Any]:
    samples = [median_us - 10, *[median_us] * 97, median_us + 50, median_us + 500]
    return {
        "p50_us": median_us,
        "p90_us": median_us,
        "p99_us": median_us + 50,
        "mean_us": median_us + 5.4,
        "cv": 0.05,
        "n": len(samples),
        "samples_us": samples,
    }


def make_bench(
    median: float = 1.84, low: float = 1.80, high: float = 1.88, original_us: float = 1840
) -> dict[str, Any]:
    """100 calls of each network, one of them 500 us late."""
    return {
        "original": _timing(original_us),
        "pruned": _timing(original_us / median),
        "speedup": {"median": median, "ci95": [low, high]},
        "protocol": {"name": "standard", "warmup_s": 2.0, "seconds": 20.0, "block": 10, "bootstrap_resamples": 2000},
        "environment": {
            "device": None,
            "cpu_model": "AMD EPYC 9554",
            "memory_bytes": 2 * 1024**3,
            "runtime": "onnxruntime 1.31.1",
            "clock_mhz_before": 3720.1,
            "threads": 1,
            "batch": 1,
            "models": {"pruned": {"sha256": "ab" * 32}},
        },
        "warnings": ["Other processes kept 0.9 of 2 cores busy."],
    }


def make_search(**changes: Any) -> dict[str, Any]:
    """Five budgets at 0.5 points of 99% allowed: 0.5x and 0.354x keep the accuracy, and no network meets 0.1x."""
    tried = [(0.1, None, None), (0.25, 0.24, 0.90), (0.3, 0.29, 0.98), (0.354, 0.35, 0.987), (0.5, 0.49, 0.995)]
    front = [
        {
            "budget": f"{share}x",
            "share": share,
            "ratio": ratio,
            "validation_accuracy": accuracy,
            "macs_share": None if ratio is None else ratio + 0.1,
            "drop_points": None if accuracy is None else round((0.99 - accuracy) * 100, 9),
            "change_ci95": None if accuracy is None else [accuracy - 1, accuracy - 0.98],
            "kept": share >= 0.35,
        }
        for share, ratio, accuracy in tried
    ]
    found = {"budget": "0.354x", "max_drop": 0.5, "original_validation_accuracy": 0.99, "epochs": 10, "front": front}
    return found | changes


def make_shipped(**changes: Any) -> dict[str, Any]:
    """The network of ``make_plan`` in integers, 12,345 bytes."""
    return {
        "format": 1,
        "file": "pruned.int8.onnx",
        "precision": "int8",
        "bytes": 12_345,
        "original_bytes": 56_789,
        "input": {
            "name": "image",
            "type": "float32",
            "shape": [1, 3, 32, 32],
            "layout": "NCHW",
            "colours": "RGB",
            "values": "(pixel / 255 - mean) / std",
            "mean": [0.5, 0.25, 0.125],
            "std": [0.25, 0.5, 1.0],
            "range": [-2.0, 2.0],
        },
        "output": {"name": "logits", "type": "float32", "shape": [1, 2]},
        "classes": list(CLASSES),
    } | changes


def make_finetune(epochs: int = 3, **changes: Any) -> dict[str, Any]:
    """Validation after every second epoch."""
    history = [
        {
            "epoch": e,
            "loss": 1 / e,
            "learning_rate": 0.05,
            "validation_accuracy": 0.9 + 0.09 * e / epochs if e % 2 else None,
            "seconds": 2.0,
        }
        for e in range(1, epochs + 1)
    ]
    return {
        "epochs": history,
        "validation_accuracy": 0.99,
        "baseline_validation_accuracy": 0.41,
        "seconds": 6.0,
        "device": "cpu",
        "images": 9000,
        "probe": None,
    } | changes


def make_untrained() -> dict[str, Any]:
    """Of 0 epochs: the accuracy is that right after pruning."""
    return make_finetune(0, validation_accuracy=0.41, seconds=0)


PROBE = {"steps": 50, "learning_rates": [0.0005, 0.0015, 0.0045], "losses": [0.25, 0.125, None], "chosen": 0.0015}
