"""Splitting and truncation of the texts of a classifier, and the vocabularies and labels that a run stores."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import Field

from ensue.data.examples import Document, DocumentLayout, DocumentSource
from ensue.data.examples.layout import DocumentChoice
from ensue.data.files import Data
from ensue.data.lines import Lines
from ensue.errors import DataError, list_names
from ensue.models.build_text import build_classifier
from ensue.models.classifier import Classifier
from ensue.runs.directory import RunDirectory
from ensue.runs.schema import Config, stored_as
from ensue.tasks.classification.recipe import ClassificationData, ClassificationRecipe
from ensue.tasks.words.model import FineTunedEncoder, WordParts, WordsConfig
from ensue.tasks.words.subwords import SubwordReader
from ensue.text.labels import Classes
from ensue.text.tokens import Token, tokens, truncate, words_in

Word = TypeVar("Word")


def document_source(
    data: ClassificationData, location: Data | Lines, *, like: DocumentLayout | None = None,
    is_labeled: bool = True, labels: Collection[str] = (), group: str = "", columns: Mapping[str, str] | None = None,
) -> DocumentSource:  # fmt: skip
    """Return the reader of a file of texts. The columns come from `columns`, else from `like`, else from the recipe."""
    header = {"auto": None, "yes": True, "no": False}[data.header]
    choice = DocumentChoice(tuple(data.texts), data.labels, header, data.separator, data.joined, is_labeled, group)
    if columns:
        trained, like = (choice if like is None or not like.names else like.with_columns(choice)), None
        texts = tuple(columns["words"].split(",")) if "words" in columns else trained.texts
        choice = replace(trained, texts=texts, labels=columns.get("labels", trained.labels))
        choice = replace(choice, header=None if choice.has_names else header)
    format = "" if data.format == "auto" else data.format
    return DocumentSource(
        location, choice, format=format, like=like, encoding=data.encoding, labels=labels,
        incomplete=data.incomplete if is_labeled else "refuse",
    )  # fmt: skip


def check_document(document: Document, num_texts: int, *, multiple: bool) -> None:
    """Raise DataError unless a document has `num_texts` texts and, without `multiple`, at most one label."""
    place = (document.path or None, document.line or None)
    if len(document.texts) != num_texts:
        expected = "pairs of texts" if num_texts == 2 else "single texts"
        excerpt = " | ".join(document.texts)[:60]
        raise DataError(f"the model reads {expected}; found {len(document.texts)}: {excerpt!r}", *place)
    if not multiple and len(document.labels) > 1:
        raise DataError(f"several labels ({list_names(document.labels)}); a text of the training data has one", *place)


def describe_reading(data: ClassificationData, longer: str) -> str:
    """Return a sentence about truncation and segments. `longer` is the beginning of the sentence if texts are
    truncated, such as "3 of 9 texts are longer:"; "" if no text is truncated.
    """
    if data.segment_tokens:
        return f"texts are read whole, in segments of {data.segment_tokens} words, state carried"
    if not data.max_tokens or not longer:
        return "texts are read whole, in one piece"
    limit, first = data.max_tokens, data.max_tokens // 2
    both_ends = f"the first {first} and last {limit - first}"
    words = {"start": f"the first {limit}", "end": f"the last {limit}", "both": both_ends}[data.keep]
    return f"{longer} {words} words are read"


@dataclass(frozen=True)
class TextReader:
    """A reader of documents, which splits texts into words and truncates them."""

    recipe: ClassificationRecipe
    num_texts: int
    """The number of texts of a document."""
    splitter: str
    blanks: str | None = None
    """The blanks to put before the first word of a text; None: words do not include the blanks before them."""

    def read(self, document: Document, *, multiple: bool = True) -> tuple[list[list[str]], bool]:
        """Return the words of each text of a document after truncation, and whether a text was truncated. Raise
        DataError for a wrong number of texts or labels, or a long text.
        """
        check_document(document, self.num_texts, multiple=multiple)
        words = [words_in(text, self.splitter, blanks=self.blanks) for text in document.texts]
        truncated = [self._truncate(text) for text in words]
        self.recipe.check_length(max(map(len, truncated)), document.path, document.line)
        return truncated, truncated != words

    def tokens(self, text: str) -> tuple[list[Token], list[Token]]:
        """Return all tokens of a text, and the tokens after truncation."""
        all_tokens = tokens(text, self.splitter)
        return all_tokens, self._truncate(all_tokens)

    def _truncate(self, words: list[Word]) -> list[Word]:
        return truncate(words, self.recipe.data.max_tokens, self.recipe.data.keep)


def subword_reader(recipe: ClassificationRecipe, tuned: FineTunedEncoder | None) -> SubwordReader | None:
    """Return the subword reader of a fine-tuned encoder; None without such an encoder."""
    if tuned is None:
        return None
    blanks = bool(tuned.framing.blank) and recipe.features.is_empty and not recipe.head.ngrams
    return tuned.reader(has_text_vector=True, blanks=blanks)


class ClassificationConfig(WordsConfig):
    """The keys of `config.json` for a classifier."""

    layout: Annotated[dict[str, Any], stored_as(DocumentLayout)]
    pair: bool
    ngrams: Annotated[int, Field(ge=0, le=1 << 32)] | None = None
    """The number of rows of the bag of n-grams; None in runs of earlier versions, which have all rows."""


@dataclass(frozen=True)
class ClassifierParts(WordParts):
    """The vocabularies and labels of a classifier."""

    config: ClassVar[type[Config]] = ClassificationConfig
    labels: Classes
    pair: bool
    """Whether the classifier reads pairs of texts."""
    ngrams: int | None = field(default=None, kw_only=True)
    """The number of rows of the bag of n-grams."""

    @classmethod
    def read(cls, run: RunDirectory) -> Self:
        labels = run.read_json("labels.json", Classes.from_json)
        return cls(**cls.read_fields(run), labels=labels, pair=run.config["pair"], ngrams=run.config.get("ngrams"))

    def subwords(self, recipe: ClassificationRecipe) -> SubwordReader | None:
        return subword_reader(recipe, self.tuned)

    def example(self, recipe: ClassificationRecipe) -> str:
        return "" if self.pair else "a text of yours"

    def python(self, recipe: ClassificationRecipe) -> list[str]:
        return ['print(model.predict([("a text", "another text")]))'] if self.pair else super().python(recipe)

    def build(self, recipe: ClassificationRecipe) -> Classifier:
        model = build_classifier(
            recipe.features, recipe.encoder, recipe.head, directions=recipe.directions, lexicon=self.lexicon,
            num_labels=len(self.labels), multiple=self.labels.multiple, pair=self.pair,
            segment=recipe.data.segment_tokens, pretrained=self.pretrained, contextual=self.contextual,
            tuned=self.tuned_encoder(), ngrams=self.ngrams,
        )  # fmt: skip
        model.temperature = self.labels.temperature
        return model
