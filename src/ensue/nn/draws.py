"""Random numbers of a training step that depend on the seed, the step and the row, not on the number of processes.

A draw takes one number from torch's generator, as the key of a sequence in which each row has a place of its own. On a
CPU a rank draws at the places of its own rows alone. A GPU draws for all rows and takes those of the rank. Draws for a
whole model, such as the words that are dropped, use torch's generator directly.
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


class RowSlice(NamedTuple):
    """The rows `local`, by a slice or their numbers, of a micro-batch: of `total` rows of a batch, from `start` on.

    The rows of a micro-batch share a random stream, in which each row has a place of its own.
    """

    local: slice | Tensor = slice(None)
    total: int | None = None
    """None: all rows of the batch."""
    start: int = 0

    @property
    def micro_batch(self) -> slice:
        """The rows of the micro-batch in the batch."""
        return slice(self.start, None if self.total is None else self.start + self.total)

    def of(self, rows: Any) -> Any:
        """The rows of an array."""
        return rows[self.micro_batch][self.local]

    def of_batch(self, batch: Any) -> Any:
        """The rows of a batch, or of another object with `part`."""
        return batch.part(self.micro_batch).part(self.local)


ALL_ROWS = RowSlice()
_row_slice: ContextVar[RowSlice | None] = ContextVar("row_slice", default=None)


@contextmanager
def drawing_rows(rows: RowSlice | None) -> Iterator[None]:
    """Draw random numbers for these rows of a micro-batch in a `with` block; None: the process has all rows."""
    token = _row_slice.set(rows)
    try:
        yield
    finally:
        _row_slice.reset(token)


def is_sharded() -> bool:
    """Whether this process has only some rows of the micro-batch."""
    return _row_slice.get() is not None


def dropped(x: Tensor, p: float) -> Tensor:
    """Dropout of `x` (B, ...). On a CPU p is rounded to 1/65,536: 16 bits decide on each element."""
    if p == 0:  # nothing is drawn
        return x
    if x.device.type != "cpu":
        if not is_sharded():
            return F.dropout(x, p)
        return x * _of_all_rows(lambda shape: F.dropout(x.new_ones(shape), p), x.shape)
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
    if (row_slice := _row_slice.get()) is not None:
        if isinstance(row_slice.local, slice):
            begin = row_slice.local.start
        else:
            places = address("the rows", row_slice.local, torch.int64, (rows,))
    given = x.numel() // rows, least, scale, key, begin, places, mask.data_ptr(), x.dtype == torch.bfloat16
    in_parts(rows, lambda first, last, _: functions.masks(first, last, *given), most=worth_threads(mask))
    return mask


def uniform(shape: Sequence[int], *, device: torch.device = CPU) -> Tensor:
    """Numbers from 0 to below 1, in float32, of `shape` (B, ...)."""
    if device.type != "cpu":
        return _of_all_rows(lambda whole: torch.rand(*whole, device=device), shape)
    return _numbers(shape, np.int32).bitwise_right_shift_(8).float().add_(1 << 23).mul_(2**-24)


def normal(shape: Sequence[int], *, dtype: torch.dtype = torch.float32, device: torch.device = CPU) -> Tensor:
    """Numbers of the standard normal distribution, of `shape` (B, ...)."""
    if device.type != "cpu":
        return _of_all_rows(lambda whole: torch.randn(*whole, dtype=dtype, device=device), shape)
    kind, kept, real = (np.int64, 53, dtype) if dtype == torch.float64 else (np.int32, 24, torch.float32)
    bits = _numbers(shape, kind).bitwise_right_shift_(np.dtype(kind).itemsize * 8 - kept)
    between = bits.to(real).add_(0.5).mul_(2.0 ** (1 - kept))  # -1 and 1
    return between.erfinv_().mul_(math.sqrt(2)).to(dtype)


def _of_all_rows(draw: Callable[[Sequence[int]], Tensor], shape: Sequence[int]) -> Tensor:
    """The rows of this rank of what `draw` returns for the `shape` with all rows of the micro-batch."""
    if (row_slice := _row_slice.get()) is None:
        return draw(shape)
    assert row_slice.total is not None
    return draw((row_slice.total, *shape[1:]))[row_slice.local]


def _numbers(shape: Sequence[int], kind: Any) -> Tensor:
    """Random whole numbers of this kind, of `shape` (B, ...)."""
    rows, *others = shape or (1,)
    size, together = math.prod(others), 8 // np.dtype(kind).itemsize
    words = _words(rows, -(-size // together)).view(kind)[:, :size]
    return torch.from_numpy(np.ascontiguousarray(words)).view(tuple(shape))


def _words(rows: int, each: int) -> Any:
    """(rows, each) words of 64 bits of a new sequence, those of each row from its own place."""
    chosen, total, _ = _row_slice.get() or RowSlice(slice(0, rows), rows)
    sequence = _sequence.begun()
    if isinstance(chosen, slice):
        return sequence.advance(chosen.start * each).random_raw(rows * each).reshape(rows, each)
    assert total is not None
    return sequence.random_raw(total * each).reshape(total, each)[chosen.numpy()]


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
