"""How networks are used on a device: by which runtime, in which precision, how many images at a time."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from catro_deploy.settings import Settings
from catro_deploy.targets import Target
from catro_deploy.transports.registry import HERE

__all__ = ["Use", "use_of"]


@dataclass(frozen=True)
class Use:
    """The runtime, its precision and threads, and the images at a time; ``device`` is one of the user's, or HERE.

    ``precision`` is that of the pruned network; the original is compared with in ``own_precision``, the target's.

    ``engine`` is how engines are built (see ``device.engines``), for runtimes that need them; ``ways`` are those in
    which inferences are timed, see the modes of the job ``bench``; the first is the one that counts.
    """

    target: str
    runtime: str
    precision: str
    threads: int
    batch: int
    device: str = HERE
    own_precision: str = "fp32"
    engine: Mapping[str, Any] | None = None
    ways: Sequence[Mapping[str, bool]] = ({},)

    @property
    def opening(self) -> dict[str, Any]:
        """What a job must hold for the agent to open models as this says."""
        engine = {} if self.engine is None else {"engine": dict(self.engine)}
        return {"runtime": self.runtime, "threads": self.threads, **engine}


def use_of(target: Target, settings: Settings) -> Use:
    """How ``target`` is used under ``settings``."""
    bench = settings.bench
    batch = bench.batch or target.batch
    engine: dict[str, Any] | None = None
    ways: list[dict[str, bool]] = [{}]
    if target.runtime == "tensorrt":
        most = max(batch, *bench.batches, settings.verify.batch_size)
        engine = settings.build.model_dump(exclude={"rebuilds"}) | {"batches": [1, batch, most]}
        counted = (bench.transfers, bench.cuda_graph)
        every = [counted, *(mode for mode in itertools.product((False, True), repeat=2) if mode != counted)]
        ways = [{"transfers": transfers, "cuda_graph": graph} for transfers, graph in every]
    return Use(
        target=target.name,
        runtime=target.runtime,
        precision=settings.quantize.precision if settings.quantize.is_named else target.precision,
        own_precision=target.precision,
        threads=bench.threads or target.threads,
        batch=batch,
        device=settings.prune.device,
        engine=engine,
        ways=ways,
    )
