"""The text around the tables of docs/results.md."""

HEAD = """\
# Results

<!-- Written by benchmarks/results_page.py. Do not edit. -->

Accuracy is measured on the test images, which were not used for any decision. Latency is measured with ONNX Runtime on
one thread, at batch size 1, interleaved with the original network: 0.5x means half of the original's latency. All
benchmarks except those [on a GPU](#on-a-gpu) ran on CPUs shared with other work; ratios drift by some 4% between runs,
which is more than the interval of one measurement.

More: [accuracy by training](reconstruction.md), [fronts of accuracy and latency](fronts.md), [the paper's
tables](paper.md), [architectures](architectures.md), [the roofline estimate](roofline.md)."""

LATENCY = """\
## Accuracy at equal measured latency

Every method prunes to the same measured share of the original's latency, and all networks are fine-tuned alike, without
reconstruction (`reconstruct = false`). Cells hold test accuracy, measured latency and multiply-accumulates; several
seeds are separated by slashes. "not met": the method has no network within the budget.

One image of GTSRB's speed limits is 0.02 points, and seeds differ by 0.1 to 0.3. At 0.75x most methods lose nothing.
At 0.5x the lead of CATRO by latency over CATRO by FLOPs exceeds the noise of the seeds; the lead over L1 does not.
Methods that ignore the latency staircase remain well below some budgets, because their next wider network is slower
than the budget."""

CRITERIA = """\
## Channel criteria

The same share of the channels of each layer is kept, and all networks are reconstructed alike, so that only the choice
of channels differs. "catro" (the default) weights the error of the next layers by what separates the wanted classes'
logits, "obs" weights it equally; "ratio" is the trace ratio of what the next layers can reconstruct, "paper" that of
the paper. Cells hold agreement with the original on validation images (200 for cat and dog) and accuracy on test
images, for one seed.

On average, "catro" leads in agreement without training and "obs" after it; on test images they are level. The default
is the one of the two that takes the wanted classes into account."""

SEARCH = """\
## What a search gains

`run --search` compared with one pruning to the same budget, each a complete run of the command line. All train for the
same number of steps, including the search's training of networks other than the chosen one. "variant": what the search
changed; "search": the number of variants tried and the minutes spent. Details: [search](search.md)."""

TWO_TARGETS = """\
## One network for two targets

`--target A --target B` compared with a separate network for each target, with the same budget and training."""

PRECISION = """\
## int8

`--precision int8`. Pruned networks were pruned for int8 and fine-tuned for a few epochs, without reconstruction.
Speedups are against the original in float32. MobileNetV2 and ResNet-50 were pruned with profiles that timed layers of
more than 1024 channels too slow, which has been corrected since."""

OPENVINO = """\
## int8 in OpenVINO

The first table compares quantisation alone with NNCF's, which calibrates on the same images. The second table shows the
gain of pruning: all files of a network were timed interleaved in one process; cells hold the median and the 10th to
90th percentile of the passes. The profiles of MobileNetV2 and ResNet-50 had the same fault as in the section before."""

COST_MODEL = """\
## How well a latency profile predicts

The errors are for random prunings that the profile was not fitted to, over the widths that an allocation may choose
from. Most of "any widths" were never measured: such predictions are labelled as estimates, and every allocation is
measured before it counts. MACs are fitted to the same prunings with slope and intercept. The noise is the remaining
error of the measured latencies themselves, estimated from the difference between medians over alternate rounds."""

INPUT_SIZE = """\
## How well a profile predicts another input size

Prunings that resize their images to a smaller size. Their latency is predicted from the profile of the original size,
in proportion to the positions of each layer, and from two measurements at the smaller size, of the unpruned network and
a narrow one. In int8, the profile is in int8, but the two measurements are those in float32. These were made with
`--protocol quick`."""

SECOND_OPINION = """\
## A second opinion on OpenVINO's latency

Medians over the repeats for the same networks, measured here (original and pruned interleaved in one process) and by
OpenVINO's `benchmark_app` (each alone), and the difference of `benchmark_app` from our measurement in each repeat."""

TURNS = """\
## The first inferences of a turn

The original and the pruned network take turns of ten inferences. The first ones find the other network's data in the
caches. The table shows their medians relative to the second half of the turn, and percentiles with and without
("settled") the first two inferences, which `bench` leaves out."""

PRUNING = """## Time and memory of a pruning

From a network and 1,000 images in memory to the pruned ONNX file, with reconstruction, under a latency budget of 0.5x
for a target whose latency is estimated, so that no profiling is included. Measured on one thread. "forward passes": the
same time as a multiple of one plain forward pass of the unpruned network over 1,000 images. Peak memory is that of the
process, including PyTorch and the images."""

PEER_TESTS = """\
## The networks of torch-pruning's tests

The networks pruned in torch-pruning's own tests, reimplemented as classifiers with random weights, are pruned by both
tools to half of the multiply-accumulates. "equal": the cut network computes the same as the masked original; checked
only for catro-deploy. Without pickle, catro-deploy loads the files of `PrunedModel.save`, and torch-pruning applies its
pruning history to a fresh network, with a plain state dict. `state_dict` is `torch_pruning.state_dict`, read with
`weights_only=True`, which rejects the modules and functions in it; "pickled" is the whole module. torch-pruning gets
the first ratio, in steps of 1/40, that meets the budget; magnitudes as importance or, if those fail, random importance,
as in some of its tests; and for the custom layer the function that its test registers. catro-deploy gets the network
and images.

The first run found two bugs in catro-deploy, which have been fixed: ConcatSplit and LeNet could not be pruned."""

ON_GPU = """\
## On a GPU

The commands run on an NVIDIA GPU within a quarter of an hour. Networks run with ONNX Runtime's CUDA provider in half
precision, and their latency includes copies to the GPU and back; TensorRT was not installed. For EfficientNet-Lite0,
with its 1,000 classes, pruning, measured worth and reconstruction ran on the GPU, and the closed loop timed four
candidates there, interleaved with the original. None met the budget, and the command ended with exit code 3. Since
then, the loop also corrects its estimate by an overhead such as copies, and the error no longer blames a profile. The
rest has not been run: no report, no verification of the files on the device, no TensorRT engine. Networks that were
trained on this GPU are marked in [accuracy by training](reconstruction.md) and [the paper's tables](paper.md), and
counted below each [front](fronts.md)."""

SCRIPTS = """\
## All benchmarks

Run from the checkout as `python -m benchmarks.FOLDER.NAME`; `--help` lists the options. Each prints a table and writes
`benchmarks/results/*.json` with its environment. `accuracy.efficientnet_lite` writes the weights of EfficientNet-Lite0
that some of them load.

| benchmark | question |
| --- | --- |
| `accuracy.reconstruction` | accuracy without training and after little training, at equal measured latency |
| `accuracy.front` | accuracy against measured latency at five budgets, compared with seven criteria of torch-pruning |
| `accuracy.criteria` | channel criteria at equal widths, all reconstructed alike |
| `accuracy.search` | what `run --search` gains over one pruning, at equal latency and training |
| `accuracy.two_targets` | one network for two targets compared with a separate network for each |
| `accuracy.equal_latency` | accuracy at equal measured latency, compared with CATRO by FLOPs and torch-pruning |
| `accuracy.batch_norm` | what re-estimated batch norm statistics gain before any training |
| `paper.tables` | the paper's tables, compared with L1, FPGM and group norms |
| `paper.figures` | the path of Algorithm 2, and the channels kept for two tasks |
| `latency.cost_model` | how well a latency profile predicts prunings that it was not fitted to |
| `latency.input_size` | how well that profile predicts prunings at smaller input sizes |
| `latency.second_opinion` | how much OpenVINO's `benchmark_app` differs from our measurements |
| `latency.turns` | how much longer the first inferences of a turn take when two networks are timed interleaved |
| `latency.allocation` | time and gap of the greedy and the exact allocation, ResNet-56 and 110 |
| `latency.depth` | latency reached by width, depth and both, on published V100 tables and on x86 |
| `roofline.evaluate` | the estimate for GPUs: fit, held-out errors, published latencies |
| `precision.int8` | accuracy and latency in int8 and float32, original and pruned |
| `precision.openvino_int8` | int8 in OpenVINO compared with NNCF's, and what pruning gains in addition |
| `precision.qat` | what quantisation-aware fine-tuning gains where calibration alone loses accuracy |
| `architectures.scoreboard` | which CNNs of three libraries can be pruned, saved, exported and trained |
| `architectures.peer_tests` | how the networks of torch-pruning's tests fare in both |
| `training.throughput` | fine-tuning compared with a plain eager DataLoader loop |
| `training.loading` | reading photographs compared with a plain DataLoader, and start-up on 200,000 files |
| `training.teacher` | what the teacher's forward pass costs in a distillation step |
| `training.feature_maps` | what learning from the original's outputs and feature maps costs in a step |
| `training.layouts` | the number format and memory layout in which a CPU trains fastest |
| `product.prune_whole` | time and memory of a complete pruning under a latency budget |
| `product.prune_time` | time and memory of scoring and selection, as multiples of one forward pass |
| `product.memory` | memory and time of scoring and selection at 1,000 classes and 224x224 |
| `product.page_faults` | what reused pages and small batches save on a CPU |
| `product.on_gpu` | every command of a run on a machine with an NVIDIA GPU |
| `product.help_time` | how long `--help` takes |"""
