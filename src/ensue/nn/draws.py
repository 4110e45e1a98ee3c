"""Random numbers of a training step. They depend on the seed, the step and the row, not on the number of processes.

On a CPU, each draw takes a key from torch's generator: a position in a long random stream. From this position on, each
row has its own range of the stream, and a rank with adjacent rows draws only their ranges. On a GPU, a rank draws the
numbers of all rows from torch's generator and selects its rows. Draws that belong to no row, such as dropout of
vocabulary entries, use torch's generator directly.
"""

import ctypes
import math
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ensue.engine import c_functions
from ensue.engine.products import parallel_rows, worth_threads
from ensue.engine.storage import address
from ensue.types import change_temporarily

CPU = torch.device("cpu")


class RowSlice(NamedTuple):
    """The rows of a batch that this process computes: the rows `local` (a slice or indices) of a micro-batch.

    The micro-batch has `total` rows of the batch, from row `start` on. All of its rows use the same key.
    """

    local: slice | Tensor = slice(None)
    total: int | None = None
    """The number of rows of the micro-batch; None: all rows of the batch."""
    start: int = 0

    @property
    def micro_batch(self) -> slice:
        """The micro-batch as a slice of the batch."""
        return slice(self.start, None if self.total is None else self.start + self.total)

    def select(self, rows: Any) -> Any:
        """Return this slice of an array with one item for each row of the batch."""
        return rows[self.micro_batch][self.local]

    def select_from(self, batch: Any) -> Any:
        """Return this slice of a batch object that has a method `slice_rows`."""
        return batch.slice_rows(self.micro_batch).slice_rows(self.local)


ALL_ROWS = RowSlice()
_row_slice: ContextVar[RowSlice | None] = ContextVar("row_slice", default=None)


def drawing_rows(rows: RowSlice | None) -> AbstractContextManager[None]:
    """Draw random numbers for `rows` of a micro-batch in a `with` block; None: for all rows."""
    return change_temporarily(_row_slice.set, rows, _row_slice.get())


def is_sharded() -> bool:
    """Return whether this process computes only some rows of the micro-batch."""
    return _row_slice.get() is not None


def apply_dropout(x: Tensor, p: float) -> Tensor:
    """Return `x` (B, ...) with dropout. On a CPU, p is rounded to 16 bits, since an element takes 16 random bits."""
    if p == 0:  # does not advance the generator
        return x
    if x.device.type != "cpu":
        if not is_sharded():
            return F.dropout(x, p)
        return x * _draw_for_all_rows(lambda shape: F.dropout(x.new_ones(shape), p), x.shape)
    if (threshold := round(p * 65_536)) == 65_536:
        return x * 0.0
    return x * _draw_mask(x, threshold - 32_768, 1 / (1 - threshold / 65_536))


def check_probability(p: float) -> float:
    """Return the dropout probability `p`; raise ValueError unless it is from 0 to 1."""
    if not 0 <= p <= 1:
        raise ValueError(f"dropout must be a probability from 0 to 1, found {p}")
    return p


class ElementDropout(nn.Module):
    """Plain dropout (Srivastava et al. 2014): in training each element is zero with the probability `p`.

    On a CPU it is faster than torch's dropout: an element takes 16 random bits, so p is rounded to a multiple of 2^-16.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = check_probability(p)

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Return `x` with dropped elements set to zero and the others divided by 1 - p; in evaluation `x` itself."""
        return apply_dropout(x, self.p) if self.training else x

    def extra_repr(self) -> str:
        return f"p={self.p}"


def _draw_mask(x: Tensor, threshold: int, scale: float) -> Tensor:
    """Return a mask in the shape of `x`: `scale` where a random int16 is at least `threshold`, else 0."""
    functions = c_functions(x)
    if functions is None:
        return (_draw_integers(x.shape, np.int16) >= threshold).to(x.dtype).mul_(scale)
    mask, rows = x.new_empty(x.shape), (x.shape or (1,))[0]
    key, begin, indices = (ctypes.c_uint64 * 4)(*_draw_key(), *INCREMENT), 0, None
    if (row_slice := _row_slice.get()) is not None:
        if isinstance(row_slice.local, slice):
            begin = row_slice.local.start
        else:
            indices = address("the rows", row_slice.local, torch.int64, (rows,))
    arguments = x.numel() // rows, threshold, scale, key, begin, indices, mask.data_ptr(), x.dtype == torch.bfloat16
    parallel_rows(
        rows, lambda first, last, _: functions.masks(first, last, *arguments), max_workers=worth_threads(mask)
    )
    return mask


def uniform(shape: Sequence[int], *, device: torch.device = CPU) -> Tensor:
    """Return uniform numbers in [0, 1), float32, of `shape` (B, ...)."""
    if device.type != "cpu":
        return _draw_for_all_rows(lambda full_shape: torch.rand(*full_shape, dtype=torch.float32, device=device), shape)
    return _draw_integers(shape, np.int32).bitwise_right_shift_(8).float().add_(1 << 23).mul_(2**-24)


def normal(shape: Sequence[int], *, dtype: torch.dtype = torch.float32, device: torch.device = CPU) -> Tensor:
    """Return numbers of the standard normal distribution, of `shape` (B, ...)."""
    if device.type != "cpu":
        return _draw_for_all_rows(lambda full_shape: torch.randn(*full_shape, dtype=dtype, device=device), shape)
    integer, precision, real = (np.int64, 53, dtype) if dtype == torch.float64 else (np.int32, 24, torch.float32)
    bits = _draw_integers(shape, integer).bitwise_right_shift_(np.dtype(integer).itemsize * 8 - precision)
    symmetric = bits.to(real).add_(0.5).mul_(2.0 ** (1 - precision))  # between -1 and 1
    return symmetric.erfinv_().mul_(math.sqrt(2)).to(dtype)


def _draw_for_all_rows(draw: Callable[[Sequence[int]], Tensor], shape: Sequence[int]) -> Tensor:
    """Draw for all rows of the micro-batch, and return the rows of this rank, of `shape`."""
    if (row_slice := _row_slice.get()) is None:
        return draw(shape)
    assert row_slice.total is not None
    return draw((row_slice.total, *shape[1:]))[row_slice.local]


def _draw_integers(shape: Sequence[int], dtype: Any) -> Tensor:
    """Return uniform integers of the numpy type `dtype`, of `shape` (B, ...)."""
    rows, *others = shape or (1,)
    size, per_word = math.prod(others), 8 // np.dtype(dtype).itemsize
    words = _draw_words(rows, -(-size // per_word)).view(dtype)[:, :size]
    return torch.from_numpy(np.ascontiguousarray(words)).view(tuple(shape))


def _draw_words(rows: int, size: int) -> Any:
    """Return random words of 64 bits, (rows, size), for the rows of this process."""
    local, total, _ = _row_slice.get() or RowSlice(slice(0, rows), rows)
    stream = _stream.restart()
    if isinstance(local, slice):
        return stream.advance(local.start * size).random_raw(rows * size).reshape(rows, size)
    assert total is not None
    return stream.random_raw(total * size).reshape(total, size)[local.numpy()]


class _Stream(threading.local):
    """A random stream of 2^128 words, one for each thread, with jumps in O(log n) (PCG64 DXSM, O'Neill 2014)."""

    def __init__(self) -> None:
        self.generator = np.random.PCG64DXSM(0)
        self.state: Any = self.generator.state

    def restart(self) -> np.random.PCG64DXSM:
        """Move to a position that torch's generator draws, and return the generator of the stream."""
        high, low = _draw_key()
        self.state["state"]["state"] = high << 64 | low
        self.generator.state = self.state
        return self.generator


_stream = _Stream()
INCREMENT = divmod(_stream.state["state"]["inc"], 1 << 64)  # the generator's increment in two words of 64 bits, for C


def _draw_key() -> list[int]:
    """Return a random position of the stream, as two numbers of 64 bits."""
    return torch.empty(2, dtype=torch.int64, device=CPU).random_().tolist()
