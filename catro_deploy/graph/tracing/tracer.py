"""torch.fx tracing that calls modules that it cannot trace as a whole, and reports why and where."""

import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import fx, nn

from catro_deploy.errors import ModelError
from catro_deploy.graph.cut.sizes import stored_sizes
from catro_deploy.graph.places import users_line, users_place
from catro_deploy.graph.tracing.example import Example, UnknownNumber
from catro_deploy.graph.tracing.proxies import NumberProxy

__all__ = ["Number", "Tracer", "Untraceable", "is_inside", "random_states", "with_opaque_modules"]

LAYERS = ("torch.nn.modules.", "torch.ao.nn.")
NO_LAYERS = ("torch.nn.modules.module", "torch.nn.modules.container")
WEIGHTED = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)

Found = TypeVar("Found")


class Untraceable(Exception):  # noqa: N818 - no error: the module is called as a whole
    """The forward of the module ``path`` (empty: of the whole model) cannot be traced, because of ``reason``."""

    def __init__(self, path: str, reason: str, remedy: str = "") -> None:
        super().__init__(path, reason)
        self.path, self.reason, self.remedy = path, reason, remedy


@dataclass(frozen=True)
class Number:
    """A ``value`` that the forward read at ``place`` (a file and line) and that is a constant of the graph.

    ``instruction`` distinguishes places on one line.
    """

    value: Any
    place: str
    instruction: tuple[int, int]


class Tracer(fx.Tracer):
    """Traces a module that takes only images; ``opaque`` modules (names or prefixes) and layers are called as a whole.

    Sizes of tensors, and the numbers named in ``sizes`` that modules hold, are read at every call of the graph. Where
    the forward needs a number, as in a condition or a loop, it gets that of images of ``input_shape`` (channels,
    height, width), which is recorded in ``numbers``; without ``input_shape`` such a forward cannot be traced.
    ``untraceable`` names the innermost module in which a trace failed.
    """

    def __init__(
        self,
        opaque: Collection[str],
        sizes: Collection[str] = (),
        input_shape: tuple[int, int, int] | None = None,
    ) -> None:
        super().__init__()
        self._opaque, self._sizes, self._input_shape = opaque, sizes, input_shape
        self._values: dict[str, Any] = {}
        self._innermost: tuple[Exception, str] | None = None
        self._example: Example | None = None
        self.numbers: list[Number] = []

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Whether ``m`` is called as a whole: it is opaque, or a layer that is not a container of others."""
        return is_inside(module_qualified_name, self._opaque) or _is_layer(m)

    def call_module(
        self, m: nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:  # noqa: ANN401 - whatever the module returns
        """Trace through ``m``, and record whether the trace fails in it."""
        if self._example is not None and self._example.running:
            return forward(*args, **kwargs)
        if kwargs.keys() == {"input"} and not args and _is_layer(m):  # all other code reads the first argument
            args, kwargs = (kwargs["input"],), {}
        before = random_states()
        try:
            outcome = super().call_module(m, forward, args, kwargs)
            if random_states() != before:
                raise Untraceable(self.path_of_module(m), RANDOM)
        except Untraceable:
            raise
        except Exception as error:  # whatever a user's forward may raise under tracing
            path = (self.submodule_paths or {}).get(m)
            inner = self._innermost is not None and self._innermost[0] is error
            if path and not inner and not self.is_leaf_module(m, path):
                self._innermost = error, path
            raise
        return outcome

    def trace(self, root: nn.Module, concrete_args: dict[str, Any] | None = None) -> fx.Graph:  # type: ignore[override]
        """Trace ``root``; its sizes are numbers again afterwards."""
        stored = stored_sizes(root, self._sizes)
        self._values = {name: getattr(owner, attribute) for name, (owner, attribute) in stored.items()}
        if self._input_shape is not None:
            self._example = Example(root, self._input_shape, self._values)
        try:
            return super().trace(root, concrete_args)
        finally:
            for name, (owner, attribute) in stored.items():
                setattr(owner, attribute, self._values[name])

    def create_args_for_root(
        self,
        root_fn: Callable[..., Any],
        is_module: bool,
        concrete_args: dict[str, Any] | tuple[Any, ...] | None = None,
    ) -> tuple[Any, list[Any]]:
        """Let every argument after the images keep its default, so that control flow may depend on it.

        The graph begins here: sizes become values of it.
        """
        function, args = super().create_args_for_root(root_fn, is_module, concrete_args)
        for place, given in enumerate(args[2:], start=2):
            if isinstance(given, fx.Proxy) and given.node.args:
                args[place] = given.node.args[0]
                self.graph.erase_node(given.node)
        if isinstance(self.root, nn.Module):
            for name, (owner, attribute) in stored_sizes(self.root, self._sizes).items():
                setattr(owner, attribute, self.create_proxy("get_attr", name, (), {}))
        return function, args

    def create_arg(self, a: Any) -> Any:  # noqa: ANN401 - an argument of a node
        """A number of NumPy, such as ``np.sqrt(2)``, as Python's: the code of a graph does not import NumPy."""
        return super().create_arg(a.item() if isinstance(a, np.generic) else a)

    def proxy(self, node: fx.Node) -> fx.Proxy:
        """The proxy of ``node`` in the forward."""
        return NumberProxy(node, self)

    def to_bool(self, obj: fx.Proxy) -> bool:
        """The result of a condition on sizes."""
        return bool(self.number(obj))

    def iter(self, obj: fx.Proxy) -> Iterator[Any]:
        """Iterate over the parts of a split or of a shape, if their number is known."""
        parts: Any = obj
        several = _parts(obj.node, self._values)
        return iter([parts[place] for place in range(self.length(obj) if several is None else several)])

    def number(self, obj: fx.Proxy) -> Any:  # noqa: ANN401 - a number
        """The number that ``obj`` is for the example images; it becomes a constant of the graph.

        Raises:
            TraceError: there is no such number, or it depends on the number of images.
        """
        return self._read(obj, lambda example: example.number(obj.node))

    def length(self, obj: fx.Proxy) -> int:
        """The length of ``obj``, a tuple, list or tensor, for the example images; it becomes a constant of the graph.

        Raises:
            TraceError: as ``number``.
        """
        length: int = self._read(obj, lambda example: example.length(obj.node))
        return length

    def forget_checks(self) -> None:
        """Forget the numbers that were read only to check the arguments of the call that is about to be traced."""
        _, instruction = users_place()
        while self.numbers and self.numbers[-1].instruction == instruction:
            self.numbers.pop()

    def _read(self, obj: fx.Proxy, read: Callable[[Example], Any]) -> Any:  # noqa: ANN401 - a number
        if self._example is None:
            return super().to_bool(obj)  # which raises
        try:
            value = read(self._example)
        except UnknownNumber as unknown:
            raise fx.proxy.TraceError(f"{unknown}, which a trace does not have") from None
        self.numbers.append(Number(value, *users_place()))
        return value

    def untraceable(self, error: Exception) -> Untraceable:
        """The module to blame for ``error``, which a trace raised."""
        if isinstance(error, Untraceable):
            return error
        path = self._innermost[1] if self._innermost is not None and self._innermost[0] is error else ""
        remedy = CONTROL_FLOW if isinstance(error, fx.proxy.TraceError) else OTHER_ERROR
        return Untraceable(path, f"{type(error).__name__}: {error}{users_line(error)}", remedy)


IGNORE = '[prune] ignore = ["layer4"] in catro.toml.'
CONTROL_FLOW = (
    "Move control flow that depends on the data out of this forward, into a separate submodule, which is then called "
    f"as a whole, or exclude a submodule from tracing: {IGNORE}"
)
OTHER_ERROR = (
    "torch.fx runs the forward on proxies of tensors, and this line does not work with them: write it with tensor "
    "operations, move it into a separate submodule, which is then called as a whole, or exclude a submodule from "
    f"tracing: {IGNORE}"
)
RANDOM = "it draws random numbers, which a trace would make constant"


def with_opaque_modules(
    model: nn.Module, ignore: Sequence[str], attempt: Callable[[Mapping[str, str]], Found]
) -> tuple[Found, dict[str, str]]:
    """Repeat ``attempt`` with one more opaque module each time until it succeeds; return the reasons as well.

    ``attempt`` is called with the opaque modules, each with its reason: at first those in ``ignore``.

    Raises:
        ModelError: the whole model would be opaque.
    """
    opaque = dict.fromkeys(ignore, "it is to be ignored")
    while True:
        try:
            return attempt(opaque), opaque
        except Untraceable as failure:
            if not failure.path or failure.path in opaque:
                raise _refusal(model, failure) from failure
            opaque[failure.path] = failure.reason


def random_states() -> tuple[object, bytes]:
    """The random state, which changes when random numbers are drawn."""
    return random.getstate(), torch.get_rng_state().numpy().tobytes()


def is_inside(name: str, modules: Collection[str]) -> bool:
    """Whether ``name`` is one of ``modules`` or is inside one."""
    return any(name == module or name.startswith(f"{module}.") for module in modules)


def _is_layer(module: nn.Module) -> bool:
    """Whether ``module`` is a layer of torch, or of a class that derives from one and has no weighted layers inside."""
    if type(module).__module__.startswith(LAYERS):
        return type(module).__module__ not in NO_LAYERS
    kinds = [kind.__module__ for kind in type(module).__mro__ if kind.__module__.startswith(LAYERS)]
    parts = [part for part in module.modules() if part is not module]
    return kinds[0] not in NO_LAYERS and not any(isinstance(part, WEIGHTED) for part in parts)


def _parts(node: fx.Node, sizes: Mapping[str, Any]) -> int | None:
    """How many parts a split or chunk returns, if its arguments state it; ``sizes`` are those that are graph values."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    given = [*node.args[1:2], *(node.kwargs[key] for key in ("split_size_or_sections", "chunks") if key in node.kwargs)]
    if name not in ("split", "chunk") or not given:
        return None
    how = sizes.get(str(given[0].target)) if isinstance(given[0], fx.Node) else given[0]
    if name == "chunk":
        return how if isinstance(how, int) else None
    return len(how) if isinstance(how, list | tuple) else None


def _refusal(model: nn.Module, failure: Untraceable) -> ModelError:
    where = (
        f"{failure.path}, a {type(model.get_submodule(failure.path)).__name__}" if failure.path else "the model itself"
    )
    return ModelError(
        f"The forward of {type(model).__name__} cannot be traced; it fails in {where}: {failure.reason}",
        failure.remedy or CONTROL_FLOW,
    )
