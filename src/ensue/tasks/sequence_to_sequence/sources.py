"""Sources of models: their ids or frames, and their words in the layers of other runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ensue.data.compact_texts import Ragged
from ensue.data.frames.stored import FrameRows
from ensue.tasks.sequence_to_sequence.texts import PairCoder
from ensue.tasks.words.contextual import ContextualFeatures
from ensue.tasks.words.kept_vectors import LayersOfTexts

SourceRows: TypeAlias = Ragged | FrameRows
"""Ids, or series of frames."""


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
