"""The random numbers of a training step: those of the rows of its whole batch, however the rows are shared out.

A process that works on some rows of a batch draws for all of them and takes its own. So the numbers of a row depend on
the seed, the step and the row, and not on how many processes there are. What is drawn for a whole model, such as which
words are dropped, is the same everywhere and does not come by here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor


class PartOfBatch(NamedTuple):
    """The rows (a slice, or their numbers) that are worked on here, of a batch of `total` rows."""

    rows: slice | Tensor
    total: int


_part: ContextVar[PartOfBatch | None] = ContextVar("part", default=None)


@contextmanager
def drawing_for(part: PartOfBatch | None) -> Iterator[None]:
    """Draws as for these rows of a batch for the duration of a `with` block; None: all rows are here."""
    token = _part.set(part)
    try:
        yield
    finally:
        _part.reset(token)


def draws_for_others() -> bool:
    """Whether only some rows of a batch are worked on here."""
    return _part.get() is not None


def drawn(draw: Callable[[Sequence[int]], Tensor], shape: Sequence[int], *, rows_on: int = 0) -> Tensor:
    """`draw` called with the `shape` that all rows have together, cut to the rows here; they are on dim `rows_on`."""
    part = _part.get()
    if part is None:
        return draw(shape)
    whole = draw((*shape[:rows_on], part.total, *shape[rows_on + 1 :]))
    return whole[(slice(None),) * rows_on + (part.rows,)]


def dropped(x: Tensor, p: float) -> Tensor:
    """Dropout of `x` (B, ...) as torch draws it."""
    if not draws_for_others():
        return F.dropout(x, p)
    return x * drawn(lambda shape: F.dropout(x.new_ones(shape), p), x.shape)
