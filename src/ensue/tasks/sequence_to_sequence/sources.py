"""Sources of models: their ids or frames, their words in the layers of other runs, and the lengths that are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ensue.data.compact_texts import Ragged
from ensue.data.frames.stored import FrameRows
from ensue.data.pairs import Pair
from ensue.models.specification import EncoderSpecification, TransformerEncoder
from ensue.tasks.contract.length import MOST_ATTENDED, check_read, most_read
from ensue.tasks.contract.windows import windows
from ensue.tasks.sequence_to_sequence.recipe import SequenceToSequenceRecipe
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


MOST_READ = 250_000
"""The most tokens of a text where nothing attends to it; what is kept of them takes about a gigabyte."""
CUT = "cut it, or train with data.source_tokens, which reads the first tokens of each source"
LEAVE = "cut it, or leave it out; in training data.target_tokens leaves out longer ones"


def check_lengths(recipe: SequenceToSequenceRecipe, pair: Pair, source: int, target: int = 0) -> None:
    """Raises DataError, with file and line, if the model does not read so many tokens of the source or the target."""
    otherwise = MOST_READ if recipe.attention.kind == "none" else MOST_ATTENDED
    for what, count, encoder, table, advice in (
        ("a source of tokens", source, recipe.encoder or recipe.decoder, "encoder", CUT),
        ("a target of tokens", target, recipe.decoder, "decoder", LEAVE),
    ):
        most = most_read(encoder, otherwise)
        check_read(what, count, most, encoder, table=table, advice=advice, path=pair.path, line=pair.line)


def most_written(*decoders: EncoderSpecification) -> int | None:
    """The most tokens that all decoders can write before an end, which is read after them; None: any number."""
    learned = [d for d in decoders if isinstance(d, TransformerEncoder) and d.positions == "learned"]
    return max(1, min(decoder.context for decoder in learned) - 1) if learned else None
