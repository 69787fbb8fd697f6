"""The documentation of ``catro.toml``: a section a class, a key a field."""

from pathlib import Path
from typing import Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from catro_deploy.settings.pixels import require_unit_pixels

__all__ = [
    "AUTO",
    "TARGETS_OWN",
    "UNLABELLED",
    "BenchSettings",
    "DataSettings",
    "ExportSettings",
    "FinetuneSettings",
    "ModelSettings",
    "OptimiserSettings",
    "ProfileSettings",
    "PruneSettings",
    "QuantizeSettings",
    "Settings",
    "TrainSettings",
    "VerifySettings",
]

TARGETS_OWN = "target"
"""The ``precision`` of whoever asks for none."""
AUTO = "auto"
"""The ``budget`` that is searched: the smallest latency that ``[verify] max_drop`` allows."""

UNLABELLED = "images"
"""The ``name`` of the dataset whose images have no labels."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class ModelSettings(_Section):
    """``[model]``: the trained classifier."""

    name: str = Field(
        "cifar_resnet20",
        description="cifar_resnet{20,32,56,110}, torchvision:NAME, timm:NAME or package.module:factory",
    )
    checkpoint: Path = Field(Path("baseline.safetensors"), description="safetensors, or a torch file of tensors only")
    mean: tuple[float, ...] = Field(
        (0.5, 0.5, 0.5), description="subtracted from pixels in 0..1; one value means grey images"
    )
    std: tuple[PositiveFloat, ...] = Field((0.25, 0.25, 0.25), description="divided by afterwards")

    @model_validator(mode="after")
    def _one_value_a_channel(self) -> Self:
        if len(self.mean) not in (1, 3) or len(self.std) != len(self.mean):
            raise ValueError("mean and std need three values each, or one each for grey images")
        return self

    @model_validator(mode="after")
    def _pixels_in_0_to_1(self) -> Self:
        require_unit_pixels(self.mean, self.std)
        return self


class DataSettings(_Section):
    """``[data]``: the images."""

    name: str = Field(
        "signs", description="gtsrb, imagefolder, images (without labels), signs (drawn), or package.module:factory"
    )
    root: Path = Field(Path("data"), description="the folder that holds them")
    size: PositiveInt | None = Field(
        None,
        description="images are resized to this height and width; default: that of the images if all have one, else "
        "what torchvision or timm made the model for; needed for any other",
    )
    download: bool = Field(False, description="gtsrb: fetch it if it is not there")
    validation: float = Field(0.1, gt=0, lt=1, description="share of the training set held out for choices")
    seed: NonNegativeInt = 0
    groups: dict[str, list[int | str]] = Field(default_factory=dict, description="your own names for sets of classes")
    classes: list[str] = Field(
        default_factory=list,
        description="images: names of the network's classes, or a text file with one a line; "
        "default: those in the checkpoint, else 0, 1, ...",
    )

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        if len(set(self.classes)) != len(self.classes):
            raise ValueError("classes has a name twice")
        return self


class OptimiserSettings(_Section):
    """What ``[train]`` and ``[finetune]`` share.

    Where ``batch_size`` is None a training takes it from its number of images; where ``learning_rate`` or ``ema`` is
    None, from its number of steps; where ``warmup_epochs`` or ``max_grad_norm`` is None it has no warm-up, or shortens
    no gradients.
    """

    epochs: NonNegativeInt = Field(40, description="passes over the training images")
    # Not written where it is 0: checkpoints that were trained before there was this key keep their fingerprint.
    steps: NonNegativeInt = Field(
        0,
        description="training ends after so many at the latest, the last epoch cut short; 0: after its epochs",
        exclude_if=lambda steps: steps == 0,
    )
    batch_size: PositiveInt | None = Field(
        None, description="images a step; default: 16 to 128, by the number of training images"
    )
    learning_rate: PositiveFloat | None = Field(
        None, description="the highest of the schedule; default: the recipe's, scaled to the batch size"
    )
    momentum: float = Field(0.9, ge=0, lt=1)
    weight_decay: NonNegativeFloat = 5e-4
    schedule: Literal["cosine", "step"] = Field(
        "cosine", description="step: a tenth after half of the epochs (the paper's)"
    )
    warmup_epochs: NonNegativeFloat | None = Field(
        None, description="the learning rate rises over so many; default: the recipe's"
    )
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    # Not written where it is 0, as steps.
    max_grad_norm: NonNegativeFloat | None = Field(
        None,
        description="longer gradients are shortened to this norm; 0: none are; default: the recipe's",
        exclude_if=lambda norm: norm == 0,
    )
    ema: float | None = Field(
        None, ge=0, lt=1, description="decay of the moving average of weights; 0: none; default: the recipe's"
    )
    augment: Literal["none", "rigid", "signs", "objects"] = Field(
        "signs",
        description="signs: affine, light, no mirroring; objects: shift, mirror, light; rigid: shift only",
    )
    saturation: float = Field(0.0, ge=0, lt=1, description="colours get up to so much paler or more vivid")
    erase: float = Field(0.0, ge=0, le=1, description="share of the images in which a rectangle is erased")
    compute: Literal["auto", "cpu", "cuda"] = Field("auto", description="where: auto is the GPU if PyTorch sees one")
    amp: bool = Field(True, description="mixed precision, on a GPU or a CPU fast in bfloat16")
    compile: bool = Field(
        False, description="torch.compile, if its steps are faster, after a minute of compiling; needs a C++ compiler"
    )
    patience: NonNegativeInt = Field(
        0, description="epochs without a better validation accuracy that end it, the best weights kept; 0: never"
    )
    tensorboard: bool = Field(False, description="write event files for TensorBoard; needs catro-deploy[tensorboard]")
    seed: NonNegativeInt = 0

    @property
    def starts_accurate(self) -> bool:
        """Whether the network has most of its accuracy before the training."""
        return False


class TrainSettings(OptimiserSettings):
    """``[train]``: a baseline from nothing, for those who have none."""

    recipe: Literal["none", "paper"] = Field("none", description="paper: its 300 epochs, for keys not given here")
    epochs: PositiveInt = Field(40, description="passes over the training images")
    learning_rate: PositiveFloat | None = Field(
        None, description="the highest of the schedule; default: 0.1 for batches of 128, less for smaller ones"
    )
    warmup_epochs: NonNegativeFloat = Field(1.0, description="the learning rate rises over so many")
    ema: float = Field(0.0, ge=0, lt=1, description="decay of the moving average of weights; 0: none")
    max_grad_norm: NonNegativeFloat = Field(
        0.0, description="longer gradients are shortened to this norm; 0: none are", exclude_if=lambda norm: norm == 0
    )


class FinetuneSettings(OptimiserSettings):
    """``[finetune]``: the pruned network gets its accuracy back."""

    recipe: Literal["auto", "gentle", "fast", "paper", "none"] = Field(
        "auto",
        description="for keys not given here (rates: of batches of 128) - gentle: low rates by the number of steps, "
        "distillation, moving average; fast: 60 epochs from rate 0.1, distillation, moving average, torch.compile; "
        "paper: 200 from rate 0.01, a tenth after half; none: rate 0.05; auto: gentle if pruning has reconstructed "
        "the layers, else none",
    )
    epochs: NonNegativeInt = Field(40, description="passes over the training images; 0: no training")
    distill: float | None = Field(
        None, ge=0, le=1, description="weight of the original's answers; default: the recipe's, without labels 1"
    )
    temperature: PositiveFloat = Field(4.0, description="softens both networks' answers when they are compared")

    @property
    def starts_accurate(self) -> bool:
        """Whether the recipe, which ``follow_recipe`` has found, is that of reconstructed networks."""
        return self.recipe == "gentle"


class PruneSettings(_Section):
    """``[prune]``: which channels stay."""

    target: str = Field("x86-cpu", description="what the network runs on: see `catro-deploy targets list`")
    device: str = Field("", description="which of `catro-deploy device list` that is; empty: this machine")
    classes: list[int | str] = Field(
        default_factory=list,
        description="a group, class names or indices, in the order of the outputs; empty: all classes",
    )
    budget: str = Field(
        "0.5x",
        description="what may be used of the original's latency on the target (0.5x, 400us, 1.5ms), "
        "or of its multiply-accumulates (50%flops); auto: `run` searches the smallest latency within max_drop",
    )
    criterion: Literal["catro", "obs", "l1"] = Field(
        "catro",
        description="catro: what the wanted classes are told apart by; obs: what the next layers read, whatever the "
        "class; l1: norms of filters",
    )
    reconstruct: bool = Field(
        True,
        description="after the cut, solve every layer again for the original's feature maps; false: the paper's method",
    )
    worth: Literal["auto", "measured", "scatter"] = Field(
        "auto",
        description="measured: of a width, what the answers lose without it; scatter: its class separation (the "
        "paper's); auto: measured for a budget of latency, by obs and without labels, if layers are reconstructed",
    )
    reconstruct_images: PositiveInt = Field(1024, description="that layers are solved from, without their labels")
    allocation: Literal["auto", "exact", "greedy", "flops", "uniform"] = Field(
        "auto",
        description="exact: a proven optimum; greedy: the paper's Algorithm 2 by the budget's own cost; flops: the "
        "same by multiply-accumulates; uniform: one share; auto: exact, but flops for multiply-accumulates by scatter",
    )
    depth: Literal["auto", "never"] = Field(
        "auto", description="auto: by a latency budget residual branches may be removed; never: width only"
    )
    samples_per_class: PositiveInt = Field(128, ge=2)
    d_min: PositiveInt = Field(3, description="no group gets fewer channels")
    step: PositiveInt = Field(1, description="channels added at a time")
    max_width: float = Field(
        1.0, gt=0, le=1, description="no group keeps more than this share; the paper: 0.5, or 0.375"
    )
    prune_first: bool = Field(True, description="whether the first convolution's channels may be pruned")
    temperature: PositiveFloat = Field(1.0, description="of the scores; the paper leaves their scale open")
    ridge: NonNegativeFloat = Field(
        10.0, description="what keeping a channel costs, in mean within-scatters of its layer; the paper: 0"
    )
    epsilon: NonNegativeFloat = Field(1e-9, description="Algorithm 1 ends when the trace ratio grows by no more")
    ignore: list[str] = Field(default_factory=list, description="modules whose channels stay as they are")
    batch_size: PositiveInt = Field(128, description="most images at once; on a CPU fewer, if they are large")
    activation_memory: PositiveFloat = Field(2.0, description="GiB of feature maps kept in memory; more goes to a file")
    compute: Literal["auto", "cpu", "cuda"] = Field("auto", description="where: auto is the GPU if PyTorch sees one")
    seed: NonNegativeInt = 0


class ExportSettings(_Section):
    """``[export]``: ONNX."""

    opset: int = Field(18, ge=18, le=23)
    dynamic_batch: bool = False


class QuantizeSettings(_Section):
    """``[quantize]``: in which number format the pruned network is served."""

    precision: Literal["target", "fp32", "fp16", "int8", "auto"] = Field(
        "target",
        description="target: the target's own; auto: the fastest that keeps the accuracy; or that one, if it does",
    )
    recipe: str = Field("standard", description="a file of calibration/int8, or the calibration.toml of a run")
    max_drop: NonNegativeFloat = Field(
        0.5,
        description="points of accuracy (without labels: of agreement with the original) that it may "
        "cost on validation images",
    )
    qat_epochs: NonNegativeInt = Field(
        0, description="of quantisation-aware fine-tuning, if integers cost more than max_drop; 0: none"
    )
    # 0.005 made a small network diverge that 0.002 improved: batch norm is folded, and holds nothing in check.
    qat_learning_rate: PositiveFloat = Field(0.002, description="at its start; all else is as in [finetune]")

    @property
    def is_named(self) -> bool:
        """Whether one precision is asked for, so that channels can be pruned for it."""
        return self.precision not in (TARGETS_OWN, AUTO)


class BuildSettings(_Section):
    """``[build]``: TensorRT engines."""

    level: int = Field(3, ge=0, le=5, description="of optimisation: 5 builds longest and runs fastest")
    workspace_mib: PositiveInt | None = Field(None, description="of scratch memory; default: what the GPU has")
    dla: NonNegativeInt | None = Field(None, description="core of the deep learning accelerator; default: the GPU")
    rebuilds: NonNegativeInt = Field(0, description="builds more than once, to report how far apart they are")


class VerifySettings(_Section):
    """``[verify]``: what must hold."""

    tolerance: PositiveFloat | None = Field(
        None,
        description="largest difference of logits between PyTorch and the runtime; default: 0.001, "
        "in fp16 3% of the largest logit",
    )
    max_drop: NonNegativeFloat | None = Field(
        None,
        description="points of accuracy (without labels: of agreement with the original) that may be lost; more ends "
        "with exit code 3",
    )
    batch_size: PositiveInt = 256


class BenchSettings(_Section):
    """``[bench]``: how latency is measured."""

    protocol: str = Field("standard", description="a file of calibration/latency: quick, standard or thorough")
    batch: PositiveInt | None = Field(None, description="images at a time; default: the target's")
    threads: PositiveInt | None = Field(None, description="threads of the runtime; default: the target's")
    batches: list[PositiveInt] = Field(
        default_factory=list, description="further numbers of images at a time; they need export.dynamic_batch"
    )
    transfers: bool = Field(False, description="of a GPU: copies to and from it count in what is compared with budgets")
    cuda_graph: bool = Field(False, description="of a GPU: the same is launched as one CUDA graph")


class ProfileSettings(_Section):
    """``[profile]``: how the layers of the network are timed on the target."""

    protocol: str = Field("standard", description="a file of calibration/profile: quick or standard")


class Settings(_Section):
    """All sections, and where their relative paths start."""

    model: ModelSettings = ModelSettings()
    data: DataSettings = DataSettings()
    train: TrainSettings | None = None
    prune: PruneSettings = PruneSettings()
    finetune: FinetuneSettings = FinetuneSettings()
    export: ExportSettings = ExportSettings()
    quantize: QuantizeSettings = QuantizeSettings()
    build: BuildSettings = BuildSettings()
    verify: VerifySettings = VerifySettings()
    bench: BenchSettings = BenchSettings()
    profile: ProfileSettings = ProfileSettings()
