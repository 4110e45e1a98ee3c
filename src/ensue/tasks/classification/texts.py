"""How a classifier reads texts, in training and in prediction: their columns, their number, and how much of each."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from ensue.data.documents import Choice, Document, DocumentSource, Layout
from ensue.data.lines import Lines
from ensue.errors import DataError, listed
from ensue.tasks.classification.recipe import ClassificationData, ClassificationRecipe
from ensue.tasks.words.tuned import Tuned


def document_source(
    data: ClassificationData,
    location: str | Path | Lines,
    *,
    like: Layout | None = None,
    is_labeled: bool = True,
    labels: Collection[str] = (),
    group: str = "",
) -> DocumentSource:
    """The texts of a file. The recipe says how they are read; if it does not, the columns of `like`, the training data,
    are taken if possible.

    `labels` are the possible names of labels, if they are known, and `group` is the column of groups, if it is read.
    """
    header = {"auto": None, "yes": True, "no": False}[data.header]
    choice = Choice(tuple(data.texts), data.labels, header, data.separator, data.joined, is_labeled, group)
    format = "" if data.format == "auto" else data.format
    return DocumentSource(location, choice, format=format, like=like, encoding=data.encoding, labels=labels)


def check_document(document: Document, num_texts: int, *, multiple: bool) -> None:
    """Raises DataError if a document has another number of texts than `num_texts`, or several labels without
    `multiple`.
    """
    place = (document.path or None, document.line or None)
    if len(document.texts) != num_texts:
        expected = "pairs of texts" if num_texts == 2 else "single texts"
        shown = " | ".join(document.texts)[:60]
        raise DataError(f"the model reads {expected}; found {len(document.texts)}: {shown!r}", *place)
    if not multiple and len(document.labels) > 1:
        raise DataError(f"several labels ({listed(document.labels)}); a text of the training data has one", *place)


def describe_reading(data: ClassificationData, longer: str) -> str:
    """A sentence that says how long texts are read; `longer` begins the part about texts that are cut."""
    if data.segment_tokens:
        return f"texts are read whole, in segments of {data.segment_tokens} words, state carried"
    if not data.max_tokens or not longer:
        return "texts are read whole, in one piece"
    most, first = data.max_tokens, data.max_tokens // 2
    both = f"the first {first} and last {most - first}"
    part = {"start": f"the first {most}", "end": f"the last {most}", "both": both}[data.keep]
    return f"{longer} {part} words are read"


def keep_blanks(recipe: ClassificationRecipe, tuned: Tuned) -> bool:
    """Whether words have the blanks before them, so that the model whose layers are tuned reads what is written. Other
    features, and n-grams, know words without blanks.
    """
    return bool(tuned.framing.blank) and recipe.features.is_empty and not recipe.head.ngrams
