"""The job of training a classifier of texts: reads and checks them, and writes its part of the card."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, ClassVar

from ensue.data.documents import DocumentSource
from ensue.errors import DataError
from ensue.models.classifier import Classifier
from ensue.models.ngram_bag import MIN_TEXTS
from ensue.runs.directory import RunDirectory
from ensue.tasks.classification.classes_job import ClassesJob
from ensue.tasks.classification.documents import Documents
from ensue.tasks.classification.model import ClassifierParts
from ensue.tasks.classification.recipe import ClassificationRecipe
from ensue.tasks.classification.task import (
    ClassifiedTexts,
    weigh_ngrams,
)
from ensue.tasks.classification.texts import (
    check_document,
    describe_reading,
    document_source,
    keep_blanks,
)
from ensue.tasks.words.encoded_texts import EncodedTexts
from ensue.tasks.words.job import WordsJob
from ensue.tasks.words.length import check_length
from ensue.tasks.words.pretrained import with_vectors
from ensue.tasks.words.subwords import SubwordTexts
from ensue.text.classes import Classes
from ensue.text.tokens import shortened, words_in


class ClassificationJob(ClassesJob[Documents], WordsJob[Classifier, Documents]):
    """Trains a classifier of texts."""

    unit: ClassVar[str] = "texts"
    examples: ClassVar[str] = "texts"
    one: ClassVar[str] = "text"
    recipe: ClassificationRecipe
    parts: ClassifierParts

    def __init__(self, recipe: ClassificationRecipe, run: RunDirectory | None = None) -> None:
        self.recipe, self.is_new = recipe, run is None
        data = recipe.data
        if not data.train:
            raise DataError("no training data: --train PATH names a file, or a folder with a folder for each class")
        source = document_source(data, data.train, group=data.group)
        self.layout = source.layout
        self.begin_from(run)
        self.fingerprint = source.files.fingerprint()
        whole = self._read(source, multiple=True)
        self.multiple = any(len(labels) != 1 for labels in whole.labels)
        self.train, self.valid, self.valid_from = self.split(whole)
        self.test_data = self.read(data.test) if data.test else None
        self.parts = self._parts() if run is None else with_vectors(run.parts, run, recipe.features.vectors)
        self.begin_task()

    def read(self, location: str) -> Documents:
        source = document_source(self.recipe.data, location, like=self.layout)
        return self._read(source, multiple=self.multiple)

    def _read(self, source: DocumentSource, *, multiple: bool) -> Documents:
        data = self.recipe.data
        found = Documents.none(self.num_texts)
        blanks = self.tuned.framing.first if self.tuned is not None and self.blanks else None
        for document in source:
            check_document(document, self.num_texts, multiple=multiple)
            words = [words_in(text, data.splitter, blanks=blanks) for text in document.texts]
            kept = [shortened(part, data.max_tokens, data.keep) for part in words]
            check_length(max(map(len, kept)), self.recipe, document.path, document.line)
            found.append(kept, document.labels, cut=kept != words, empty=not any(words), group=document.group)
        if not len(found):
            raise DataError("no text in it", source.location)
        return found

    @property
    def blanks(self) -> bool:
        """Whether words have the blanks before them."""
        return self.tuned is not None and keep_blanks(self.recipe, self.tuned)

    @property
    def num_texts(self) -> int:
        """The number of texts in a document: 1, or 2 for pairs."""
        return 1 if self.layout.joined else max(1, len(self.layout.texts))

    def _labels(self) -> Classes:
        labels = self.classes(f" ({self.layout})")
        if all(self.train.empty):
            raise DataError(f"nothing to learn: no text has a word ({self.layout})", self.recipe.data.train)
        return labels

    def _parts(self) -> ClassifierParts:
        labels = self._labels()
        pretrained = self.pretrained()
        counts = sum((Counter(texts.words.counts()) for texts in self.train.texts), Counter[str]())
        lexicon = self.lexicon_with(pretrained, counts)
        vectors = None if pretrained is None else pretrained.vectors
        return ClassifierParts(
            lexicon, vectors, labels, self.num_texts == 2, contextual=self.contextual.shapes, tuned=self.tuned
        )

    def encoded(self, documents: Documents) -> ClassifiedTexts:
        return ClassifiedTexts(
            tuple(
                EncodedTexts(self.parts.lexicon, texts).with_contextual(self.contextual) for texts in documents.texts
            ),
            documents.labels,
            None
            if self.tuned is None
            else SubwordTexts(self.tuned.reader(whole=True, blanks=self.blanks), documents.texts),
        )

    @property
    def data(self) -> str:
        words = sum(len(texts.words) for texts in self.train.texts)
        valid = f"{len(self.valid):,} for validation" if self.valid else "none for validation"
        kind = "labels, several of them a text" if self.parts.labels.multiple else "labels"
        return f"{len(self.train):,} texts of {words:,} words, {valid}; {len(self.parts.labels)} {kind} ({self.layout})"

    @property
    def notes(self) -> list[str]:
        notes = [*self.notes_on_rare_labels()]
        if any(self.train.empty):
            notes.append(f"{sum(self.train.empty):,} texts are empty")
        return [*notes, *self.notes_on_labels()]

    def protocol(self, model: Classifier | None = None) -> str:
        """How long texts are read, in one line."""
        cut = sum(self.train.cut)
        return describe_reading(self.recipe.data, f"{cut:,} of {len(self.train):,} texts are longer:" if cut else "")

    def prepare(self, model: Classifier) -> None:
        if model.bag is not None:
            matrix = self.parts.labels.matrix(self.train.labels)
            least, weights = min(MIN_TEXTS, self.recipe.features.min_count), self.recipe.head.ngram_weights
            weigh_ngrams(model.bag, weights, self.encoded(self.train), matrix, least=least)
            if self.is_new or self.parts.ngrams is not None:
                self.parts = replace(self.parts, ngrams=model.bag.keep_weighed())
        super().prepare(model)

    def config(self) -> dict[str, Any]:
        return {
            "layout": self.layout.to_json(),
            "pair": self.num_texts == 2,
            "ngrams": self.parts.ngrams,
            **super().config(),
        }

    @property
    def example(self) -> str:
        return "" if self.num_texts == 2 else "a text of yours"

    def data_lines(self) -> list[str]:
        data = self.recipe.data
        lines = [f"- training: `{data.train}` ({self.layout}), {len(self.train):,} texts; {self.protocol()}"]
        lines.append(f"- validation: {self.valid_from}" + (f", {len(self.valid):,} texts" if self.valid else ""))
        if self.test_data:
            lines.append(f"- test: `{data.test}`, {len(self.test_data):,} texts")
        return lines

    def python(self) -> list[str]:
        text = f'"{self.example}"' if self.example else '("a text", "another text")'
        return [f"print(model.predict([{text}]))"]
