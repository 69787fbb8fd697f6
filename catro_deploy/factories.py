"""``package.module:factory``: code of the user's that makes a model or a dataset."""

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from catro_deploy.errors import CatroError, UsageError

__all__ = ["load_factory", "users_code"]


@contextmanager
def users_code(name: str, error: type[UsageError], form: str) -> Iterator[None]:
    """Turn whatever the factory ``name`` raises in this block into an ``error`` with the hint ``form``.

    ``form`` tells how the factory is called and what it must return. Errors of this package's tree pass through.
    """
    try:
        yield
    except CatroError:
        raise
    except Exception as fault:  # a user's code may raise anything
        problem = f"The factory {name} failed: {type(fault).__name__}: {fault}"
        raise error(problem, f"{form} {Path.cwd()} is on the import path.") from fault


def load_factory(name: str) -> Callable[..., Any]:
    """Import the factory ``name``, the working folder being on the import path; raises what importing raises."""
    module, _, attribute = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    factory: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    return factory
