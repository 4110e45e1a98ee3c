"""Ids to training batches of a language model. A batch is a pure function of (seed, step): nothing is carried here.

In every epoch each id is predicted at most once, from the ids before it. What does not fill a whole step is left out,
and it is another part of the text each time, because the cut moves from epoch to epoch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensue.data.corpus.token_file import TokenFile
from ensue.data.permutation import Permutation, mix
from ensue.errors import TrainingError

_OFFSET, _ORDER = 0, 1  # what a random number of (seed, epoch) is for


class TokenBatch(NamedTuple):
    """`inputs` and `targets` (B, T): each target is the id after its input. `first`: carried state starts anew."""

    inputs: NDArray[np.int64]
    targets: NDArray[np.int64]
    first: bool


class Batches(ABC):
    """The base of `Segments` and `Blocks`; `batch_size` is cut to the rows that the text can fill.

    Raises TrainingError if the text has less than `segment_length` + 1 ids.
    """

    def __init__(self, tokens: TokenFile, *, batch_size: int, segment_length: int, seed: int) -> None:
        assert batch_size >= 1
        assert segment_length >= 1
        needed = segment_length + 1
        if len(tokens) < needed:
            raise TrainingError(
                f"the text has {len(tokens)} tokens, but one segment needs {needed} (segment_length {segment_length}"
                " and one to predict); expected more text or shorter segments"
            )
        self.tokens = tokens
        self.segment_length = segment_length
        self.seed = seed
        self.batch_size = min(batch_size, (len(tokens) - 1) // segment_length)
        # keeping back one segment lets the cut move by at least that much
        step_tokens = self.batch_size * segment_length
        self.steps_per_epoch = max(1, (len(tokens) - segment_length) // step_tokens)

    def batch(self, step: int, rows: NDArray[np.int64] | None = None) -> TokenBatch:
        """The batch of `step`, counted from 0 over all epochs; of the `rows` alone, if they are given."""
        epoch, index = divmod(step, self.steps_per_epoch)
        segments = self._segments(epoch, index, np.arange(self.batch_size) if rows is None else rows)
        ids = self.tokens.read_rows(self._offset(epoch) + self.segment_length * segments, self.segment_length + 1)
        inputs, targets = np.ascontiguousarray(ids[:, :-1]), np.ascontiguousarray(ids[:, 1:])
        return TokenBatch(inputs, targets, self.is_first(step))

    def _offset(self, epoch: int) -> int:
        """Where the first segment of an epoch begins."""
        return mix(self.seed, epoch, _OFFSET) % (len(self.tokens) - self.segment_length * self._num_segments())

    @abstractmethod
    def _num_segments(self) -> int:
        """How many segments, side by side, an epoch cuts the text into."""

    @abstractmethod
    def _segments(self, epoch: int, index: int, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers of the segments, one for each of the rows, in the epoch's step `index`."""

    @abstractmethod
    def is_first(self, step: int) -> bool:
        """Whether carried state starts anew."""

    def __repr__(self) -> str:
        shape = f"batch_size={self.batch_size}, segment_length={self.segment_length}"
        return f"{type(self).__name__}({shape}, steps_per_epoch={self.steps_per_epoch})"


class Segments(Batches):
    """For truncated back-propagation through time: each row reads its own stretch of the text from end to end.

    Row b of a batch goes on where row b of the batch before ended, until the epoch ends (`first`).
    """

    def _num_segments(self) -> int:
        return self.batch_size * self.steps_per_epoch

    def _segments(self, epoch: int, index: int, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return rows * self.steps_per_epoch + index

    def is_first(self, step: int) -> bool:
        return step % self.steps_per_epoch == 0


class Blocks(Batches):
    """For models that carry no state: segments in a random order, another one in each epoch."""

    def _num_segments(self) -> int:
        return max(self.batch_size, (len(self.tokens) - self.segment_length) // self.segment_length)

    def _segments(self, epoch: int, index: int, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        order = Permutation(self._num_segments(), mix(self.seed, epoch, _ORDER))
        return order(index * self.batch_size + rows)

    def is_first(self, step: int) -> bool:
        return True
