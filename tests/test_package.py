"""The public names of the package."""

import subprocess
import sys

import pytest

import catro_deploy


def test_each_name_is_there_and_documented():
    for name in set(catro_deploy.__all__) - {"__version__"}:
        assert getattr(catro_deploy, name).__doc__
    with pytest.raises(AttributeError, match="'pruned'"):
        _ = catro_deploy.pruned


def test_no_package_has_the_name_of_a_function():
    """Importing a subpackage or module of that name would replace the function."""
    code = "import pkgutil, catro_deploy; print({m.name for m in pkgutil.iter_modules(catro_deploy.__path__)})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(catro_deploy.__all__) & set(eval(done.stdout))


def test_importing_the_package_imports_nothing_heavy():
    code = "import sys, catro_deploy; print({'torch', 'onnx', 'numpy', 'pydantic'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
