# make demo: prune a classifier of generated traffic signs and show the speedup.   make test: all checks.
# make rehearsal: all tests on emulated devices and older Python versions; make test runs some of them.
# make docs: build the documentation into build/site.   make reference: regenerate what is written from the settings
# and commands, after changing them.   make dist: build wheel and sdist, check them, try the wheel in a fresh environment.
# All of them set up .venv if needed; later calls are quick.
PYTHON ?= python3
BIN := .venv/bin
SMALLEST := --budget 50%flops --epochs 0 -o train.epochs=2 -o verify.max_drop=100
.DELETE_ON_ERROR:
.PHONY: demo test static parts rehearsal docs reference dist clean

demo: .venv/installed
	@mkdir -p demo
	@cd demo && { test -f catro.toml || ../$(BIN)/catro-deploy init --demo; } && ../$(BIN)/catro-deploy run

test: static parts .venv/tensorrt/installed .venv/cuda/installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder

static: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	MYPY_NUM_WORKERS=2 $(BIN)/mypy
	$(BIN)/lint-imports

# Needs no other package: with `make --jobs 2`, it overlaps with the installation, and so do TensorRT and CUDA below.
parts: | $(BIN)/python
	$(BIN)/python -m tests.rehearsal.parts

rehearsal: .venv/installed-dev .venv/tensorrt/installed parts
	CATRO_REHEARSAL=full OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/rehearsal -rs --numprocesses auto --dist loadfile

docs: .venv/installed-dev
	$(BIN)/python -m mkdocs build --strict
	@echo 'Documentation: build/site/index.html'

reference: .venv/installed-dev
	$(BIN)/python -m tools.api_options
	$(BIN)/python -m tools.reference

# The wheel is tried in a temporary folder, with its own dependencies, on generated images.
dist: .venv/installed-dev
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python -m tools.wheel dist
	@set -e; unset PYTHONPATH; wheel=$$(echo $(CURDIR)/dist/*.whl); folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; \
	$(PYTHON) -m venv "$$folder/venv"; cd "$$folder"; \
	echo "installing $$wheel in $$folder/venv"; venv/bin/python -m pip install --quiet "$$wheel"; \
	venv/bin/catro-deploy init --demo; venv/bin/catro-deploy run $(SMALLEST)
	@ls -l dist

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "catro-deploy needs Python 3.11 or later: make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv

# The stamps are touched only after pip has succeeded, so that an interrupted installation does not count as complete.
.venv/installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

.venv/installed-dev: .venv/installed
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

# Only TensorRT's Python bindings, 1 MB each, not the 2 GB of libraries that they bind: the tests use stand-ins for those.
.venv/tensorrt/installed: | $(BIN)/python
	$(BIN)/python -m pip install --quiet --no-deps --target .venv/tensorrt/10.3.0 tensorrt-cu12-bindings==10.3.0
	$(BIN)/python -m pip install --quiet --no-deps --target .venv/tensorrt/10.16.1.11 tensorrt-cu13-bindings==10.16.1.11
	$(BIN)/python -m pip install --quiet --no-deps --target .venv/tensorrt/11.4.0.106 tensorrt-cu13-bindings==11.4.0.106
	@touch $@

# CUDA's runtime library, 4 MB for each version: it loads without a GPU, and returns the errors that users see.
.venv/cuda/installed: | $(BIN)/python
	$(BIN)/python -m pip install --quiet --no-deps --target .venv/cuda/12 nvidia-cuda-runtime-cu12==12.9.79
	$(BIN)/python -m pip install --quiet --no-deps --target .venv/cuda/13 nvidia-cuda-runtime==13.2.86
	@touch $@

clean:
	rm -rf demo build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
