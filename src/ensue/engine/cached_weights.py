"""Weights that nobody changes: what is made of them is kept from call to call, where nothing is trained.

Torch has no sure sign of a change: `p.data.copy_()` leaves address and version as they were. So nothing is kept unless
somebody says that weights stay as they are, as a server does of the models that it alone has.

Before a compiled step runs, its matrices are packed for the kernels. For a long text this takes a small part of the
time; for a single sentence it takes a third.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

T = TypeVar("T")
_caching: ContextVar[CachedWeights | None] = ContextVar("caching", default=None)


class PackedWeights:
    """The packed weights of one layer. `weights` are alive as long as this is, so an address is of one matrix."""

    def __init__(self, weights: list[Tensor]) -> None:
        self.weights = weights
        self._packed: dict[tuple[Any, ...], Tensor] = {}

    def packed(self, matrix: Tensor, pack: Callable[[], Tensor]) -> Tensor:
        """The result of `pack` for one of the weights, or for its transpose."""
        key = (matrix.data_ptr(), matrix.shape, matrix.stride())
        if key not in self._packed:
            self._packed[key] = pack()
        return self._packed[key]


class CachedWeights:
    """Whoever makes one says that the weights of the models that run inside of `used` stay as they are."""

    def __init__(self) -> None:
        self._kept: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    @contextmanager
    def used(self) -> Iterator[None]:
        """Inside of this block, and without gradients, layers take what was kept."""
        token = _caching.set(self)
        try:
            yield
        finally:
            _caching.reset(token)

    def of(self, owner: Any, make: Callable[[], T]) -> T:
        """The value that is kept for `owner`, at first that of `make`."""
        if owner not in self._kept:
            self._kept[owner] = make()
        kept: T = self._kept[owner]
        return kept


def are_cached() -> bool:
    """Whether somebody says that weights stay as they are."""
    return _caching.get() is not None


def caching() -> AbstractContextManager[None]:
    """Holds weights inside of a block, unless they are held already: for a call in which nobody else has a turn."""
    return nullcontext() if are_cached() else CachedWeights().used()


def cached_for(owner: Any, make: Callable[[], T]) -> T | None:
    """The value that is kept for `owner`. None outside of `used`, and where gradients are wanted."""
    held = _caching.get()
    return None if held is None or torch.is_grad_enabled() else held.of(owner, make)
