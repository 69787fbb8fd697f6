"""Run quick stages and see which of them ran."""

from catro_deploy.pipeline import STAGES, run_stages
from catro_deploy.progress import Silent
from catro_deploy.settings import load_settings
from catro_deploy.stages.table import BUILD, QUANTIZE, RUNTIMES, VARIANTS
from tests.quick_stages import TABLE, diary

EVERY = tuple(stage.name for stage in STAGES if stage.name not in (VARIANTS, QUANTIZE, BUILD, RUNTIMES))
ALL = EVERY[1:]  # without the budget search


def settings_with(**flags):
    flags["finetune"] = {"epochs": 2} | flags.get("finetune", {})
    flags["prune"] = {"budget": "50%flops"} | flags.get("prune", {})
    return load_settings(None, flags)


def go(run, stages=ALL, *, force=False, **flags):
    """Run ``stages`` and return what ran, without the epochs."""
    before = len(diary(run))
    missed = run_stages(stages, settings_with(**flags), run, Silent(), force=force, table=TABLE)
    assert missed is None
    return [name for name in diary(run)[before:] if not name.startswith("epoch")]
