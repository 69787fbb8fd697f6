"""Versions of TensorRT."""

import re
import sys
from types import SimpleNamespace

import pytest

from catro_deploy.errors import RuntimeMissingError
from catro_deploy.runtimes.trt_engine import import_tensorrt, typing_hint


@pytest.mark.parametrize("version", ["8.5.2.2", "8.6.2", "10.2.0"])
def test_versions_before_that_of_jetpack_6_1_are_refused(monkeypatch, version):
    monkeypatch.setitem(sys.modules, "tensorrt", SimpleNamespace(__version__=version))
    with pytest.raises(RuntimeMissingError, match=re.escape(version)) as caught:
        import_tensorrt()
    assert "JetPack 6.1 or later (TensorRT 10.3)" in caught.value.hint


@pytest.mark.parametrize(("version", "needs_newer"), [("10.3.0", True), ("10.12.0.36", False), ("11.4.0.106", False)])
def test_failures_of_versions_before_10_12_name_the_jetpack_that_helps(monkeypatch, version, needs_newer):
    monkeypatch.setitem(sys.modules, "tensorrt", SimpleNamespace(__version__=version))
    assert ("JetPack 7.0" in typing_hint(import_tensorrt())) is needs_newer
