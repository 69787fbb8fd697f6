import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from catro_deploy.agent.ort_engines import FOLDER, provider_options
from catro_deploy.agent.results import EngineSettings
from catro_deploy.agent.store import UNUSED_S, Store
from catro_deploy.errors import UsageError
from tests.onnx_files import write_conv_chain

SETTINGS = EngineSettings(level=3, workspace_mib=None, dla=None, batches=(1, 8))


def test_options_by_hand(tmp_path):
    onnx = write_conv_chain(tmp_path / "m.onnx")
    options = provider_options(onnx, replace(SETTINGS, workspace_mib=512), "1.24.1", tmp_path)
    engines, timings = options.pop("trt_engine_cache_path"), options.pop("trt_timing_cache_path")
    assert options == {
        "trt_builder_optimization_level": "3",
        "trt_max_workspace_size": "536870912",
        "trt_engine_cache_enable": "1",
        "trt_timing_cache_enable": "1",
    }
    assert set((tmp_path / FOLDER).iterdir()) == {Path(engines), Path(timings)}


def test_a_file_with_other_weights_never_gets_the_same_engine(tmp_path):
    """ONNX Runtime itself distinguishes networks by their structure only."""

    def places(onnx, settings=SETTINGS, version="1.24.1"):
        options = provider_options(onnx, settings, version, tmp_path)
        return options["trt_engine_cache_path"], options["trt_timing_cache_path"]

    onnx = write_conv_chain(tmp_path / "m.onnx")
    engines, timings = places(onnx)
    assert places(onnx) == (engines, timings)
    content = bytearray(onnx.read_bytes())
    content[len(content) // 2] ^= 1
    onnx.write_bytes(content)
    assert places(onnx)[0] != engines
    assert places(onnx)[1] == timings
    assert places(onnx, replace(SETTINGS, level=5))[0] != places(onnx)[0]
    assert places(onnx, version="1.25.0")[1] != timings


def test_a_dla_is_refused(tmp_path):
    with pytest.raises(UsageError, match="DLA core 0"):
        provider_options(tmp_path / "m.onnx", replace(SETTINGS, dla=0), "1.24.1", tmp_path)


def test_engines_that_were_not_used_for_long_are_deleted(tmp_path):
    onnx, store = write_conv_chain(tmp_path / "m.onnx"), Store(tmp_path)
    options = provider_options(onnx, SETTINGS, "1.24.1", tmp_path)
    engines, timings = options["trt_engine_cache_path"], options["trt_timing_cache_path"]
    long_ago = time.time() - UNUSED_S - 60
    os.utime(engines, (long_ago, long_ago))
    store.tidy()
    assert not Path(engines).exists()
    assert Path(timings).exists()
