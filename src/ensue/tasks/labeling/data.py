"""The labeled sentences, or series of frames, of a recipe: read, checked, and encoded for a tagger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray

from ensue.data.compact_texts import StringColumn, Texts
from ensue.data.frames.series import Series
from ensue.data.sentences.columns import Columns
from ensue.data.sentences.formats import PlainText
from ensue.data.sentences.sentence import Format, Sentence, contexts
from ensue.data.sentences.source import SentenceSource
from ensue.errors import DataError, RecipeError
from ensue.runs.directory import RunDirectory
from ensue.tasks.contract.data_set import Split
from ensue.tasks.frames.data import LabeledSeries, LabeledSeriesData
from ensue.tasks.labeling.decoding import LabeledTexts, SentenceGroups, TaggedFrames
from ensue.tasks.labeling.model import FrameTaggerParts, TaggerParts
from ensue.tasks.labeling.recipe import FrameLabelingRecipe, LabelingRecipe
from ensue.tasks.words.data import EncodedTexts, WordsData
from ensue.tasks.words.model import d_vectors, with_vectors
from ensue.tasks.words.subwords import SubwordTexts
from ensue.text.label_columns import LabelColumns, Learned, learned_values
from ensue.text.labels import Labels
from ensue.text.scheme_detection import SchemeDetector
from ensue.text.schemes import Span, encode, position, spans


@dataclass
class Sentences:
    """The sentences of a file in memory: words, labels, and other columns that the model reads."""

    texts: Texts = field(default_factory=Texts)
    labels: list[list[Any]] = field(default_factory=list)
    """The label of each word: a string, or a tuple with a value for each column."""
    columns: dict[str, StringColumn] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=list)
    """How many sentences each context has that is read in one piece."""
    groups: list[str] = field(default_factory=list)
    """For each sentence the group that the data name; "" for none."""

    def append(self, sentence: Sentence, labels: Sequence[Any], *, goes_on: bool = False, group: str = "") -> None:
        """`goes_on`: in the context of the sentence before."""
        self.texts.append(sentence.words)
        self.labels.append(list(labels))
        self.groups.append(group)
        self._count(goes_on)
        for name, column in self.columns.items():
            column.extend(sentence.column(name))

    def _count(self, goes_on: bool) -> None:
        if goes_on:
            self.sizes[-1] += 1
        else:
            self.sizes.append(1)

    @property
    def sources(self) -> Sequence[Hashable]:
        """The group of each sentence; without groups each is by itself."""
        return self.groups if any(self.groups) else range(len(self))

    def select(self, rows: NDArray[np.int64]) -> Self:
        """The sentences in these rows. One goes on with a context if the sentence before it is there, too."""
        columns = {name: column.select(self.texts.places(rows)) for name, column in self.columns.items()}
        part = type(self)(self.texts.select(rows), columns=columns)
        goes_on = [place > 0 for size in self.sizes for place in range(size)]
        for row, before in zip(rows.tolist(), [-1, *rows.tolist()], strict=False):
            part.labels.append(self.labels[row])
            part.groups.append(self.groups[row])
            part._count(goes_on[row] and row == before + 1)
        return part

    @property
    def forms(self) -> set[str]:
        """The distinct words."""
        return set(self.texts.words.values)

    @property
    def label_counts(self) -> Counter[Any]:
        """How many words have each label."""
        return Counter(label for labels in self.labels for label in labels)

    def __len__(self) -> int:
        return len(self.labels)

    def __str__(self) -> str:
        return f"{len(self):,} sentences, {len(self.texts.words):,} words"


def read_contexts(sentences: Iterable[Sentence], recipe: LabelingRecipe) -> Iterator[list[Sentence]]:
    """Sentences in lists of those that are read together, in training and in use. Raises DataError for one that is too
    long.
    """

    def checked(sentence: Sentence) -> Sentence:
        recipe.check_length(len(sentence.words), sentence.source.name, sentence.line)
        return sentence

    return contexts(map(checked, sentences), recipe.data.context_words)


def sentence_source(recipe: LabelingRecipe, location: str, *, like: Format | None = None) -> SentenceSource:
    """The sentences of a file, read with the settings of the recipe; `like` is the format of the training data.

    A file that looks like running text is read in the format of the training data. A file of a single sentence in
    columns looks like that.
    """
    data = recipe.data
    options: dict[str, Any] = {"encoding": data.encoding, "words": data.words or None, "splitter": data.splitter}
    source = SentenceSource(location, format=None if data.format == "auto" else data.format, **options)
    if source.format.name != PlainText.name:
        return source
    if like is None:
        advice = "with data.format=columns (or conllu, json) it is read as that, and a wrong line is named"
        raise DataError(f"it looks like running text, which has no labels; {advice}", location)
    return SentenceSource(location, format=like.name, **options)


def label_rows(format: Format, sentence: Sentence, columns: Sequence[str]) -> list[tuple[str, ...]]:
    """For each word the values of several columns. Raises DataError (file:line) if there is no such column."""
    return list(zip(*(format.labels(sentence, name) for name in columns), strict=True))


def num_columns(source: SentenceSource) -> int:
    """The number of columns, if they have numbers and no names; else 0."""
    if not isinstance(source.format, Columns):
        return 0
    first = source.first()
    return 0 if first is None else len(first.columns)


def trained_labels(
    counts: Mapping[str, int], detector: SchemeDetector, wanted: str, unit: str, place: str, path: str
) -> Labels:
    """The labels with these counts, whose spans are learned in the scheme `wanted`; `place` says in messages where they
    are. Raises DataError if there are no two.
    """
    if len(counts) < 2:
        only = next(iter(counts), "")
        found = f'all {counts[only]:,} {unit} have the label "{only}"' if counts else "no label"
        raise DataError(f"nothing to learn: {found}{place}", path)
    scheme = detector.result(path)
    tag_scheme: Any = None if scheme is None else scheme if wanted == "file" else wanted
    return Labels(sorted(counts), scheme=scheme, tag_scheme=tag_scheme)


def is_free(span: Span, others: Sequence[Span]) -> bool:
    """Whether a span has no word of others."""
    return all(span.end <= other.start or other.end <= span.start for other in others)


class SentenceData(WordsData[Sentences]):
    """The labeled sentences of a recipe."""

    unit: ClassVar[str] = "words"

    def __init__(self, recipe: LabelingRecipe, run: RunDirectory | None = None) -> None:
        self.recipe, data = recipe, recipe.data
        if not data.train:
            raise DataError("no training data: --train PATH names a file of labeled sentences")
        if data.context_words > recipe.most_read:
            model = f"this model ({recipe.encoder.kind}) reads up to {recipe.most_read:,} words"
            raise RecipeError(f"data.context_words is {data.context_words:,}; {model}")
        if recipe.tuning.keep_labels and data.label_columns:
            raise RecipeError("tuning.keep_labels is for a tagger of one column")
        source = sentence_source(recipe, data.train)
        self.format = source.format
        self.columns = data.label_columns
        self.label_column = data.label_column or self.format.default_column
        super().__init__(recipe, run)
        self.fingerprint = source.files.fingerprint()
        self.width = num_columns(source)
        for name in self.columns or [self.label_column]:
            if {name, str(self.width) if name == "last" else ""} & set(recipe.features.columns):
                raise RecipeError(f'features.columns names the column of the labels ("{name}")')
        self.detectors = {name: SchemeDetector() for name in self.columns or [self.label_column]}
        self.advice = f' (column "{self.label_column}"); data.labels names another column'
        whole = self._read(source, tuple(self.detectors.values()), group=data.group)
        self.split = Split.of(whole, data, self.read, examples="sentences", drawn=False)
        self.rehearsed = self._rehearse() if recipe.tuning.rehearse else ""

    def read(self, location: str) -> Sentences:
        """Validation or test data, in the format of the training data."""
        return self._read(sentence_source(self.recipe, location, like=self.format))

    def _read(self, source: SentenceSource, detectors: Sequence[SchemeDetector] = (), *, group: str = "") -> Sentences:
        """All sentences with words; a sentence without words has nothing to learn or score."""
        found = Sentences(columns={name: StringColumn() for name in self.recipe.features.columns})
        for context in read_contexts((sentence for sentence in source if sentence.words), self.recipe):
            for place, sentence in enumerate(context):
                labels = self._labels(source.format, sentence)
                of = source.format.group(sentence, group) if group else ""
                found.append(sentence, labels, goes_on=place > 0, group=of)
                for column, detector in enumerate(detectors):
                    detector.feed([row[column] for row in labels] if self.columns else labels, sentence.line)
        if not len(found):
            raise DataError("no sentence in it", source.location)
        return found

    def _rehearse(self) -> str:
        """Puts the spans of the origin into the training and validation data, and says how many of each class. Raises
        RecipeError for labels without spans.
        """
        assert self.kept is not None
        origin = self.kept.origin
        scheme = None if self.columns else self.detectors[self.label_column].result(self.recipe.data.train)
        if scheme is None or not origin.run.parts.labels.has_spans:
            raise RecipeError("tuning.rehearse is for labels that write spans")
        classes = {position(label).label for label in self.split.train.label_counts}
        tagger = origin.run.entry.pipeline_class.of(origin.run, torch.device("cpu"))
        counts: Counter[str] = Counter()
        for part in (self.split.train, self.split.valid):
            answers = [] if part is None else tagger.predict([part.texts[row] for row in range(len(part))])
            for labels, answer in zip(() if part is None else part.labels, answers, strict=True):
                own = spans(labels)
                added = [span for span in spans(answer.labels) if span.label not in classes and is_free(span, own)]
                if added:
                    labels[:] = encode([*own, *added], len(labels), scheme)
                counts.update(span.label for span in added)
        found = ", ".join(f"{count:,} of {label}" for label, count in sorted(counts.items())) or "none"
        return f"spans of {origin.path}, put into the training and validation data: {found}"

    @property
    def notes(self) -> list[str]:
        return [self.rehearsed] if self.rehearsed else []

    def _labels(self, format: Format, sentence: Sentence) -> Sequence[Any]:
        """The label of each word: a string, or a tuple with a value for each column."""
        if self.columns:
            return label_rows(format, sentence, self.columns)
        return format.labels(sentence, self.recipe.data.label_column or None)

    def labels(self) -> Labels | LabelColumns:
        """The labels of the training data. Raises DataError if there are no two in a column."""
        train, wanted, path = self.split.train, self.recipe.head.scheme, self.recipe.data.train
        if not self.columns:
            detector = self.detectors[self.label_column]
            found = trained_labels(train.label_counts, detector, wanted, self.unit, self.advice, path)
            return found if self.kept is None else self.kept.labels(found)
        columns: dict[str, list[Learned]] = {}
        for place, name in enumerate(self.columns):
            told = ((train.texts[row], [values[place] for values in labels]) for row, labels in enumerate(train.labels))
            columns[name] = []
            for (kind, key), counts in learned_values(name, told).items():
                if kind == "label":
                    place_of = f' (column "{name}")'
                    found = trained_labels(counts, self.detectors[name], wanted, self.unit, place_of, path)
                else:
                    found = Labels(sorted(counts), scheme=None, tag_scheme=None)
                columns[name].append(Learned(kind, key, found))
            if not columns[name]:
                raise DataError(f'nothing to learn: no attribute in the column "{name}"', path)
        return LabelColumns(columns)

    def parts(self, labels: Labels | LabelColumns) -> TaggerParts:
        """The parts of a new model."""
        train = self.split.train
        columns = {name: column.values for name, column in train.columns.items()}
        lexicon, vectors = self.lexicon(self.recipe, train.texts.words.counts(), columns=columns)
        return TaggerParts(lexicon, vectors, labels, contextual=self.contextual.shapes, tuned=self.tuned)

    def parts_of(self, run: RunDirectory) -> TaggerParts:
        """The parts of a run that is resumed."""
        parts: TaggerParts = with_vectors(run.parts, run, self.recipe.features.vectors)
        return parts

    def encoded(self, sentences: Sentences, parts: TaggerParts) -> LabeledTexts:
        """The sentences as the model reads them."""
        encoded = EncodedTexts(parts.lexicon, sentences.texts, sentences.columns)
        found = SentenceGroups(encoded.words, sentences.sizes)
        subwords = None
        if self.tuned is not None:
            subwords = SubwordTexts(self.tuned.reader(whole=False), [sentences.texts]).joined(found.firsts)
        texts = encoded.joined(found.firsts).with_contextual(self.contextual)
        return LabeledTexts(texts, found, sentences.labels, sentences.texts, subwords)

    def amount(self, parts: TaggerParts) -> str:
        train, valid, labels = self.split.train, self.split.valid, parts.labels
        kept = f"{len(valid.texts.words):,} for validation" if valid else "none for validation"
        found = f'{len(labels.names)} labels in column "{self.label_column}"'
        if isinstance(labels, LabelColumns):
            found = f"columns {', '.join(labels.names)} with {len(labels.learned)} heads for {len(labels):,} tags"
        scheme = f" ({labels.scheme})" if labels.scheme else ""
        return f"{len(train.texts.words):,} words in {len(train):,} sentences, {kept}; {found}{scheme}"

    def config(self, parts: TaggerParts) -> dict[str, Any]:
        return {
            "format": self.format.name, "words": self.format.words, "labels": self.recipe.data.labels,
            "width": self.width, "d_vectors": d_vectors(parts.pretrained), "contextual": self.contextual.shapes,
        }  # fmt: skip

    @property
    def example(self) -> str:
        return "" if self.recipe.features.columns else "Janet will back the bill"

    def lines(self) -> list[str]:
        data, split = self.recipe.data, self.split
        lines = [f"- training: `{data.train}` ({self.format.name}), {split.train}", f"- validation: {split.valid_from}"]
        if split.valid:
            lines[-1] += f", {split.valid}"
        return [*lines, *([f"- test: `{data.test}`, {split.test}"] if split.test else [])]

    def python(self) -> list[str]:
        return [f'print(model.predict(["{self.example}"]))'] if self.example else []


class TaggedSeriesData(LabeledSeriesData):
    """The series of a recipe, with a label for each frame."""

    advice = ""

    def __init__(self, recipe: FrameLabelingRecipe, run: RunDirectory | None = None) -> None:
        super().__init__(recipe, run, labels_of=frame_labels)
        self.scheme = recipe.head.scheme
        self.detector = SchemeDetector()
        for labels in self.split.train.labels:
            self.detector.feed(labels)

    def labels(self) -> Labels:
        """The labels of the training data. Raises DataError if there are no two."""
        counts, wanted, path = self.split.train.label_counts, self.scheme, self.recipe.data.train
        return trained_labels(counts, self.detector, wanted, self.unit, self.advice, path)

    def parts(self, labels: Labels) -> FrameTaggerParts:
        """The parts of a new model."""
        return FrameTaggerParts(self.seen(), labels)

    def parts_of(self, run: RunDirectory) -> FrameTaggerParts:
        """The parts of a run that is resumed."""
        parts: FrameTaggerParts = run.parts
        return parts

    def encoded(self, data: LabeledSeries, parts: FrameTaggerParts) -> TaggedFrames:
        """The series as the model reads them."""
        return TaggedFrames(data.rows, data.labels)


def frame_labels(series: Series) -> tuple[str, ...]:
    """The label of each frame. Raises DataError if there is none."""
    if series.per_frame:
        return series.labels
    advice = "expected one for each frame, in a column of a table or in an array of labels"
    raise series.error(f"{series.name}: {'a label of the whole series' if series.labels else 'no label'}; {advice}")
