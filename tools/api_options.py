"""Writes ``catro_deploy/api/options.py``, the keywords of the Python API, from the settings: ``make reference``.

They are written out because type checkers and editors read source.
"""

import subprocess
import sys
import textwrap
from collections.abc import Container
from pathlib import Path

from catro_deploy.settings.catalog import Setting, section_settings

FILE = Path(__file__).parents[1] / "catro_deploy" / "api" / "options.py"
WIDTH = 120

HEAD = '''\
"""Keywords of the Python API: settings by the same names. Written by ``make reference``, not by hand."""

from typing import Literal, TypedDict

__all__ = ["FinetuneOptions", "PruneOptions"]
'''
PRUNE = "Further keywords of ``prune``: those of ``[prune]`` in catro.toml."
FINETUNE = "Keywords of ``PrunedModel.finetune``: those of ``[finetune]`` in catro.toml, where they apply to a loader."
KEYWORDS_OF_PRUNE = ("target", "classes", "budget")
DECIDED_BY_LOADER = ("batch_size", "augment", "crop_scale", "randaugment", "saturation", "erase")
FOR_A_RUN_FOLDER = ("checkpoint_minutes", "tensorboard")


def source() -> str:
    """The text of the file, formatted by ruff."""
    text = "\n\n".join(
        [
            HEAD,
            _options("PruneOptions", PRUNE, "prune", KEYWORDS_OF_PRUNE),
            _options("FinetuneOptions", FINETUNE, "finetune", (*DECIDED_BY_LOADER, *FOR_A_RUN_FOLDER)),
        ]
    )
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(FILE), "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def _options(name: str, summary: str, section: str, left_out: Container[str]) -> str:
    settings = [setting for key, setting in section_settings(section).items() if key not in left_out]
    entries = "\n".join(map(_entry, settings))
    fields = "\n".join(f"    {setting.name}: {_type(setting.type)}" for setting in settings)
    docstring = f'    """{summary}\n\n    Attributes:\n{entries}\n    """'
    return f"class {name}(TypedDict, total=False):\n{docstring}\n\n{fields}\n"


def _entry(setting: Setting) -> str:
    default = "" if setting.default in (None, "", []) else f"default: {setting.default!r}"
    text = "; ".join(filter(None, [setting.help, setting.limits, default])).replace("`", "``")
    return textwrap.fill(
        f"{setting.name}: {text}.", WIDTH, initial_indent=" " * 8, subsequent_indent=" " * 12, break_on_hyphens=False
    )


def _type(kind: object) -> str:
    return kind.__name__ if type(kind) is type else str(kind).replace("typing.", "")


if __name__ == "__main__":
    FILE.write_text(source(), encoding="utf-8")
