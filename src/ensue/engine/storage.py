"""The memory behind tensors: arrays of a pass, matrices of its products, and their addresses.

C checks nothing and what a layer holds may be changed at any time, so the last moment before a call is the one at which
to look. What does not fit is a `ValueError` or, of another type or device, a `TypeError`, with the name of the array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ensue.engine.program import Array

BAD_LENGTH, GAP = 2048, 64
"""Bytes. Rows as long as a multiple of the first get a gap of the second: a column of them would share few sets of a
processor's cache."""
CACHE = 1 << 20
"""Bytes of the large states of one row at some positions, which stay in the cache of a core."""


def room(like: Tensor, rows: int, width: int) -> Tensor:
    """A tensor (rows, width) of any content, of the type and on the device of `like`; features lie side by side."""
    is_bad = like.is_cpu and width * like.element_size() % BAD_LENGTH == 0
    gap = GAP // like.element_size() if is_bad else 0
    return like.new_empty(rows, width + gap)[:, :width]


@dataclass(frozen=True)
class Storage:
    """A tensor (rows, width) whose features lie side by side."""

    tensor: Tensor
    start: Tensor | None = None
    """The values at the position before the first, (B, width)."""
    is_ring: bool = False
    """Whether it has room for two positions only, which take turns."""
    buffer: Tensor | None = None
    """For a state that is kept at few positions, room for those between (workers · every · block, width)."""


def of_chunk(width: int, itemsize: int) -> tuple[int, int]:
    """How many positions of states of this width are one chunk, whose last one is kept; and how many rows at a time."""
    every = min(max(CACHE // (width * itemsize), 4), 32)
    return every, max(1, CACHE // (every * width * itemsize))


Arrays = dict[Array, Storage]
Finals = Sequence[tuple[Array, Tensor]]
"""Arrays of states, and where those of rows that end are put, (B, width)."""
Between = Callable[[int], None]
"""A call after each position of a forward pass, and before each of a backward pass, with the position's number."""


def address(name: str, tensor: Tensor, dtype: torch.dtype, sizes: Sequence[int]) -> int:
    """Of a tensor of these sizes without gaps."""
    _check(name, tensor, dtype, sizes, tuple(tensor.shape) == tuple(sizes))
    if not tensor.is_contiguous():
        raise ValueError(f"{name} is expected without gaps, found strides {tensor.stride()}")
    return tensor.data_ptr()


def address_of_matrix(name: str, tensor: Tensor, dtype: torch.dtype, sizes: Sequence[int]) -> int:
    """Of a matrix of these sizes and of any strides."""
    _check(name, tensor, dtype, sizes, tuple(tensor.shape) == tuple(sizes))
    return tensor.data_ptr()


def address_of_rows(name: str, tensor: Tensor, dtype: torch.dtype, rows: int, width: int) -> int:
    """Of (rows or more, width) numbers, those of a row side by side."""
    shape = tensor.shape
    _check(name, tensor, dtype, (rows, width), len(shape) == 2 and shape[0] >= rows and shape[1] == width)
    if width > 1 and tensor.stride(1) != 1:
        raise ValueError(f"{name} is expected with features side by side, found strides {tensor.stride()}")
    return tensor.data_ptr()


def _check(name: str, tensor: Tensor, dtype: torch.dtype, sizes: Sequence[int], has_sizes: bool) -> None:
    if not has_sizes:
        raise ValueError(f"{name} is expected as {tuple(sizes)}, found {tuple(tensor.shape)}")
    if tensor.dtype is not dtype or not tensor.is_cpu or tensor.is_neg():
        found = f"{tensor.dtype} on {tensor.device}{' with its sign to be turned' * tensor.is_neg()}"
        raise TypeError(f"{name} is expected in {dtype} on cpu, found {found}")
