"""Damage to files as caused by a disk, an editor, an interrupted copy or an attacker."""

import copy
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open
from safetensors.torch import save_file

__all__ = ["Mutation", "of_bytes", "of_json", "of_lines", "of_metadata", "of_place", "of_toml"]

Mutation = tuple[str, Callable[[Path], None]]
"""Its name, and the function that applies it to a file."""

DEEP = 50_000
VALUES: tuple[Any, ...] = (
    None, True, "text", "", "x" * 100_000, "a\0b", -1, 0, 10**30, 1e308, -1e308, float("nan"), float("inf"),
    [], {}, [None], {"a": None}, [[[]]],
)  # fmt: skip


def of_place() -> list[Mutation]:
    """Something else in place of the file."""

    def replaced(make: Callable[[Path], Any]) -> Callable[[Path], None]:
        def change(path: Path) -> None:
            path.unlink(missing_ok=True)
            make(path)

        return change

    return [
        ("a pipe", replaced(os.mkfifo)),
        ("a folder", replaced(Path.mkdir)),
        ("a dangling link", replaced(lambda path: path.symlink_to("nowhere"))),
        ("a link to itself", replaced(lambda path: path.symlink_to(path.name))),
        ("/dev/zero", replaced(lambda path: path.symlink_to("/dev/zero"))),
        ("nothing", replaced(lambda path: None)),
    ]


def of_bytes(generator: np.random.Generator, count: int) -> Iterator[Mutation]:
    """Truncation, flipped bits, and zeroed or repeated bytes, at random offsets."""

    def cut(content: bytes, at: int) -> bytes:
        return content[:at]

    def flip(content: bytes, at: int) -> bytes:
        return content[:at] + bytes([content[at] ^ (1 << at % 8)]) + content[at + 1 :]

    def nul(content: bytes, at: int) -> bytes:
        return content[:at] + bytes(8) + content[at + 8 :]

    def twice(content: bytes, at: int) -> bytes:
        return content[:at] + content

    yield "empty", lambda path: path.write_bytes(b"")
    yield "NUL bytes", lambda path: path.write_bytes(bytes(1000))
    for place in generator.random(count):
        for name, change in (("cut", cut), ("flip", flip), ("nul", nul), ("twice", twice)):

            def apply(path: Path, change: Callable[[bytes, int], bytes] = change, place: float = place) -> None:
                content = path.read_bytes()
                path.write_bytes(change(content, int(place * len(content))))

            yield f"{name} at {place:.4f}", apply


def of_json(generator: np.random.Generator, count: int) -> Iterator[Mutation]:
    """Values of another type and missing keys at random places of a JSON file, and very deep nesting."""
    yield "deep", lambda path: path.write_text("[" * DEEP + "]" * DEEP) and None
    yield "deep objects", lambda path: path.write_text('{"format":' * DEEP + "1" + "}" * DEEP) and None
    for seed in generator.integers(2**32, size=count).tolist():
        yield f"JSON {seed}", lambda path, seed=seed: path.write_text(_damaged(path.read_text(), seed)) and None


def of_lines(generator: np.random.Generator, count: int) -> Iterator[Mutation]:
    """The same in one line of a JSON Lines file, and lines that are missing or duplicated."""

    def change(path: Path, seed: int) -> None:
        lines = path.read_text().splitlines()
        at = seed % len(lines)
        lines[at : at + 1] = {0: [], 1: [lines[at]] * 2}.get(seed % 7, [_damaged(lines[at], seed)])
        path.write_text("".join(f"{line}\n" for line in lines))

    for seed in generator.integers(2**32, size=count).tolist():
        yield f"line {seed}", lambda path, seed=seed: change(path, seed)


def of_metadata(generator: np.random.Generator, count: int) -> Iterator[Mutation]:
    """The same in the JSON metadata of a safetensors file; its tensors are unchanged."""

    def change(path: Path, damage: Callable[[str], str]) -> None:
        with safe_open(path, framework="pt") as file:
            metadata, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        save_file(tensors, path, {key: damage(text) for key, text in metadata.items()})

    yield "deep metadata", lambda path: change(path, lambda text: '{"fingerprint":' * DEEP)
    for seed in generator.integers(2**32, size=count).tolist():
        yield f"metadata {seed}", lambda path, seed=seed: change(path, lambda text: _damaged(text, seed))


def of_toml(generator: np.random.Generator, count: int) -> Iterator[Mutation]:
    """Lines of a TOML file that have another value or are missing."""
    values = [
        '"text"',
        "-1",
        "0",
        "1e308",
        "nan",
        "inf",
        "[]",
        "{}",
        "true",
        '""',
        f'"{"x" * 5000}"',
        f"{10**30}",
        "[1]",
    ]

    def change(path: Path, seed: int) -> None:
        lines = path.read_text().splitlines()
        keys = [number for number, line in enumerate(lines) if "=" in line]
        at = keys[seed % len(keys)]
        value = values[seed // 7 % len(values)]
        lines[at] = "" if seed % 11 == 0 else f"{lines[at].partition('=')[0]}= {value}"
        path.write_text("\n".join(lines) + "\n")

    for seed in generator.integers(2**32, size=count).tolist():
        yield f"TOML {seed}", lambda path, seed=seed: change(path, seed)


def _damaged(text: str, seed: int) -> str:
    """A JSON text with one value changed or one key missing."""
    generator = np.random.default_rng(seed)
    content = copy.deepcopy(json.loads(text))
    keys = list(_keys(content))
    inner, (*path, last) = content, keys[generator.integers(len(keys))]
    for key in path:
        inner = inner[key]
    if isinstance(inner, dict) and generator.random() < 0.2:
        del inner[last]
    else:
        inner[last] = VALUES[generator.integers(len(VALUES))]
    return json.dumps(content)


def _keys(content: Any, prefix: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values in ``content``; of a list, only of its first three entries."""
    for key, value in content.items() if isinstance(content, dict) else list(enumerate(content))[:3]:
        yield (*prefix, key)
        if isinstance(value, dict | list):
            yield from _keys(value, (*prefix, key))
