import pytest

from catro_deploy import pipeline
from catro_deploy.sweep import orders
from tests.quick_stages import TABLE
from tests.tiny import CHECKOUT


@pytest.fixture
def quick(tiny, monkeypatch):
    """A working folder in which steps run the quick stages, each in a separate process."""
    monkeypatch.setattr(pipeline, "STAGES", TABLE)
    monkeypatch.setattr(orders, "MODULE", "tests.sweep.quick_step")
    monkeypatch.setenv("PYTHONPATH", str(CHECKOUT))
    return tiny
