"""OpenVINO's benchmark_app as in the wheel, and its output."""

from dataclasses import replace

import pytest

from catro_deploy.agent.agent import run
from catro_deploy.agent.benchmark_app import app_median_us, faults, median_us
from catro_deploy.errors import FaultError
from catro_deploy.runtimes import open_runner
from tests.agent.test_agent import job_for, workspace
from tests.onnx_files import write_conv_chain

LOG = """\
[ INFO ] Latency:
[ INFO ]    Median:        {}
[ INFO ]    Average:       0.60 ms
"""


def test_medians_of_both_units():
    assert median_us(LOG.format("381.27 us")) == 381.27
    assert median_us(LOG.format("12.34 ms")) == 12_340


@pytest.mark.parametrize("log", ["", LOG.format("many"), "[ INFO ] Median of medians: 3 us"])
def test_a_log_without_a_median(log):
    with pytest.raises(FaultError):
        median_us(log)


def test_errors_in_a_log():
    assert faults("[ INFO ] one\n[ ERROR ] two\n[ INFO ] three\n") == ["two"]
    assert faults("one\n\ntwo\n") == ["one", "two"]


@pytest.mark.slow
def test_it_times_what_is_timed_here_and_reports_nothing(tmp_path, monkeypatch):
    """A busy machine may slow one more than the other. Wrong units would differ by 1,000, the two networks by 10."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    size = {"layers": 12, "channels": 32, "size": 32}
    job = replace(job_for(tmp_path, original=size, pruned=size | {"layers": 2}, runtime="openvino"), complete=True)
    result = run(job, workspace(tmp_path), lambda _: None)
    assert result.benchmark_app.version == result.facts.runtime.removeprefix("openvino ")
    assert 0.2 < result.benchmark_app.original_us / result.original.p50_us < 5
    assert 0.2 < result.benchmark_app.pruned_us / result.pruned.p50_us < 5
    assert not list((tmp_path / "home").iterdir())


@pytest.mark.slow
def test_a_batch_that_may_be_any_and_a_model_that_is_no_more(tmp_path):
    file = write_conv_chain(tmp_path / "m.onnx", layers=4, channels=32, size=32, batch="batch")
    with open_runner("openvino", file, 1) as runner:
        assert app_median_us(runner, 4) > 1.5 * app_median_us(runner, 1)
        file.unlink()
        with pytest.raises(FaultError, match="failed"):
            app_median_us(runner, 1)
