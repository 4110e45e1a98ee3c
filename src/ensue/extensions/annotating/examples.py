"""The labeled examples of a file, for models that detect wrong labels, and the edits that correct them."""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, ClassVar, NamedTuple

from ensue.data.sentences.sentence import Sentence
from ensue.errors import DataError, EnsueError
from ensue.tasks.classification.model import document_source
from ensue.tasks.classification.pipeline import ClassificationPipeline
from ensue.tasks.classification.recipe import ClassificationRecipe
from ensue.tasks.contract.pipeline import Pipeline
from ensue.tasks.labeling.data import sentence_source
from ensue.tasks.labeling.pipeline import LabelingPipeline
from ensue.tasks.labeling.recipe import LabelingRecipe
from ensue.text.label_columns import LabelColumns
from ensue.text.schemes import Scheme, SchemeDetector, convert, encode_overlapping, layers, overlapping_spans


class Edit(NamedTuple):
    """A replacement of the characters from `start` to before `end` in the text of an example."""

    start: int
    end: int
    new: str


class Doubt(NamedTuple):
    """Likely wrong labels of the characters from `start` to before `end` of a text.

    `probability` is the probability of the `given` labels, by a model that was not trained on the text: for several
    words the minimum over the words, and for a multi-label classifier the minimum over all labels.
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
        """Return the doubt as JSON values."""
        labels = {"given": list(self.given), "proposed": list(self.proposed)}
        return {**self._asdict(), **labels, "probability": round(self.probability, 6), "edit": list(self.edit)}


class Examples(ABC):
    """The labeled examples of a file, which is the concatenation of `texts`: the examples, and the remaining text."""

    unit: ClassVar[str]
    """The plural noun for the labeled units, such as "words"."""
    texts: list[str]
    num_labels: int
    keys: Sequence[Hashable]
    """The words or texts of each example. Examples with equal keys are in the same fold."""
    settings: Mapping[str, Any]
    """The settings with which a recipe reads the objects that `row` returns."""

    @abstractmethod
    def row(self, number: int) -> dict[str, Any]:
        """Return the example with this index as a JSON object for training."""

    @abstractmethod
    def doubts(self, pipeline: Pipeline, numbers: Sequence[int]) -> Iterator[tuple[int, Doubt]]:
        """Yield the doubts of a model about the examples with these indices, as pairs (index, doubt)."""


def edit_between(old: str, new: str) -> Edit:
    """Return the shortest edit that changes `old` to `new`."""
    start = _common_prefix(old, new)
    suffix = _common_prefix(old[start:][::-1], new[start:][::-1])
    return Edit(start, len(old) - suffix, new[start : len(new) - suffix])


def _common_prefix(a: str, b: str) -> int:
    return next((index for index, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


class TaggedExamples(Examples):
    """The labeled sentences of a recipe's training data. A doubt is about neighboring words."""

    unit: ClassVar[str] = "words"
    settings: Mapping[str, Any] = {"data.words": "tokens", "data.labels": "labels", "data.context_words": 0}

    def __init__(self, recipe: LabelingRecipe) -> None:
        if recipe.data.label_columns:
            raise EnsueError("data.labels names several columns; expected one column")
        self.nested = recipe.data.nested > 0
        source = sentence_source(recipe, recipe.data.train)
        self.format, self.column = source.format, recipe.data.label_column or None
        self.sentences = list(source)
        self.columns = recipe.features.columns
        self.labels = [source.format.labels(s, self.column) if s.words else () for s in self.sentences]
        self.num_labels = sum(map(len, self.labels))
        detector = SchemeDetector(max_violations=1.0)  # wrong labels may violate the scheme in any sentence
        for sentence, labels in zip(self.sentences, self.labels, strict=True):
            for tags in map(dict.values, layers(labels).values()) if self.nested else [labels]:
                detector.feed(tags, sentence.line)
        self.scheme = detector.result(recipe.data.train)
        if not self.num_labels:
            raise DataError("no sentences", recipe.data.train)
        self.texts = [*(sentence.source.text for sentence in self.sentences), source.rest]
        self.keys = [sentence.words for sentence in self.sentences]

    def row(self, number: int) -> dict[str, Any]:
        sentence = self.sentences[number]
        columns = {name: list(sentence.column(name)) for name in self.columns}
        return {**columns, "tokens": list(sentence.words), "labels": self._in_scheme(self.scheme, self.labels[number])}

    def _in_scheme(self, scheme: Scheme | None, labels: Sequence[str]) -> list[str]:
        if not (scheme and self.scheme):
            return list(labels)
        if self.nested:
            return encode_overlapping(overlapping_spans(labels), len(labels), scheme)
        return convert(labels, scheme)

    def doubts(self, pipeline: Pipeline, numbers: Sequence[int]) -> Iterator[tuple[int, Doubt]]:
        assert isinstance(pipeline, LabelingPipeline)
        assert not isinstance(pipeline.labels, LabelColumns)
        numbers = [number for number in numbers if self.sentences[number].words]
        gold = {id(self.sentences[n]): self._in_scheme(pipeline.labels.scheme, self.labels[n]) for n in numbers}
        answers = pipeline.label(
            (self.sentences[number] for number in numbers), confidence=True, of=lambda sentence: gold[id(sentence)]
        )
        for number, (sentence, labels, confidence, _) in zip(numbers, answers, strict=True):
            proposed = self._in_scheme(self.scheme, labels)
            current = self._in_scheme(self.scheme, self.labels[number])
            differing = [index for index, label in enumerate(current) if label != proposed[index]]
            if differing:
                assert confidence is not None
                for doubt in self._make_doubts(sentence, number, proposed, confidence.labels, differing):
                    yield number, doubt

    def _make_doubts(
        self, sentence: Sentence, number: int, proposed: Sequence[str], confidence: Sequence[float],
        differing: list[int],
    ) -> list[Doubt]:  # fmt: skip
        """Return a doubt for each run of consecutive differing words. Runs whose edits touch are merged."""
        runs = [[i for _, i in run] for _, run in groupby(enumerate(differing), lambda item: item[1] - item[0])]
        gold_labels, surface = self.labels[number], self.format.surface(sentence)
        current = self.texts[number] = self.format.write_keeping_spans(sentence, gold_labels, self.column)
        merged = list[tuple[int, int, Edit]]()  # the start and end of each doubt in words, and its edit
        for run in runs:
            start, end = run[0], run[-1] + 1
            while True:
                labels = [*gold_labels[:start], *proposed[start:end], *gold_labels[end:]]
                edit = edit_between(current, self.format.write_keeping_spans(sentence, labels, self.column))
                touching = [item for item in merged if item[2].start <= edit.end and edit.start <= item[2].end]
                if not touching:
                    break
                start = min(start, *(item[0] for item in touching))
                merged = [item for item in merged if item[0] < start]
            merged.append((start, end, edit))
        return [
            Doubt(
                sentence.source.name, sentence.line, surface.text, surface.offsets[start][0],
                surface.offsets[end - 1][1], tuple(gold_labels[start:end]), tuple(proposed[start:end]),
                min(confidence[start:end]), edit,
            )
            for start, end, edit in merged
        ]  # fmt: skip


class ClassifiedExamples(Examples):
    """The labeled texts of a recipe's training data."""

    unit: ClassVar[str] = "texts"

    def __init__(self, recipe: ClassificationRecipe) -> None:
        self.source = document_source(recipe.data, recipe.data.train)
        self.documents = list(self.source)
        if not self.documents:
            raise DataError("no texts", recipe.data.train)
        self.num_labels = len(self.documents)
        self.texts = [*(self.source.write(item, item.labels) for item in self.documents), self.source.rest]
        self.keys = [document.texts for document in self.documents]
        self.names = ["text"] if len(self.documents[0].texts) == 1 else ["text1", "text2"]
        self.indicators = self.source.layout.flag_names
        labels = ",".join(self.indicators) or "label"
        self.settings = {"data.texts": self.names, "data.labels": labels, "data.separator": "", "data.joined": False}

    def row(self, number: int) -> dict[str, Any]:
        document = self.documents[number]
        labels = document.labels
        row: dict[str, Any] = dict(zip(self.names, document.texts, strict=False))
        if self.indicators:
            return row | {name: int(name in labels) for name in self.indicators}
        return row | {"label": labels[0] if len(labels) == 1 else list(labels)}

    def doubts(self, pipeline: Pipeline, numbers: Sequence[int]) -> Iterator[tuple[int, Doubt]]:
        assert isinstance(pipeline, ClassificationPipeline)
        labels = pipeline.labels
        answers = pipeline.classify(self.documents[number] for number in numbers)
        for number, answer in zip(numbers, answers, strict=True):
            document, proposed, probabilities, _ = answer
            if set(proposed) == set(document.labels) or not proposed:
                continue
            given = labels.matrix([document.labels])[0]
            are_known = set(document.labels) <= set(labels.names)
            # multi-label: the minimum over all labels of p for a given label, and of 1 - p for another label
            probability = abs(probabilities - ~given).min() if labels.multiple else probabilities[given].sum()
            new = self.source.write(document, proposed)
            text = "\n".join(document.texts)
            yield number, Doubt(
                document.path, document.line, text, 0, len(text), document.labels, proposed,
                float(probability) if are_known else 0.0, edit_between(self.texts[number], new),
            )  # fmt: skip


EXAMPLES: dict[type[Pipeline], Any] = {LabelingPipeline: TaggedExamples, ClassificationPipeline: ClassifiedExamples}
"""The class of the examples for each class of pipelines. Its constructor takes a recipe."""
