"""Benchmarks are scripts that import each other: their folder belongs on the path, as it is where they run."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
