"""The pipeline of a classifier: prediction and evaluation."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.text import Text

from ensue.data.compact_texts import Ragged
from ensue.data.examples import Document, DocumentLayout, DocumentSource
from ensue.data.files import Data, as_location, join_locations
from ensue.data.in_memory import are_unnamed
from ensue.data.lines import Lines
from ensue.errors import DataError, EnsueError, check_fraction, check_text_list, check_type
from ensue.inspection.colors import choose_color
from ensue.inspection.notebook import MAX_CELL_CHARACTERS, Answers, Bar, Chips, Shown
from ensue.inspection.page import Inspection, Section, ansi, clip
from ensue.inspection.texts import ShownText
from ensue.metrics.classification import ClassificationScores
from ensue.metrics.scores import ScoredItems
from ensue.models.word_features import NEW_WORD, FormTable
from ensue.notices import warn_of_texts
from ensue.runs.reporter import Reporter
from ensue.stored import copy_with
from ensue.tasks.classification.data import DocumentData
from ensue.tasks.classification.description import describe
from ensue.tasks.classification.model import TextReader, check_document, describe_reading, document_source
from ensue.tasks.classification.page import inspect_texts, labels_section
from ensue.tasks.classification.recipe import ClassificationRecipe
from ensue.tasks.classification.task import ScoredLabels, classify_words, tally_of
from ensue.tasks.contract.chunks import UNSHARDED, Shard, chunks
from ensue.tasks.contract.description import ModelDescription
from ensue.tasks.words.pipeline import WordPipeline
from ensue.text.labels import Classes


@dataclass(frozen=True, repr=False)
class Classified(Shown):
    """A text or a pair with its labels and the probability of every label."""

    texts: tuple[str, ...]
    labels: tuple[str, ...]
    probabilities: dict[str, float] = field(repr=False)

    @property
    def label(self) -> str:
        """The most probable of `labels`; "" if `labels` is empty."""
        return self.labels[0] if self.labels else ""

    @property
    def probability(self) -> float:
        """The probability of `label`; if `labels` is empty, the largest probability of all labels."""
        return self.probabilities[self.label] if self.labels else max(self.probabilities.values())

    def as_json(self) -> dict[str, Any]:
        """Return the prediction as JSON values."""
        rounded = {name: round(probability, 6) for name, probability in self.probabilities.items()}
        return {"texts": self.texts, "labels": self.labels, "probabilities": rounded}

    def table_rows(self) -> list[dict[str, Any]]:
        """Return a row with the texts, the labels with commas between them, and the probability of the first label."""
        names = ["text"] if len(self.texts) == 1 else ["text1", "text2"]
        texts = {key: value for key, value in self.as_json().items() if isinstance(value, str)}  # the name of a series
        texts = texts or dict(zip(names, self.texts, strict=True))
        return [{**texts, "label": ",".join(self.labels), "probability": round(self.probability, 6)}]

    def _rows(self) -> list[dict[str, Any]]:
        chips = Chips({label: choose_color(label) for label in self.labels})
        return [{"text": " | ".join(self.texts), "labels": chips, "probability": Bar(self.probability)}]

    def _sections(self) -> list[Section]:
        return [
            Section("", "inspection/plain.html", {"shown": clip(" | ".join(self.texts), MAX_CELL_CHARACTERS)}),
            labels_section(self.probabilities, self.labels, heading=""),
        ]

    def __repr__(self) -> str:
        labels = ", ".join(f"{label} {self.probabilities[label]:.2f}" for label in self.labels) or "no label"
        text = " | ".join(self.texts)
        return f"{text[:57] + '...' if len(text) > 60 else text!r}: {labels}"


class ThresholdMixin:
    """A mixin for classifiers that predict only labels with a probability of at least `at_least`."""

    at_least: float = 0.0

    def with_search(self, *, at_least: float) -> Self:
        """Return a copy of the model with another `at_least`."""
        check_fraction("at_least", at_least)
        return copy_with(self, at_least=at_least)


def format_colored(text: str, labels: Sequence[str], probabilities: dict[str, float]) -> str:
    """Return a line for a terminal: the labels of a text on colored backgrounds, then the text."""
    line = Text()
    for label in labels or ("-",):
        probability = f" {probabilities[label]:.2f}" if labels else ""
        line.append(f"{label}{probability}", style=f"black on {choose_color(label)}").append("  ")
    line.append(text)
    return ansi(Console(highlight=False), line) + "\n"


CHUNK_TEXTS, CHUNK_WORDS = 4_096, 262_144
"""The numbers of texts and of words at which a chunk ends. The texts of a chunk are sorted by length."""


SplitDocument = tuple[Document, list[list[str]]]
"""A document, and the words of each of its texts after truncation."""


class LabelsOfDocument(NamedTuple):
    """A document with its labels."""

    document: Document
    labels: tuple[str, ...]
    probabilities: NDArray[np.float32]
    """The probabilities of all labels (K,)."""
    is_known: bool
    """Whether at least one word is in the vocabulary."""


class ClassificationPipeline(ThresholdMixin, WordPipeline):
    """A trained classifier with its vocabularies."""

    recipe: ClassificationRecipe
    labels: Classes
    column_options: ClassVar[tuple[str, ...]] = ("words", "labels")

    def predict(
        self, texts: Iterable[str | tuple[str, str]], *, at_least: float | None = None,
        progress: bool | Reporter | None = None,
    ) -> Answers[Classified]:  # fmt: skip
        """Predict the labels of each text.

        Args:
            texts: Strings, or pairs of strings for a model of pairs.
            at_least: The minimum probability of a predicted label; a text may then have no label.
            progress: True shows a bar on stderr; the method `working` of a `Reporter` receives the completed share.
        """
        if at_least is not None:
            return self.with_search(at_least=at_least).predict(texts)
        texts = check_text_list(texts, "texts, or of pairs of them")
        answers = self.classify(Document((text,) if isinstance(text, str) else tuple(text)) for text in texts)
        return Answers(
            Classified(document.texts, labels, self.labels.by_name(row)) for document, labels, row, _ in answers
        )

    def predict_json(self, texts: Sequence[str | tuple[str, str]]) -> list[Any]:
        return [answer.as_json() for answer in self.predict(texts)]

    def inspect(self, text: str | tuple[str, str]) -> Inspection:
        """Return a page about a text or a pair. Raise EnsueError for another number of texts."""
        check_type("the text", text, (str, tuple, list), "a text, or two of them")
        texts = (text,) if isinstance(text, str) else tuple(text)
        for content in texts:
            check_type("the text", content, str, "a string")
        if len(texts) != self.num_texts:
            expected = "two texts" if self.num_texts == 2 else "one text"
            raise EnsueError(f"the model reads {expected}; found {len(texts)}")
        all_tokens, read_tokens = zip(*map(self.text_reader.tokens, texts), strict=True)
        reads = self.read_words([[word.text for word in words] for words in read_tokens])
        pairs = zip(texts, read_tokens, strict=True)
        shown_texts = [ShownText(content, [word[1:] for word in words]) for content, words in pairs]
        head = self.recipe.head
        lengths = {"-grams": head.ngrams, "-grams of characters": head.character_ngrams}
        summary = " + ".join([*head.pooling, *(f"{n}{kind}" for kind, n in lengths.items() if n)])
        count, num_read = sum(map(len, all_tokens)), sum(map(len, read_tokens))
        facts = self.facts(encoder=self.recipe.describe(), head=summary)
        facts["words"] = f"{num_read:,}" if num_read == count else f"{num_read:,} of {count:,}"
        return inspect_texts(self.model, reads, shown_texts, self.labels, facts)

    def classify(self, documents: Iterable[Document], shard: Shard = UNSHARDED) -> Iterator[LabelsOfDocument]:
        """Yield the labels of a stream of documents, or of a shard of the stream, in order and in constant memory.

        Raises:
            DataError: A document has the wrong number of texts, or is too long.
        """
        return self._answer_chunks(
            lambda: self._chunks(documents), shard,
            lambda chunk: [words for texts in _by_side(chunk) for words in texts], self._classify_chunk,
        )  # fmt: skip

    def _chunks(self, documents: Iterable[Document]) -> Iterator[list[SplitDocument]]:
        reader = self.text_reader
        items = ((document, reader.read(document)[0]) for document in documents)
        return chunks(items, lambda item: sum(map(len, item[1])), chunk_words=CHUNK_WORDS, chunk_items=CHUNK_TEXTS)

    def _classify_chunk(
        self, chunk: list[SplitDocument], forms: FormTable, numbers: Ragged
    ) -> Iterator[LabelsOfDocument]:
        texts = _by_side(chunk)
        subwords = None if self.subwords is None else self.subwords.texts(*texts)
        probabilities = classify_words(
            self.model, [forms] * len(texts),
            [numbers.slice(side * len(chunk), (side + 1) * len(chunk)) for side in range(len(texts))],
            list(map(self.contextual.vectors_on_demand, texts)), subwords,
        )  # fmt: skip
        is_new = forms.lacks.cpu().numpy()[numbers.values] & NEW_WORD
        known_sums = np.concatenate(([0], is_new == 0)).cumsum()[numbers.starts]
        num_known = (known_sums[1:] - known_sums[:-1]).reshape(len(texts), -1).sum(0)
        for (document, _), row, count in zip(chunk, probabilities, num_known, strict=True):
            yield LabelsOfDocument(document, self.labels.choose(row, at_least=self.at_least), row, bool(count))

    def source(
        self, location: Data | Lines, *, format: str | None = None, encoding: str = "utf-8", is_labeled: bool = True
    ) -> DocumentSource:
        data = self.recipe.data.model_copy(update={"format": format or "auto", "encoding": encoding})
        has_columns = self.config and not are_unnamed(self.recipe.data.train)
        layout = DocumentLayout.from_json(self.config["layout"]) if has_columns else None
        options: dict[str, Any] = {"labels": self.labels.names, "columns": self.chosen_columns}
        return document_source(data, location, like=layout, is_labeled=is_labeled, **options)

    def evaluate(
        self, location: Data, *, format: str = "", encoding: str = "utf-8", progress: bool | Reporter | None = None
    ) -> ClassificationScores:
        """Return the scores on labeled texts. Raise DataError for a text with several labels if the model predicts
        single labels. `progress` is as for `predict`.
        """
        return tally_of(self.labels).scores_of(pair for _, pair in self.label_pairs(location, format, encoding))

    def scored_items(self, location: Data, *, format: str = "", encoding: str = "utf-8") -> ScoredItems:
        return tally_of(self.labels).items_of((x for _, x in self.label_pairs(location, format, encoding)), "texts")

    def label_pairs(
        self, location: Data, format: str | None, encoding: str
    ) -> Iterator[tuple[LabelsOfDocument, ScoredLabels]]:
        """Yield the prediction for each labeled text, with the correct labels. Raise DataError if there is no text."""
        location = as_location(location, "the data")
        answer = None
        for answer in self.classify(self.source(location, format=format, encoding=encoding)):
            check_document(answer.document, len(answer.document.texts), multiple=self.labels.multiple)
            predicted = self.labels.choose(answer.probabilities)
            yield answer, ScoredLabels(answer.document.labels, answer.probabilities, predicted)
        if answer is None:
            raise DataError("no texts", location)

    def prediction_lines(
        self, location: str, *, format: str | None = None, encoding: str = "utf-8", as_json: bool = False,
        color: bool = False, shard: Shard = UNSHARDED,
    ) -> Iterator[str]:  # fmt: skip
        source, batches = self._open_batches(location, format, encoding)
        lines = self._write_lines(source, batches, as_json=as_json, color=color, shard=shard)
        return lines if as_json else source.as_one(lines, begins=shard.number == 1)

    def _write_lines(
        self, source: DocumentSource, batches: Iterable[Iterable[Document]], *, as_json: bool, color: bool, shard: Shard
    ) -> Iterator[str]:
        num_empty = num_unknown = 0
        answers = chain.from_iterable(self.classify(batch, shard) for batch in batches)
        for document, labels, probabilities, is_known in answers:
            by_label = self.labels.by_name(probabilities)
            num_empty += document.is_empty
            num_unknown += not (document.is_empty or is_known or self.subwords)
            if as_json:
                yield json.dumps(Classified(document.texts, labels, by_label).as_json(), ensure_ascii=False) + "\n"
            elif color and source.layout.format == "plain":
                yield format_colored(document.texts[0], labels, by_label)
            else:
                yield source.write(document, labels, [by_label[label] for label in labels] or [max(by_label.values())])
        if not as_json and shard.is_last:
            yield source.rest
        name, unknown = join_locations(source.location), "no word of the training data"
        warn_of_texts(num_empty, name, ("is empty", "are empty"), "meaningless")
        warn_of_texts(num_unknown, name, (f"has {unknown}", f"have {unknown}"), "unreliable")

    @property
    def text_reader(self) -> TextReader:
        """The reader of texts, with the settings of training and the splitter of `with_splitter`."""
        blanks = None if self.subwords is None else self.subwords.blanks
        return TextReader(self.recipe, self.num_texts, self.splitter or self.recipe.data.splitter, blanks)

    @property
    def num_texts(self) -> int:
        return 2 if self.model.pair else 1

    def protocol(self, scores: ClassificationScores) -> str:
        return describe_reading(self.recipe.data, "of longer texts")

    def describe(self) -> ModelDescription:
        return describe(self, self.labels, self.recipe.data, DocumentData)

    def __repr__(self) -> str:
        return self._format_repr(self.recipe.describe(), f"{self.num_parameters:,} parameters", repr(self.labels))


def _by_side(chunk: list[SplitDocument]) -> list[list[list[str]]]:
    """Return the words of texts; for pairs the first texts, then the second texts."""
    return [[words[side] for _, words in chunk] for side in range(len(chunk[0][1]))]
