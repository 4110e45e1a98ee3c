"""Batches of language models from token ids. A batch is a pure function of (seed, step).

In every epoch, each id is predicted at most once, from the ids before it. Ids that do not fill a step are left out.
These ids differ between epochs, because the offset of the first segment is random.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensue.data.mapped_file import TokenFile
from ensue.data.permutation import Permutation, mix
from ensue.errors import TrainingError

_OFFSET, _ORDER = 0, 1  # stream ids, for different random numbers in the same epoch


class TokenBatch(NamedTuple):
    """Ids `inputs` (B, T), and `targets` (B, T), the id after each. `first` is whether the carried state is reset."""

    inputs: NDArray[np.int64]
    targets: NDArray[np.int64]
    first: bool


class Batches(ABC):
    """Batches of segments of `segment_length` ids.

    A `batch_size` above the number of segments is reduced to this number. Raises TrainingError for fewer than
    `segment_length` + 1 ids.
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
        self.tokens, self.segment_length, self.seed = tokens, segment_length, seed
        self.batch_size = min(batch_size, (len(tokens) - 1) // segment_length)
        # one segment is left out, so that the offset can vary
        step_tokens = self.batch_size * segment_length
        self.steps_per_epoch = max(1, (len(tokens) - segment_length) // step_tokens)
        self._cached_offset = -1, 0  # epoch and offset

    def batch(self, step: int, rows: NDArray[np.int64] | None = None) -> TokenBatch:
        """Return the batch of `step`, counted from 0 over all epochs, or only its `rows`."""
        epoch, index = divmod(step, self.steps_per_epoch)
        segments = self._segments(epoch, index, np.arange(self.batch_size) if rows is None else rows)
        ids = self.tokens.read_rows(self._offset(epoch) + self.segment_length * segments, self.segment_length + 1)
        return TokenBatch(np.ascontiguousarray(ids[:, :-1]), np.ascontiguousarray(ids[:, 1:]), self.is_first(step))

    def _offset(self, epoch: int) -> int:
        if self._cached_offset[0] != epoch:
            num_offsets = len(self.tokens) - self.segment_length * self._num_segments()
            self._cached_offset = epoch, mix(self.seed, epoch, _OFFSET) % num_offsets
        return self._cached_offset[1]

    @abstractmethod
    def _num_segments(self) -> int:
        """Return the number of segments in an epoch."""

    @abstractmethod
    def _segments(self, epoch: int, index: int, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the segment number of each of these rows in step `index` of the epoch."""

    @abstractmethod
    def is_first(self, step: int) -> bool:
        """Return whether the carried state is reset before this step."""

    def __repr__(self) -> str:
        shape = f"batch_size={self.batch_size}, segment_length={self.segment_length}"
        return f"{type(self).__name__}({shape}, steps_per_epoch={self.steps_per_epoch})"


class Segments(Batches):
    """Segments for truncated back-propagation through time: each row reads a contiguous range of the text.

    Within an epoch, row b of a batch continues row b of the previous batch.
    """

    def _num_segments(self) -> int:
        return self.batch_size * self.steps_per_epoch

    def _segments(self, epoch: int, index: int, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return rows * self.steps_per_epoch + index

    def is_first(self, step: int) -> bool:
        return step % self.steps_per_epoch == 0


class Blocks(Batches):
    """Segments for models without carried state, in a random order for each epoch."""

    def _num_segments(self) -> int:
        return max(self.batch_size, (len(self.tokens) - self.segment_length) // self.segment_length)

    def _segments(self, epoch: int, index: int, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return Permutation(self._num_segments(), mix(self.seed, epoch, _ORDER))(index * self.batch_size + rows)

    def is_first(self, step: int) -> bool:
        return True
