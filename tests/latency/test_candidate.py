"""Candidates are timed as they would be served."""

from itertools import count

import numpy as np
import pytest

from catro_deploy.calibration import load_latency_protocol
from catro_deploy.graph.onnx.interface import Interface
from catro_deploy.latency.candidate import CandidateFiles, CandidateLatency, CandidateTimer, candidate_timer
from catro_deploy.records import Speedup
from catro_deploy.runtimes import open_runner
from catro_deploy.transports.execution import Use
from tests.latency.profile.quick import SHAPE, tiny_network
from tests.stages.conftest import TRIAL

RAW = Interface("uint8", "nhwc", "softmax", (0.5,) * 3, (0.25,) * 3)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_with_the_preprocessing_of_the_exported_files(tmp_path, precision):
    (tmp_path / "trial.toml").write_text(TRIAL)
    use = Use("x86-cpu", "onnxruntime", precision, threads=1, batch=1, interface=RAW)
    model, protocol = tiny_network(), load_latency_protocol(str(tmp_path / "trial.toml"))
    with candidate_timer(model, SHAPE, use, protocol, 18) as timer:
        found = timer.measure(model)
        for name in ("original", "pruned"):
            with open_runner("onnxruntime", timer.files.folder / f"{name}.onnx", 1) as runner:
                assert (runner.input_type, runner.image_shape) == (np.uint8, (*SHAPE[1:], SHAPE[0]))
    assert min(found.candidate_us, found.original_us) > 0


@pytest.mark.parametrize(("soak_s", "counts"), [(0.0, 1), (60.0, 0)])
def test_a_disturbed_measurement_is_repeated_unless_it_is_a_soak(monkeypatch, soak_s, counts):
    half_widths = iter([0.2, 0.01])
    numbers = count()

    def timed(self, file):
        half = 2 * next(half_widths)
        return CandidateLatency(100.0 + next(numbers), 200.0, Speedup(2.0, (2 - half, 2 + half)), ())

    monkeypatch.setattr(CandidateTimer, "_timed", timed)
    use = Use("x86-cpu", "onnxruntime", "fp32", threads=1, batch=1)
    model, protocol = tiny_network(), load_latency_protocol("quick")
    with candidate_timer(model, SHAPE, use, protocol, 18, soak_s=soak_s) as timer:
        found = timer.measure(model)
        assert (found.candidate_us, found.disturbed) == (100.0 + counts, False)


def in_tail(candidate_us, original_us, candidate_tail_us, original_tail_us):
    """Latencies of 100 inferences each, the last two at the 99th percentile."""
    samples = [
        (us,) * 98 + (tail,) * 2 for us, tail in ((candidate_us, candidate_tail_us), (original_us, original_tail_us))
    ]
    return CandidateLatency(
        candidate_us, original_us, Speedup(1.0, (1.0, 1.0)), (), samples_us=(samples[0], samples[1])
    )


@pytest.mark.parametrize(
    ("candidate_us", "tails_us", "delay_us"),
    [
        (100.0, (100.0, 400.0), 0.0),  # no tail
        (100.0, (150.0, 600.0), 0.0),  # tails in proportion to the median
        (100.0, (1100.0, 1400.0), 1000.0),  # the same interruption in both
        (100.0, (1150.0, 1600.0), 1000.0),  # both: 1,000 us, and half of the median
        (100.0, (1100.0, 450.0), 1000.0),  # only the candidate was interrupted
        (100.0, (110.0, 1400.0), 0.0),  # only the original was interrupted
        (500.0, (600.0, 500.0), 100.0),  # slower than the original
    ],
)
def test_delays_are_what_the_tail_has_beyond_the_median_whatever_the_size_of_the_network(
    candidate_us, tails_us, delay_us
):
    found = in_tail(candidate_us, 400.0, *tails_us)
    assert found.delay_us(99) == pytest.approx(delay_us)
    assert found.delay_us(50) == 0.0


def test_a_single_measurement_is_not_repeated_but_says_that_it_was_disturbed(monkeypatch):
    wide = iter([CandidateLatency(100.0, 200.0, Speedup(2.0, (1.6, 2.4)), ())])
    monkeypatch.setattr(CandidateTimer, "_timed", lambda self, file: next(wide))
    use = Use("x86-cpu", "onnxruntime", "fp32", threads=1, batch=1)
    model, protocol = tiny_network(), load_latency_protocol("quick")
    with candidate_timer(model, SHAPE, use, protocol, 18) as timer:
        assert timer.measure(model, repeat=False).disturbed


def test_the_original_is_exported_once_for_all_timers_of_one_use(tmp_path, monkeypatch):
    (tmp_path / "trial.toml").write_text(TRIAL)
    protocol, model, exported = load_latency_protocol(str(tmp_path / "trial.toml")), tiny_network(), {}
    written, write = [], CandidateFiles.write

    def counted(self, network, name, precision):
        written.append((name, precision))
        return write(self, network, name, precision)

    monkeypatch.setattr(CandidateFiles, "write", counted)
    for precision in ("fp32", "int8"):
        use = Use("x86-cpu", "onnxruntime", precision, threads=1, batch=1)
        with candidate_timer(model, SHAPE, use, protocol, 18, exported=exported) as timer:
            assert timer.measure(model).original_us > 0
    assert written == [("pruned", "fp32"), ("original", "fp32"), ("pruned", "int8")]


def test_a_measurement_that_stays_disturbed_says_so(monkeypatch):
    wide = CandidateLatency(100.0, 200.0, Speedup(2.0, (1.6, 2.4)), ())
    monkeypatch.setattr(CandidateTimer, "_timed", lambda self, file: wide)
    use = Use("x86-cpu", "onnxruntime", "fp32", threads=1, batch=1)
    model, protocol = tiny_network(), load_latency_protocol("quick")
    with candidate_timer(model, SHAPE, use, protocol, 18) as timer:
        assert timer.measure(model).disturbed
