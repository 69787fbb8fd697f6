"""Measuring a latency profile: find the staircase, then time layers inside whole networks of many widths.

1. A sweep over all widths, every group in its own steps, shows at which widths a group is fast: its candidates.
2. Latin squares over the candidates give networks in which neighbouring layers have every pair of widths.
3. Networks whose rounds disagree are timed again as long as the time limit allows.

Samples are saved network by network: an interrupted measurement continues where it stopped.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from torch import nn

from catro_deploy.agent.events import Event, Sample
from catro_deploy.agent.jobs import Variant
from catro_deploy.agent.results import FactsResult
from catro_deploy.calibration import ProfileProtocol
from catro_deploy.errors import ProfileError, RunFolderError
from catro_deploy.graph.coupling.trace import Network, trace
from catro_deploy.graph.onnx.skeleton import WEIGHTS
from catro_deploy.latency.profile.fingerprint import device_facts, digest, fingerprint
from catro_deploy.latency.profile.fitting import Measured, profile_from
from catro_deploy.latency.profile.log import SampleLog
from catro_deploy.latency.profile.samples import Timed, reference_level_us, timed
from catro_deploy.latency.profile.store import FORMAT, PROFILE, LatencyProfile, load_profile, save_profile
from catro_deploy.latency.profile.subject import REFERENCE, Subject, identity, opened
from catro_deploy.latency.template import Widths
from catro_deploy.latency.widths import efficient_widths, latin_square, period, sweep_widths
from catro_deploy.progress import Progress
from catro_deploy.records import Staircase
from catro_deploy.resources import profiles_folder
from catro_deploy.runs.holding import hold
from catro_deploy.transports import run_job
from catro_deploy.transports.execution import Use
from catro_deploy.units import counted

__all__ = ["find_profile", "measure_profile"]

SMALLEST = 3
SAMPLES = "samples.jsonl"
# Networks timed as a whole, besides those held out: enough to fit three numbers despite noise.
WHOLE = 120
# How often the original is among the networks: budgets are shares of its latency.
ORIGINALS = 5
MOST_AGAIN = 0.25
TIMES_AGAIN = 2


def find_profile(
    model: nn.Module, input_shape: tuple[int, int, int], use: Use, *, network: Network | None = None
) -> LatencyProfile | None:
    """The profile of this network (eval mode, CPU) for ``use`` on this device, if it has been measured.

    ``network`` is the trace of ``model``, without modules to ignore; None: it is traced here.

    Raises:
        ModelError: the network cannot be traced.
        ProfileError: it exists, but is damaged.
    """
    folder = _folder(use, device_facts(use), identity(model, network or trace(model, input_shape)))
    return load_profile(folder) if (folder / PROFILE).is_file() else None


def measure_profile(
    model: nn.Module,
    input_shape: tuple[int, int, int],
    use: Use,
    protocol: ProfileProtocol,
    progress: Progress,
    *,
    opset: int = 18,
    network: Network | None = None,
) -> LatencyProfile:
    """Measure, store and return the profile of ``model`` (eval mode, CPU) on this device, even if one exists.

    Samples of an interrupted measurement with the same protocol are reused. ``network`` is as for ``find_profile``.

    Raises:
        ModelError: the network cannot be traced or exported, or its shapes at other widths are not known.
        ProfileError: no channels of the network may be pruned, or another process is measuring it.
        StorageError: the disk is full.
    """
    network = network or trace(model, input_shape)
    if all(group.fixed for group in network.groups):
        raise ProfileError("No channels of this network may be pruned.", "There is nothing to profile.")
    facts = device_facts(use)
    folder = _folder(use, facts, identity(model, network))
    with _held(folder), opened(model, network, use, opset, progress.note) as subject:
        _forget_finished(folder)
        log = SampleLog(folder / SAMPLES, digest(FORMAT, protocol.model_dump(), opset))
        measured = _Measuring(subject, protocol, log, progress).measure()
        profile = profile_from(subject, measured, facts, protocol.held_out)
        save_profile(replace(profile, protocol=protocol.model_dump()), folder)
        log.delete()
    return load_profile(folder)


def _folder(use: Use, facts: FactsResult, network: str) -> Path:
    return profiles_folder() / f"{use.target}-{digest(fingerprint(facts, use), network)}"


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    with ExitStack() as stack:
        try:
            stack.enter_context(
                hold(folder / ".lock", f"in {folder}", "set the variable CATRO_CACHE to another folder")
            )
        except RunFolderError as error:
            hint = "Wait until it finishes: its profile will be used. Or set CATRO_CACHE to another folder."
            raise ProfileError(f"The latency profile cannot be measured: {error.problem}", hint) from None
        yield


def _forget_finished(folder: Path) -> None:
    """Delete the samples of a finished profile, left by a process that was killed before it could delete them."""
    samples, profile = folder / SAMPLES, folder / PROFILE
    if samples.is_file() and profile.is_file() and samples.stat().st_mtime <= profile.stat().st_mtime:
        samples.unlink()


@dataclass(frozen=True)
class _Measuring:
    """One measurement: its subject, its protocol, where samples are stored, and where messages go."""

    subject: Subject
    protocol: ProfileProtocol
    log: SampleLog
    progress: Progress

    def measure(self) -> Measured:
        """Run the whole measurement."""
        stairs, seconds = self._sweep()
        candidates = {
            name: efficient_widths([width for width, _ in steps], [us for _, us in steps], self.protocol.candidates)
            for name, steps in stairs.items()
        }
        networks, timings = self._squares(candidates, seconds)
        staircases = {
            name: Staircase(steps, candidates[name], period([width for width, _ in steps], candidates[name]))
            for name, steps in stairs.items()
        }
        return Measured(networks, timings, staircases, self.log.seconds)

    def _sweep(self) -> tuple[dict[str, tuple[tuple[int, float], ...]], float]:
        """Measure the layers of each group at each of its widths, while all groups widen together.

        Returns:
            For each group (width, microseconds) of its layers, ascending; and the mean seconds to time one network.
        """
        widths = {group.name: sweep_widths(group.width, SMALLEST) for group in self.subject.groups}
        longest = max(map(len, widths.values()))
        networks = [
            {name: of[round(step * (len(of) - 1) / max(1, longest - 1))] for name, of in widths.items()}
            for step in range(longest)
        ]
        samples = self._samples("sweep", networks, set(), "Finding the staircase")
        times: dict[str, dict[int, list[float]]] = {name: {} for name in widths}
        for at, of in zip(networks, self._timed(samples), strict=True):
            for name in widths:
                touched_us = sum(of.layers[layer][0] for layer in self.subject.cost.touched(name))
                times[name].setdefault(at[name], []).append(touched_us)
        stairs = {name: tuple((w, float(np.median(us))) for w, us in sorted(of.items())) for name, of in times.items()}
        return stairs, float(np.mean([sample.seconds for sample in samples]))

    def _squares(
        self, candidates: Mapping[str, Sequence[int]], seconds: float
    ) -> tuple[list[dict[str, int]], list[Timed]]:
        """Networks that cover all pairs of ``candidates``, with the original, in random order; and their times."""
        protocol, cost = self.protocol, self.subject.cost
        generator = np.random.default_rng(protocol.seed)
        neighbours = {name: [n for n in cost.neighbours(name) if n != name] for name in candidates}
        squares = [latin_square(candidates, neighbours, generator) for _ in range(protocol.squares)]
        affordable = max(len(squares[0]), _affordable(protocol.limit_s / max(seconds, 1e-9), WHOLE + protocol.held_out))
        networks = [network for square in squares for network in square][:affordable] + [self.subject.full] * ORIGINALS
        networks = [networks[i] for i in generator.permutation(len(networks))]
        whole = set(range(0, len(networks), max(1, len(networks) // (WHOLE + protocol.held_out))))
        whole |= {place for place, network in enumerate(networks) if network == self.subject.full}
        title = f"Timing layers in {len(networks)} networks"
        samples = self._samples("square", networks, whole, title)
        for attempt in range(TIMES_AGAIN):
            apart = [of.disagreement for of in self._timed(samples)]
            noisy = sorted((i for i, a in enumerate(apart) if a > protocol.disagreement), key=lambda i: -apart[i])
            again = sorted(noisy[: int(MOST_AGAIN * len(networks))])
            if not again or self.log.seconds > protocol.limit_s:
                break
            title = f"Timing {counted(len(again), 'network')} again"
            some = {place for place, i in enumerate(again) if i in whole}
            repeated = self._samples(f"again {attempt}", [networks[i] for i in again], some, title)
            both = self._timed([*samples, *repeated])[len(samples) :]
            for i, sample, of in zip(again, repeated, both, strict=True):
                samples[i] = sample if of.disagreement < apart[i] else samples[i]
        return networks, self._timed(samples)

    def _timed(self, samples: Sequence[Sample]) -> list[Timed]:
        level_us = reference_level_us(samples)
        names = [layer.name for layer in self.subject.network.layers]
        return [timed(sample, level_us, names) for sample in samples]

    def _samples(self, phase: str, networks: Sequence[Widths], whole: set[int], title: str) -> list[Sample]:
        """Time ``networks`` on the device, also unprofiled for those in ``whole``; known samples are not repeated."""
        names = [f"{phase}/{place}/{digest(dict(network))}" for place, network in enumerate(networks)]
        missing = [place for place, name in enumerate(names) if name not in self.log]
        variants = [
            Variant(names[place], self.subject.write(networks[place], f"{phase} {place}").name, place in whole)
            for place in missing
        ]
        with self.progress.task(title, len(names), len(names) - len(missing)) as task:

            def keep(event: Event) -> None:
                if isinstance(event, Sample):
                    self.log.add(event)
                    task.advance()

            if variants:
                subject, note, limit_s = self.subject, self.progress.note, 4 * self.protocol.limit_s + 3600
                files = [WEIGHTS, REFERENCE, *(variant.file for variant in variants)]
                job, device = subject.job(variants, self.protocol), subject.use.device
                run_job(device, job, subject.folder, files, limit_s=limit_s, note=note, on_event=keep)
        return [self.log[name] for name in names]


def _affordable(profiled: float, whole: int) -> int:
    """How many networks can be timed in the time that it takes to profile ``profiled`` of them.

    Up to ``whole`` of them are also timed as a whole, which takes about as long again: some runtimes recompile them.
    """
    return int(max(profiled - whole, profiled / 2))
