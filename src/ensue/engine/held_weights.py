"""Weights that nobody changes: what is made of them is kept from call to call, where nothing is trained.

Before a compiled step runs, its matrices are packed for the kernels. For a long text this takes a small part of the
time; for a single sentence it takes a third.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

_holding: ContextVar[HeldWeights | None] = ContextVar("holding", default=None)


class Kept:
    """What is kept for one layer. `weights` are alive as long as this is, so that an address is that of one matrix."""

    def __init__(self, weights: list[Tensor]) -> None:
        self.weights = weights
        self._packed: dict[tuple[Any, ...], Tensor] = {}

    def packed(self, matrix: Tensor, pack: Callable[[], Tensor]) -> Tensor:
        """What `pack` gives for one of the weights, or for its transpose."""
        key = (matrix.data_ptr(), matrix.shape, matrix.stride())
        if key not in self._packed:
            self._packed[key] = pack()
        return self._packed[key]


class HeldWeights:
    """Whoever makes one says that the weights of the layers that run inside of `used` stay as they are."""

    def __init__(self) -> None:
        self._kept: WeakKeyDictionary[Any, Kept] = WeakKeyDictionary()

    @contextmanager
    def used(self) -> Iterator[None]:
        """Inside of this block, and without gradients, layers take what was kept."""
        token = _holding.set(self)
        try:
            yield
        finally:
            _holding.reset(token)

    def of(self, owner: Any, make: Callable[[], list[Tensor]]) -> Kept:
        """What is kept for `owner`, at first the weights that `make` gives."""
        if owner not in self._kept:
            self._kept[owner] = Kept(make())
        return self._kept[owner]


def kept_weights(owner: Any, make: Callable[[], list[Tensor]]) -> Kept | None:
    """None outside of `used`, and where gradients are wanted."""
    holding = _holding.get()
    return None if holding is None or torch.is_grad_enabled() else holding.of(owner, make)
