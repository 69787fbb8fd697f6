"""Engines, for runtimes that build them: how they were built, and the latency in each mode."""

from catro_deploy.records import Mode
from catro_deploy.records.report import Report
from catro_deploy.report.tables import Table
from catro_deploy.report.wording import count, ms, ratios

__all__ = ["engine_table", "engine_words", "mode_table", "mode_words"]


def mode_table(report: Report) -> Table | None:
    """Medians in each mode."""
    if not report.modes:
        return None
    rows = []
    for mode in report.modes:
        median, low, high = ratios(mode.speedup.median, *mode.speedup.ci95)
        times = (f"{ms(of.p50)} ms" for of in (mode.original_ms, mode.pruned_ms))
        rows.append((count(mode.mode.batch), *_switches(mode.mode), *times, f"{median}x ({low} to {high})"))
    head = ("Images", "Transfers", "CUDA graph", "Original, p50", "Pruned, p50", "Speedup (95% CI)")
    if not _on_gpu(report):
        return Table((head[0], *head[3:]), tuple((row[0], *row[3:]) for row in rows), frozenset({0, 1, 2, 3}))
    return Table(head, tuple(rows), frozenset({0, 3, 4, 5}))


def mode_words(report: Report) -> str:
    """How the modes were timed, and trtexec's times, if any."""
    if not _on_gpu(report):
        return "Timed interleaved, as the first row, which is the one that counts."
    graph = report.modes[0].mode.cuda_graph if report.modes else None
    text = "Timed on the GPU with CUDA events, interleaved."
    if graph is not None:
        launched = "as one CUDA graph" if graph else "layer by layer"
        text += f" The first row is the one that counts: launched {launched}."
    if other := report.trtexec:
        original, pruned = (ms(of.p50_us / 1000) for of in (other.original, other.pruned))
        text += (
            f" As a CUDA graph without transfers trtexec {other.version}, one engine at a time, takes {original} ms "
            f"(original) and {pruned} ms (pruned)."
        )
    return text


def _on_gpu(report: Report) -> bool:
    """Whether modes differ in transfers and CUDA graphs, too, and not only in the number of images."""
    return any(mode.mode.transfers is not None for mode in report.modes)


def _switches(mode: Mode) -> tuple[str, str]:
    if mode.transfers is None:
        return "none", "none"
    return ("counted" if mode.transfers else "not counted"), ("yes" if mode.cuda_graph else "no")


def engine_table(report: Report) -> Table | None:
    """How each engine was built."""
    if not report.engines:
        return None
    rows = []
    for name, engine in report.engines.items():
        times = ", ".join(f"{ms(us / 1000)} ms" for us in engine.rebuilds_us) or "none"
        spread = "" if engine.spread is None else f"{engine.spread:.3f}"
        on_dla = "" if engine.dla_parts is None else f" ({count(engine.dla_parts)} on the DLA)"
        rows.append((name, f"{engine.seconds:.0f} s", f"{count(engine.layers)}{on_dla}", times, spread))
    head = ("Engine", "Built in", "Layers after fusion", "Rebuilt: p50 of each", "Slowest / fastest")
    return Table(head, tuple(rows), frozenset({1, 2, 3, 4}))


def engine_words(report: Report) -> str:
    """How the engines were built, and the GPU that they are for."""
    place = next(iter(report.engines.values())).place
    module = f" of a {place.module}" if place.module else ""
    mode = f", power mode {place.power_mode}" if place.power_mode else ""
    return (
        f"Strongly typed engines, built on the device by TensorRT {place.tensorrt} for its {place.gpu}{module} "
        f"(compute capability {place.compute_capability}, {place.sms} SMs{mode}). They run on no other GPU."
    )
