"""The tensors behind the arrays of a pass, and the matrices of its products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from ensue.nn.engine.program import Array


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
