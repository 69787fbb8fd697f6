"""The stages in their order: what each reads and writes.

No stage is imported here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from catro_deploy.files import file_hash
from catro_deploy.runs.folder import RunFolder
from catro_deploy.settings import Settings
from catro_deploy.stages import outside
from catro_deploy.stages.image_stamps import SEEN, SplitName, image_stamps
from catro_deploy.stages.outside import deciding

__all__ = [
    "BENCH",
    "BUILD",
    "PRUNE",
    "QUANTIZE",
    "RUNTIMES",
    "SEARCH",
    "SHIP",
    "STAGES",
    "VARIANTS",
    "VERIFY",
    "Paths",
    "Stage",
]

SEARCH, VARIANTS, PRUNE, QUANTIZE = "search", "variants", "prune", "quantize"
BUILD, VERIFY, BENCH, RUNTIMES, SHIP = "build", "verify", "bench", "runtimes", "ship"

Paths = Callable[[RunFolder], tuple[Path, ...]]


@dataclass(frozen=True)
class Stage:
    """One step. ``function`` is ``module:name``, imported only when it runs: most stages import torch.

    ``sections`` are the settings that decide its outcome, ``reads`` files of earlier stages, ``splits`` the images that
    it uses, ``outside`` what else decides it. ``keeps`` are folders of partial results that it reuses unless forced
    not to.
    ``may_miss``: it may raise MissedError after its files are written, and later stages still make sense.
    ``on_device``: it runs networks on the target, and is left out if the target cannot be reached.
    ``follows_choice``: if a variant was chosen, it uses the settings of that variant.
    """

    name: str
    function: str
    sections: tuple[str, ...]
    reads: Paths
    writes: Paths
    outside: Callable[[Settings], Mapping[str, Any]] = lambda settings: {}
    splits: tuple[SplitName, ...] = ()
    keeps: Paths = lambda run: ()
    may_miss: bool = False
    on_device: bool = False
    follows_choice: bool = True

    def inputs(self, settings: Settings, run: RunFolder) -> dict[str, Any]:
        """Everything that decides the outcome: equal inputs need no second run."""
        return {
            "settings": {section: deciding(settings, section) for section in self.sections},
            "files": {path.name: file_hash(path) for path in self.reads(run)},
            "outside": dict(self.outside(settings)),
            "images": image_stamps(settings, self.splits) if self.splits else {},
        }


def _exported(run: RunFolder) -> tuple[Path, ...]:
    """Both networks, also in half precision if the target uses it, and as IR if the target takes IR."""
    halves = (run.onnx("original", "fp16"), run.onnx("pruned", "fp16"))
    return _with_ir((run.original_onnx, run.pruned_onnx, *(halves if halves[0].is_file() else ())))


def _with_ir(files: tuple[Path, ...]) -> tuple[Path, ...]:
    """``files``, and next to each the graph and weights that OpenVINO reads, if they exist."""
    made = [file.with_suffix(end) for file in files for end in (".xml", ".bin")]
    return (*files, *(path for path in made if path.is_file()))


def _quantised(run: RunFolder) -> tuple[Path, ...]:
    """The files of ``quantize``: its decision, and the networks that it wrote."""
    made = [run.calibration, *_with_ir((run.onnx("pruned", "int8"), run.onnx("pruned", "fp16")))]
    return (run.quantize, *(path for path in made if path.is_file() and path not in _exported(run)))


def _shipped(run: RunFolder) -> tuple[Path, ...]:
    """All files of ``ship/``: the record and the network."""
    files = [path for end in ("*.onnx", "*.xml", "*.bin", "*.py") for path in run.shipped.parent.glob(end)]
    return (run.shipped, *(path for path in files if not path.name.startswith(".")))


def _carried(run: RunFolder) -> tuple[Path, ...]:
    """Results from a device that cannot be reached, if there are any."""
    return (run.carried,) if run.carried.is_file() else ()


STAGES: tuple[Stage, ...] = (
    Stage(
        SEARCH,
        "catro_deploy.stages.search:search",
        ("model", "data", "prune", "finetune"),
        splits=SEEN,
        reads=lambda run: (),
        writes=lambda run: (run.search,),
        outside=outside.searching,
        keeps=lambda run: (run.searched,),
        on_device=True,
        follows_choice=False,
    ),
    Stage(
        VARIANTS,
        "catro_deploy.stages.variants:variants",
        ("model", "data", "prune", "search", "finetune", "quantize"),
        splits=SEEN,
        reads=lambda run: (run.search,),
        writes=lambda run: (run.variants,),
        outside=outside.pruning,
        keeps=lambda run: (run.searched,),
        on_device=True,
        follows_choice=False,
    ),
    Stage(
        PRUNE,
        "catro_deploy.stages.prune:prune",
        ("model", "data", "prune"),
        splits=SEEN,
        reads=lambda run: (run.search, run.variants),
        writes=lambda run: (run.plan, run.original_weights, run.pruned_weights),
        outside=outside.pruning,
    ),
    Stage(
        "finetune",
        "catro_deploy.stages.finetune:finetune",
        ("data", "finetune"),
        splits=SEEN,
        reads=lambda run: (run.plan, run.original_weights, run.pruned_weights),
        writes=lambda run: (run.weights, run.finetune),
    ),
    Stage(
        "export",
        "catro_deploy.stages.export:export",
        ("export",),
        reads=lambda run: (run.plan, run.original_weights, run.weights),
        writes=_exported,
        outside=outside.exporting,
    ),
    Stage(
        QUANTIZE,
        "catro_deploy.stages.quantize:quantize",
        ("data", "finetune", "build", "quantize"),
        splits=SEEN,
        reads=lambda run: (run.plan, run.original_weights, run.weights, *_exported(run)),
        writes=_quantised,
        outside=outside.quantising,
        may_miss=True,
        on_device=True,
    ),
    Stage(
        BUILD,
        "catro_deploy.stages.build:build",
        ("build",),
        reads=lambda run: (run.plan, *_exported(run), *_quantised(run), *_carried(run)),
        writes=lambda run: (run.build,),
        outside=outside.building,
        on_device=True,
    ),
    Stage(
        VERIFY,
        "catro_deploy.stages.verify:verify",
        ("data", "build", "verify"),
        splits=(*SEEN, "test"),
        reads=lambda run: (
            run.plan,
            run.original_weights,
            run.pruned_weights,
            run.weights,
            *_exported(run),
            *_quantised(run),
            *_carried(run),
        ),
        writes=lambda run: (run.verify,),
        outside=outside.device,
        may_miss=True,
        on_device=True,
    ),
    Stage(
        BENCH,
        "catro_deploy.stages.bench:bench",
        ("build", "bench"),
        reads=lambda run: (run.plan, *_exported(run), *_quantised(run), *_carried(run)),
        writes=lambda run: (run.bench,),
        outside=outside.measuring,
        may_miss=True,
        on_device=True,
    ),
    Stage(
        RUNTIMES,
        "catro_deploy.stages.runtimes:runtimes",
        ("data", "bench"),
        splits=("test",),
        reads=lambda run: (run.plan, *_exported(run), *_quantised(run)),
        writes=lambda run: (run.runtimes,),
        outside=outside.comparing,
        on_device=True,
    ),
    Stage(
        SHIP,
        "catro_deploy.stages.ship:ship",
        (),
        reads=lambda run: (run.plan, *_exported(run), *_quantised(run)),
        writes=_shipped,
        outside=outside.shipping,
        may_miss=True,
    ),
    Stage(
        "report",
        "catro_deploy.stages.report:report",
        (),
        reads=lambda run: (
            run.search,
            run.variants,
            run.plan,
            run.finetune,
            run.quantize,
            run.build,
            run.verify,
            run.bench,
            run.runtimes,
            run.shipped,
        ),
        writes=lambda run: (run.report("json"), run.report("md"), run.report("html")),
        outside=lambda settings: {"max_drop": settings.verify.max_drop},
    ),
)
