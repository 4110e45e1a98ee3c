"""From a model that reads in both directions and a text to an `Inspection`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ensue.errors import EnsueError
from ensue.inspection.markup import clipped
from ensue.inspection.page import TITLE, Inspection
from ensue.inspection.pieces import properties_of
from ensue.models.bidirectional import ContextModel
from ensue.nn import SoftmaxHead
from ensue.tasks.bidirectional_language_modeling.page import bidirectional_sections
from ensue.tasks.bidirectional_language_modeling.view import MOST_MAPPED, MOST_WORDS, BidirectionalView, view_words
from ensue.tasks.bidirectional_language_modeling.words import WordReader
from ensue.tasks.vectors.contextual import ContextualPipeline
from ensue.tasks.vectors.word_table import WordTable

FITS = 8
"""The words that are looked for in the place of a word."""


def inspect_words(
    pipeline: ContextualPipeline, reader: WordReader, whole: Sequence[str], table: WordTable | None, recipe: str
) -> Inspection:
    """The words of a text in a model, read in one piece; `table` has the words that could fit in their places.

    `recipe` describes the model. Raises EnsueError for a text without words.
    """
    if not whole:
        raise EnsueError("there is nothing to look into: the text has no words")
    words, head = whole[:MOST_WORDS], getattr(pipeline.model, "head", None)
    last = pipeline.layers_of_words([words])[0][-1]
    contexts = last[:MOST_MAPPED] if isinstance(pipeline.model, ContextModel) and table is not None else last[:0]
    view = view_words(
        pipeline.model,
        reader,
        words,
        properties_of([f"{word} " for word in words]),
        head=head if isinstance(head, SoftmaxHead) else None,
        length=len(whole),
        last=last[:MOST_MAPPED],
        fits=[] if table is None else [table.neighbors(context, FITS) for context in contexts],
    )
    sections = bidirectional_sections(view, reader.tokenizer)
    unknown = int((view.ids == reader.tokenizer.unknown_id).sum())
    return Inspection(
        clipped(" ".join(words), TITLE), view, {**pipeline.facts(recipe), **_facts(view, unknown)}, sections
    )


def _facts(view: BidirectionalView, unknown: int) -> dict[str, str]:
    count = len(view.words)
    found = [part.surprisals for part in (view.rightward, view.leftward) if part is not None]
    return {
        "words": f"{count:,}" if count == view.length else f"{count:,} of {view.length:,}",
        **({"unknown": f"{unknown:,}"} if unknown else {}),
        **({"nats per word": f"{np.mean(found):.4f}"} if found else {}),
    }
