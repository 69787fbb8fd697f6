"""Made-up facts of a measurement."""

from dataclasses import replace

from catro_deploy.agent.device import DeviceFacts, DeviceState, GpuState, JetsonFacts, JetsonState, MeasuredClocks
from catro_deploy.agent.results import BenchFacts

__all__ = ["DEVICE", "facts_of"]

DEVICE = DeviceFacts(
    device=None,
    cpu_model="Acme 9000",
    cores=None,
    instruction_sets=("avx2",),
    governor=None,
    highest_clock_mhz=3600.0,
    memory_bytes=8,
    os=None,
    kernel="6.1",
    python="3.8.10",
)


def facts_of(
    *,
    cores: int | None = None,
    load_average: float | None = None,
    other_load_cores: float | None = None,
    providers: tuple[str, ...] = ("CPUExecutionProvider",),
    gpus_after: tuple[GpuState, ...] = (),
    jetson: tuple[JetsonState | None, JetsonState | None] = (None, None),
    during: MeasuredClocks | None = None,
    jetson_facts: JetsonFacts | None = None,
) -> BenchFacts:
    """Facts of a measurement; all others are unknown. ``jetson`` has its states before and after."""
    before, after = (DeviceState(None, None, None, jetson=one) for one in jetson)
    return BenchFacts(
        device=replace(DEVICE, cores=cores, jetson=jetson_facts),
        runtime="onnxruntime 1",
        providers=providers,
        before=replace(before, load_average=load_average),
        after=replace(after, gpus=gpus_after or None),
        other_load_cores=other_load_cores,
        during=during,
    )
