"""Values of a trace that are numbers where a number is needed: in conditions, loops, indices and strings."""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import fx
from torch.fx.proxy import Attribute

__all__ = ["NumberProxy"]


class NumberProxy(fx.Proxy):
    """A proxy that can be converted to the number that it represents; its tracer provides numbers (tracer.py)."""

    tracer: Any

    __array_priority__ = 1000  # as that of a tensor: in products with numbers of NumPy, the proxy's operators count

    def __getattr__(self, name: str) -> "NumberAttribute":
        """A separate node only if it is not a method call."""
        if name.startswith("__array_"):  # NumPy asks for other ways to convert it
            raise AttributeError(name)
        return NumberAttribute(self, name)

    def __setitem__(self, place: object, value: object) -> None:
        """Refuse ``x[:, :8] = 0``: the graph has no step that changes a part of a tensor."""
        raise TypeError("it assigns to a part of a tensor; torch.cat, torch.where or masked_fill can compute the same")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:  # noqa: ANN401 - NumPy's types
        """Support ``np.sqrt(x.shape[1])``."""
        return np.asarray(self.tracer.number(self), dtype)

    def __array_function__(
        self,
        function: Callable[..., Any],
        types: object,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:  # noqa: ANN401 - what a function of NumPy returns
        """Support ``np.prod(x.shape[1:])``."""
        given: Any = fx.node.map_aggregate(
            (args, kwargs), lambda leaf: self.tracer.number(leaf) if isinstance(leaf, fx.Proxy) else leaf
        )
        return function(*given[0], **given[1])

    def __int__(self) -> int:
        """Support ``int(x.shape[1])``."""
        return int(self.tracer.number(self))

    def __index__(self) -> int:
        """Support ``range(x.shape[1])``."""
        return operator.index(self.tracer.number(self))

    def __float__(self) -> float:
        """Support ``math.ceil(x.shape[1] / 2)``."""
        return float(self.tracer.number(self))

    def __round__(self, digits: int | None = None) -> float:
        """Support ``round(x.shape[1] * 0.5)``."""
        rounded: float = round(self.tracer.number(self), digits)
        return rounded

    def __len__(self) -> int:
        """Support ``len(x.shape)``."""
        length: int = self.tracer.length(self)
        return length

    def __format__(self, how: str) -> str:
        """The number in a string, such as a name or a message; the proxy's ``repr`` if the number is unknown."""
        try:
            return format(self.tracer.number(self), how)
        except fx.proxy.TraceError:
            return repr(self)

    @classmethod
    def __torch_function__(
        cls,
        orig_method: Callable[..., Any],
        types: tuple[type, ...],
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - a proxy
        """Record a call in the graph; its arguments do not become constants merely because torch inspected them."""
        proxies: list[Any] = []
        fx.node.map_aggregate((args, kwargs), lambda leaf: proxies.append(leaf) if isinstance(leaf, fx.Proxy) else leaf)
        for proxy in proxies[:1]:
            proxy.tracer.forget_checks()
        return super().__torch_function__(orig_method, types, args, kwargs)


class NumberAttribute(Attribute, NumberProxy):
    """An attribute of a proxy, such as ``x.shape``."""
