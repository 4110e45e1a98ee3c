"""From a tagger and a text to an `Inspection`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ensue.data.sentences.sentence import Sentence, Surface, joined
from ensue.errors import EnsueError
from ensue.inspection.colors import color_of
from ensue.inspection.markup import clipped
from ensue.inspection.page import TITLE, Inspection
from ensue.inspection.texts import Mark, ShownText
from ensue.tasks.labeling.page import MOST_WORDS, tagger_sections
from ensue.tasks.labeling.view import TaggerView, view_tagger
from ensue.tasks.words.inspection import facts_of, read_words
from ensue.text.schemes import spans

if TYPE_CHECKING:
    from ensue.tasks.labeling.pipeline import LabelingPipeline


def inspect_tagger(pipeline: LabelingPipeline, text: str | Sequence[str] | Sentence) -> Inspection:
    """What happens in the tagger with a sentence: a string, a list of words, or a `Sentence` with other columns.

    Raises EnsueError for a text without words, with too many words, or without a column that the model reads.
    """
    plain = pipeline.format("text")
    sentence = text if isinstance(text, Sentence) else pipeline.sentence(text, plain)
    read = read_words(pipeline, [sentence.words], _given(pipeline, sentence))[0]
    view = view_tagger(pipeline.model, read, pipeline.labels.tags.symbols, num_words=MOST_WORDS)
    shown = _labeled(pipeline, view, plain.surface(sentence) if isinstance(text, str) else joined(sentence.words))
    colors = {mark.label: color_of(mark.label) for mark in shown.marks}
    sections = tagger_sections(view, shown, colors=colors, has_spans=pipeline.labels.has_spans)
    facts = facts_of(pipeline, pipeline.recipe.head.kind, f"{len(read):,}")
    title = clipped(shown.text, TITLE)
    return Inspection(title, view, facts, sections)


def _given(pipeline: LabelingPipeline, sentence: Sentence) -> dict[str, tuple[str, ...]]:
    """The values of the other columns that the model reads."""
    wanted = list(pipeline.reader.lexicon.columns)
    missing = [name for name in wanted if name not in sentence.columns]
    if missing:
        raise EnsueError(f'the model also reads the column "{missing[0]}" of each word, which the text does not have')
    return {name: sentence.column(name) for name in wanted}


def _labeled(pipeline: LabelingPipeline, view: TaggerView, surface: Surface) -> ShownText:
    """The sentence with its labels in the scheme of the training data; for spans only the spans."""
    labels = pipeline.labels.decode(view.path.tolist())
    marks = [Mark(place, place + 1, label) for place, label in enumerate(labels)]
    if pipeline.labels.has_spans:
        marks = [Mark(span.start, span.end, span.label) for span in spans(labels)]
    return ShownText(surface.text, surface.offsets, marks)
