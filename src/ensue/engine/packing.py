"""Rows of different lengths, packed without their padding: the order in which the engine works on them.

The rows are sorted, the longest first. Then come the first position of every row, the second position of every row that
has one, and so on. So nothing is computed at padding, and at each position the rows that have not ended come first.
"""

from __future__ import annotations

from functools import cached_property, lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Packing:
    """How `batch` rows of at most `positions` positions are packed into N rows of features, one for a real position."""

    def __init__(self, batch: int, positions: int, mask: Tensor | None) -> None:
        self.batch, self.padded = batch, positions
        self.order: Tensor | None = None
        if mask is None:
            self.counts = np.full(positions, batch, dtype=np.int64)
        else:
            lengths = mask.sum(1)
            self.order = lengths.argsort(descending=True, stable=True)
            self.lengths = lengths[self.order]
            # Not by the mask itself: these never rise, whatever it is, as the loops over positions need it.
            ends = np.bincount(lengths.cpu().numpy(), minlength=1)
            self.counts = (batch - np.cumsum(ends))[:-1].astype(np.int64)
        self.begins: NDArray[np.int64] = np.concatenate(([0], np.cumsum(self.counts)))[:-1].astype(np.int64)
        self.size = int(self.counts.sum())

    @classmethod
    def of(cls, x: Tensor, mask: Tensor | None) -> Packing:
        """For x (B, T, d); a mask that is True everywhere is none."""
        batch, positions, _ = x.shape
        return _whole(batch, positions) if mask is None or bool(mask.all()) else cls(batch, positions, mask)

    def packed(self, x: Tensor) -> Tensor:
        """(B, T, d) to (N, d)."""
        if self.order is None:
            return x.transpose(0, 1).reshape(-1, x.shape[2])
        return x[self._row_of, self._position_of]

    def unpacked(self, packed: Tensor) -> Tensor:
        """(N, d) to (B, T, d), with zeros at padding."""
        if self.order is None:
            return packed.view(self.padded, self.batch, -1).transpose(0, 1)
        padded = packed.new_zeros(self.batch, self.padded, packed.shape[1])
        return padded.index_put((self._row_of, self._position_of), packed)

    def sorted(self, leaf: Tensor) -> Tensor:
        """(B, d) in the order in which the rows stand."""
        return leaf if self.order is None else leaf[self.order]

    def unsorted(self, leaf: Tensor) -> Tensor:
        """(B, d) from sorted rows back to the order of the batch."""
        return leaf if self.order is None else leaf[self.order.argsort()]

    @cached_property
    def _row_of(self) -> Tensor:
        assert self.order is not None
        return self.order[self._positions_and_ranks[1]]

    @cached_property
    def _position_of(self) -> Tensor:
        return self._positions_and_ranks[0]

    @cached_property
    def _positions_and_ranks(self) -> tuple[Tensor, Tensor]:
        """For each of the N packed rows its position and its place in the order."""
        assert self.order is not None
        there = torch.arange(len(self.counts), device=self.order.device).unsqueeze(1) < self.lengths
        position, rank = there.nonzero(as_tuple=True)
        return position, rank

    @cached_property
    def before(self) -> Tensor | slice:
        """Of the packed rows that are not at a first position, where each row's position before stands."""
        if self.order is None:
            return slice(0, self.size - self.batch if self.size else 0)
        first = int(self.counts[0]) if len(self.counts) else 0
        begins = torch.from_numpy(self.begins).to(self.order.device)
        position, rank = (part[first:] for part in self._positions_and_ranks)
        return begins[position - 1] + rank


@lru_cache
def _whole(batch: int, positions: int) -> Packing:
    """Where every row has every position."""
    return Packing(batch, positions, None)
