"""Numbers and names formatted for readers: units and rounding."""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = [
    "change",
    "change_interval",
    "count",
    "distinguished",
    "duration",
    "flatten",
    "isolated",
    "label",
    "large",
    "loss_words",
    "minus",
    "ms",
    "nats",
    "one_image_words",
    "percent",
    "points",
    "ratios",
    "share_interval",
    "shorten",
    "three_digits",
    "typeset",
    "value",
]

_UNITS = {
    "us": "µs",
    "ms": "ms",
    "s": "s",
    "seconds": "s",
    "mhz": "MHz",
    "hz": "Hz",
    "c": "°C",
    "bytes": "bytes",
}
_BINARY = ("bytes", "KiB", "MiB", "GiB", "TiB")


def percent(fraction: float | None) -> str:
    """``0.9944`` as ``99.44%``; never ``100.00%`` or ``0.00%`` unless it is exactly all or nothing."""
    if fraction is None:
        return "not recorded"
    decimals = 2
    while decimals < 8 and 0 < fraction < 1 and float(f"{fraction * 100:.{decimals}f}") in (0.0, 100.0):
        decimals += 1
    return f"{fraction * 100:.{decimals}f}%"


def loss_words(points_: float) -> str:
    """An allowed loss in percentage points: ``1 point``, ``0.5 points``."""
    return f"{points_:g} point{'' if points_ == 1 else 's'}"


def one_image_words(images: int) -> str:
    """What one of ``images`` counts: ``one image is 0.31 points``."""
    one = 100 / images
    return f"one image is {loss_words(float(f'{one:.{3 if one >= 10 else 2}g}'))}"


def points(difference: float) -> str:
    """A difference of two percentages with its sign; a small one gets more decimals, never ``+0.00``."""
    if difference == 0:
        return "0.00"
    decimals = 2
    while decimals < 8 and float(f"{difference:.{decimals}f}") == 0:
        decimals += 1
    return f"{difference:+.{decimals}f}"


def share_interval(bounds: Sequence[float] | None) -> str:
    """The 95% interval of a share: ``95% CI 77.87% to 95.84%``; empty if there is none."""
    if bounds is None:
        return ""
    low, high = bounds
    return f"95% CI {percent(low)} to {percent(high)}"


def change_interval(bounds: Sequence[float]) -> str:
    """The 95% interval of a change in points: ``95% CI -9.02 to +3.10``."""
    low, high = bounds
    return f"95% CI {points(low)} to {points(high)}"


def ratios(*numbers: float) -> list[str]:
    """Ratios with the same number of decimals, enough that only an exact 1 reads as 1."""
    decimals = 2
    while decimals < 6 and any(n != 1 and float(f"{n:.{decimals}f}") == 1 for n in numbers):
        decimals += 1
    return [f"{n:.{decimals}f}" for n in numbers]


def count(number: float) -> str:
    """``40551808`` as ``40,551,808``."""
    return f"{number:,.0f}"


def three_digits(number: float) -> str:
    """Three digits, or all digits before the point: ``1.83``, ``18.3``, ``183``, ``1,830``."""
    return count(number) if number >= 99.95 else f"{number:.1f}" if number >= 9.995 else f"{number:.2f}"


def large(number: float) -> str:
    """``40551808`` as ``40.6 M``; below a million with all digits."""
    for size, unit in ((1e9, "G"), (1e6, "M")):
        if number >= size:
            return f"{number / size:.3g} {unit}" if number < size * 100 else f"{number / size:,.0f} {unit}"
    return count(number)


def change(before: float, after: float) -> str:
    """From ``before`` to ``after`` in percent of ``before``: ``-50.2%``; one that is rounded to zero has no sign."""
    shown = f"{(after / before - 1) * 100:+.1f}%"
    return "0.0%" if shown in ("+0.0%", "-0.0%") else shown


def minus(text: str) -> str:
    """``text`` with true minus signs, as wide as a plus, before its negative numbers."""
    return re.sub(r"(?<![\w-])-(?=\d)", "−", text)


def typeset(text: str) -> str:
    """``text`` for a page: arrows, minus and micro signs instead of the terminal's ``->``, ``-`` and ``us``."""
    return re.sub(r"(?<=\d) us\b", " µs", minus(text.replace(" -> ", " → ")))


def ms(milliseconds: float) -> str:
    """Milliseconds with three significant digits: ``0.612``, ``12.3``, ``1,234``."""
    for bound, decimals in ((0.1, 4), (10, 3 if milliseconds < 1 else 2), (100, 1)):
        if milliseconds < bound:
            return f"{milliseconds:.{decimals}f}"
    return f"{milliseconds:,.0f}"


def nats(divergence: float | None) -> str:
    """A divergence with three significant digits: ``0.0123 nats``; None means that logits are not finite."""
    return "not finite" if divergence is None else f"{divergence:.3g} nats"


def duration(us: float) -> str:
    """Microseconds as ``9.3 us``, ``398 us`` or, from a millisecond on, ``1.23 ms``."""
    return f"{ms(max(us, 1000) / 1000)} ms" if us >= 999.5 else f"{us:.{0 if us >= 99.95 else 1}f} us"


def distinguished(number: float, asked: float, unit: str) -> str:
    """A part of a budget (``x`` or ``us``) with enough decimals to differ from ``asked`` if it does."""
    decimals = 3 if unit == "x" else 0
    while decimals < 8 and number != asked and float(f"{number:.{decimals}f}") == float(f"{asked:.{decimals}f}"):
        decimals += 1
    return f"{number:,.{decimals}f}{unit}" if unit == "x" else f"{number:,.{decimals}f} {unit}"


def isolated(name: str) -> str:
    """``name`` between Unicode isolates if it is written from right to left, so that text around it keeps its order."""
    leftwards = any(unicodedata.bidirectional(character) in ("R", "AL") for character in name)
    return f"\u2068{name}\u2069" if leftwards else name


def shorten(text: str, length: int, *, keep: str = "start") -> str:
    """``text`` with at most ``length`` characters, with an ellipsis for the rest; ``keep`` is ``start`` or ``end``."""
    if len(text) <= length:
        return text
    return "…" + text[-(length - 1) :] if keep == "end" else text[: length - 1].rstrip() + "…"


def flatten(record: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested mappings as pairs of dotted key and value, in the original order."""
    for key, content in record.items():
        if isinstance(content, Mapping):
            yield from flatten(content, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", content


def label(key: str) -> str:
    """A dotted key as words, without the unit of its value: ``cpu.clock_mhz_before`` as ``cpu: clock before``."""
    return ": ".join(" ".join(_split_unit(part)[0].split("_")) for part in key.split("."))


def value(key: str, content: Any, absent: str = "not recorded") -> str:  # noqa: ANN401 - whatever a JSON record holds
    """A recorded value as text, with the unit that the key names; ``absent`` if there is no value."""
    if content is None or content == "" or content == []:
        return absent if content is None else "none"
    if isinstance(content, bool):
        return "yes" if content else "no"
    if isinstance(content, Sequence) and not isinstance(content, str):
        return ", ".join(value(key, item) for item in content)
    if not isinstance(content, int | float):
        return str(content)
    unit = next((unit for part in reversed(key.split(".")) if (unit := _split_unit(part)[1])), "")
    if unit == "bytes":
        return _bytes(content)
    number = f"{content:,}" if isinstance(content, int) else f"{content:,.0f}" if content >= 1000 else f"{content:.4g}"
    return f"{number} {_UNITS[unit]}" if unit else number


def _split_unit(part: str) -> tuple[str, str]:
    """``clock_mhz_before`` as ``clock_before`` and ``mhz``; the unit is empty if there is none."""
    first, *others = part.split("_")
    unit = next((word for word in reversed(others) if word in _UNITS), "")
    return "_".join([first, *(word for word in others if word != unit)]), unit


def _bytes(number: float) -> str:
    power = 0
    while number >= 1024 and power < len(_BINARY) - 1:
        number, power = number / 1024, power + 1
    return f"{number:,.0f} bytes" if power == 0 else f"{number:,.1f} {_BINARY[power]}"
