"""``[train]`` and ``[finetune]``."""

from typing import Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from catro_deploy.settings.section import Compute, Section

__all__ = ["FinetuneSettings", "OptimiserSettings", "TrainSettings"]


class OptimiserSettings(Section):
    """What ``[train]`` and ``[finetune]`` share.

    A ``batch_size`` of None follows from the number of training images, a ``learning_rate`` or ``ema`` of None from the
    number of steps. Without ``warmup_epochs`` there is no warm-up, and without ``max_grad_norm`` no clipping of
    gradients.
    """

    epochs: NonNegativeInt = Field(40, description="Passes over the training images")
    # Not written if it is 0, so that checkpoints from before this key existed keep their fingerprint.
    steps: NonNegativeInt = Field(
        0,
        description="Maximum number of training steps; 0: no limit",
        exclude_if=lambda steps: steps == 0,
    )
    batch_size: PositiveInt | None = Field(
        None, description="Images per step; default: 16 to 128, depending on the number of training images"
    )
    learning_rate: PositiveFloat | None = Field(
        None, description="Peak learning rate; default: the recipe's, scaled to the batch size"
    )
    momentum: float = Field(0.9, ge=0, lt=1, description="Nesterov momentum of SGD")
    weight_decay: NonNegativeFloat = Field(5e-4, description="Weight decay of weights of two or more dimensions")
    schedule: Literal["cosine", "step"] = Field(
        "cosine",
        description="Learning rate schedule; step: a tenth of the rate after half of the epochs, as in the paper",
    )
    warmup_epochs: NonNegativeFloat | None = Field(
        None, description="Epochs over which the learning rate rises; default: the recipe's"
    )
    label_smoothing: float = Field(0.0, ge=0, lt=1, description="Share of the target spread evenly over all classes")
    # Not written if it is 0, like steps.
    max_grad_norm: NonNegativeFloat | None = Field(
        None,
        description="Gradients are clipped to this norm; 0: no clipping; default: the recipe's",
        exclude_if=lambda norm: norm == 0,
    )
    ema: float | None = Field(
        None, ge=0, lt=1, description="Decay of the moving average of weights; 0: none; default: the recipe's"
    )
    augment: Literal["none", "rigid", "signs", "objects", "photos"] = Field(
        "signs",
        description="signs: affine and brightness, no mirroring; objects: shift, mirror and brightness; "
        "photos: random resized crops of the image files, mirror and color jitter, as is usual on ImageNet; "
        "rigid: shift only",
    )
    # Like steps, these are not written at their defaults.
    crop_scale: float = Field(
        0.08,
        gt=0,
        le=1,
        description="photos: smallest share of an image's area that a random crop covers",
        exclude_if=lambda scale: scale == 0.08,
    )
    randaugment: NonNegativeInt = Field(
        0, le=30, description="Magnitude of RandAugment, usually 9; 0: none", exclude_if=lambda size: size == 0
    )
    mixup: NonNegativeFloat = Field(
        0.0, description="Alpha of mixup, usually 0.2; 0: none", exclude_if=lambda alpha: alpha == 0
    )
    cutmix: NonNegativeFloat = Field(
        0.0,
        description="Alpha of CutMix, usually 1; 0: none; with mixup: each batch uses one of the two",
        exclude_if=lambda alpha: alpha == 0,
    )
    saturation: float = Field(0.0, ge=0, lt=1, description="Largest relative change of colour saturation")
    erase: float = Field(0.0, ge=0, le=1, description="Share of the images in which a rectangle is erased")
    compute: Compute = Field("auto", description="Where training runs; auto: the GPU if PyTorch sees one")
    amp: bool = Field(True, description="Mixed precision, on a GPU or on a CPU that is fast in bfloat16")
    compile: bool = Field(
        False,
        description="Use torch.compile if it makes steps faster; compiling takes a minute and needs a C++ compiler",
    )
    patience: NonNegativeInt = Field(
        0,
        description="Stop after this many epochs without better validation accuracy and keep the best weights; 0: off",
    )
    checkpoint_minutes: PositiveFloat = Field(
        10.0, description="Minutes after which the training state is also saved within an epoch"
    )
    tensorboard: bool = Field(False, description="Write TensorBoard event files; needs catro-deploy[tensorboard]")
    seed: NonNegativeInt = Field(0, description="Seed of shuffling, augmentation and dropout")

    @property
    def starts_accurate(self) -> bool:
        """Whether the network already has most of its accuracy before training."""
        return False


class TrainSettings(OptimiserSettings):
    """``[train]``: a baseline trained from scratch, for users without a trained model."""

    recipe: Literal["none", "paper"] = Field(
        "none", description="Values for settings that are not given; paper: the 300 epochs of the paper"
    )
    epochs: PositiveInt = Field(40, description="Passes over the training images")
    learning_rate: PositiveFloat | None = Field(
        None, description="Peak learning rate; default: 0.1 for batches of 128, less for smaller ones"
    )
    warmup_epochs: NonNegativeFloat = Field(1.0, description="Epochs over which the learning rate rises")
    ema: float = Field(0.0, ge=0, lt=1, description="Decay of the moving average of weights; 0: none")
    max_grad_norm: NonNegativeFloat = Field(
        0.0, description="Gradients are clipped to this norm; 0: no clipping", exclude_if=lambda norm: norm == 0
    )


class FinetuneSettings(OptimiserSettings):
    """``[finetune]``: restores the accuracy of the pruned network."""

    recipe: Literal["auto", "gentle", "fast", "paper", "none"] = Field(
        "auto",
        description="Values for settings that are not given (learning rates for batches of 128); gentle: low rates "
        "that depend on the number of steps, distillation, moving average; fast: 60 epochs at rate 0.1, distillation, "
        "moving average, torch.compile; paper: 200 epochs at rate 0.01, a tenth of it after half of them; none: rate "
        "0.05; auto: gentle if layers were reconstructed, else none",
    )
    epochs: NonNegativeInt = Field(40, description="Passes over the training images; 0: no training")
    distill: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Weight of the original network's outputs in the loss; default: the recipe's; without labels: 1",
    )
    temperature: PositiveFloat = Field(4.0, description="Temperature of distillation")
    distill_features: NonNegativeFloat | None = Field(
        None,
        description="Weight of the distance from the original network's feature maps in the loss; default: the "
        "recipe's, or 0 with distill = 0",
    )

    @property
    def starts_accurate(self) -> bool:
        """Whether the recipe, as resolved by ``follow_recipe``, is the one for reconstructed networks."""
        return self.recipe == "gentle"
