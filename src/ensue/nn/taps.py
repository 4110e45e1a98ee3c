"""Looking inside from outside: a `Tap` marks a value worth seeing, `watch` collects the values at taps.

    with watch(model, "*.gates.forget") as seen:
        model(ids)
    seen["layers.layers.0.gates.forget"]     # a list of tensors, in the order of the calls

A recurrent layer calls its taps at each position with (B, d) tensors, a parallel layer calls them once. A fast path
without taps (a vendor's kernel) is not used while they are watched. A context variable holds what is watched, not the
model, so other threads that use the model meanwhile are not affected.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import TYPE_CHECKING

from torch import Tensor, nn

from ensue.errors import EnsueError, nearest

_watched: ContextVar[Mapping[nn.Module, Sequence[list[Tensor]]]] = ContextVar("watched", default=MappingProxyType({}))
"""For each watched tap, the lists that collect its values. The mapping is replaced, never changed."""


class Tap(nn.Module):
    """The identity. Its values can be watched by its name in the model."""

    def __call__(self, x: Tensor) -> Tensor:
        """Skips torch's handling of hooks if there are none, since a step calls many taps."""
        return self.forward(x) if not self._forward_hooks else super().__call__(x)  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        """Returns `x`, a tensor of any shape, and adds it to what is watched."""
        for seen in _watched.get().get(self, ()):
            seen.append(x)
        return x


class Taps(nn.Module):
    """Several taps under one name: `Taps("forget", "output")` has the attributes `forget` and `output`."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        for name in names:
            self.add_module(name, Tap())

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Tap: ...


def is_watched(module: nn.Module) -> bool:
    """Whether a tap of `module` or of its parts is watched in this thread."""
    watched = _watched.get()
    return bool(watched) and any(part in watched for part in module.modules())


def tap_names(model: nn.Module) -> list[str]:
    """The qualified names of all taps, in the order of the modules."""
    return [name for name, module in model.named_modules() if isinstance(module, Tap)]


@contextmanager
def watch(model: nn.Module, *patterns: str) -> Iterator[dict[str, list[Tensor]]]:
    """Collects the values at the taps whose qualified names match one of the shell-style `patterns` (default: all).

    Yields a dict from name to a list of tensors, in the order of the calls. The tensors keep their history for
    autograd; detach those that you keep. Raises `EnsueError` if a pattern matches no tap.
    """
    names = tap_names(model)
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise EnsueError(f'no tap matches "{pattern}"{nearest(pattern, names)}')
    chosen = [name for name in names if not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)]
    seen: dict[str, list[Tensor]] = {name: [] for name in chosen}

    before = _watched.get()
    taps = {model.get_submodule(name): seen[name] for name in chosen}
    token = _watched.set({**before, **{tap: (*before.get(tap, ()), found) for tap, found in taps.items()}})
    try:
        yield seen
    finally:
        _watched.reset(token)
