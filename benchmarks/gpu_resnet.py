"""ResNets with bottlenecks as they run: layers, the groups of channels that hang together, blocks that may vanish.

Written down, not traced: a machine with a GPU then needs nothing but torch and numpy. Names are torchvision's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from catro_deploy.catro.gains import Branch
from catro_deploy.latency.table import layer_shape
from catro_deploy.records import Group, Layer, Slot

__all__ = ["HEAD", "RESNET50", "STEM", "TINY", "ResNet", "Step"]

EXPANSION = 4
STEM, HEAD = "conv1", "fc"
RELU, ADD_RELU = ("Conv", "Relu"), ("Conv", "Add", "Relu")


@dataclass(frozen=True)
class Step:
    """A convolution or the classifier, with the ``operators`` that run with it: what is timed as one layer.

    ``side`` is the kernel's, ``size`` the input's height and width. ``inputs`` and ``outputs`` name the groups of its
    channels; "" are those of the image and of the logits.
    """

    name: str
    side: int
    stride: int
    size: int
    in_channels: int
    out_channels: int
    operators: tuple[str, ...] = RELU
    inputs: str = ""
    outputs: str = ""

    @property
    def out_size(self) -> int:
        """Height and width of what the convolution makes."""
        return 1 if self.name == HEAD else self.size // self.stride

    @property
    def kind(self) -> tuple[object, ...]:
        """What makes two layers alike, but for their widths."""
        return self.side, self.stride, self.size, self.operators

    @property
    def rectified(self) -> "Step":
        """The same with a ReLU: a projection whose block has vanished."""
        return replace(self, operators=RELU)

    @property
    def layer(self) -> Layer:
        """The same as the cost models know it."""
        return Layer(self.name, self.out_size**2, self.side**2, self.in_channels, self.out_channels, stride=self.stride)


@dataclass(frozen=True)
class ResNet:
    """``blocks`` of each stage, channels of the stem, height and width of an image, classes."""

    blocks: tuple[int, ...]
    stem: int
    image: int
    classes: int
    steps: tuple[Step, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Write down the layers, in the order of execution."""
        object.__setattr__(self, "steps", tuple(self._steps()))

    def _steps(self) -> list[Step]:
        stem = Step(STEM, 7, 2, self.image, 3, self.stem, ("Conv", "Relu", "MaxPool"), outputs=STEM)
        steps, stream, channels, size = [stem], STEM, self.stem, self.image // 4
        for stage, blocks in enumerate(self.blocks):
            inner = self.stem * 2**stage
            for block in range(blocks):
                name, stride = f"layer{stage + 1}.{block}", 2 if stage and not block else 1
                one, two, after = f"{name}.conv1", f"{name}.conv2", f"layer{stage + 1}.0.conv3"
                steps += [
                    Step(one, 1, 1, size, channels, inner, RELU, stream, one),
                    Step(two, 3, stride, size, inner, inner, RELU, one, two),
                    Step(f"{name}.conv3", 1, 1, size // stride, inner, inner * EXPANSION, ADD_RELU, two, after),
                ]
                if not block:
                    way = Step(
                        f"{name}.downsample.0", 1, stride, size, channels, inner * EXPANSION, ("Conv",), stream, after
                    )
                    steps.append(way)
                stream, channels, size = after, inner * EXPANSION, size // stride
        return [*steps, Step(HEAD, 1, 1, size, channels, self.classes, ("GlobalAveragePool", "Gemm"), inputs=stream)]

    @cached_property
    def by_name(self) -> dict[str, Step]:
        """Layers by name."""
        return {step.name: step for step in self.steps}

    @cached_property
    def widths(self) -> dict[str, int]:
        """The full width of every group."""
        return {step.outputs: step.out_channels for step in self.steps if step.outputs}

    @cached_property
    def layers(self) -> list[Layer]:
        """All layers."""
        return [step.layer for step in self.steps]

    @cached_property
    def groups(self) -> list[Group]:
        """Groups in the order of their first producer, with slots in convolutions and the classifier."""
        return [self._group(name, width) for name, width in self.widths.items()]

    def _group(self, name: str, width: int) -> Group:
        every = tuple(range(width))
        made = tuple(step.name for step in self.steps if step.outputs == name)
        read = tuple(step.name for step in self.steps if step.inputs == name)
        slots = [*(Slot(module, "out", every, every) for module in made)]
        slots += [Slot(module, "in", every, every) for module in read]
        return Group(name, width, tuple(slots), made)

    @cached_property
    def branches(self) -> list[Branch]:
        """Blocks that may vanish: an identity or a projection stays. Their inner groups go to width 0."""
        blocks = [name.removesuffix(".conv1") for name in self.widths if name.endswith(".conv1")]
        return [Branch(block, (f"{block}.conv1", f"{block}.conv2")) for block in blocks]

    @cached_property
    def shapes(self) -> dict[str, str]:
        """Layer to shape: layers of one shape take the same time in the same widths."""
        return {step.name: layer_shape(step.layer, step.operators) for step in self.steps}

    @cached_property
    def neighbours(self) -> dict[str, list[str]]:
        """Groups that meet in some layer."""
        pairs = [(step.inputs, step.outputs) for step in self.steps if step.inputs and step.outputs]
        found: dict[str, list[str]] = {name: [] for name in self.widths}
        for a, b in dict.fromkeys(pairs):
            found[a].append(b)
            found[b].append(a)
        return found

    def channels(self, step: Step, widths: Mapping[str, int]) -> tuple[int, int]:
        """Channels in and out of ``step`` in a network of ``widths``."""
        return (
            widths[step.inputs] if step.inputs else step.in_channels,
            widths[step.outputs] if step.outputs else step.out_channels,
        )

    def macs(self, widths: Mapping[str, int]) -> int:
        """Multiply-accumulates for one image."""
        return sum(
            step.layer.positions * step.layer.kernel * inputs * outputs
            for step in self.steps
            for inputs, outputs in [self.channels(step, widths)]
        )


RESNET50 = ResNet((3, 4, 6, 3), 64, 224, 1000)
# For dry runs.
TINY = ResNet((1, 2), 16, 32, 10)
