"""The structure of a network, without its weights' values, to recognise it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

__all__ = ["structure"]

PLAIN = (bool, int, float, str, type(None), torch.dtype)


def structure(model: nn.Module, input_shape: tuple[int, int, int]) -> str:
    """A line for each tensor operation of ``model`` (eval mode) on an image: its name, sizes, and earlier tensors.

    Modules with the same names and sizes but different operations, such as another activation, differ in these lines;
    values of weights do not matter.
    """
    image = torch.zeros(1, *input_shape, device=next(model.parameters()).device)
    recorder = _Recorder()
    with torch.no_grad(), recorder:
        model(image)
    return "\n".join(recorder.lines)


class _Recorder(TorchFunctionMode):
    """Records each call of a torch function; tensors are numbered in the order in which they are first seen."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._seen: list[torch.Tensor] = []  # kept alive: another tensor might otherwise get the same id
        self._numbers: dict[int, int] = {}

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the function returns
        given = [*args, *((name, value) for name, value in (kwargs or {}).items())]
        words = [self._word(leaf) for leaf in _leaves(given)]
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__qualname__", type(func).__name__)
        self.lines.append(" ".join([name, *words, "->", *(self._word(leaf) for leaf in _leaves(result))]))
        return result

    def _word(self, leaf: Any) -> str:  # noqa: ANN401 - an argument
        if isinstance(leaf, torch.Tensor):
            if id(leaf) not in self._numbers:
                self._numbers[id(leaf)] = len(self._seen)
                self._seen.append(leaf)
            return f"%{self._numbers[id(leaf)]}{tuple(leaf.shape)}"
        return repr(leaf) if isinstance(leaf, PLAIN) else type(leaf).__name__


def _leaves(value: Any) -> Iterator[Any]:  # noqa: ANN401 - arguments
    parts = (value.start, value.stop, value.step) if isinstance(value, slice) else value
    if isinstance(parts, list | tuple):
        for part in parts:
            yield from _leaves(part)
    else:
        yield value
