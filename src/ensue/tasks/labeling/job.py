"""The job of training a tagger: reads and checks labeled sentences, makes task and model, and writes its part of the
card.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from ensue.data.sentences.columns import Columns
from ensue.data.sentences.contexts import contexts
from ensue.data.sentences.plain import PlainText
from ensue.data.sentences.sentence import Format, Sentence
from ensue.data.sentences.source import SentenceSource
from ensue.data.words import StringColumn, Texts
from ensue.errors import DataError, RecipeError
from ensue.metrics.labeling import LabelingScores
from ensue.models.build import build_lexicon
from ensue.models.tag_heads import ViterbiTagHead
from ensue.models.tagger import Tagger
from ensue.runs.directory import RunDirectory
from ensue.tasks.job import Job
from ensue.tasks.labeling.contexts import Contexts
from ensue.tasks.labeling.model import TaggerParts
from ensue.tasks.labeling.recipe import LabelingRecipe
from ensue.tasks.labeling.task import LabeledTexts, Labeling, evaluate_tagger
from ensue.tasks.words.encoded_texts import EncodedTexts
from ensue.tasks.words.label_table import label_table
from ensue.tasks.words.length import check_length, most_words
from ensue.tasks.words.pretrained import d_vectors, pretrained_vectors, with_vectors
from ensue.text.labels import Labels
from ensue.text.schemes import SchemeDetector


@dataclass
class Sentences:
    """The sentences of a file in memory: words, labels, and other columns that the model reads."""

    texts: Texts = field(default_factory=Texts)
    labels: list[list[str]] = field(default_factory=list)
    columns: dict[str, StringColumn] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=list)
    """How many sentences each context has that is read in one piece."""

    def append(self, sentence: Sentence, labels: Sequence[str], *, goes_on: bool = False) -> None:
        """`goes_on`: in the context of the sentence before."""
        self.texts.append(sentence.words)
        self.labels.append(list(labels))
        self._count(goes_on)
        for name, column in self.columns.items():
            column.extend(sentence.column(name))

    def _count(self, goes_on: bool) -> None:
        if goes_on:
            self.sizes[-1] += 1
        else:
            self.sizes.append(1)

    def slice(self, start: int, stop: int) -> Sentences:
        """The sentences from `start` to `stop`."""
        part = Sentences(columns={name: StringColumn() for name in self.columns})
        words, starts = self.texts.words, self.texts.starts
        goes_on = [place > 0 for size in self.sizes for place in range(size)]
        for row in range(start, stop):
            place = slice(starts[row], starts[row + 1])
            part.texts.append([words.values[id] for id in words.ids[place]])
            part.labels.append(self.labels[row])
            part._count(goes_on[row] and row > start)
            for name, column in part.columns.items():
                whole = self.columns[name]
                column.extend(whole.values[id] for id in whole.ids[place])
        return part

    def __len__(self) -> int:
        return len(self.labels)


class LabelingJob(Job[Tagger]):
    """Trains a tagger."""

    unit: ClassVar[str] = "words"
    recipe: LabelingRecipe
    parts: TaggerParts
    task: Labeling

    def __init__(self, recipe: LabelingRecipe, run: RunDirectory | None = None) -> None:
        self.recipe = recipe
        data = recipe.data
        if not data.train:
            raise DataError("no training data: --train PATH names a file of labeled sentences")
        if data.context_words > (most := most_words(recipe)):
            model = f"this model ({recipe.encoder.kind}) reads up to {most:,} words"
            raise RecipeError(f"data.context_words is {data.context_words:,}; {model}")
        source = sentence_source(recipe, data.train)
        self.format = source.format
        self.label_column = data.labels or self.format.default_column
        self.fingerprint = source.text.fingerprint()
        self.width = _width(source)
        if {self.label_column, str(self.width) if self.label_column == "last" else ""} & set(recipe.features.columns):
            raise RecipeError(f'features.columns names the column of the labels ("{self.label_column}")')
        detector = SchemeDetector()
        train = self._read(source, detector)
        self.train, self.valid, self.split = self._split(train)
        self.test_data = self._read(sentence_source(recipe, data.test, like=self.format)) if data.test else None
        self.parts = self._parts(detector) if run is None else with_vectors(run.parts, run, recipe.features.vectors)
        self.labels = self.parts.labels
        encoded = self._encoded(self.train)
        self.task = Labeling(
            encoded,
            self._encoded(self.valid) if self.valid else None,
            self.labels,
            batch_size=recipe.train.batch_size,
            batch_tokens=recipe.train.batch_tokens,
            seed=recipe.train.seed,
        )

    def _read(self, source: SentenceSource, detector: SchemeDetector | None = None) -> Sentences:
        """All sentences with words; a sentence without words has nothing to learn or score."""
        found = Sentences(columns={name: StringColumn() for name in self.recipe.features.columns})
        with_words = (sentence for sentence in source if sentence.words)
        for context in contexts(with_words, self.recipe.data.context_words):
            for place, sentence in enumerate(context):
                check_length(len(sentence.words), self.recipe, sentence.source.name, sentence.line)
                labels = source.format.labels(sentence, self.recipe.data.labels or None)
                found.append(sentence, labels, goes_on=place > 0)
                if detector is not None:
                    detector.feed(labels, sentence.line)
        if not len(found):
            raise DataError("no sentence in it", source.location)
        return found

    def _split(self, train: Sentences) -> tuple[Sentences, Sentences | None, str]:
        data = self.recipe.data
        if data.valid:
            return train, self._read(sentence_source(self.recipe, data.valid, like=self.format)), data.valid
        kept = round(len(train) * (1 - data.valid_fraction))
        if not data.valid_fraction or kept == len(train):
            return train, None, "none"
        split = f"the last {data.valid_fraction:.0%} of {data.train}"
        return train.slice(0, max(1, kept)), train.slice(max(1, kept), len(train)), split

    def _labels(self, detector: SchemeDetector) -> Labels:
        counts = Counter(label for labels in self.train.labels for label in labels)
        if len(counts) < 2:
            only = next(iter(counts))
            raise DataError(
                f'nothing to learn: all {counts[only]:,} words have the label "{only}" (column "{self.label_column}"); '
                "data.labels names another column",
                self.recipe.data.train,
            )
        scheme = detector.result(self.recipe.data.train)
        wanted = self.recipe.head.scheme
        tag_scheme = None if scheme is None else scheme if wanted == "file" else wanted
        return Labels(sorted(counts), scheme=scheme, tag_scheme=tag_scheme)

    def _parts(self, detector: SchemeDetector) -> TaggerParts:
        labels, vectors = self._labels(detector), self.recipe.features.vectors
        words, pretrained = pretrained_vectors(vectors, self._forms()) if vectors else (None, None)
        columns = {name: column.values for name, column in self.train.columns.items()}
        counts = self.train.texts.words.counts()
        lexicon = build_lexicon(self.recipe.features, counts, columns=columns, vectors=words)
        return TaggerParts(lexicon, pretrained, labels)

    def _forms(self) -> set[str]:
        """All word forms of the data."""
        parts = (self.train, self.valid, self.test_data)
        return {form for part in parts if part is not None for form in part.texts.words.values}

    def _encoded(self, sentences: Sentences) -> LabeledTexts:
        encoded = EncodedTexts(self.parts.lexicon, sentences.texts, sentences.columns)
        found = Contexts(encoded.words, sentences.sizes)
        return LabeledTexts(encoded.joined(found.firsts), found, sentences.labels)

    @property
    def data(self) -> str:
        words = len(self.train.texts.words)
        valid = f"{len(self.valid.texts.words):,} for validation" if self.valid else "none for validation"
        return (
            f"{words:,} words in {len(self.train):,} sentences, {valid}; {len(self.labels.names)} labels in column "
            f'"{self.label_column}"' + (f" ({self.labels.scheme})" if self.labels.scheme else "")
        )

    @property
    def notes(self) -> list[str]:
        notes = []
        if self.valid is None:
            notes.append("no validation data: the last weights are kept, and no score is measured")
        for what, part in (("validation", self.valid), ("test", self.test_data)):
            counts = Counter(label for labels in part.labels for label in labels) if part else {}
            missing = sorted(counts.keys() - set(self.labels.names))
            if missing:
                count = sum(counts[label] for label in missing)
                notes.append(f"training has no {', '.join(missing)}: wrong in {count:,} words of the {what} data")
        return notes

    def prepare(self, model: Tagger) -> None:
        tags = self.task.tags
        model.head.start_from_counts(np.bincount(tags.values, minlength=len(self.labels)))
        if isinstance(model.head, ViterbiTagHead):
            model.head.count_bigrams(np.split(tags.values, tags.starts[1:-1]))

    def config(self) -> dict[str, Any]:
        return {
            "format": self.format.name,
            "words": self.format.words,
            "labels": self.recipe.data.labels,
            "width": self.width,
            "splitter": self.recipe.data.splitter,
            "d_vectors": d_vectors(self.parts.pretrained),
        }

    def test(self, model: Tagger) -> LabelingScores | None:
        return None if self.test_data is None else evaluate_tagger(model, self._encoded(self.test_data), self.labels)

    def about(self) -> str:
        names = self.labels.names
        shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
        return f"of {len(names)} labels ({shown})"

    def score_lines(self, scores: dict[str, dict[str, Any]]) -> list[str]:
        columns = {"accuracy": "accuracy", "macro_f1": "macro F1"}
        if self.labels.has_spans:
            columns = {"accuracy": "accuracy", "precision": "precision", "recall": "recall", "f1": "F1"}
        lines = [f"| data | {' | '.join(columns.values())} | words |", f"|---{'|---' * len(columns)}|---|"]
        for name, found in scores.items():
            numbers = " | ".join(f"{100 * found[key]:.2f}" for key in columns)
            lines.append(f"| {name} | {numbers} | {found['tokens']:,} |")
        last = next(reversed(scores.values()), None)
        return lines if last is None else [*lines, "", *label_table(last["per_label"])]

    def data_lines(self) -> list[str]:
        data = self.recipe.data
        lines = [f"- training: `{data.train}` ({self.format.name}), {_size(self.train)}", f"- validation: {self.split}"]
        if self.valid:
            lines[-1] += f", {_size(self.valid)}"
        if self.test_data:
            lines.append(f"- test: `{data.test}`, {_size(self.test_data)}")
        return lines

    def commands(self, path: str) -> list[str]:
        plain = [] if self.recipe.features.columns else [f'echo "Janet will back the bill" | ensue predict {path}']
        return [*plain, f"ensue predict {path} FILE > labeled", f"ensue evaluate {path} FILE --json"]

    def python(self) -> list[str]:
        if self.recipe.features.columns:  # which running text does not have
            return ['print(model.evaluate("FILE").summary())']
        return ['print(model.predict(["Janet will back the bill"]))']


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


def _width(source: SentenceSource) -> int:
    """The number of columns, if they have numbers and no names; else 0."""
    if not isinstance(source.format, Columns):
        return 0
    first = next(iter(source), None)
    return 0 if first is None else len(first.columns)


def _size(sentences: Sentences) -> str:
    return f"{len(sentences):,} sentences, {len(sentences.texts.words):,} words"
