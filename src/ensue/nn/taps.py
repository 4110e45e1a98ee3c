"""Looking inside from outside: `Tap` marks a place worth seeing, `watch` collects what passes through it.

    with watch(model, "*.gates.forget") as seen:
        model(ids)
    seen["layers.layers.0.gates.forget"]     # a list of tensors, in the order of the calls

A recurrent layer passes its taps once a position with (B, d) tensors, a parallel layer once a call. A layer whose fast
path has no such place (vendor kernels) takes the written-out one while somebody watches.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING

from torch import Tensor, nn

from ensue.errors import EnsueError, nearest


class Tap(nn.Module):
    """The identity, at a place that can be watched by its name."""

    def __call__(self, x: Tensor) -> Tensor:
        """Without torch's machinery while nobody watches: a step passes many taps."""
        return x if not self._forward_hooks else super().__call__(x)  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
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
    return any(isinstance(part, Tap) and part._forward_hooks for part in module.modules())


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

    def record(name: str, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        seen[name].append(output)

    handles = [model.get_submodule(name).register_forward_hook(partial(record, name)) for name in chosen]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()
