"""Rows that are stepped together while others enter and leave, each as if it were alone, bit for bit.

A row's numbers depend on the rows beside it only by rounding: matrix products of few rows take other kernels than those
of many, and attention adds up in another order if there is padding. So there are always a multiple of `ROWS` rows, of
which the last are copies of the first; and attention reads each row without its padding (`row_by_row`). With that, rows
are equal in all bits on a CPU, up to products of very odd sizes (tests/decode/test_lanes.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ensue.models.modules import device_of
from ensue.nn.attention.multi_head import row_by_row
from ensue.types import State, compacted, concatenate_rows, narrowed, select_rows

ROWS = 16
"""Products of 16, 32, 48, ... rows give each row the same bits, and pointwise functions have no remainder."""


class Lanes:
    """The rows of `model` that are live. Call it in evaluation mode and without gradients."""

    def __init__(self, model: Any) -> None:
        self.model, self.count, self._state = model, 0, None

    def change(self, staying: Sequence[int], entering: Sequence[State] = ()) -> None:
        """Keeps the rows `staying`, in this order, and puts those of the states `entering` behind them."""
        parts = [select_rows(self._state, self._rows(staying))] if staying else []
        self.count = len(staying) + len(entering)
        self._state = None
        if self.count:
            state = concatenate_rows([*parts, *entering])
            filled = [*range(self.count), *[0] * (-self.count % ROWS)]
            self._state = narrowed(compacted(select_rows(state, self._rows(filled))))

    def step(self, ids: Sequence[int]) -> Float[Tensor, "R V"]:
        """The logits of the next token after one more in each row."""
        rows = torch.tensor([*ids, *[ids[0]] * (-self.count % ROWS)], device=device_of(self.model))
        with row_by_row(self.count):
            logits, self._state = self.model.step(rows, self._state)
        found: Tensor = logits[: self.count]
        return found

    def state_of(self, row: int) -> State:
        """The state of one row."""
        return narrowed(compacted(select_rows(self._state, self._rows([row]))))

    def _rows(self, numbers: Sequence[int]) -> Tensor:
        return torch.tensor(numbers, device=device_of(self.model))
