"""Descriptions of what to ship: the file, its input and its output."""

from collections.abc import Callable, Sequence

from catro_deploy.records import Input, Shipped
from catro_deploy.report.wording import isolated

__all__ = ["kilobytes", "shipping_words"]

CLASSES_SHOWN = 50


def shipping_words(shipped: Shipped, folder: str = "ship", *, isolate: bool = True) -> list[tuple[str, str]]:
    """Pairs of name and text for the content of model.json; the network's file is in ``folder``.

    ``isolate``: put Unicode isolates around class names written from right to left, which few terminals know.
    """
    sizes = f"{kilobytes(shipped.bytes)}; the original: {kilobytes(shipped.original_bytes)}"
    ir = ", ".join(f"{folder}/{one.file} ({kilobytes(one.bytes)})" for one in shipped.ir)
    return [
        ("ship", f"{folder}/{shipped.file} ({shipped.precision}, {sizes})"),
        *([("for OpenVINO", ir)] if ir else []),
        ("input", _input_words(shipped.input)),
        ("outputs", _outputs_words(shipped, isolated if isolate else str)),
    ]


def kilobytes(count: int) -> str:
    """A number of bytes in kB of 1000 bytes, as usual for files: ``1,234.5 kB``."""
    return f"{count / 1000:,.1f} kB"


def _input_words(given: Input) -> str:
    shape = "x".join(map(str, given.shape))
    low, high = given.range
    tensor = f"{given.name}, {given.type} {shape} {given.layout}, {given.colours}"
    normalised = f"mean {_numbers(given.mean)}, std {_numbers(given.std)}"
    if given.type == "uint8":
        return f"{tensor}, raw pixels from {low:g} to {high:g}; normalised inside the network: {normalised}"
    return f"{tensor}, normalised beforehand: {given.values}, {normalised}; values from {low:.4g} to {high:.4g}"


def _outputs_words(shipped: Shipped, shown_as: Callable[[str], str]) -> str:
    classes = shipped.classes
    softmax = "" if shipped.output.name == "logits" else f"{shipped.output.name} (softmax): "
    shown = softmax + ", ".join(f"{place} {shown_as(name)}" for place, name in enumerate(classes[:CLASSES_SHOWN]))
    more = len(classes) - CLASSES_SHOWN
    found = f"{shown} and {more} more, see model.json" if more > 0 else shown
    return "; ".join([found, *(f"{port.name} {'x'.join(map(str, port.shape))}" for port in shipped.top)])


def _numbers(values: Sequence[float]) -> str:
    return "[" + ", ".join(f"{value:g}" for value in values) + "]"
