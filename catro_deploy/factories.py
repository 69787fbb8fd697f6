"""``package.module:factory``: the user's code that builds a model or a dataset."""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from catro_deploy.errors import CatroError, UsageError
from catro_deploy.suggestions import did_you_mean

__all__ = ["load_factory", "users_code"]

PLAN = "plan.json"
"""The file that makes a folder a run folder."""


@contextmanager
def users_code(name: str, error: type[UsageError], form: str) -> Iterator[None]:
    """Turn any exception of the factory ``name`` in this block into an ``error`` with the hint ``form``.

    ``form`` says how the factory is called and what it must return. This package's own errors pass through.
    """
    try:
        yield
    except CatroError:
        raise
    except Exception as fault:  # user code may raise anything
        problem = f"The factory {name} failed: {type(fault).__name__}: {fault}"
        raise error(problem, f"{form} {Path.cwd()} is on the import path.") from fault


def load_factory(name: str, error: type[UsageError]) -> Callable[..., Any]:
    """Import the factory ``name``, with the working folder on the import path; errors during the import pass through.

    Raises:
        UsageError: raised as ``error``; the module does not exist, or has no attribute of that name.
    """
    module_name, _, attribute = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:  # at the end: a user's profile.py must not shadow the standard library's
        sys.path.append(here)
    try:
        _refuse_run_folders(module_name, error)
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as missing:
        if not missing.name or not f"{module_name}.".startswith(f"{missing.name}."):
            raise  # a dependency of the factory's module
        meant = did_you_mean(module_name, [path.stem for path in Path.cwd().glob("*.py")], form=f"{{}}:{attribute}")
        hint = f"{meant} {here} is on the import path.".lstrip()
        raise error(f"The factory {name} cannot be found: {missing}.", hint) from None
    if not hasattr(module, attribute):
        own = {key: value for key, value in vars(module).items() if getattr(value, "__module__", "") == module_name}
        offered = [key for key, value in own.items() if callable(value) and not key.startswith("_")]
        names = f"It has: {', '.join(offered) or 'no functions'}."
        hint = did_you_mean(attribute, offered, form=f"{module_name}:{{}}", otherwise=names)
        raise error(f"There is no {attribute!r} in {module_name} ({module.__file__}).", hint)
    factory: Callable[..., Any] = getattr(module, attribute)
    return factory


def _refuse_run_folders(module_name: str, error: type[UsageError]) -> None:
    """Raise ``error`` if the module or a parent package is in a run folder, before any of its code runs.

    A run folder is data that may come from somebody else, and its plan names the module.
    """
    parts = module_name.split(".")
    for end in range(1, len(parts) + 1):
        name = ".".join(parts[:end])
        spec = importlib.util.find_spec(name)  # imports the parent package, which has already been checked
        places = [spec.origin, *(spec.submodule_search_locations or ())] if spec else []
        for place in filter(None, places):
            folder = next((parent for parent in (Path(place), *Path(place).parents) if (parent / PLAN).is_file()), None)
            if folder is not None:
                raise error(
                    f"The module {module_name} is in the run folder {folder}. No code is imported from there.",
                    "Keep your own code outside of run folders, and look at code that came with one before you run it.",
                )
