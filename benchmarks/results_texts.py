"""What docs/results.md says around its tables."""

HEAD = """\
# Results

<!-- Written by benchmarks/results_page.py. Do not edit. -->

Accuracy is on the test images, which no decision was made by. Latency is measured with ONNX Runtime on one thread, at
batch size 1, interleaved with the original network: 0.5x means half of the original's latency. All but the section
[on a GPU](#on-a-gpu) ran on CPUs that were shared with other work; ratios drift by some 4% between runs, which is more
than the interval of one measurement.

More: [accuracy by training](reconstruction.md), [fronts of accuracy and latency](fronts.md), [the paper's
tables](paper.md), [architectures](architectures.md), [the roofline estimate](roofline.md)."""

LATENCY = """\
## Accuracy at equal measured latency

Every method is brought to the same measured share of the original's latency and fine-tuned alike, without
reconstruction (`reconstruct = false`). Cells hold test accuracy, measured latency and multiply-accumulates; several
seeds are separated by slashes. "not met": the method has no network within the budget.

One image of GTSRB's speed limits is 0.02 points, and seeds differ by 0.1 to 0.3. At 0.75x most methods lose nothing.
At 0.5x the lead of CATRO by latency over CATRO by FLOPs exceeds the noise of the seeds; the lead over L1 does not.
Methods that ignore the latency staircase end well below some budgets, because their next wider network is slower than
the budget."""

CRITERIA = """\
## Criteria of channels

The same share of all channels of each layer is kept, and all networks are reconstructed alike, so that nothing but the
choice differs. "catro" (the default) weighs the error of the next layers by what separates the wanted classes' logits,
"obs" weighs it equally; "ratio" is the trace ratio of what the next layers reconstruct, "paper" the paper's. Cells hold
agreement with the original on validation images (of cat and dog 200) and accuracy on test images, one seed.

In the mean, "catro" leads by agreement without training and "obs" after it; on test images they are level. Of equals,
the one that knows the wanted classes is the default."""

SEARCH = """\
## What a search gains

`run --search` beside one pruning to the same budget, each a whole run of the command line; all train for as many steps,
what the search trains besides the network that is taken included. "variant": what it changed; "search": variants tried,
and their minutes. Details: [search](search.md)."""

TWO_TARGETS = """\
## One network for two targets

`--target A --target B` beside a network of its own for each, to the same budget and equally trained."""

PRECISION = """\
## int8

`--precision int8`. Pruned networks were pruned for int8 and fine-tuned for a few epochs, without reconstruction.
Speedups are against the original in float32."""

OPENVINO = """\
## int8 in OpenVINO

First what quantising alone gives, beside NNCF's, which calibrates on the same images. Then what pruning is worth: all
files of a network were interleaved in one process; cells hold the median and 10th to 90th percentile of the passes."""

COST_MODEL = """\
## How well a latency profile predicts

Random prunings that the profile was not fitted to, over the widths that an allocation may choose from. "Any widths"
were mostly never measured: such predictions are labelled as estimates, and every allocation is measured before it
counts. MACs are fitted to the same prunings with slope and intercept. The noise is the error left in the measured
latencies themselves, from how far medians over every second round lie apart."""

INPUT_SIZE = """\
## How well a profile predicts another input size

Prunings that resize their images to a smaller size. Predicted from the profile of the original size, in proportion to
the positions of each layer, and two measurements at the smaller size, of the unpruned network and a narrow one."""

SECOND_OPINION = """\
## A second opinion on OpenVINO's latency

Medians over the repeats of the same networks, measured here (original and pruned interleaved in one process) and by
OpenVINO's `benchmark_app` (each alone), and how far `benchmark_app` lies from what was measured here, each time."""

TURNS = """\
## The first inferences of a turn

Original and pruned network take turns of ten inferences. The first ones find the other network in the caches: how long
their medians are relative to the second half of the turn, and the percentiles with and without ("settled") the first
two. `bench` leaves those out."""

PRUNING = """## Time and memory of a pruning

From a network and 1,000 images in memory to the pruned ONNX file, with reconstruction, under a latency budget of 0.5x
for a target whose latency is an estimate, so that no profiling is counted; on one thread, beside other work. Peak
memory is that of the process, with PyTorch and the images."""

PEER_TESTS = """\
## The networks of torch-pruning's tests

What torch-pruning's own tests prune, written anew as classifiers, through both to half of the multiply-accumulates, on
random weights. "equal": what is left computes what the masked original computes; only asked of catro-deploy. Without
pickle catro-deploy loads what `PrunedModel.save` wrote, and torch-pruning applies its pruning history to a fresh
network, with a plain state dict. `state_dict` is `torch_pruning.state_dict`, read with `weights_only=True`, which
refuses the modules and functions in it; "pickled" is the whole module. torch-pruning gets the first ratio, in steps of
1/40, that meets the budget; magnitudes as importance or, if those fail, random ones, as some of its tests have it; and
for the layer of one's own the function that its test registers. catro-deploy gets the network and images.

The first run found two faults of catro-deploy, since corrected: ConcatSplit and LeNet could not be pruned."""

ON_GPU = """\
## On a GPU

What has been run of the product on an NVIDIA GPU, in a quarter of an hour. Networks run in ONNX Runtime's CUDA
provider, in half precision; TensorRT was not installed. Of EfficientNet-Lite0, with its 1,000 classes, pruning,
measured worth and reconstruction ran on the GPU, and the closed loop timed its first candidate there, interleaved with
the original, until the time limit ended the command. The rest has not run: no report, no verification of the files on
the device, no TensorRT engine. What caused PyTorch's warning has been changed since, and has not run on a GPU again.
Rows of [accuracy by training](reconstruction.md) that were trained on this GPU are marked there."""

SCRIPTS = """\
## All benchmarks

Run from the checkout as `python -m benchmarks.FOLDER.NAME`; `--help` lists the options. Each prints a table and writes
`benchmarks/results/*.json` with its environment. `accuracy.efficientnet_lite` writes the weights of EfficientNet-Lite0
that some of them load.

| benchmark | question |
| --- | --- |
| `accuracy.reconstruction` | accuracy without training and after little of it, at equal measured latency |
| `accuracy.front` | accuracy against measured latency at five budgets, beside seven criteria of torch-pruning |
| `accuracy.criteria` | criteria of channels at equal widths, all reconstructed alike |
| `accuracy.search` | what `run --search` gains over one pruning, at equal latency and training |
| `accuracy.two_targets` | one network for two targets beside a network of its own for each |
| `accuracy.equal_latency` | accuracy at equal measured latency, beside CATRO by FLOPs and torch-pruning |
| `accuracy.batch_norm` | what new batch norm statistics gain before any training |
| `paper.tables` | the paper's tables, beside L1, FPGM and group norms |
| `paper.figures` | the path of Algorithm 2, and the channels that two tasks keep |
| `latency.cost_model` | how well a latency profile predicts prunings that it was not fitted to |
| `latency.input_size` | how well that profile predicts prunings that compute at smaller images |
| `latency.second_opinion` | how far OpenVINO's `benchmark_app` lies from what is measured here |
| `latency.turns` | how much longer the first inferences of a turn take when two networks are timed interleaved |
| `latency.allocation` | time and gap of the greedy and the exact allocation, ResNet-56 and 110 |
| `latency.depth` | what width, depth and both reach, on published V100 tables and on x86 |
| `roofline.evaluate` | the estimate for GPUs: fit, held-out errors, published latencies |
| `precision.int8` | accuracy and latency in int8 and float32, original and pruned |
| `precision.openvino_int8` | int8 in OpenVINO beside NNCF's, and what pruning is worth beside it |
| `precision.qat` | what quantisation-aware fine-tuning gains where calibration alone loses accuracy |
| `architectures.scoreboard` | which CNNs of three libraries can be pruned, saved, exported and trained |
| `architectures.peer_tests` | how the networks of torch-pruning's tests fare in both |
| `training.throughput` | fine-tuning beside a plain eager DataLoader loop |
| `training.loading` | reading photographs beside a plain DataLoader, and the start on 200,000 files |
| `training.teacher` | what the teacher's answers cost in a step of distillation |
| `training.layouts` | in which number format and memory layout a CPU trains fastest |
| `product.prune_whole` | time and memory of a whole pruning under a latency budget |
| `product.prune_time` | time and memory of scoring and selection, as multiples of one forward pass |
| `product.memory` | memory and time of scoring and selection at 1,000 classes and 224x224 |
| `product.page_faults` | what reused pages and small batches save on a CPU |
| `product.on_gpu` | every command of a run on a machine with an NVIDIA GPU |
| `product.help_time` | how long `--help` takes |"""
