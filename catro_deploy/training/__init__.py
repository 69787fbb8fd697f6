"""Training and evaluation in PyTorch: ``fit``, ``predict``, and their parts."""

from catro_deploy.records import Epoch, History
from catro_deploy.training.evaluate import accuracy, predict
from catro_deploy.training.splits import TrainingJob, fit

__all__ = ["Epoch", "History", "TrainingJob", "accuracy", "fit", "predict"]
