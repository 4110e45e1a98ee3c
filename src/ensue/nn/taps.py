"""Looking inside from outside: `Tap` marks a place worth seeing, `watch` collects what passes through it.

    with watch(model, "*.gates.forget") as seen:
        model(ids)
    seen["layers.layers.0.gates.forget"]     # a list of tensors, in the order of the calls

A recurrent layer passes its taps once a position with (B, d) tensors, a parallel layer once a call. A layer whose fast
path has no such place (vendor kernels) takes the written-out one while somebody watches. Who watches is known to a
thread of execution (a context variable) and not to the model: others that use it meanwhile see and notice nothing.
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
"""For each tap that is watched where to put what passes; replaced as a whole."""


class Tap(nn.Module):
    """The identity, at a place that can be watched by its name."""

    def __call__(self, x: Tensor) -> Tensor:
        """Without torch's machinery where there is no hook: a step passes many taps."""
        return self.forward(x) if not self._forward_hooks else super().__call__(x)  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
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
    """Whether anybody watches a tap of `module` itself or of its parts."""
    watched = _watched.get()
    return bool(watched) and any(part in watched for part in module.modules())


def tap_names(model: nn.Module) -> list[str]:
    """The qualified names of all taps, in the order of the modules."""
    return [name for name, module in model.named_modules() if isinstance(module, Tap)]


@contextmanager
def watch(model: nn.Module, *patterns: str) -> Iterator[dict[str, list[Tensor]]]:
    """Collect what passes the taps whose qualified name matches one of the shell-style `patterns` (default: all).

    Yields a dict from name to the list of tensors seen. They keep their history; detach what you store for long.
    Raises `EnsueError` where a pattern matches no tap.
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
