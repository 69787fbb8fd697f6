"""Of runtimes that build engines: how they were built, and latency in the further ways in which it was measured."""

from collections.abc import Mapping
from typing import Any

from catro_deploy.report.tables import Table
from catro_deploy.report.wording import count, ms, ratios

__all__ = ["engine_records", "engine_table", "engine_words", "mode_records", "mode_table", "mode_words"]

NETWORKS = ("original", "pruned")


def engine_records(build: Mapping[str, Any]) -> dict[str, Any]:
    """What of build.json the report holds, by network; ``spread`` is the slowest rebuild over the fastest."""
    found = {}
    for name in NETWORKS:
        engine = build[name]
        times_us = engine["rebuilds_us"]
        found[name] = {key: engine[key] for key in ("seconds", "engine_sha256", "place", "settings", "rebuilds_us")} | {
            "layers": len(engine["layers"].get("Layers", ())),
            "spread": max(times_us) / min(times_us) if times_us else None,
        }
    return found


def mode_records(bench: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All modes of bench.json, the one that counts first; none if there is but one."""
    if not bench.get("further"):
        return []
    return [
        {
            **one["mode"],
            **{
                f"{name}_ms": {key: one[name][f"{key}_us"] / 1000 for key in ("p50", "p90", "p99")} for name in NETWORKS
            },
            "speedup": one["speedup"],
        }
        for one in (bench, *bench["further"])
    ]


def mode_table(report: Mapping[str, Any]) -> Table | None:
    """Medians in each mode."""
    if not report["modes"]:
        return None
    rows = []
    for mode in report["modes"]:
        median, low, high = ratios(mode["speedup"]["median"], *mode["speedup"]["ci95"])
        times = (f"{ms(mode[f'{name}_ms']['p50'])} ms" for name in NETWORKS)
        rows.append((count(mode["batch"]), *_switches(mode), *times, f"{median}x ({low} to {high})"))
    head = ("Images", "Transfers", "CUDA graph", "Original, p50", "Pruned, p50", "Speedup (95% CI)")
    return Table(head, tuple(rows), frozenset({0, 3, 4, 5}))


def mode_words(report: Mapping[str, Any]) -> str:
    """How modes were timed, and what trtexec says where it was asked."""
    text = "By the GPU's own clock (CUDA events), in turns."
    if other := report["trtexec"]:
        times = " and ".join(f"{ms(other[name]['p50_us'] / 1000)} ms ({name})" for name in NETWORKS)
        text += f" As a CUDA graph without transfers trtexec {other['version']}, one engine at a time, takes {times}."
    return text


def _switches(mode: Mapping[str, Any]) -> tuple[str, str]:
    if "transfers" not in mode:
        return "none", "none"
    return ("counted" if mode["transfers"] else "not counted"), ("yes" if mode["cuda_graph"] else "no")


def engine_table(report: Mapping[str, Any]) -> Table | None:
    """How each engine was built."""
    if not report["engines"]:
        return None
    rows = []
    for name, engine in report["engines"].items():
        times = ", ".join(f"{ms(us / 1000)} ms" for us in engine["rebuilds_us"]) or "none"
        spread = "" if engine["spread"] is None else f"{engine['spread']:.3f}"
        rows.append((name, f"{engine['seconds']:.0f} s", count(engine["layers"]), times, spread))
    head = ("Engine", "Built in", "Layers after fusion", "Rebuilt: p50 of each", "Slowest / fastest")
    return Table(head, tuple(rows), frozenset({1, 2, 3, 4}))


def engine_words(report: Mapping[str, Any]) -> str:
    """Where the engines run."""
    place = next(iter(report["engines"].values()))["place"]
    return (
        f"Strongly typed engines, built on the device by TensorRT {place['tensorrt']} for its {place['gpu']} (compute "
        f"capability {place['compute_capability']}, {place['sms']} SMs). They run on no other."
    )
