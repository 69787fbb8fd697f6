"""Other runtimes on this machine: how fast the original is in each, so that budgets can be compared."""

from dataclasses import replace

from catro_deploy import resources
from catro_deploy.agent.jobs import ModelFile
from catro_deploy.budget import Budget, Budgets
from catro_deploy.graph.onnx.export import export_onnx
from catro_deploy.graph.onnx.interface import attach_
from catro_deploy.progress import Progress
from catro_deploy.records import RuntimeRow, Runtimes, Speedup
from catro_deploy.runs.folder import RunFolder
from catro_deploy.runs.records import load_if_there, save
from catro_deploy.settings import Settings
from catro_deploy.stages.original import Original
from catro_deploy.stages.runtimes import environment_of, name_of, timed_by
from catro_deploy.stages.trials import trial_folder
from catro_deploy.targets import Target, load_target
from catro_deploy.transports.execution import use_of
from catro_deploy.transports.reach import compared_runtimes, profilable, reachable
from catro_deploy.transports.registry import HERE

__all__ = ["at_equal_latency", "other_runtimes", "relative_to_own"]


def other_runtimes(settings: Settings, original: Original, run: RunFolder, progress: Progress) -> dict[str, Speedup]:
    """The targets that differ from that of ``settings`` only in their runtime, and the speedup of ``original`` on each.

    Measured interleaved, and only once: budgets of trials depend on it, so a resumed search must find the same values.
    There are none if the target is another machine, or one of several.

    Raises:
        ModelError: the network cannot be exported or run.
    """
    target = load_target(settings.prune.target)
    others = {} if settings.prune.device != HERE or settings.prune.also else _alike(target)
    if not others:
        progress.note(f"no other runtime is tried: none can run here what is pruned for {target.name}")
        return {}
    folder = RunFolder(run.searched / f"runtimes-{trial_folder(settings, run).path.name}")
    found = load_if_there(Runtimes, folder)
    if found is None:
        found = _measured(settings, original, [one.runtime for one in others.values()], folder, progress)
    speedups = {name_of(row): row.speedup for row in found.rows}
    return {name: speedups[one.runtime] for name, one in others.items() if one.runtime in speedups}


def _alike(target: Target) -> dict[str, Target]:
    """Reachable targets that run the same networks in the same way in other runtimes, one per runtime."""
    known = [load_target(name) for name in resources.names("targets")]
    possible = compared_runtimes(target, ["auto"])
    alike = {
        one.runtime: one
        for one in reversed(known)  # the first of several targets with the same runtime
        if one.runtime in possible
        and one.runtime != target.runtime
        and (one.kind, one.precision, one.threads, one.batch)
        == (target.kind, target.precision, target.threads, target.batch)
        and reachable(one)
        and profilable(one)
    }
    return {one.name: one for one in alike.values()}


def _measured(
    settings: Settings, original: Original, runtimes: list[str], folder: RunFolder, progress: Progress
) -> Runtimes:
    target, file = load_target(settings.prune.target), folder.original_onnx
    use = use_of(target, settings)
    with folder.lock():
        export_onnx(
            original.model,
            original.input_shape,
            file,
            opset=settings.export.opset,
            dynamic_batch=use.batch > 1,
            metadata={},
        )
        attach_(file, use.interface)
        models = {"original": ModelFile(file.name, {})}
        result = timed_by(settings, folder, use, [use.runtime, *runtimes], models, HERE, progress)
        rows = [
            RuntimeRow(
                runtime=f"{one.runtime} {result.versions[one.runtime]}",
                network="original",
                precision=target.precision,
                p50_us=one.timing.p50_us,
                speedup=Speedup(one.speedup.median, one.speedup.ci95),
                accuracy=None,
                files=(file.name,),
                served=one.runtime == use.runtime,
            )
            for one in result.timings
        ]
        fastest = min(range(len(rows)), key=lambda place: rows[place].p50_us)
        facts = environment_of(settings, use, HERE, result)
        record = Runtimes(tuple(rows), fastest, dict(result.missing), 0, result.warnings, facts)
        save(record, folder)
        file.unlink()
    return record


def at_equal_latency(budgets: Budgets, speedup: Speedup) -> Budgets:
    """``budgets`` where the original is faster by ``speedup``: shares of its latency grow by the same factor."""
    return Budgets(tuple(_rescaled(one, speedup.median) for one in budgets.parts))


def _rescaled(budget: Budget, factor: float) -> Budget:
    if budget.unit != "x" or budget.of != "latency":
        return budget
    return replace(budget, amount=min(1.0, round(budget.amount * factor, 4)))


def relative_to_own(speedup: Speedup, of_original: Speedup) -> Speedup:
    """``speedup`` over the original in another runtime, made relative to it in the run's own; intervals multiply."""
    low, high = (mine * its for mine, its in zip(speedup.ci95, of_original.ci95, strict=True))
    return Speedup(speedup.median * of_original.median, (low, high))
