"""A classifier in use: predicts labels with probabilities, and evaluates."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.text import Text

from ensue.arguments import check_share, check_texts, check_type
from ensue.data.compact_texts import Ragged
from ensue.data.examples import Document, DocumentLayout, DocumentSource
from ensue.data.files import Location, named_locations, one_location
from ensue.data.lines import Lines
from ensue.errors import DataError, EnsueError
from ensue.inspection.colors import color_of
from ensue.inspection.markup import ansi, clipped
from ensue.inspection.notebook import LONGEST_CELL, Answers, Bar, Chips, Shown
from ensue.inspection.page import Inspection, Section, cut
from ensue.inspection.texts import ShownText
from ensue.metrics.classification import ClassificationScores
from ensue.metrics.scores import ScoredItems
from ensue.models.word_features import FormTable
from ensue.notices import say_empty, say_unknown
from ensue.stored import changed
from ensue.tasks.classification.data import DocumentData
from ensue.tasks.classification.description import describe
from ensue.tasks.classification.page import MOST_LABELS, inspect_texts
from ensue.tasks.classification.recipe import ClassificationRecipe
from ensue.tasks.classification.task import Judged, classify_words, tally_of
from ensue.tasks.classification.texts import (
    TextReader,
    check_document,
    describe_reading,
    document_source,
)
from ensue.tasks.contract.choice import Candidate
from ensue.tasks.contract.chunks import WHOLE, Shard, chunks
from ensue.tasks.contract.description import ModelDescription
from ensue.tasks.words.pipeline import WordPipeline
from ensue.text.labels import Classes


@dataclass(frozen=True, repr=False)
class Classified(Shown):
    """A text (or a pair) with its labels and the probability of every label."""

    texts: tuple[str, ...]
    labels: tuple[str, ...]
    probabilities: dict[str, float] = field(repr=False)

    @property
    def label(self) -> str:
        """The most probable of the labels; "" if there is none."""
        return self.labels[0] if self.labels else ""

    @property
    def probability(self) -> float:
        """The probability of `label`; without a label, that of the most probable one."""
        return self.probabilities[self.label] if self.labels else max(self.probabilities.values())

    def as_json(self) -> dict[str, Any]:
        """The prediction as JSON values."""
        rounded = {name: round(share, 6) for name, share in self.probabilities.items()}
        return {"texts": self.texts, "labels": self.labels, "probabilities": rounded}

    def _rows(self) -> list[dict[str, Any]]:
        chips = Chips({label: color_of(label) for label in self.labels})
        return [{"text": " | ".join(self.texts), "labels": chips, "probability": Bar(self.probability)}]

    def _pieces(self) -> list[Section]:
        ranked = sorted(self.probabilities.items(), key=lambda item: -item[1])[:MOST_LABELS]
        rows = [(name, share, color_of(name) if name in self.labels else None) for name, share in ranked]
        note = cut(len(self.probabilities), len(rows), "labels", "most probable")
        labels = {"rows": rows, "threshold": None, "note": note, "what": "text"}
        return [
            Section("", "inspection/plain.html", {"shown": clipped(" | ".join(self.texts), LONGEST_CELL)}),
            Section("", "tasks/classification/labels.html", labels),
        ]

    def __repr__(self) -> str:
        shown = ", ".join(f"{label} {self.probabilities[label]:.2f}" for label in self.labels) or "no label"
        text = " | ".join(self.texts)
        return f"{text[:57] + '...' if len(text) > 60 else text!r}: {shown}"


class Choosing:
    """A classifier that gives no label whose probability is below `at_least`."""

    at_least: float = 0.0

    def with_search(self, *, at_least: float) -> Self:
        """A copy of the model with another `at_least`."""
        check_share("at_least", at_least)
        return changed(self, at_least=at_least)


def colored(text: str, labels: Sequence[str], shares: dict[str, float]) -> str:
    """A text behind its labels, in their colors."""
    line = Text()
    for label in labels or ("-",):
        share = f" {shares[label]:.2f}" if labels else ""
        line.append(f"{label}{share}", style=f"black on {color_of(label)}").append("  ")
    line.append(text)
    return ansi(Console(highlight=False), line) + "\n"


CHUNK_TEXTS, CHUNK_WORDS = 4_096, 262_144
"""The most texts and words that are held and sorted by length. A file of any length is read in constant memory."""


ReadDocument = tuple[Document, list[list[str]]]
"""A document, and for each text the words that the model reads."""


class LabelsOfDocument(NamedTuple):
    """A document, its labels, all probabilities (K,), and whether the training data have a word of it."""

    document: Document
    labels: tuple[str, ...]
    probabilities: NDArray[np.float32]
    is_known: bool


class ClassificationPipeline(Choosing, WordPipeline):
    """A classifier with its vocabularies: predicts and evaluates."""

    recipe: ClassificationRecipe
    labels: Classes

    def predict(self, texts: Iterable[str | tuple[str, str]], *, at_least: float | None = None) -> list[Classified]:
        """The labels of each text; a text is a string, or two of them for a model of pairs.

        A label whose probability is below `at_least` is not given, so that a text may have none.
        """
        if at_least is not None:
            return self.with_search(at_least=at_least).predict(texts)
        check_texts(texts, "texts, or of pairs of them")
        documents = [Document(_texts(text)) for text in texts]
        return Answers(
            Classified(answer.document.texts, answer.labels, self._shares(answer.probabilities))
            for answer in self.classify(documents)
        )

    def predict_json(self, texts: Sequence[str | tuple[str, str]]) -> list[Any]:
        return [found.as_json() for found in self.predict(texts)]

    def inspect(self, text: str | tuple[str, str]) -> Inspection:
        """Look into the model with a text or a pair. Raises EnsueError for another number or no words."""
        check_type("the text", text, (str, tuple, list), "a text, or two of them")
        texts = (text,) if isinstance(text, str) else tuple(text)
        for part in texts:
            check_type("the text", part, str, "a string")
        if len(texts) != self.num_texts:
            expected = "two texts" if self.num_texts == 2 else "one text"
            raise EnsueError(f"the model reads {expected}; found {len(texts)}")
        whole, kept = zip(*map(self.text_reader.tokens, texts), strict=True)
        reads = self.read_words([[word.text for word in words] for words in kept])
        shown = [ShownText(part, [word[1:] for word in words]) for part, words in zip(texts, kept, strict=True)]
        head = self.recipe.head
        parts = [*head.pooling, *([f"{head.ngrams}-grams"] if head.ngrams else [])]
        count, read = sum(map(len, whole)), sum(map(len, kept))
        facts = self.facts(encoder=self.recipe.describe(), head=" + ".join(parts))
        facts["words"] = f"{read:,}" if read == count else f"{read:,} of {count:,}"
        return inspect_texts(self.model, reads, shown, self.labels, facts)

    def candidates(
        self, location: Location, *, format: str | None = None, encoding: str = "utf-8"
    ) -> Iterator[Candidate]:
        """The residual is that of the loss, if what the model says were right."""
        source = self.source(location, format=format, encoding=encoding, is_labeled=False)
        for document, labels, shares, _ in self.classify(source):
            said = self.labels.matrix([labels])[0]
            probability = min(map(float, shares[said]), default=float(shares.max()))
            yield Candidate(document.texts, labels, None, probability, shares - said)

    def classify(self, documents: Iterable[Document], shard: Shard = WHOLE) -> Iterator[LabelsOfDocument]:
        """The labels of a stream of documents of any length, or of a part of it, in order, in constant memory.

        Raises DataError for a document with the wrong number of texts.
        """
        return self._answered(
            lambda: self._chunks(documents),
            shard,
            lambda chunk: [words for part in _texts_of(chunk) for words in part],
            self._classify_chunk,
        )

    def _chunks(self, documents: Iterable[Document]) -> Iterator[list[ReadDocument]]:
        reader = self.text_reader
        read = ((document, reader.read(document).words) for document in documents)
        return chunks(read, lambda one: sum(map(len, one[1])), most_words=CHUNK_WORDS, most_items=CHUNK_TEXTS)

    def _classify_chunk(
        self, chunk: list[ReadDocument], forms: FormTable, numbers: Ragged
    ) -> Iterator[LabelsOfDocument]:
        texts = _texts_of(chunk)
        probabilities = classify_words(
            self.model,
            [forms] * len(texts),
            [numbers.slice(part * len(chunk), (part + 1) * len(chunk)) for part in range(len(texts))],
            list(map(self.contextual.computed, texts)),
            None if self.subwords is None else self.subwords.texts(*texts),
        )
        known = np.concatenate(([False], forms.keys.cpu().numpy()[numbers.values] >= 0)).cumsum()[numbers.starts]
        num_known = (known[1:] - known[:-1]).reshape(len(texts), -1).sum(0)
        for (document, _), shares, count in zip(chunk, probabilities, num_known, strict=True):
            yield LabelsOfDocument(document, self.labels.chosen(shares, at_least=self.at_least), shares, bool(count))

    def source(
        self,
        location: Location | Lines,
        *,
        format: str | None = None,
        encoding: str = "utf-8",
        is_labeled: bool = True,
    ) -> DocumentSource:
        data = self.recipe.data.model_copy(update={"format": format or "auto", "encoding": encoding})
        layout = DocumentLayout.from_json(self.config["layout"]) if self.config else None
        return document_source(data, location, like=layout, is_labeled=is_labeled, labels=self.labels.names)

    def evaluate(self, location: Location, *, format: str = "", encoding: str = "utf-8") -> ClassificationScores:
        """The scores on a file of labeled texts. Raises DataError for several labels if the model gives one."""
        return tally_of(self.labels).scores_of(self._judged(location, format, encoding))

    def scored_items(self, location: Location, *, format: str = "", encoding: str = "utf-8") -> ScoredItems:
        return tally_of(self.labels).items_of(self._judged(location, format, encoding), "texts")

    def _judged(self, location: Location, format: str, encoding: str) -> Iterator[Judged]:
        """The labels of labeled texts. Raises DataError if there are none."""
        location = one_location(location, "the data")
        answer = None
        for answer in self.classify(self.source(location, format=format, encoding=encoding)):
            check_document(answer.document, len(answer.document.texts), multiple=self.labels.multiple)
            chosen = self.labels.chosen(answer.probabilities)
            yield Judged(answer.document.labels, answer.probabilities, chosen)
        if answer is None:
            raise DataError("no text in it", location)

    def prediction_lines(
        self, location: str, *, format: str | None = None, encoding: str = "utf-8", as_json: bool = False,
        color: bool = False, shard: Shard = WHOLE,
    ) -> Iterator[str]:  # fmt: skip
        source, parts = self._in_parts(location, format, encoding)
        lines = self._lines(source, parts, as_json=as_json, color=color, shard=shard)
        return lines if as_json else source.as_one(lines, begins=shard.number == 1)

    def _lines(
        self, source: DocumentSource, parts: Iterable[Iterable[Document]], *, as_json: bool, color: bool, shard: Shard
    ) -> Iterator[str]:
        num_empty = num_unknown = 0
        for document, labels, probabilities, is_known in chain.from_iterable(
            self.classify(part, shard) for part in parts
        ):
            shares = self._shares(probabilities)
            num_empty += document.is_empty
            num_unknown += not (document.is_empty or is_known or self.subwords)
            if as_json:
                yield json.dumps(Classified(document.texts, labels, shares).as_json(), ensure_ascii=False) + "\n"
            elif color and source.layout.format == "plain":
                yield colored(document.texts[0], labels, shares)
            else:
                yield source.write(document, labels, [shares[label] for label in labels] or [max(shares.values())])
        if not as_json and shard.is_last:
            yield source.rest
        say_empty(num_empty, named_locations(source.location))
        say_unknown(num_unknown, named_locations(source.location))

    def _shares(self, probabilities: NDArray[np.float32]) -> dict[str, float]:
        return dict(zip(self.labels.names, probabilities.tolist(), strict=True))

    @property
    def text_reader(self) -> TextReader:
        """How it reads texts, which is how it read them in training."""
        return TextReader.of(self.recipe, self.num_texts, self.subwords, splitter=self.splitter)

    @property
    def num_texts(self) -> int:
        return 2 if self.model.pair else 1

    def protocol(self, scores: ClassificationScores) -> str:
        return describe_reading(self.recipe.data, "of longer texts")

    def describe(self) -> ModelDescription:
        return describe(self, self.labels, self.recipe.data, DocumentData)

    def __repr__(self) -> str:
        return self._described(self.recipe.describe(), f"{self.num_parameters:,} parameters", repr(self.labels))


def _texts_of(chunk: list[ReadDocument]) -> list[list[list[str]]]:
    """The words of the first texts, and those of the second ones of pairs."""
    return [[words[part] for _, words in chunk] for part in range(len(chunk[0][1]))]


def _texts(text: object) -> tuple[str, ...]:
    found = (text,) if isinstance(text, str) else text
    if not isinstance(found, tuple | list) or not all(isinstance(part, str) for part in found):
        raise EnsueError(f"predict takes texts, or pairs of texts; found {text!r:.60}")
    return tuple(found)
