"""Attention of the next position in rows of different lengths, each row as if it were alone, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

_rows: ContextVar[int] = ContextVar("rows", default=0)


@contextmanager
def row_by_row(count: int) -> Iterator[None]:
    """Inside of this block, self-attention of one position reads the first `count` rows one by one, without padding.

    With padding a row's sums are added up in another order. The real positions of a row have to be its last ones, as
    `ensue.types.concatenate_rows` has them. Rows behind `count` get what the first one gets.
    """
    token = _rows.set(count)
    try:
        yield
    finally:
        _rows.reset(token)


def rows_to_attend() -> int:
    """How many rows are read one by one; 0: all together."""
    return _rows.get()


def attended_by_row(
    queries: Float[Tensor, "B H 1 d"], keys: Float[Tensor, "B H S d"], values: Float[Tensor, "B H S d"],
    real: Bool[Tensor, "B S"],
) -> Float[Tensor, "B H 1 d"]:  # fmt: skip
    """Attention to the real positions of each row."""
    count = _rows.get()
    found: list[Tensor] = []
    for row, size in enumerate(real[:count].sum(1).tolist()):
        start = keys.shape[2] - size
        of_row = (queries[row, None], keys[row, None, :, start:], values[row, None, :, start:])
        q, k, v = map(_aligned, of_row)
        found.append(F.scaled_dot_product_attention(q, k, v))
    return torch.cat([*found, *found[:1] * (len(queries) - count)])


def _aligned(part: Tensor) -> Tensor:
    """A copy that begins at a multiple of 64 bytes: how a kernel adds up depends on that."""
    return part if part.data_ptr() % 64 == 0 else part.clone()
