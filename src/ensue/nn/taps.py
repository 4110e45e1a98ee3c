"""Looking inside from outside: a `Tap` marks a value worth seeing. `watch` collects the values at taps, `replace` puts
others in their place.

    with watch(model, "*.gates.forget") as seen:
        model(ids)
    seen["layers.layers.0.gates.forget"]     # a list of tensors, in the order of the calls

A recurrent layer calls its taps at each position with (B, d) tensors, a parallel layer calls them once. A fast path
without taps (a vendor's kernel) is not used while they are watched or replaced, or have hooks of torch. A context
variable holds what is visited, not the model, so other threads that use the model meanwhile are not affected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from fnmatch import fnmatchcase
from functools import wraps
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from torch import Tensor, nn

from ensue.engine import has_hooks
from ensue.errors import EnsueError, nearest
from ensue.interruption import check_interrupted

Change: TypeAlias = Callable[[Tensor], Tensor]
"""From the value at a tap to the one that goes on."""

_visited: ContextVar[Mapping[nn.Module, Sequence[Change]]] = ContextVar("visited", default=MappingProxyType({}))
"""For each tap that is watched or replaced, what its values go through, in order. The mapping is replaced, never
changed."""

_hooked: list[bool] = []
"""Empty as long as no tap of the process has had hooks of torch, so that nobody need look for them."""


def _registering(register: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(register)
    def registered(self: Tap, *args: Any, **options: Any) -> Any:
        _hooked[:] = [True]
        return register(self, *args, **options)

    return registered


class Tap(nn.Module):
    """The identity. Its values can be watched and replaced by its name in the model."""

    def __call__(self, x: Tensor) -> Tensor:
        """Skips torch's handling of hooks if there are none, since a step calls many taps."""
        return super().__call__(x) if _hooked and has_hooks(self) else self.forward(x)  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        """Returns `x`, a tensor of any shape, or what has been put in its place."""
        for change in _visited.get().get(self, ()):
            x = change(x)
        return x

    register_forward_hook = _registering(nn.Module.register_forward_hook)
    register_forward_pre_hook = _registering(nn.Module.register_forward_pre_hook)
    register_full_backward_hook = _registering(nn.Module.register_full_backward_hook)
    register_full_backward_pre_hook = _registering(nn.Module.register_full_backward_pre_hook)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Of a copy: it has the hooks of what it is a copy of."""
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        if has_hooks(self):
            _hooked[:] = [True]


class Taps(nn.Module):
    """Several taps under one name: `Taps("forget", "output")` has the attributes `forget` and `output`."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        for name in names:
            self.add_module(name, Tap())

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Tap: ...


def is_watched(module: nn.Module) -> bool:
    """Whether a tap of `module` or of its parts is watched or replaced in this thread, or has hooks of torch."""
    visited = _visited.get()
    if not visited and not _hooked:
        return False
    return any(part in visited or (isinstance(part, Tap) and has_hooks(part)) for part in module.modules())


def tap_names(model: nn.Module) -> list[str]:
    """The qualified names of all taps, in the order of the modules."""
    return [name for name, module in model.named_modules() if isinstance(module, Tap)]


@contextmanager
def watch(model: nn.Module, *patterns: str) -> Iterator[dict[str, list[Tensor]]]:
    """Collects the values at the taps whose qualified names match one of the shell-style `patterns` (default: all).

    Yields a dict from name to a list of tensors, in the order of the calls. The tensors keep their history for
    autograd; detach those that you keep. Inside of `replace` it sees what has been put in place. Raises `EnsueError` if
    a pattern matches no tap.
    """
    seen: dict[str, list[Tensor]] = {name: [] for name in _matching(model, *patterns or ("*",))}

    def collecting(found: list[Tensor]) -> Change:
        def collect(x: Tensor) -> Tensor:
            check_interrupted()  # the layer runs step by step
            found.append(x)
            return x

        return collect

    with _visiting(model, {name: collecting(found) for name, found in seen.items()}):
        yield seen


@contextmanager
def replace(model: nn.Module, changes: Mapping[str, Change]) -> Iterator[None]:
    """Puts other values in place of those at the taps whose qualified names match a pattern: `changes[pattern](value)`.

    The model goes on with them, also from position to position where they are a part of its state. A tap that several
    patterns match goes through their changes in order. Raises `EnsueError` if a pattern matches no tap, and in the
    model `ValueError` for a change that alters the shape.
    """
    by_name: dict[str, Change] = {}
    for pattern, change in changes.items():
        for name in _matching(model, pattern):
            by_name[name] = _after(by_name.get(name), _shaped(name, change))
    with _visiting(model, by_name):
        yield


def _after(first: Change | None, then: Change) -> Change:
    return then if first is None else lambda x: then(first(x))


def _shaped(name: str, change: Change) -> Change:
    def checked(x: Tensor) -> Tensor:
        found = change(x)
        if found.shape != x.shape:
            raise ValueError(f"{name}: the change gives {tuple(found.shape)} for {tuple(x.shape)}")
        return found

    return checked


def _matching(model: nn.Module, *patterns: str) -> list[str]:
    """The names of the taps that match one of the patterns."""
    names = tap_names(model)
    for pattern in patterns if names or patterns != ("*",) else ():
        if not any(fnmatchcase(name, pattern) for name in names):
            raise EnsueError(f'no tap matches "{pattern}"{nearest(pattern, names)}')
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]


@contextmanager
def _visiting(model: nn.Module, changes: Mapping[str, Change]) -> Iterator[None]:
    """Each tap's values go through the change of its name, after those of the contexts around this one."""
    before = _visited.get()
    taps = {model.get_submodule(name): change for name, change in changes.items()}
    token = _visited.set({**before, **{tap: (*before.get(tap, ()), change) for tap, change in taps.items()}})
    try:
        yield
    finally:
        _visited.reset(token)
