"""The random numbers of a training step: each row of a batch has its own, wherever it is worked on.

A draw takes one number from torch's generator, as the key of a sequence in which each row has a place of its own. On a
CPU a process that works on some rows begins at their places, so it draws for them alone. The numbers of a row depend on
the seed, the step and the row, and not on how many processes there are. A GPU draws for all rows, and takes those that
are there. What is drawn for a whole model, such as which words are dropped, is the same everywhere and does not come by
here.
"""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ensue.engine import passes
from ensue.engine.products import in_parts, worth_threads
from ensue.engine.storage import address

CPU = torch.device("cpu")


class PartOfBatch(NamedTuple):
    """The rows (a slice, or their numbers) that are worked on here, of a batch of `total` rows."""

    rows: slice | Tensor
    total: int


_part: ContextVar[PartOfBatch | None] = ContextVar("part", default=None)


@contextmanager
def drawing_for(part: PartOfBatch | None) -> Iterator[None]:
    """Draws as for these rows of a batch for the duration of a `with` block; None: all rows are here."""
    token = _part.set(part)
    try:
        yield
    finally:
        _part.reset(token)


def draws_for_others() -> bool:
    """Whether only some rows of a batch are worked on here."""
    return _part.get() is not None


def dropped(x: Tensor, p: float) -> Tensor:
    """Dropout of `x` (B, ...). On a CPU p is rounded to 1/65,536: 16 bits decide on each element."""
    if p == 0:  # nothing is drawn
        return x
    if x.device.type != "cpu":
        if not draws_for_others():
            return F.dropout(x, p)
        return x * _cut(lambda shape: F.dropout(x.new_ones(shape), p), x.shape)
    if (threshold := round(p * 65_536)) == 65_536:
        return x * 0.0
    return x * _mask(x, threshold - 32_768, 1 / (1 - threshold / 65_536))


def _mask(x: Tensor, least: int, scale: float) -> Tensor:
    """As `x` in shape and type: `scale` where the number of an element is `least` or more, 0 elsewhere."""
    functions = passes(x)
    if functions is None:
        return (_numbers(x.shape, np.int16) >= least).to(x.dtype).mul_(scale)
    mask, rows = torch.empty(x.shape, dtype=x.dtype), (x.shape or (1,))[0]
    key, begin, places = (ctypes.c_uint64 * 4)(*_key(), *INCREMENT), 0, None
    if (part := _part.get()) is not None:
        if isinstance(part.rows, slice):
            begin = part.rows.start
        else:
            places = address("the rows", part.rows, torch.int64, (rows,))
    given = x.numel() // rows, least, scale, key, begin, places, mask.data_ptr(), x.dtype == torch.bfloat16
    in_parts(rows, lambda first, last, _: functions.masks(first, last, *given), most=worth_threads(mask))
    return mask


def uniform(shape: Sequence[int], *, device: torch.device = CPU) -> Tensor:
    """Numbers from 0 to below 1, in float32, of `shape` (B, ...)."""
    if device.type != "cpu":
        return _cut(lambda whole: torch.rand(*whole, device=device), shape)
    return _numbers(shape, np.int32).bitwise_right_shift_(8).float().add_(1 << 23).mul_(2**-24)


def normal(shape: Sequence[int], *, dtype: torch.dtype = torch.float32, device: torch.device = CPU) -> Tensor:
    """Numbers of the standard normal distribution, of `shape` (B, ...)."""
    if device.type != "cpu":
        return _cut(lambda whole: torch.randn(*whole, dtype=dtype, device=device), shape)
    kind, kept, real = (np.int64, 53, dtype) if dtype == torch.float64 else (np.int32, 24, torch.float32)
    bits = _numbers(shape, kind).bitwise_right_shift_(np.dtype(kind).itemsize * 8 - kept)
    between = bits.to(real).add_(0.5).mul_(2.0 ** (1 - kept))  # -1 and 1
    return between.erfinv_().mul_(math.sqrt(2)).to(dtype)


def _cut(draw: Callable[[Sequence[int]], Tensor], shape: Sequence[int]) -> Tensor:
    """`draw` called with the `shape` that all rows have together, cut to the rows here."""
    part = _part.get()
    return draw(shape) if part is None else draw((part.total, *shape[1:]))[part.rows]


def _numbers(shape: Sequence[int], kind: Any) -> Tensor:
    """Random whole numbers of this kind, of `shape` (B, ...)."""
    rows, *others = shape or (1,)
    size, together = math.prod(others), 8 // np.dtype(kind).itemsize
    words = _words(rows, -(-size // together)).view(kind)[:, :size]
    return torch.from_numpy(np.ascontiguousarray(words)).view(tuple(shape))


def _words(rows: int, each: int) -> Any:
    """(rows, each) words of 64 bits of a new sequence, those of each row here from its own place."""
    chosen, total = _part.get() or (slice(0, rows), rows)
    sequence = _sequence.begun()
    if isinstance(chosen, slice):
        return sequence.advance(chosen.start * each).random_raw(rows * each).reshape(rows, each)
    return sequence.random_raw(total * each).reshape(total, each)[chosen.numpy()]  # some rows here, some there


class _Sequence(threading.local):
    """A sequence of 2^128 words, on which any place is reached in no time (PCG64 DXSM, O'Neill 2014)."""

    def __init__(self) -> None:
        self.generator = np.random.PCG64DXSM(0)
        self.state: Any = self.generator.state

    def begun(self) -> np.random.PCG64DXSM:
        """The sequence from a place that torch's generator chooses."""
        high, low = _key()
        self.state["state"]["state"] = high << 64 | low
        self.generator.state = self.state
        return self.generator


_sequence = _Sequence()
INCREMENT = divmod(_sequence.state["state"]["inc"], 1 << 64)


def _key() -> list[int]:
    """A place in the sequence, in two numbers."""
    found: list[int] = torch.empty(2, dtype=torch.int64).random_().tolist()
    return found
