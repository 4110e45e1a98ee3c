"""From a classifier and a text, or a pair, to an `Inspection`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ensue.arguments import check_type
from ensue.errors import EnsueError
from ensue.inspection.colors import color_of
from ensue.inspection.markup import clipped
from ensue.inspection.page import TITLE, Inspection
from ensue.inspection.texts import ShownText
from ensue.tasks.classification.page import classifier_sections
from ensue.tasks.classification.view import view_classifier
from ensue.tasks.words.inspection import facts_of, read_words
from ensue.text.tokens import shortened, tokens

if TYPE_CHECKING:
    from ensue.tasks.classification.pipeline import ClassificationPipeline


def inspect_classifier(pipeline: ClassificationPipeline, text: str | tuple[str, str]) -> Inspection:
    """What happens in the classifier with a text, or with the two of a pair.

    Raises EnsueError for the wrong number of texts, for a text without words, and for one with too many words.
    """
    check_type("the text", text, (str, tuple, list), "a text, or two of them")
    texts = (text,) if isinstance(text, str) else tuple(text)
    for part in texts:
        check_type("the text", part, str, "a string")
    if len(texts) != (2 if pipeline.model.pair else 1):
        raise EnsueError(f"the model reads {'two texts' if pipeline.model.pair else 'one text'}; found {len(texts)}")
    recipe, labels = pipeline.recipe, pipeline.labels
    whole = [tokens(part, recipe.data.splitter) for part in texts]
    kept = [shortened(words, recipe.data.max_tokens, recipe.data.keep) for words in whole]
    views = view_classifier(pipeline.model, read_words(pipeline, [[word.text for word in words] for words in kept]))
    shown = [ShownText(part, [word[1:] for word in words]) for part, words in zip(texts, kept, strict=True)]
    colors = {name: color_of(name) for name in labels.names}
    threshold = labels.threshold if labels.multiple else None
    sections = classifier_sections(views, shown, labels.names, colors=colors, threshold=threshold)
    head = [*recipe.head.pooling, *([f"{recipe.head.ngrams}-grams"] if recipe.head.ngrams else [])]
    count, read = sum(map(len, whole)), sum(map(len, kept))
    facts = facts_of(pipeline, " + ".join(head), f"{read:,}" if read == count else f"{read:,} of {count:,}")
    title = clipped(" | ".join(texts), TITLE)
    return Inspection(title, views, facts, sections)
