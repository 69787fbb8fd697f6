"""The network to be timed: its files in other widths, and the properties that determine its times."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from catro_deploy.agent.jobs import ProfileJob, Variant, VisitProtocol
from catro_deploy.calibration import ProfileProtocol
from catro_deploy.errors import ModelError
from catro_deploy.graph.coupling.trace import Network
from catro_deploy.graph.onnx.interface import attach_
from catro_deploy.graph.onnx.skeleton import WEIGHTS, Skeleton
from catro_deploy.graph.structure import structure
from catro_deploy.latency.layer_cost import LayerCost
from catro_deploy.latency.profile.exports import Exports
from catro_deploy.latency.profile.fingerprint import digest
from catro_deploy.latency.table import layer_shape
from catro_deploy.latency.template import Widths, exported_skeleton, keeps_at, trials, with_noise
from catro_deploy.precision.timing import Integers
from catro_deploy.records import Group
from catro_deploy.transports.execution import Use

__all__ = ["REFERENCE", "Subject", "identity", "opened", "visits"]

REFERENCE = "reference.onnx"
"""The file of the network in full width."""

# At most this many bytes of weights are loaded at a time.
MOST_LOADED_BYTES = 2 * 1024**3


@dataclass(frozen=True)
class Subject:
    """A network, the ``writer`` of its files in other widths, and their ``folder``.

    ``cost`` knows the widths of each layer; ``integers`` quantises, if networks are to be timed in int8.
    """

    network: Network
    writer: Skeleton | Exports
    cost: LayerCost
    use: Use
    folder: Path
    integers: Integers | None = None

    @property
    def groups(self) -> list[Group]:
        """The groups that may be pruned."""
        return [group for group in self.network.groups if not group.fixed]

    @property
    def full(self) -> dict[str, int]:
        """The widths of the original."""
        return {group.name: group.width for group in self.groups}

    @property
    def shapes(self) -> dict[str, str]:
        """The shape of each layer, which together with its widths determines its time."""
        operators = self.writer.operators
        return {layer.name: layer_shape(layer, operators[layer.name]) for layer in self.network.layers}

    def write(self, widths: Widths, name: str) -> Path:
        """Write the network whose groups have these widths.

        Raises:
            ModelError: a layer would be left without channels.
            StorageError: the disk is full.
        """
        file = self.folder / f"{name}.onnx"
        self.writer.write(keeps_at(self.network, widths), file)
        if self.integers is not None:
            self.integers.convert_(file, WEIGHTS)
        attach_(file, self.use.interface)
        return file

    def job(self, variants: Sequence[Variant], protocol: ProfileProtocol) -> ProfileJob:
        """The job that times ``variants`` on the device."""
        affordable = max(1, MOST_LOADED_BYTES // (self.folder / WEIGHTS).stat().st_size)
        return ProfileJob(
            runtime=self.use.runtime,
            threads=self.use.threads,
            batch=self.use.batch,
            seed=protocol.seed,
            reference=REFERENCE,
            variants=tuple(variants),
            protocol=visits(protocol, min(protocol.together, affordable)),
        )


def visits(protocol: ProfileProtocol, together: int) -> VisitProtocol:
    """The part of ``protocol`` that the device's agent needs; ``together`` variants are loaded at a time."""
    return VisitProtocol(together, protocol.rounds, protocol.block_ms, protocol.min_runs, protocol.max_runs)


@contextmanager
def opened(model: nn.Module, network: Network, use: Use, opset: int, note: Callable[[str], None]) -> Iterator[Subject]:
    """Export ``model`` (eval mode, CPU), traced as ``network``, to a temporary folder.

    If this export cannot be resized to other widths, ``note`` is called with a message: the measurement takes longer.

    Raises:
        ModelError: the network cannot be exported, or the export lacks layers.
    """
    with tempfile.TemporaryDirectory(prefix="catro-deploy-") as temporary:
        folder = Path(temporary)
        noisy, layers = with_noise(model), tuple(layer.name for layer in network.layers)
        shape, dynamic = network.input_shape, use.batch > 1
        skeleton = exported_skeleton(noisy, network, opset, dynamic_batch=dynamic)
        lacking = [name for name in layers if name not in skeleton.operators]
        if lacking:
            raise ModelError(
                f"The exported network lacks {', '.join(lacking)}, on which no logit depends.",
                "Remove unused layers from the forward, or prune by multiply-accumulates: --budget 50%flops.",
            )
        skeleton.write_weights(folder / WEIGHTS)
        reason = _unknown(skeleton, network)
        if reason:
            note(f"{reason} Each network to be timed is cut and exported instead, which takes seconds per network.")
        writer = Exports(noisy, skeleton, layers, shape, opset, dynamic) if reason else skeleton
        writer.write({}, folder / REFERENCE)
        free = [group for group in network.groups if not group.fixed]
        cost = LayerCost(network.layers, free, lambda *_: 0.0)
        integers = Integers(folder / REFERENCE, use.runtime, use.kept_in_float) if use.precision == "int8" else None
        if integers is not None:
            integers.convert_(folder / REFERENCE, WEIGHTS)
        attach_(folder / REFERENCE, use.interface)
        yield Subject(network, writer, cost, use, folder, integers)


def _unknown(skeleton: Skeleton, network: Network) -> str:
    """Why ``skeleton`` does not know the shapes of ``network`` at other widths; empty if it does."""
    for widths in trials(network):
        try:
            skeleton.resized(keeps_at(network, widths))
        except ModelError as error:
            return error.problem
    return ""


def identity(model: nn.Module, network: Network) -> str:
    """A digest of what determines a network's times at any widths; the values of weights do not count."""
    layers = [str(layer) for layer in network.layers]
    groups = [(group.name, group.width, group.producers, group.fixed) for group in network.groups]
    return digest(network.input_shape, layers, groups, structure(model, network.input_shape))
