"""Benchmarks, run from the checkout: ``python -m benchmarks.FOLDER.NAME``. docs/results.md lists them."""
