"""Which layers lose most in eight bits: each is quantised alone, and the worst stay in floating point."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from catro_deploy.precision.graph import images_at_a_time
from catro_deploy.records import Sensitivity
from catro_deploy.statistics.agreement import accuracy_of

__all__ = ["fewest_kept", "logits_of", "sensitivities"]

Floats = NDArray[np.float32]
Quantise = Callable[[Collection[str]], Any]
"""Returns an onnx.ModelProto in which only the given layers are quantised."""


def sensitivities(
    original: Any,  # noqa: ANN401 - onnx.ModelProto
    layers: Sequence[str],
    quantise: Quantise,
    images: Floats,
    labels: NDArray[np.int64],
    report: Callable[[], None],
) -> list[Sensitivity]:
    """Measure each of ``layers`` on normalised ``images``, the worst first; ``report`` is called after each."""
    expected = logits_of(original, images)
    right, power = accuracy_of(expected, labels), float((expected**2).mean())
    found = []
    for layer in layers:
        logits = logits_of(quantise([layer]), images)
        drop = 100 * (right - accuracy_of(logits, labels))
        found.append(Sensitivity(layer, round(drop, 9), float(((logits - expected) ** 2).mean()) / max(power, 1e-30)))
        report()
    return sorted(found, key=lambda one: (-one.drop_points, -one.error))


def fewest_kept(most: int, keeps_accuracy: Callable[[int], bool]) -> int | None:
    """The smallest number of layers that must stay in floating point; None if ``most`` layers are not enough.

    ``keeps_accuracy`` is assumed to be monotone: the number is doubled until the accuracy is kept, then bisected.
    """
    if keeps_accuracy(0):
        return 0
    low, high = 0, 1
    while not keeps_accuracy(min(high, most)):
        if high >= most:
            return None
        low, high = high, 2 * high
    high = min(high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if keeps_accuracy(middle) else (middle, high)
    return high


def logits_of(proto: Any, images: Floats) -> Floats:  # noqa: ANN401 - as above
    """Logits (n, classes) of normalised ``images`` by ONNX Runtime on one thread of this machine."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    name, size = session.get_inputs()[0].name, images_at_a_time(proto) or 64
    parts: list[Floats] = [
        session.run(None, {name: images[start : start + size]})[0] for start in range(0, len(images), size)
    ]
    return np.concatenate(parts)
