"""Sources of models: their ids or frames, and their words in the layers of other runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ensue.data.compact_texts import Ragged
from ensue.data.frames.stored import FrameRows
from ensue.tasks.contract.windows import windows
from ensue.tasks.sequence_to_sequence.texts import PairCoder
from ensue.tasks.words.contextual import ContextualFeatures
from ensue.tasks.words.kept_vectors import LayersOfTexts

SourceRows: TypeAlias = Ragged | FrameRows
"""Ids, or series of frames."""

Item = TypeVar("Item")
WINDOW = 1_024
"""Sources that are held and sorted by length."""


@dataclass(frozen=True)
class Sources:
    """Sources as ids or frames, and for each of the models that read them their words in the layers of other runs."""

    rows: SourceRows
    contextual: tuple[tuple[LayersOfTexts, ...], ...] = ((),)

    @classmethod
    def of(
        cls,
        ids: Sequence[NDArray[np.int64]],
        columns: Sequence[Sequence[str]],
        coder: PairCoder,
        contextual: Sequence[ContextualFeatures],
    ) -> Sources:
        """The sources with these `ids`, whose texts are `columns`, for models that have these features."""
        words = [coder.words(texts) for texts in columns] if any(one.origins for one in contextual) else []
        return cls(Ragged.of(ids), tuple(one.computed(words) for one in contextual))

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The number of tokens, or frames, of each source."""
        return self.rows.lengths

    def __len__(self) -> int:
        return len(self.rows)


def in_windows(items: Iterable[Item]) -> Iterator[list[Item]]:
    """The items in order, WINDOW together, so that a file of any length is read in constant memory."""
    return windows(items, most_items=WINDOW)
