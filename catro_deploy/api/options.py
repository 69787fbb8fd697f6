"""Keywords of the Python API: the settings of catro.toml by the same names, with the same defaults."""

from typing import Literal, TypedDict

__all__ = ["FinetuneOptions", "PruneOptions"]


class PruneOptions(TypedDict, total=False):
    """Further keywords of ``prune``: those of ``[prune]`` in catro.toml.

    Attributes:
        device: which of `catro-deploy device list` the target is; "", this machine.
        criterion: which channels stay: ``"catro"`` (what the wanted classes are told apart by), ``"obs"`` (what the
            next layers read, whatever the class), or ``"l1"`` (norms of filters).
        reconstruct: whether every layer is solved again for the original's feature maps after the cut; True. False is
            the paper's method.
        worth: what a width is worth: ``"measured"`` (what the answers lose without it), ``"scatter"`` (its class
            separation, as in the paper), or ``"auto"``: measured for latency, by obs and without labels, if layers
            are reconstructed.
        reconstruct_images: how many images layers are solved from; 1024.
        allocation: ``"exact"`` (a proven optimum), ``"greedy"`` (the paper's, by the budget's own cost), ``"flops"``
            (the same by multiply-accumulates), ``"uniform"`` (one share for all), or ``"auto"``: exact, but
            flops for multiply-accumulates where worth is class separation.
        depth: ``"auto"``: by a latency budget residual branches may be removed; ``"never"``: width only.
        samples_per_class: images of each class that channels are scored on; 128.
        d_min: no group gets fewer channels; 3.
        step: channels added at a time; 1.
        max_width: no group keeps more than this share of its channels; 1.
        prune_first: whether the first convolution's channels may be pruned; True.
        temperature: of the scores; 1.
        ridge: what keeping a channel costs, in mean within-scatters of its layer; 10. The paper: 0.
        epsilon: the selection ends when the trace ratio grows by no more; 1e-9.
        ignore: names of modules whose channels stay as they are, with all that is inside them.
        batch_size: most images that run at once while channels are scored; 128. On a CPU fewer, if they are large.
        activation_memory: GiB of feature maps kept in memory, more goes to a file; 2.
        compute: where channels are scored: ``"auto"`` is the GPU if PyTorch sees one.
        seed: of the random start of the selection; 0.
    """

    device: str
    criterion: Literal["catro", "obs", "l1"]
    reconstruct: bool
    worth: Literal["auto", "measured", "scatter"]
    reconstruct_images: int
    allocation: Literal["auto", "exact", "greedy", "flops", "uniform"]
    depth: Literal["auto", "never"]
    samples_per_class: int
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
    """Keywords of ``PrunedModel.finetune``: those of ``[finetune]`` in catro.toml, less what the loader decides.

    Attributes:
        recipe: ``"gentle"`` (low rates, chosen by the number of steps), ``"fast"`` (60 epochs), ``"paper"`` (200) or
            ``"none"``, for all that is not given here; ``"auto"`` is gentle if pruning has reconstructed the layers,
            else none.
        epochs: passes over the training images; 40. With 0 there is no training.
        steps: training ends after so many at the latest, the last epoch cut short; 0: after its epochs.
        learning_rate: the highest; without it the recipe's, less where the loader's batches are smaller than 128.
        momentum: of Nesterov's SGD; 0.9.
        weight_decay: of weights of two or more dimensions; 0.0005.
        schedule: ``"cosine"``, or ``"step"``: a tenth after half of the epochs.
        warmup_epochs: the learning rate rises over so many; without it the recipe's.
        label_smoothing: share of the target that goes to the other classes; 0.
        max_grad_norm: longer gradients are shortened to this norm, 0 for none; without it the recipe's.
        ema: decay of the moving average of weights, 0 for none; without it the recipe's.
        patience: epochs without a better validation accuracy that end it, the best weights kept; 0: never.
        compute: where training runs: ``"auto"`` is the GPU if PyTorch sees one.
        amp: mixed precision, on a GPU or a CPU fast in bfloat16; True.
        compile: torch.compile, if it is faster; False.
        seed: what dropout and the loader's shuffling draw from; 0.
        distill: weight of the unpruned network's answers in the loss; without it the recipe's, or 1 if the loader gives
            images alone.
        temperature: softens both networks' answers when they are compared; 4.
    """

    recipe: Literal["auto", "gentle", "fast", "paper", "none"]
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
    patience: int
    compute: Literal["auto", "cpu", "cuda"]
    amp: bool
    compile: bool
    seed: int
    distill: float
    temperature: float
