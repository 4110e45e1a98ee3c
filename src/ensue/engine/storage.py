"""The tensors behind the arrays of a pass, and the matrices of its products."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import torch
from torch import Tensor

from ensue.engine import huge_pages
from ensue.engine.program import Array

LARGE = 8 << 20
"""Bytes from which on memory on a CPU comes in huge pages, where there are any."""
KB, GAP = 1024, 64
"""Between its rows, where those are so many KB long, so many bytes: they would share few places in a cache."""


def room(like: Tensor, rows: int, width: int) -> Tensor:
    """A tensor (rows, width) of any content, of the type and on the device of `like`; features lie side by side."""
    length = width * like.element_size()
    ld = width + (0 if length % KB else GAP // like.element_size())
    if rows * length >= LARGE and like.device.type == "cpu" and huge_pages.IS_SUPPORTED:
        with suppress(OSError):  # there is no such memory: torch says so
            memory = huge_pages.SHARED.borrow(rows * ld * like.element_size())
            return torch.frombuffer(memory, dtype=like.dtype, count=rows * ld).view(rows, ld)[:, :width]
    return like.new_empty(rows, width)


@dataclass(frozen=True)
class Storage:
    """A tensor (rows, width) whose features lie side by side."""

    tensor: Tensor
    start: Tensor | None = None
    """What stands for the position before the first, (B, width)."""
    is_ring: bool = False
    """Whether it has room for two positions only, which take turns."""


Arrays = dict[Array, Storage]
Finals = Sequence[tuple[Array, Tensor]]
"""Arrays of states, and where those of rows that end are put, (B, width)."""
