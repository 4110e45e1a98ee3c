"""From a model that reads in both directions and a text to an `Inspection`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ensue.arguments import check_type
from ensue.errors import EnsueError
from ensue.inspection.inspection import TITLE, Inspection
from ensue.inspection.markup import clipped
from ensue.inspection.pieces import properties_of
from ensue.models.bidirectional import ContextModel
from ensue.nn import SoftmaxHead
from ensue.tasks.bidirectional_language_modeling.page import bidirectional_sections
from ensue.tasks.bidirectional_language_modeling.view import MOST_MAPPED, MOST_WORDS, BidirectionalView, view_words
from ensue.tasks.word_table import WordTable

if TYPE_CHECKING:
    from ensue.tasks.bidirectional_language_modeling.pipeline import BidirectionalPipeline

FITS = 8
"""The words that are looked for in the place of a word."""


def inspect_words(pipeline: BidirectionalPipeline, text: str, table: WordTable | None) -> Inspection:
    """What happens in the model with a text, which is read in one piece; `table` has the words that could fit.

    Raises EnsueError for a text without words.
    """
    check_type("the text", text, str, "a string")
    whole = pipeline.words_of(text)
    if not whole:
        raise EnsueError("there is nothing to look into: the text has no words")
    words, head = whole[:MOST_WORDS], getattr(pipeline.model, "head", None)
    last = pipeline.layers_of_words([words])[0][-1]
    contexts = last[:MOST_MAPPED] if isinstance(pipeline.model, ContextModel) and table is not None else last[:0]
    view = view_words(
        pipeline.model,
        pipeline.reader,
        words,
        properties_of([f"{word} " for word in words]),
        head=head if isinstance(head, SoftmaxHead) else None,
        length=len(whole),
        last=last[:MOST_MAPPED],
        fits=[] if table is None else [table.neighbors(context, FITS) for context in contexts],
    )
    sections = bidirectional_sections(view, pipeline.tokenizer)
    return Inspection(clipped(" ".join(words), TITLE), view, _facts(pipeline, view), sections)


def _facts(pipeline: BidirectionalPipeline, view: BidirectionalView) -> dict[str, str]:
    count, unknown = len(view.words), int((view.ids == pipeline.tokenizer.unknown_id).sum())
    found = [part.surprisals for part in (view.rightward, view.leftward) if part is not None]
    return {
        **pipeline.facts(pipeline.recipe.describe()),
        "words": f"{count:,}" if count == view.length else f"{count:,} of {view.length:,}",
        **({"unknown": f"{unknown:,}"} if unknown else {}),
        **({"nats per word": f"{np.mean(found):.4f}"} if found else {}),
    }
