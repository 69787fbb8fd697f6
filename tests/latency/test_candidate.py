"""Candidates are timed as they would be served."""

from contextlib import ExitStack

import numpy as np
import pytest

from catro_deploy.calibration import load_latency_protocol
from catro_deploy.graph.onnx.interface import Interface
from catro_deploy.latency.candidate import CandidateLatency, candidate_timer
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


@pytest.mark.parametrize(
    ("half_widths", "soak_s", "measured", "counts"),
    [
        ([0.01], 0.0, 1, 0),
        ([0.06, 0.02], 0.0, 2, 1),
        ([0.06, 0.2, 0.1], 0.0, 3, 0),
        ([0.2, 0.1, 0.07], 0.0, 3, 2),
        ([0.2], 60.0, 1, 0),
    ],
)
def test_measured_again_while_the_speedup_is_uncertain(timer, half_widths, soak_s, measured, counts):
    numbers = timer([(200.0, half) for half in half_widths], soak_s)
    assert numbers.measure() == counts
    assert numbers.used == measured


@pytest.mark.parametrize(
    ("originals_us", "counts"),
    [
        ([[200.0], [209.0]], [0, 1]),
        ([[200.0], [220.0, 204.0]], [0, 2]),
        ([[200.0], [230.0, 220.0, 240.0]], [0, 2]),  # the least disturbed of three
        ([[220.0], [200.0], [212.0, 180.0], [190.0, 188.0]], [0, 1, 3, 5]),  # the fastest so far is the reference
    ],
)
def test_measured_again_while_the_original_is_slower_than_before(timer, originals_us, counts):
    numbers = timer([(us, 0.01) for candidate in originals_us for us in candidate])
    assert [numbers.measure() for _ in originals_us] == counts
    assert numbers.used == sum(map(len, originals_us))


class Scripted:
    """A timer whose measurements are (median of the original, half the width of the speedup's interval)."""

    def __init__(self, timer, measurements, monkeypatch):
        self.used = 0
        self._timer, self._measurements = timer, measurements
        monkeypatch.setattr(timer, "_timed", lambda file: self._next())

    def _next(self):
        original_us, half_width = self._measurements[self.used]
        found = CandidateLatency(
            float(self.used), original_us, Speedup(2.0, (2 - 2 * half_width, 2 + 2 * half_width)), ()
        )
        self.used += 1
        return found

    def measure(self):
        """The number of the measurement that counts for a candidate."""
        return self._timer.measure(tiny_network()).candidate_us


@pytest.fixture
def timer(monkeypatch):
    with ExitStack() as stack:

        def make(measurements, soak_s=0.0):
            use = Use("x86-cpu", "onnxruntime", "fp32", threads=1, batch=1)
            protocol = load_latency_protocol("quick")
            timer = stack.enter_context(candidate_timer(tiny_network(), SHAPE, use, protocol, 18, soak_s=soak_s))
            return Scripted(timer, measurements, monkeypatch)

        yield make
