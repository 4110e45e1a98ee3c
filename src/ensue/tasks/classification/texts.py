"""How a classifier reads texts, in training and in prediction: their columns, their number, and how much of each."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple, Self, TypeVar

from ensue.data.examples import Document, DocumentLayout, DocumentSource
from ensue.data.examples.layout import DocumentChoice
from ensue.data.files import Location
from ensue.data.lines import Lines
from ensue.errors import DataError, listed
from ensue.tasks.classification.recipe import ClassificationData, ClassificationRecipe
from ensue.tasks.words.subwords import SubwordReader
from ensue.tasks.words.tuned import Tuned
from ensue.text.tokens import Token, shortened, tokens, words_in

Word = TypeVar("Word")


def document_source(
    data: ClassificationData,
    location: Location | Lines,
    *,
    like: DocumentLayout | None = None,
    is_labeled: bool = True,
    labels: Collection[str] = (),
    group: str = "",
) -> DocumentSource:
    """The texts of a file. The recipe says how they are read; if it does not, the columns of `like`, the training data,
    are taken if possible.

    `labels` are the possible names of labels, if they are known, and `group` is the column of groups, if it is read.
    """
    header = {"auto": None, "yes": True, "no": False}[data.header]
    choice = DocumentChoice(tuple(data.texts), data.labels, header, data.separator, data.joined, is_labeled, group)
    format = "" if data.format == "auto" else data.format
    return DocumentSource(location, choice, format=format, like=like, encoding=data.encoding, labels=labels)


def check_document(document: Document, num_texts: int, *, multiple: bool) -> None:
    """Raises DataError for another number of texts than `num_texts`, or several labels without `multiple`."""
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


class ReadTexts(NamedTuple):
    """The words of a document's texts that are read, whether some were left out, and whether it has none at all."""

    words: list[list[str]]
    is_cut: bool
    is_empty: bool


@dataclass(frozen=True)
class TextReader:
    """How documents of `num_texts` texts are read. With `blanks` words have blanks before them, the first these."""

    recipe: ClassificationRecipe
    num_texts: int
    splitter: str
    blanks: str | None = None

    @classmethod
    def of(
        cls, recipe: ClassificationRecipe, num_texts: int, subwords: SubwordReader | None, *, splitter: str = ""
    ) -> Self:
        """The reader for a model that reads these subwords, with the recipe's splitter or another."""
        return cls(recipe, num_texts, splitter or recipe.data.splitter, None if subwords is None else subwords.blanks)

    def read(self, document: Document, *, multiple: bool = True) -> ReadTexts:
        """The words of a document. Raises DataError for a wrong number of texts or labels, or too long ones."""
        check_document(document, self.num_texts, multiple=multiple)
        whole = [words_in(text, self.splitter, blanks=self.blanks) for text in document.texts]
        kept = [self._shortened(words) for words in whole]
        self.recipe.check_length(max(map(len, kept)), document.path, document.line)
        return ReadTexts(kept, kept != whole, not any(whole))

    def tokens(self, text: str) -> tuple[list[Token], list[Token]]:
        """All tokens of a text, and those that are read."""
        found = tokens(text, self.splitter)
        return found, self._shortened(found)

    def _shortened(self, words: list[Word]) -> list[Word]:
        return shortened(words, self.recipe.data.max_tokens, self.recipe.data.keep)


def subword_reader(recipe: ClassificationRecipe, tuned: Tuned | None) -> SubwordReader | None:
    """The reader of the layers that are tuned, if there are some. Words have the blanks before them, so that the model
    reads what is written; but other features, and n-grams, know words without blanks.
    """
    if tuned is None:
        return None
    blanks = bool(tuned.framing.blank) and recipe.features.is_empty and not recipe.head.ngrams
    return tuned.reader(whole=True, blanks=blanks)
