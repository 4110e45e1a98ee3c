"""Continuous batching: rows enter and leave a batch, and the result of a row has the same bits as without other rows.

Other rows of a batch can change a result only by rounding: the kernels of matrix products depend on the number of rows,
and padding changes the order of sums in attention. Therefore the batch is padded with copies of the first row to a
multiple of `ROW_MULTIPLE` rows, and attention reads each row without its padding (`row_by_row`). On a CPU the results
then have the same bits, except after matrix products of unusual sizes (tests/extensions/serving/test_lanes.py).
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
"""The number of rows of a batch is a multiple of this. For 16, 32, 48, ... rows, matrix products compute each row with
the same bits, and vectorized pointwise functions have no remainder.
"""


class Lanes:
    """The states of the live rows of a model in evaluation mode, without gradients."""

    def __init__(self, model: Any) -> None:
        self.model, self.count, self._state = model, 0, None

    def change(self, staying: Sequence[int], entering: Sequence[State] = ()) -> None:
        """Keep the rows `staying` in this order, and append the rows of the states `entering`."""
        remaining = [select_rows(self._state, self._to_tensor(staying))] if staying else []
        self.count = len(staying) + len(entering)
        self._state = None
        if self.count:
            state = concatenate_rows([*remaining, *entering])
            filled = [*range(self.count), *[0] * (-self.count % ROW_MULTIPLE)]
            self._state = narrowed(compacted(select_rows(state, self._to_tensor(filled))))

    def step(self, ids: Sequence[int]) -> Float[Tensor, "R V"]:
        """Read one token in each row. Return the logits of the next token."""
        rows = torch.tensor([*ids, *[ids[0]] * (-self.count % ROW_MULTIPLE)], device=device_of(self.model))
        with row_by_row(self.count):
            logits, self._state = self.model.step(rows, self._state)
        return logits[: self.count]

    def state_of(self, row: int) -> State:
        """Return the state of a row."""
        return narrowed(compacted(select_rows(self._state, self._to_tensor([row]))))

    def _to_tensor(self, numbers: Sequence[int]) -> Tensor:
        return torch.tensor(numbers, device=device_of(self.model))
