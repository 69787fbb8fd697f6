"""What the fork server of tests.forked preloads: all packages, and everything that the first export loads."""

import gc
import tempfile
from pathlib import Path

import onnx
import onnxscript
import scipy.optimize
import torch
import torchvision
import tqdm

import catro_deploy.cli.main
import catro_deploy.pipeline
from catro_deploy.graph.onnx.export import export_onnx
from tests.exporter import read_operators_once
from tests.tiny import SIZE, TinyNet

__all__ = ["catro_deploy", "onnx", "onnxscript", "scipy", "torchvision"]

torch.set_num_threads(1)
tqdm.tqdm.monitor_interval = 0  # otherwise torch's progress bar leaves a thread behind, which does not survive forking
read_operators_once()
with tempfile.TemporaryDirectory() as folder:
    export_onnx(TinyNet(3).eval(), (3, SIZE, SIZE), Path(folder) / "x.onnx", opset=18, metadata={})
gc.freeze()  # what all forks share is not searched for garbage
