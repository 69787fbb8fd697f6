"""Keywords of the Python API: settings by the same names. Written by ``make reference``, not by hand."""

from typing import Literal, TypedDict

__all__ = ["FinetuneOptions", "PruneOptions"]


class PruneOptions(TypedDict, total=False):
    """Further keywords of ``prune``: those of ``[prune]`` in catro.toml.

    Attributes:
        also: Further targets on which the same network must meet its budgets: NAME, NAME:fp32 for a precision,
            NAME@DEVICE for one of your devices.
        device: Device of the target, see ``catro-deploy device list``; default: this machine.
        max_size: Largest size of the ONNX file in the served precision: 300kB, 1.5MiB, or 0.25x of the original's.
        max_memory: Largest peak memory of feature maps: 256KiB, 2MB, or 0.5x of what the original needs.
        max_energy: Largest energy of an inference, on devices that report their power: 3mJ, or 0.5x of the original's.
        input_size: Height and width at which the pruned network computes, 24 or 120x160: it takes the original's images
            and resizes them itself; default: the size of these images.
        criterion: Which channels stay: catro: those that separate the wanted classes; obs: those that the next layers
            need, whatever the class; l1: those with the largest filter norms; default: 'catro'.
        reconstruct: After the cut, refit every layer to the original's feature maps; false: the paper's method;
            default: True.
        worth: How the worth of a width is determined: measured: the loss without it; scatter: its class separation, as
            in the paper; auto: measured for latency budgets, for criterion obs, and for images without labels, if
            layers are reconstructed; default: 'auto'.
        reconstruct_images: Images that layers are refitted on; labels are not used; x > 0; default: 1024.
        allocation: How widths are chosen: exact: a proven optimum; greedy: the paper's Algorithm 2 with the budget's
            cost; flops: the same with multiply-accumulates; uniform: the same share for all; auto: exact, but flops for
            budgets of multiply-accumulates with worth by class separation; default: 'auto'.
        depth: auto: latency budgets may remove residual branches; never: widths only; default: 'auto'.
        samples_per_class: Training images of each class that channels are scored on; x >= 2; default: 128.
        max_samples: Maximum number of these images, of all classes together; but at least two of each class; x > 0;
            default: 8192.
        d_min: Smallest number of channels of a group; x > 0; default: 3.
        step: Channels added at a time; x > 0; default: 1.
        max_width: Largest share of its channels that a group keeps; the paper: 0.5 or 0.375; 0 < x <= 1; default: 1.0.
        prune_first: Whether channels of the first convolution may be removed; default: True.
        temperature: Temperature of the channel scores; x > 0; default: 1.0.
        ridge: Penalty on keeping a channel, in mean within-class scatters of its layer; the paper: 0; x >= 0; default:
            10.0.
        epsilon: Algorithm 1 stops when the trace ratio grows by no more than this; x >= 0; default: 1e-09.
        ignore: Names of modules that keep all channels, including modules inside them.
        batch_size: Images per batch when channels are scored; less on a CPU if images are large; x > 0; default: 128.
        activation_memory: GiB of feature maps kept in memory; the rest on disk; 0 < x <= 1e+06; default: 2.0.
        compute: Where channels are scored; auto: the GPU if PyTorch sees one; default: 'auto'.
        seed: Seed of the selection's random start; x >= 0; default: 0.
    """

    also: list[str]
    device: str
    max_size: str
    max_memory: str
    max_energy: str
    input_size: str
    criterion: Literal["catro", "obs", "l1"]
    reconstruct: bool
    worth: Literal["auto", "measured", "scatter"]
    reconstruct_images: int
    allocation: Literal["auto", "exact", "greedy", "flops", "uniform"]
    depth: Literal["auto", "never"]
    samples_per_class: int
    max_samples: int
    d_min: int
    step: int
    max_width: float
    prune_first: bool
    temperature: float
    ridge: float
    epsilon: float
    ignore: list[str]
    batch_size: int
    activation_memory: float
    compute: Literal["auto", "cpu", "cuda"]
    seed: int


class FinetuneOptions(TypedDict, total=False):
    """Keywords of ``PrunedModel.finetune``: those of ``[finetune]`` in catro.toml, where they apply to a loader.

    Attributes:
        epochs: Passes over the training images; 0: no training; x >= 0; default: 40.
        steps: Maximum number of training steps; 0: no limit; x >= 0; default: 0.
        learning_rate: Peak learning rate; default: the recipe's, scaled to the batch size; x > 0.
        momentum: Nesterov momentum of SGD; 0 <= x < 1; default: 0.9.
        weight_decay: Weight decay of weights of two or more dimensions; x >= 0; default: 0.0005.
        schedule: Learning rate schedule; step: a tenth of the rate after half of the epochs, as in the paper; default:
            'cosine'.
        warmup_epochs: Epochs over which the learning rate rises; default: the recipe's; x >= 0.
        label_smoothing: Share of the target spread evenly over all classes; 0 <= x < 1; default: 0.0.
        max_grad_norm: Gradients are clipped to this norm; 0: no clipping; default: the recipe's; x >= 0.
        ema: Decay of the moving average of weights; 0: none; default: the recipe's; 0 <= x < 1.
        mixup: Alpha of mixup, usually 0.2; 0: none; x >= 0; default: 0.0.
        cutmix: Alpha of CutMix, usually 1; 0: none; with mixup: each batch uses one of the two; x >= 0; default: 0.0.
        compute: Where training runs; auto: the GPU if PyTorch sees one; default: 'auto'.
        amp: Mixed precision, on a GPU or on a CPU that is fast in bfloat16; default: True.
        compile: Use torch.compile if it makes steps faster; compiling takes a minute and needs a C++ compiler; default:
            False.
        patience: Stop after this many epochs without better validation accuracy and keep the best weights; 0: off; x >=
            0; default: 0.
        seed: Seed of shuffling, augmentation and dropout; x >= 0; default: 0.
        recipe: Values for settings that are not given (learning rates for batches of 128); gentle: low rates that
            depend on the number of steps, distillation, moving average; fast: 60 epochs at rate 0.1, distillation,
            moving average, torch.compile; paper: 200 epochs at rate 0.01, a tenth of it after half of them; none: rate
            0.05; auto: gentle if layers were reconstructed, else none; default: 'auto'.
        distill: Weight of the original network's outputs in the loss; default: the recipe's; without labels: 1; 0 <= x
            <= 1.
        temperature: Temperature of distillation; x > 0; default: 4.0.
        distill_features: Weight of the distance from the original network's feature maps in the loss; default: the
            recipe's, or 0 with distill = 0; x >= 0.
    """

    epochs: int
    steps: int
    learning_rate: float
    momentum: float
    weight_decay: float
    schedule: Literal["cosine", "step"]
    warmup_epochs: float
    label_smoothing: float
    max_grad_norm: float
    ema: float
    mixup: float
    cutmix: float
    compute: Literal["auto", "cpu", "cuda"]
    amp: bool
    compile: bool
    patience: int
    seed: int
    recipe: Literal["auto", "gentle", "fast", "paper", "none"]
    distill: float
    temperature: float
    distill_features: float
