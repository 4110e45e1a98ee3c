"""The tensors behind the arrays of a pass, and the matrices of its products."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import torch
from torch import Tensor

from ensue.nn.engine.program import Array

LARGE = 8 << 20
"""Bytes from which on memory comes in huge pages."""
KB, GAP = 1024, 64
"""Between its rows, where those are so many KB long, so many bytes: they would share few places in a cache."""


def room(like: Tensor, rows: int, width: int) -> Tensor:
    """A tensor (rows, width) of any content, of the type and on the device of another; its features lie side by side.

    A large one on a CPU lies in huge pages where the system lends them (Linux): memory that is new comes page by page
    as it is touched, and in pages of 4 KB that takes a twentieth of a training step (LOG.md).
    """
    length = width * like.element_size()
    ld = width + (0 if length % KB else GAP // like.element_size())
    size = rows * ld * like.element_size()
    if rows * length >= LARGE and like.device.type == "cpu" and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # there is no such memory: torch says so
            memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            with suppress(OSError):  # a kernel without huge pages
                memory.madvise(mmap.MADV_HUGEPAGE)
            return torch.frombuffer(memory, dtype=like.dtype).view(rows, ld)[:, :width]
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
