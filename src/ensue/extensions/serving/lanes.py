"""Continuous batching: rows enter and leave a batch, and each row has the same bits as in a batch of one row.

Other rows of a batch can change a row only by rounding: the kernels of matrix products depend on the number of rows,
and padding changes the order of sums in attention. Therefore the batch is padded with copies of the first row to a
multiple of `ROW_MULTIPLE` rows, and attention reads each row without its padding (`row_by_row`). On a CPU this makes
rows equal in all bits, except after matrix products of unusual sizes (tests/extensions/serving/test_lanes.py).
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ensue.models.modules import device_of
from ensue.nn.attention.multi_head import row_by_row
from ensue.types import State, compacted, concatenate_rows, narrowed, select_rows

ROW_MULTIPLE = 16
"""The divisor of the number of rows. Matrix products of 16, 32, 48, ... rows give each row the same bits, and
vectorized pointwise functions have no remainder.
"""


class Lanes:
    """The live rows of a model, for evaluation mode without gradients."""

    def __init__(self, model: Any) -> None:
        self.model, self.count, self._state = model, 0, None

    def change(self, staying: Sequence[int], entering: Sequence[State] = ()) -> None:
        """Keep the rows `staying` in this order, and append the rows of the states `entering`."""
        remaining = [select_rows(self._state, self._rows(staying))] if staying else []
        self.count = len(staying) + len(entering)
        self._state = None
        if self.count:
            state = concatenate_rows([*remaining, *entering])
            filled = [*range(self.count), *[0] * (-self.count % ROW_MULTIPLE)]
            self._state = narrowed(compacted(select_rows(state, self._rows(filled))))

    def step(self, ids: Sequence[int]) -> Float[Tensor, "R V"]:
        """Read one token in each row. Return the logits of the next token."""
        rows = torch.tensor([*ids, *[ids[0]] * (-self.count % ROW_MULTIPLE)], device=device_of(self.model))
        with row_by_row(self.count):
            logits, self._state = self.model.step(rows, self._state)
        return logits[: self.count]

    def state_of(self, row: int) -> State:
        """Return the state of a row."""
        return narrowed(compacted(select_rows(self._state, self._rows([row]))))

    def _rows(self, numbers: Sequence[int]) -> Tensor:
        return torch.tensor(numbers, device=device_of(self.model))
