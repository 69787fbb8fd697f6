"""The Python API: prune a module in memory with batches from your own loader, fine-tune, export and save it.

It and the command line's stages are thin layers over the same ``pruning``, ``training`` and ``graph.onnx``.
"""

from catro_deploy.api.options import FinetuneOptions, PruneOptions
from catro_deploy.api.pruned import PrunedModel
from catro_deploy.api.pruning import prune

__all__ = ["FinetuneOptions", "PruneOptions", "PrunedModel", "prune"]
