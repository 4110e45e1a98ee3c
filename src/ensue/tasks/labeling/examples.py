"""Labeled sentences whose labels may be doubted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any, ClassVar

from ensue.data.sentences.sentence import Sentence
from ensue.errors import DataError, EnsueError
from ensue.tasks.contract.examples import Doubt, Examples, edit_between
from ensue.tasks.contract.pipeline import Pipeline
from ensue.tasks.labeling.data import sentence_source
from ensue.tasks.labeling.pipeline import LabelingPipeline
from ensue.tasks.labeling.recipe import LabelingRecipe
from ensue.text.labels import Labels
from ensue.text.scheme_detection import SchemeDetector
from ensue.text.schemes import Scheme, convert


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
