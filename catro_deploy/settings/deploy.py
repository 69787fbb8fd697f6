"""``[export]``, ``[quantize]``, ``[build]``, ``[verify]``, ``[bench]`` and ``[profile]``."""

from typing import Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from catro_deploy.settings.durations import DurationSetting
from catro_deploy.settings.section import AUTO, TARGETS_OWN, Section

__all__ = [
    "BenchSettings",
    "BuildSettings",
    "ExportSettings",
    "ProfileSettings",
    "QuantizeSettings",
    "VerifySettings",
]


class ExportSettings(Section):
    """``[export]``: ONNX."""

    opset: int = Field(18, ge=18, le=23, description="ONNX operator set")
    dynamic_batch: bool = Field(False, description="The runtime chooses the batch size; otherwise it is 1")
    input: Literal["float", "uint8"] = Field(
        "float",
        description="Input of the ONNX files: float: normalised images; uint8: raw pixels, which the network "
        "normalises itself",
    )
    layout: Literal["nchw", "nhwc"] = Field(
        "nchw", description="Dimensions of the input: nchw: batch, channels, height, width; nhwc: channels last"
    )
    output: Literal["logits", "softmax"] = Field(
        "logits", description="Output of the ONNX files: logits, or softmax: probabilities"
    )
    # Not written if it is 0, so that exports from before this key existed keep their fingerprint.
    top_k: NonNegativeInt = Field(
        0,
        description="Number of largest values that the ONNX files also return, in descending order, with their classes",
        exclude_if=lambda count: count == 0,
    )


class QuantizeSettings(Section):
    """``[quantize]``: the number format in which the pruned network is served."""

    precision: Literal["target", "fp32", "fp16", "int8", "auto"] = Field(
        "target", description="Number format; target: the target's own; auto: the fastest that keeps the accuracy"
    )
    recipe: str = Field(
        "standard", description="How to quantize: a file of calibration/int8, or the calibration.toml of a run"
    )
    max_drop: NonNegativeFloat = Field(
        0.5,
        description="Largest allowed loss on validation images, in points of accuracy (without labels: of agreement "
        "with the original)",
    )
    qat_epochs: NonNegativeInt = Field(
        0, description="Epochs of quantization-aware fine-tuning if int8 costs more than max_drop; 0: none"
    )
    # A small network that 0.002 improved diverged at 0.005: batch norm is folded and does not stabilise training.
    qat_learning_rate: PositiveFloat = Field(
        0.002, description="Initial learning rate of quantization-aware fine-tuning; the rest is as in [finetune]"
    )

    @property
    def is_named(self) -> bool:
        """Whether a specific precision is requested, so that channels can be pruned for it."""
        return self.precision not in (TARGETS_OWN, AUTO)


class BuildSettings(Section):
    """``[build]``: TensorRT engines."""

    level: int = Field(3, ge=0, le=5, description="Builder optimization level: 5 builds longest and runs fastest")
    workspace_mib: PositiveInt | None = Field(
        None,
        description="Scratch memory that an engine may use, in MiB; default: all memory of the GPU, on a Jetson a "
        "quarter of it",
    )
    dla: NonNegativeInt | None = Field(
        None, description="Core of the deep learning accelerator to use; default: the GPU"
    )
    rebuilds: NonNegativeInt = Field(0, description="Additional builds, to report how much builds differ")


class VerifySettings(Section):
    """``[verify]``: the checks that the pruned network must pass."""

    tolerance: PositiveFloat | None = Field(
        None,
        description="Largest allowed difference of logits between PyTorch and the runtime; default: 0.001, or 0.01% of "
        "the largest logit if that is more; in fp16: 3% of the largest logit",
    )
    max_drop: NonNegativeFloat | None = Field(
        None,
        description="Largest allowed loss, in points of accuracy (without labels: of agreement with the original); a "
        "larger loss ends with exit code 3; default: no limit",
    )
    batch_size: PositiveInt = Field(256, description="Images per batch in PyTorch")


class BenchSettings(Section):
    """``[bench]``: how latency is measured."""

    protocol: str = Field(
        "standard",
        description="How long to measure: quick, standard or thorough, or a file like those of calibration/latency",
    )
    batch: PositiveInt | None = Field(None, description="Images per inference; default: the target's")
    threads: PositiveInt | None = Field(None, le=1024, description="Threads of the runtime; default: the target's")
    batches: list[PositiveInt] = Field(
        default_factory=list, description="Further batch sizes to measure; they need export.dynamic_batch"
    )
    runtimes: list[str] = Field(
        default_factory=list,
        description="Runtimes in which the same networks are also compared, interleaved; auto: all installed ones",
    )
    transfers: bool = Field(False, description="On a GPU: include the copies to and from it in the latency")
    cuda_graph: bool = Field(
        True, description="On a GPU: launch each inference as one CUDA graph, if one can be captured"
    )
    soak: DurationSetting = Field(
        None,
        description="How long the pruned network runs back to back afterwards (120s, 5min): its latency must still "
        "hold at the end; default: not at all",
    )


class ProfileSettings(Section):
    """``[profile]``: how the layers of the network are timed on the target."""

    protocol: str = Field(
        "standard",
        description="How long to time layers: quick or standard, or a file like those of calibration/profile",
    )
