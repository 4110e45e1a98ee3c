"""Taps: named values inside a model. `watch` collects the values at taps, and `replace` replaces them.

    with watch(model, "*.gates.forget") as seen:
        model(ids)
    seen["layers.layers.0.gates.forget"]     # a list of tensors, in the order of the calls

A recurrent layer calls its taps at each position with (B, d) tensors; a parallel layer calls its taps once. A fast path
without taps, such as cuDNN's kernel, is not used while a tap is watched or replaced, or has a torch hook. The functions
at taps are in a context variable, not in the model, so other threads that use the model are not affected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from fnmatch import fnmatchcase
from functools import partial, wraps
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from torch import Tensor, nn

from ensue.engine import has_hooks
from ensue.errors import EnsueError, nearest
from ensue.interruption import check_interrupted
from ensue.types import change_temporarily

Change: TypeAlias = Callable[[Tensor], Tensor]
"""A function from the value at a tap to the value that replaces it."""

tap_changes: ContextVar[Mapping[nn.Module, Sequence[Change]]] = ContextVar("tap_changes", default=MappingProxyType({}))
"""The functions to apply at each watched or replaced tap, in order. The mapping is replaced, never mutated."""

has_hooked_taps: list[bool] = []
"""[True] once a torch hook was registered on a tap of this process, else []; an empty list saves checks of all taps."""


def _mark_as_hooked(register: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(register)
    def registered(self: Tap, *args: Any, **options: Any) -> Any:
        has_hooked_taps[:] = [True]
        return register(self, *args, **options)

    return registered


class Tap(nn.Module):
    """An identity function whose values can be watched and replaced, by the name of the tap in the model."""

    def __call__(self, x: Tensor) -> Tensor:
        """Bypass torch's handling of hooks for a tap without hooks, since a step calls many taps."""
        return super().__call__(x) if has_hooked_taps and has_hooks(self) else self.forward(x)

    def forward(self, x: Tensor) -> Tensor:
        """Return `x`, a tensor of any shape, or its replacement."""
        for change in tap_changes.get().get(self, ()):
            x = change(x)
        return x

    register_forward_hook = _mark_as_hooked(nn.Module.register_forward_hook)
    register_forward_pre_hook = _mark_as_hooked(nn.Module.register_forward_pre_hook)
    register_full_backward_hook = _mark_as_hooked(nn.Module.register_full_backward_hook)
    register_full_backward_pre_hook = _mark_as_hooked(nn.Module.register_full_backward_pre_hook)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a copied or unpickled tap, which has the hooks of the original."""
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        if has_hooks(self):
            has_hooked_taps[:] = [True]


class Taps(nn.Module):
    """Several taps under one name: `Taps("forget", "output")` has the attributes `forget` and `output`."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        for name in names:
            self.add_module(name, Tap())

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Tap: ...


def is_watched(module: nn.Module) -> bool:
    """Return whether a tap inside `module` is watched or replaced in this thread, or has torch hooks."""
    watched = tap_changes.get()
    if not watched and not has_hooked_taps:
        return False
    return any(tap in watched or (isinstance(tap, Tap) and has_hooks(tap)) for tap in module.modules())


def tap_names(model: nn.Module) -> list[str]:
    """Return the qualified names of all taps, in the order of the modules."""
    return [name for name, module in model.named_modules() if isinstance(module, Tap)]


@contextmanager
def watch(model: nn.Module, *patterns: str) -> Iterator[dict[str, list[Tensor]]]:
    """Collect the values at taps in a `with` block.

    Args:
        model: The model, or any module with taps.
        patterns: Shell-style patterns of qualified names; none: all taps.

    Yields:
        A dict from name to a list of tensors, in the order of the calls. The tensors keep their history for autograd;
        detach tensors that you store. Inside `replace` the tensors are the replacements.

    Raises:
        EnsueError: A pattern matches no tap.
    """
    recorded: dict[str, list[Tensor]] = {name: [] for name in _match_taps(model, *patterns or ("*",))}

    def collect(values: list[Tensor], x: Tensor) -> Tensor:
        check_interrupted()  # watched layers run step by step, which is slow
        values.append(x)
        return x

    with _apply_changes(model, {name: partial(collect, values) for name, values in recorded.items()}):
        yield recorded


@contextmanager
def replace(model: nn.Module, changes: Mapping[str, Change]) -> Iterator[None]:
    """Replace the values at taps in a `with` block.

    All later computations use the replacements, including the states of recurrent layers at later positions.

    Args:
        model: The model, or any module with taps.
        changes: Functions from value to replacement, by shell-style patterns of qualified names. A tap that several
            patterns match gets their functions in order.

    Raises:
        EnsueError: A pattern matches no tap.
        ValueError: A replacement has another shape than the value; raised when the model is called.
    """
    by_name: dict[str, Change] = {}
    for pattern, change in changes.items():
        for name in _match_taps(model, pattern):
            by_name[name] = _compose(by_name.get(name), _check_shape(name, change))
    with _apply_changes(model, by_name):
        yield


def _compose(first: Change | None, second: Change) -> Change:
    return second if first is None else lambda x: second(first(x))


def _check_shape(name: str, change: Change) -> Change:
    """Return `change` with a check of its result's shape."""

    def checked(x: Tensor) -> Tensor:
        replacement = change(x)
        if replacement.shape != x.shape:
            raise ValueError(f"{name}: expected a replacement {tuple(x.shape)}, found {tuple(replacement.shape)}")
        return replacement

    return checked


def _match_taps(model: nn.Module, *patterns: str) -> list[str]:
    """Return the names of the taps that match one of the patterns."""
    names = tap_names(model)
    for pattern in patterns if names or patterns != ("*",) else ():
        if not any(fnmatchcase(name, pattern) for name in names):
            raise EnsueError(f'no tap matches "{pattern}"{nearest(pattern, names)}')
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]


def _apply_changes(model: nn.Module, changes: Mapping[str, Change]) -> AbstractContextManager[None]:
    """Apply changes to the values at taps, by name, after the changes of enclosing contexts."""
    before = tap_changes.get()
    taps = {model.get_submodule(name): change for name, change in changes.items()}
    both = {**before, **{tap: (*before.get(tap, ()), change) for tap, change in taps.items()}}
    return change_temporarily(tap_changes.set, both, before)
