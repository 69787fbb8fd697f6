"""Every benchmark can be imported, and docs/results.md lists every one that can be run."""

import importlib
import pkgutil

import benchmarks
from benchmarks.results_texts import SCRIPTS


def test_every_module_can_be_imported_and_every_benchmark_is_listed():
    for module in pkgutil.walk_packages(benchmarks.__path__, "benchmarks."):
        found = importlib.import_module(module.name)
        if module.name.count(".") == 2 and hasattr(found, "main"):
            assert f"`{module.name.removeprefix('benchmarks.')}`" in SCRIPTS
