"""From a pipeline and a text to an `Inspection`: what the lens needs of them, as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ensue.arguments import check_type
from ensue.data.sentences.sentence import Sentence, Surface, joined
from ensue.errors import EnsueError
from ensue.lens.classifying import view_classifier
from ensue.lens.classifying_page import classifier_sections
from ensue.lens.features import ReadWords
from ensue.lens.inspection import Inspection
from ensue.lens.markup import clipped
from ensue.lens.page import page
from ensue.lens.tagging import TaggerView, view_tagger
from ensue.lens.tagging_page import MOST_WORDS, tagger_sections
from ensue.lens.texts import Mark, ShownText
from ensue.models.prefixes import device_of
from ensue.pipeline.colors import color_of
from ensue.recipe.length import check_length
from ensue.text.schemes import spans
from ensue.text.tokens import tokens
from ensue.training.classification import shortened

if TYPE_CHECKING:
    from ensue.pipeline.classification import ClassificationPipeline
    from ensue.pipeline.labeling import LabelingPipeline

LONGEST = 10_000
"""Words of a text that can be looked into."""
TITLE = 84
"""Characters of the text that name a page."""


def inspect_tagger(pipeline: LabelingPipeline, text: str | Sequence[str] | Sentence) -> Inspection:
    """What the tagger makes of a sentence: a string, a list of words, or a `Sentence` with given columns.

    EnsueError for a text without words, with too many, or without a column that the model reads.
    """
    plain = pipeline.format("text")
    sentence = text if isinstance(text, Sentence) else pipeline.sentence(text, plain)
    read = _read(pipeline, [sentence.words], _given(pipeline, sentence))[0]
    view = view_tagger(pipeline.model, read, pipeline.labels.tags.symbols, num_words=MOST_WORDS)
    shown = _labeled(pipeline, view, plain.surface(sentence) if isinstance(text, str) else joined(sentence.words))
    colors = {mark.label: color_of(mark.label) for mark in shown.marks}
    sections = tagger_sections(view, shown, colors=colors, has_spans=pipeline.labels.has_spans)
    facts = _facts(pipeline, pipeline.recipe.head.kind, f"{len(read):,}")
    title = clipped(shown.text, TITLE)
    return Inspection(title, view, page(title, facts, sections))


def inspect_classifier(pipeline: ClassificationPipeline, text: str | tuple[str, str]) -> Inspection:
    """What the classifier makes of a text, or of the two of a pair.

    EnsueError for one text instead of two or two instead of one, for a text without words, or with too many.
    """
    check_type("the text", text, (str, tuple, list), "a text, or two of them")
    texts = (text,) if isinstance(text, str) else tuple(text)
    for part in texts:
        check_type("the text", part, str, "a string")
    if len(texts) != (2 if pipeline.model.pair else 1):
        raise EnsueError(f"the model reads {'two texts' if pipeline.model.pair else 'one text'}; found {len(texts)}")
    recipe, labels = pipeline.recipe, pipeline.labels
    whole = [tokens(part, recipe.data.splitter) for part in texts]
    kept = [shortened(words, recipe.data) for words in whole]
    views = view_classifier(pipeline.model, _read(pipeline, [[word.text for word in words] for words in kept]))
    shown = [ShownText(part, [word[1:] for word in words]) for part, words in zip(texts, kept, strict=True)]
    colors = {name: color_of(name) for name in labels.names}
    threshold = labels.threshold if labels.multiple else None
    sections = classifier_sections(views, shown, labels.names, colors=colors, threshold=threshold)
    head = [*recipe.head.pooling, *([f"{recipe.head.ngrams}-grams"] if recipe.head.ngrams else [])]
    count, read = sum(map(len, whole)), sum(map(len, kept))
    facts = _facts(pipeline, " + ".join(head), f"{read:,}" if read == count else f"{read:,} of {count:,}")
    title = clipped(" | ".join(texts), TITLE)
    return Inspection(title, views, page(title, facts, sections))


def _read(
    pipeline: LabelingPipeline | ClassificationPipeline,
    texts: Sequence[Sequence[str]],
    columns: dict[str, tuple[str, ...]] | None = None,
) -> list[ReadWords]:
    """The texts as the model takes them."""
    for words in texts:
        if not words:
            raise EnsueError("there is nothing to look into: the text has no words")
        check_length(len(words), pipeline.recipe)
        if len(words) > LONGEST:
            raise EnsueError(f"the text has {len(words):,} words; up to {LONGEST:,} can be looked into")
    pipeline.reader.read(texts)  # looks new words up where there is a file of vectors
    features, lexicon, device = pipeline.reader.features, pipeline.reader.lexicon, device_of(pipeline.model)
    return [ReadWords(features, lexicon, words, columns, device=device) for words in texts]


def _given(pipeline: LabelingPipeline, sentence: Sentence) -> dict[str, tuple[str, ...]]:
    """The columns that the model reads beside the words."""
    wanted = list(pipeline.reader.lexicon.columns)
    missing = [name for name in wanted if name not in sentence.columns]
    if missing:
        raise EnsueError(f'the model also reads the column "{missing[0]}" of each word, which the text does not have')
    return {name: sentence.column(name) for name in wanted}


def _labeled(pipeline: LabelingPipeline, view: TaggerView, surface: Surface) -> ShownText:
    """The sentence with its labels as the training data write them; of spans only the spans."""
    labels = pipeline.labels.decode(view.path.tolist())
    marks = [Mark(place, place + 1, label) for place, label in enumerate(labels)]
    if pipeline.labels.has_spans:
        marks = [Mark(span.start, span.end, span.label) for span in spans(labels)]
    return ShownText(surface.text, surface.offsets, marks)


def _facts(pipeline: LabelingPipeline | ClassificationPipeline, head: str, words: str) -> dict[str, str]:
    """What the page says of the model at its top."""
    model = pipeline.recipe.model
    encoder = model.encoder if model.encoder == "none" else f"{model.encoder} {model.num_layers}×{model.d_model}"
    run = {} if pipeline.run is None else {"run": Path(pipeline.run).name}
    parameters = f"{pipeline.model.num_parameters:,}"
    return {**run, "encoder": encoder, "head": head, "parameters": parameters, "words": words}
