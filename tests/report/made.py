"""Records of a run, made by hand: every figure that the tests expect can be read off here."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from catro_deploy.records import (
    Accuracy,
    Bench,
    Build,
    Candidate,
    ClassAccuracy,
    ClassAgreement,
    CostErrors,
    Engine,
    Epoch,
    Finetune,
    FrontPoint,
    GroupPlan,
    Input,
    LatencyPlan,
    Mode,
    Place,
    Plan,
    Port,
    Precisions,
    Probe,
    Protocol,
    PrunedAgreement,
    Quantize,
    ReconstructionPlan,
    Recovery,
    Round,
    RuntimeRow,
    Runtimes,
    Samples,
    Search,
    Shipped,
    Speedup,
    Staircase,
    Trained,
    Variant,
    Variants,
    Verify,
)
from catro_deploy.records.report import Report
from catro_deploy.report.build import RunRecords, build_report

CLASSES = ("30 km/h", '<b>"Stop" & go</b> | *now*')


def slower_by(ratio: float, width: float) -> Speedup:
    """The speedup of a network that takes ``ratio`` of the original's time, known to within ``width`` of that."""
    return Speedup(1 / ratio, (1 / (ratio + width), 1 / (ratio - width)))


def make_plan(classes: tuple[str, ...] = CLASSES, groups: int = 2, **changes: Any) -> Plan:
    """The first group keeps 4 of 16 channels, further ones 8 of 16, and the head all."""
    pruned = [
        GroupPlan(f"layer{i}.conv1", 16, tuple(range(8 if i else 4)), (f"layer{i}.conv1",), 0.125, 3, 2.0)
        for i in range(groups - 1)
    ]
    head = GroupPlan("fc", len(classes), tuple(range(len(classes))), ("fc",), fixed="the outputs")
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
    """Two rounds, the second taken, and a removed branch; the original takes 1000 us.

    Each of ``groups`` layers ``layer<i>.conv1`` takes ``600 / (i + 1)`` us at 16 channels, and a quarter of that at 4.
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
            Round(490.0, 530.4, 1020.0, slower_by(0.52, 0.01), dict.fromkeys(kept, 6)),
            Round(480.0, 494.9, 1010.0, slower_by(0.49, 0.01), kept, taken=True),
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
    """A plan for a latency budget, without the residual branch ending in ``gone.conv2``; its group is last but one."""
    plan = make_plan(groups=groups + 1)
    removed = GroupPlan("gone.conv1", 16, (), ("gone.conv1",))
    values: dict[str, Any] = {
        "budget": budget,
        "latency": latency or make_latency(groups),
        "dropped": ("gone.conv2",),
        "groups": (*plan.groups[:-1], removed, plan.groups[-1]),
    }
    return replace(plan, **(values | changes))


def make_estimate(**changes: Any) -> Plan:
    """A plan for a device that was not reached."""
    none: dict[str, Any] = {"rounds": (), "errors": None, "gap": None}
    warnings = ("Latency on jetson-orin is an estimate.",)
    latency = make_latency(how="estimate", source="roofline of an Orin", warnings=warnings, **none)
    return make_timed_plan(latency=latency, target="jetson-orin", **changes)


def make_verify(
    before: float = 0.9944, after: float = 0.9912, classes: tuple[str, ...] = CLASSES, **changes: Any
) -> Verify:
    """Every class has the accuracies ``before`` and ``after``; PyTorch and the runtime agree."""

    def network(accuracy: float) -> Accuracy:
        per_class = tuple(ClassAccuracy(name, 2500, accuracy, accuracy) for name in classes)
        return Accuracy(accuracy, accuracy, 1.0, 2e-6, per_class)

    values: dict[str, Any] = {
        "target": "x86-cpu",
        "classes": classes,
        "test_images": 2500 * len(classes),
        "labelled": True,
        "tolerance": 0.001,
        "precision": Precisions("fp32", "fp32"),
        "runtime": "onnxruntime 1.31.1",
        "original": network(before),
        "pruned": network(after),
        "accuracy_drop_points": (before - after) * 100,
        "agreement_with_original": make_agreement(),
        "recovery": None,
        "onnxruntime": None,
        "max_drop": None,
        "passed": True,
        "problems": (),
    }
    return Verify(**(values | changes))


def make_agreement(share: float = 0.982, mean_kl_nats: float | None = 0.01234, **changes: Any) -> PrunedAgreement:
    """The original never predicts the second class."""
    return PrunedAgreement(share, mean_kl_nats, **({"per_class": (ClassAgreement(CLASSES[0], 5000, share),)} | changes))


def make_unlabelled(**changes: Any) -> Verify:
    """verify.json of 5,000 images without labels, 98.2% of which get the original's prediction."""
    network = Accuracy(None, None, 1.0, 2e-6, ())
    unknown: dict[str, Any] = {"labelled": False, "original": network, "pruned": network, "accuracy_drop_points": None}
    return make_verify(**(unknown | changes))


def make_recovery(**changes: Any) -> Recovery:
    """The recovery of a network that was reconstructed and fine-tuned."""
    return replace(Recovery("accuracy", 5000, 0.9944, 0.1159, 0.9275, 0.9912), **changes)


def make_reconstruction(layers: int = 12, **changes: Any) -> ReconstructionPlan:
    """A share of (i + 1) / (layers + 1) of layer i's outputs is explained; the layer ``odd`` is left as it is."""
    explained = {f"layer{i}.conv2": (i + 1) / (layers + 1) for i in range(layers)}
    return replace(ReconstructionPlan(1.25, 0.0625, explained, {"odd": "it is unusual"}), **changes)


def make_samples(samples: Sequence[float]) -> Samples:
    """All percentiles are exact to the nearest rank."""
    ascending = sorted(samples)

    def rank(percent: int) -> float:
        return ascending[-(-len(samples) * percent // 100) - 1]

    mean = sum(samples) / len(samples)
    return Samples(rank(50), rank(90), rank(99), mean, 0.05, len(samples), samples_us=tuple(samples))


def make_bench(
    median: float = 1.84, low: float = 1.80, high: float = 1.88, original_us: float = 1840, **changes: Any
) -> Bench:
    """100 calls of each network, one of which takes 500 us longer."""

    def calls(us: float) -> Samples:
        return make_samples([us - 10, *[us] * 97, us + 50, us + 500])

    values: dict[str, Any] = {
        "original": calls(original_us),
        "pruned": calls(original_us / median),
        "speedup": Speedup(median, (low, high)),
        "mode": Mode(1),
        "further": (),
        "protocol": Protocol("standard", 2.0, 20.0, 1000, 60.0, 10, 2000, 0),
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
        "warnings": ("Other processes kept 0.9 of 2 cores busy.",),
    }
    return Bench(**(values | changes))


def make_search(**changes: Any) -> Search:
    """Five budgets; 0.5 points of 99% may be lost. 0.5x and 0.354x keep the accuracy, and no network meets 0.1x."""
    tried = [(0.1, None, None), (0.25, 0.24, 0.90), (0.3, 0.29, 0.98), (0.354, 0.35, 0.987), (0.5, 0.49, 0.995)]
    front = tuple(
        FrontPoint(
            share,
            None if ratio is None else slower_by(ratio, 0.01),
            accuracy,
            None if ratio is None else ratio + 0.1,
            None if accuracy is None else accuracy,
            None if accuracy is None else 0.01,
            None if accuracy is None else (accuracy - 1, accuracy - 0.98),
            budget=f"{share}x",
            drop_points=None if accuracy is None else round((0.99 - accuracy) * 100, 9),
            kept=share >= 0.35,
        )
        for share, ratio, accuracy in tried
    )
    values: dict[str, Any] = {
        "metric": "accuracy",
        "metric_reason": "",
        "validation_images": 500,
        "original_validation_accuracy": 0.99,
        "budget": "0.354x",
        "max_drop": 0.5,
        "epochs": 10,
        "front": front,
    }
    return Search(**(values | changes))


def make_variants(**changes: Any) -> Variants:
    """Three variants that met 0.5x, one of them fully trained, and one that did not meet it."""
    tried = [
        ({"quantize.precision": "int8"}, 0.49, (0.2, 0.05, 0.02)),
        ({}, 0.5, (0.3, 0.1)),
        ({"prune.criterion": "obs", "prune.depth": "never"}, 0.48, (0.9,)),
    ]
    found = [
        Variant(named, slower_by(ratio, 0.01), 0.4, kl, 0.97, 0.96, (60.0,) * len(kl)) for named, ratio, kl in tried
    ]
    values = {"variants": (*found, Variant({"prune.worth": "scatter"})), "validation_images": 500, "minutes": 3.0}
    return Variants(**(values | changes))


def make_candidate(score: float = 0.98, ratio: float = 0.48) -> Candidate:
    """A candidate that takes ``ratio`` of 1000 microseconds."""
    return Candidate(score, 0.97, 0.01, slower_by(ratio, 0.01), 1000 * ratio, accuracy=score)


def make_runtimes() -> Runtimes:
    """Two runtimes; the one that is not served is faster."""
    rows = [
        RuntimeRow(
            f"{runtime} 1.2.3", network, "fp32", us, Speedup(2000 / us, (1990 / us, 2010 / us)), 0.9, (file,), served
        )
        for runtime, network, us, file, served in (
            ("onnxruntime", "original", 2000.0, "original.onnx", False),
            ("onnxruntime", "pruned", 1000.0, "pruned.onnx", True),
            ("openvino", "original", 1800.0, "original.onnx", False),
            ("openvino", "pruned", 800.0, "pruned.xml", False),
        )
    ]
    return Runtimes(tuple(rows), 3, {}, 60, (), {"target": "x86-cpu"})


def make_quantize(**changes: Any) -> Quantize:
    """int8 is served: 0.48x against 0.6x in float32."""
    values: dict[str, Any] = {
        "metric": "accuracy",
        "metric_reason": "",
        "validation_images": 500,
        "original_validation_accuracy": 0.99,
        "asked": "int8",
        "own": "fp32",
        "shipped": "int8",
        "least_score": 0.97,
        "candidates": {"fp32": make_candidate(ratio=0.6), "int8": make_candidate()},
        "lost": {"fp32": "it takes 1.25 times as long as int8"},
        "made": {},
        "protocol": "standard",
        "environment": {},
    }
    return Quantize(**(values | changes))


def make_engine(**changes: Any) -> Engine:
    """An engine of three layers, built in 61 s for an Orin."""
    values: dict[str, Any] = {
        "onnx_sha256": "cd" * 32,
        "engine_sha256": "ab" * 32,
        "place": Place("10.3.0", "Orin", "8.7", 8),
        "settings": {"level": 5},
        "metadata": {},
        "seconds": 61.0,
        "layers": {"Layers": [1, 2, 3]},
        "rebuilds_us": (),
    }
    return Engine(**(values | changes))


def make_build() -> Build:
    """The pruned network's engine was rebuilt three times."""
    return Build(make_engine(), make_engine(rebuilds_us=(900.0, 990.0, 1000.0)))


def make_shipped(**changes: Any) -> Shipped:
    """The network of ``make_plan`` in integers, 12,345 bytes."""
    values: dict[str, Any] = {
        "file": "pruned.int8.onnx",
        "precision": "int8",
        "bytes": 12_345,
        "original_bytes": 56_789,
        "sha256": "ef" * 32,
        "target": "x86-cpu",
        "runtime": "onnxruntime",
        "input": Input(
            "image",
            "float32",
            (1, 3, 32, 32),
            layout="NCHW",
            colours="RGB",
            values="(pixel / 255 - mean) / std",
            mean=(0.5, 0.25, 0.125),
            std=(0.25, 0.5, 1.0),
            range=(-2.0, 2.0),
        ),
        "output": Port("logits", "float32", (1, 2)),
        "classes": CLASSES,
        "plan_sha256": "12" * 32,
    }
    return Shipped(**(values | changes))


def make_trained(**changes: Any) -> Trained:
    """A baseline of two classes, not trained."""
    values: dict[str, Any] = {
        "epochs": (),
        "validation_accuracy": 0.9,
        "baseline_validation_accuracy": 0.5,
        "seconds": 0.0,
        "device": "cpu",
        "images": 100,
        "model": "cifar_resnet20",
        "mean": (0.5, 0.25, 0.125),
        "std": (0.25, 0.5, 1.0),
        "classes": CLASSES,
        "dataset": "signs",
        "settings": {"epochs": 0},
        "fingerprint": 64 * "0",
    }
    return Trained(**values | changes)


def make_finetune(epochs: int = 3, **changes: Any) -> Finetune:
    """Validation after every second epoch."""
    history = tuple(
        Epoch(e, 1 / e, 0.05, 0.9 + 0.09 * e / epochs if e % 2 else None, 2.0) for e in range(1, epochs + 1)
    )
    values: dict[str, Any] = {
        "epochs": history,
        "validation_accuracy": 0.99,
        "baseline_validation_accuracy": 0.41,
        "seconds": 6.0,
        "device": "cpu",
        "images": 9000,
        "original_validation_accuracy": None,
        "validation_images": 0,
        "choice": None,
    }
    return Finetune(**(values | changes))


def make_untrained() -> Finetune:
    """A fine-tuning of 0 epochs: the accuracy is the one right after pruning."""
    return make_finetune(0, validation_accuracy=0.41, seconds=0.0)


PROBE = Probe(50, (0.0005, 0.0015, 0.0045), (0.25, 0.125, None), 0.5, 0.0015)


def make_report(
    plan: Plan | None = None, verify: Verify | None = None, bench: Bench | None = None, **others: Any
) -> Report:
    """The report of a run with these records."""
    return build_report(RunRecords("a-run", plan or make_plan(), verify, bench, **others))
