"""Labeled sentences and texts of a file whose labels may be doubted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any, ClassVar, NamedTuple

from ensue.data.sentences.sentence import Sentence
from ensue.errors import DataError, EnsueError
from ensue.tasks.classification.pipeline import ClassificationPipeline
from ensue.tasks.classification.recipe import ClassificationRecipe
from ensue.tasks.classification.texts import document_source
from ensue.tasks.contract.pipeline import Pipeline
from ensue.tasks.labeling.data import sentence_source
from ensue.tasks.labeling.pipeline import LabelingPipeline
from ensue.tasks.labeling.recipe import LabelingRecipe
from ensue.text.labels import Labels
from ensue.text.scheme_detection import SchemeDetector
from ensue.text.schemes import Scheme, convert


class Edit(NamedTuple):
    """Characters of a piece of a file, from `start` up to and without `end`, and what stands there if they change."""

    start: int
    end: int
    new: str


class Doubt(NamedTuple):
    """Labels that are likely wrong: of the characters `start` to `end` of a text, or of the whole text.

    `probability` is that of the labels that are given, by models that have not seen them.
    """

    path: str
    line: int
    text: str
    start: int
    end: int
    given: tuple[str, ...]
    proposed: tuple[str, ...]
    probability: float
    edit: Edit

    def as_json(self) -> dict[str, Any]:
        """The doubt as JSON values."""
        labels = {"given": list(self.given), "proposed": list(self.proposed)}
        return {**self._asdict(), **labels, "probability": round(self.probability, 6), "edit": list(self.edit)}


class Examples(ABC):
    """The labeled examples of a file. `pieces` are the text of the file, one for each example, and the rest."""

    unit: ClassVar[str]
    """A plural: what labels are counted by."""
    pieces: list[str]
    num_labels: int

    @property
    @abstractmethod
    def keys(self) -> Sequence[Hashable]:
        """For each example what it says; examples of one key are held out together."""

    @property
    @abstractmethod
    def settings(self) -> Mapping[str, Any]:
        """The settings of a recipe that reads `rows`."""

    @abstractmethod
    def row(self, number: int) -> dict[str, Any]:
        """An example as a JSON object, to train on."""

    @abstractmethod
    def doubts(self, pipeline: Pipeline, numbers: Sequence[int]) -> Iterator[tuple[int, Doubt]]:
        """The doubts of a model in some examples, each with the number of its example."""


def edit_between(old: str, new: str) -> Edit:
    """The smallest change from one text to the other."""
    start = _common(old, new)
    behind = _common(old[start:][::-1], new[start:][::-1])
    return Edit(start, len(old) - behind, new[start : len(new) - behind])


def _common(one: str, other: str) -> int:
    """The number of characters that two texts have in common at their beginnings."""
    shorter = min(len(one), len(other))
    return next((place for place in range(shorter) if one[place] != other[place]), shorter)


class TaggedExamples(Examples):
    """The labeled sentences of a recipe's training data. A doubt is of neighboring words."""

    unit: ClassVar[str] = "words"

    def __init__(self, recipe: LabelingRecipe) -> None:
        if recipe.data.label_columns:
            raise EnsueError("the labels of one column are doubted at a time; data.labels names several")
        if recipe.data.nested:
            raise EnsueError("spans that overlap (data.nested) are not doubted")
        source = sentence_source(recipe, recipe.data.train)
        self.format, self.column = source.format, recipe.data.label_column or None
        self.sentences = list(source)
        self.columns = recipe.features.columns
        self.labels = [source.format.labels(each, self.column) if each.words else () for each in self.sentences]
        self.num_labels = sum(map(len, self.labels))
        detector = SchemeDetector(tolerated=1.0)
        for sentence, labels in zip(self.sentences, self.labels, strict=True):
            detector.feed(labels, sentence.line)
        self.scheme = detector.result(recipe.data.train)
        if not self.num_labels:
            raise DataError("no sentence in it", recipe.data.train)
        self.pieces = [sentence.source.text for sentence in self.sentences]
        self.pieces.append(source.rest)

    @property
    def keys(self) -> Sequence[tuple[str, ...]]:
        return [sentence.words for sentence in self.sentences]

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"data.words": "tokens", "data.labels": "labels", "data.context_words": 0}

    def row(self, number: int) -> dict[str, Any]:
        sentence = self.sentences[number]
        columns = {name: list(sentence.column(name)) for name in self.columns}
        return {**columns, "tokens": list(sentence.words), "labels": self._in(self.scheme, self.labels[number])}

    def _in(self, scheme: Scheme | None, labels: Sequence[str]) -> list[str]:
        """The labels in a scheme, whatever in them breaks it."""
        return convert(labels, scheme) if scheme and self.scheme else list(labels)

    def doubts(self, pipeline: Pipeline, numbers: Sequence[int]) -> Iterator[tuple[int, Doubt]]:
        assert isinstance(pipeline, LabelingPipeline)
        assert isinstance(pipeline.labels, Labels)
        chosen = [number for number in numbers if self.sentences[number].words]
        given = {id(self.sentences[n]): self._in(pipeline.labels.scheme, self.labels[n]) for n in chosen}
        answers = pipeline.label(
            (self.sentences[number] for number in chosen), confidence=True, of=lambda sentence: given[id(sentence)]
        )
        for number, (sentence, labels, confidence, _) in zip(chosen, answers, strict=True):
            proposed = self._in(self.scheme, labels)
            said = self._in(self.scheme, self.labels[number])
            places = [place for place, label in enumerate(said) if label != proposed[place]]
            if places:
                assert confidence is not None
                for doubt in self._doubts(sentence, number, proposed, confidence.labels, places):
                    yield number, doubt

    def _doubts(
        self, sentence: Sentence, number: int, proposed: Sequence[str], shares: Sequence[float], places: list[int]
    ) -> list[Doubt]:
        """The doubts of a sentence, one for each run of differing labels; one in all if their edits overlap."""
        runs = [[place for _, place in run] for _, run in groupby(enumerate(places), lambda item: item[1] - item[0])]
        given = self.labels[number]
        same = self.pieces[number] = self.format.corrected(sentence, given, self.column)
        found = []
        for run in runs:
            first, last = run[0], run[-1] + 1
            labels = [*given[:first], *proposed[first:last], *given[last:]]
            edit = edit_between(same, self.format.corrected(sentence, labels, self.column))
            surface = self.format.surface(sentence)
            start, end = surface.offsets[first][0], surface.offsets[last - 1][1]
            found.append(
                Doubt(
                    sentence.source.name, sentence.line, surface.text, start, end, tuple(given[first:last]),
                    tuple(proposed[first:last]), min(shares[first:last]), edit,
                )
            )  # fmt: skip
        if any(right.edit.start < left.edit.end for left, right in pairwise(found)):
            return self._doubts(sentence, number, proposed, shares, [*range(places[0], places[-1] + 1)])
        return found


class ClassifiedExamples(Examples):
    """The labeled texts of a recipe's training data."""

    unit: ClassVar[str] = "texts"

    def __init__(self, recipe: ClassificationRecipe) -> None:
        self.source = document_source(recipe.data, recipe.data.train)
        self.documents = list(self.source)
        if not self.documents:
            raise DataError("no text in it", recipe.data.train)
        self.num_labels = len(self.documents)
        self.pieces = [self.source.write(document, document.labels) for document in self.documents]
        self.pieces.append(self.source.rest)
        self.names = ["text"] if len(self.documents[0].texts) == 1 else ["text1", "text2"]

    @property
    def keys(self) -> Sequence[tuple[str, ...]]:
        return [document.texts for document in self.documents]

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"data.texts": self.names, "data.labels": "label", "data.separator": "", "data.joined": False}

    def row(self, number: int) -> dict[str, Any]:
        document = self.documents[number]
        labels = document.labels
        texts = dict(zip(self.names, document.texts, strict=False))
        return {**texts, "label": labels[0] if len(labels) == 1 else list(labels)}

    def doubts(self, pipeline: Pipeline, numbers: Sequence[int]) -> Iterator[tuple[int, Doubt]]:
        assert isinstance(pipeline, ClassificationPipeline)
        labels = pipeline.labels
        answers = pipeline.classify(self.documents[number] for number in numbers)
        for number, answer in zip(numbers, answers, strict=True):
            document, proposed, shares, _ = answer
            if set(proposed) == set(document.labels) or not proposed:
                continue
            given = labels.matrix([document.labels])[0]
            known = set(document.labels) <= set(labels.names)
            found = abs(shares - ~given).min() if labels.multiple else shares[given].sum()
            new = self.source.write(document, proposed)
            text = "\n".join(document.texts)
            yield number, Doubt(
                document.path, document.line, text, 0, len(text), document.labels, proposed,
                float(found) if known else 0.0, edit_between(self.pieces[number], new),
            )  # fmt: skip


EXAMPLES: dict[type[Pipeline], Any] = {LabelingPipeline: TaggedExamples, ClassificationPipeline: ClassifiedExamples}
"""The class of the examples on which the models of a pipeline are trained, made from a recipe."""
