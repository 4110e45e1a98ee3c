"""The tensors behind the arrays of a pass, and the matrices of its products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from ensue.engine.program import Array

BAD_LENGTH, GAP = 2048, 64
"""Bytes. Rows as long as a multiple of the first get a gap of the second: a column of them would share few sets of a
processor's cache."""


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


Arrays = dict[Array, Storage]
Finals = Sequence[tuple[Array, Tensor]]
"""Arrays of states, and where those of rows that end are put, (B, width)."""
Between = Callable[[int], None]
"""A call after each position of a forward pass, and before each of a backward pass, with the position's number."""
