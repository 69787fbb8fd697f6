"""How networks run on a device: runtime, precision, batch sizes and modes."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from catro_deploy.agent.jobs import BenchJob, BenchProtocol, ModelFile
from catro_deploy.agent.results import BenchResult, EngineSettings, Mode
from catro_deploy.calibration import LatencyProtocol, load_int8_recipe
from catro_deploy.graph.onnx.interface import PLAIN, Interface
from catro_deploy.records import Speedup
from catro_deploy.settings import Settings
from catro_deploy.targets import Target
from catro_deploy.transports.registry import HERE

__all__ = ["Use", "bench_job", "speedup_of", "use_of"]

# Runtimes that build TensorRT engines.
WITH_ENGINES = ("tensorrt", "onnxruntime-tensorrt")


@dataclass(frozen=True)
class Use:
    """The runtime, its precision and threads, and the batch size; ``device`` is one of the user's, or HERE.

    ``precision`` is that of the pruned network; the original that it is compared with runs in ``own_precision``, the
    target's. ``kept_in_float`` are layers that stay in the latter if the network is in int8.

    ``engine`` is how engines are built, for runtimes that need them; ``ways`` are the modes in which inferences are
    timed, each a ``Mode`` without its batch; the first one counts. ``interface`` is what networks take and return.
    """

    target: str
    runtime: str
    precision: str
    threads: int
    batch: int
    device: str = HERE
    own_precision: str = "fp32"
    kept_in_float: Sequence[str] = ()
    engine: EngineSettings | None = None
    ways: Sequence[Mapping[str, bool]] = ({},)
    interface: Interface = PLAIN

    @property
    def mode(self) -> Mode:
        """The first mode, to which the budget applies."""
        return self.modes([self.batch])[0]

    @property
    def of_original(self) -> "Use":
        """How the original runs that a network with this use is compared with."""
        return replace(self, precision=self.own_precision, kept_in_float=())

    def modes(self, batches: Sequence[int]) -> tuple[Mode, ...]:
        """All modes with each of ``batches``, in images at a time."""
        return tuple(Mode(batch, way.get("transfers"), way.get("cuda_graph")) for batch in batches for way in self.ways)


def bench_job(
    use: Use,
    protocol: LatencyProtocol,
    models: Mapping[str, ModelFile],
    modes: Sequence[Mode] = (),
    *,
    complete: bool = False,
    soak_s: float = 0.0,
) -> BenchJob:
    """Time ``original`` and ``pruned`` of ``models`` in ``modes``, by default the one to which the budget applies."""
    return BenchJob(
        runtime=use.runtime,
        threads=use.threads,
        engine=use.engine,
        models=models,
        modes=tuple(modes) or (use.mode,),
        protocol=BenchProtocol(**protocol.model_dump()),
        complete=complete,
        soak_s=soak_s,
    )


def speedup_of(result: BenchResult) -> Speedup:
    """The speedup that the device's agent measured, as a record."""
    return Speedup(result.speedup.median, result.speedup.ci95)


def use_of(target: Target, settings: Settings) -> Use:
    """How networks run on ``target`` under ``settings``."""
    bench = settings.bench
    batch = bench.batch or target.batch
    engine: EngineSettings | None = None
    ways: list[dict[str, bool]] = [{}]
    if target.runtime in WITH_ENGINES:
        # A TensorRT runner splits other batches; ONNX Runtime would build another engine for them.
        others = bench.batches if target.runtime == "tensorrt" else (*bench.batches, settings.verify.batch_size)
        batches = tuple(dict.fromkeys((batch, *others)))
        engine = EngineSettings(**settings.build.model_dump(exclude={"rebuilds"}), batches=batches)
    if target.runtime == "tensorrt":
        counted = (bench.transfers, bench.cuda_graph)
        every = sorted(itertools.product((False, True), repeat=2), key=lambda mode: mode != counted)
        ways = [{"transfers": transfers, "cuda_graph": graph} for transfers, graph in every]
    precision = settings.quantize.precision if settings.quantize.is_named else target.precision
    return Use(
        target=target.name,
        runtime=target.runtime,
        precision=precision,
        kept_in_float=load_int8_recipe(settings.quantize.recipe).keep if precision == "int8" else (),
        own_precision=target.precision,
        threads=bench.threads or target.threads,
        batch=batch,
        device=settings.prune.device,
        engine=engine,
        ways=ways,
        interface=Interface.of(settings.export, settings.model.mean, settings.model.std),
    )
