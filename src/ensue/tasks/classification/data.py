"""The labeled texts of a recipe, and their encoding for a classifier."""

from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from ensue.data.compact_texts import Columns, Numbers, StringColumn, Texts, number_rows
from ensue.data.examples import Document, DocumentSource
from ensue.data.parallel import batched, ordered_map
from ensue.data.vectors import propose_vectors
from ensue.errors import DataError, pluralize
from ensue.ranks import process_group
from ensue.runs.directory import RunDirectory
from ensue.tasks.classification import model as classification
from ensue.tasks.classification.recipe import ClassificationRecipe
from ensue.tasks.classification.task import ClassifiedTexts
from ensue.tasks.contract.data_set import Split
from ensue.tasks.words.data import EncodedTexts, TeacherAnswer, TeacherLabels, WordsData
from ensue.tasks.words.model import d_vectors
from ensue.tasks.words.subwords import SubwordTexts
from ensue.text.labels import Classes

CHUNK_DOCUMENTS = 1_000
"""The number of documents that are read together."""


class Documents(Columns):
    """The texts of a file as words, with their labels. A document has one text, or two texts for a pair."""

    @classmethod
    def empty(cls, num_texts: int) -> Self:
        """Return an empty table for documents of `num_texts` texts."""
        texts = {f"text {number}": Texts() for number in range(num_texts)}
        flags = {"cut": Numbers("b"), "empty": Numbers("b")}
        return cls({**texts, "labels": Texts(), **flags, "groups": StringColumn()})

    @property
    def texts(self) -> tuple[Texts, ...]:
        """The texts; for pairs the first texts, then the second texts."""
        return tuple(column for name, column in self.columns.items() if name.startswith("text "))

    @property
    def labels(self) -> Texts:
        """The labels of each document."""
        return self.columns["labels"]

    def count(self, flag: Literal["cut", "empty"]) -> int:
        """Return the number of truncated documents, or of documents without words."""
        return int(np.count_nonzero(self.columns[flag].read(slice(None))))

    @property
    def forms(self) -> set[str]:
        """The distinct words."""
        return {form for texts in self.texts for form in texts.words.values}

    @property
    def label_counts(self) -> Counter[str]:
        """The number of texts with each label."""
        return Counter(self.labels.words.counts())

    @property
    def group_keys(self) -> NDArray[np.int64]:
        """An index for each document, equal within a group; without groups, equal for documents with equal words."""
        if any(self.columns["groups"].values):
            return super().group_keys
        return number_rows([digest for texts in self.texts for digest in texts.digests()])

    def append(self, texts: list[list[str]], document: Document, *, is_cut: bool) -> None:
        """Append a document, whose words are `texts`; `is_cut` is whether a text was truncated."""
        for column, words in zip(self.texts, texts, strict=True):
            column.append(words)
        self.labels.append(document.labels)
        self.columns["cut"].extend([is_cut])
        self.columns["empty"].extend([not any(texts)])
        self.columns["groups"].extend([document.group])

    def __str__(self) -> str:
        return f"{len(self):,} texts"


def read_documents(documents: Iterable[Document], *, reader: classification.TextReader, multiple: bool) -> Documents:
    """Return the words of documents. Raise DataError for a document that the model cannot read."""
    documents_read = Documents.empty(reader.num_texts)
    for document in documents:
        texts, is_cut = reader.read(document, multiple=multiple)
        documents_read.append(texts, document, is_cut=is_cut)
    return documents_read


class DocumentData(WordsData[Documents]):
    """The labeled texts of a recipe."""

    unit: ClassVar[str] = "texts"
    examples: ClassVar[str] = "texts"
    unit_singular: ClassVar[str] = "text"
    """The singular of `unit`."""

    def __init__(self, recipe: ClassificationRecipe, run: RunDirectory | None = None) -> None:
        self.recipe, data = recipe, recipe.data
        if not data.train:
            raise DataError("no training data: --train PATH names a file, or a folder with a folder for each class")
        source = classification.document_source(data, data.train, group=data.group)
        self.layout, self.format_name = source.layout, str(source.layout)
        self.layout_note = f" ({self.layout})"
        super().__init__(recipe, run)
        self.fingerprint = source.files.fingerprint()
        self.num_texts = 1 if self.layout.joined else max(1, len(self.layout.texts))
        self.subwords = classification.subword_reader(recipe, self.tuned)
        blanks = None if self.subwords is None else self.subwords.blanks
        self.reader = classification.TextReader(recipe, self.num_texts, data.splitter, blanks)
        key = [self.fingerprint, recipe.max_words, self.reader.blanks]
        self.split = Split.cached(Documents, data, key, lambda: self._split(source))
        self.teacher = TeacherLabels(data.teacher, self._read_words) if data.teacher else None
        if not recipe.features.vectors:  # with vectors, other ranks wait until the index of the vectors is cached
            process_group().release_local_ranks()
        labeled = [documents for documents in (self.split.train, self.split.valid) if documents is not None]
        self.multiple = any(bool((documents.labels.lengths != 1).any()) for documents in labeled)

    def _read_words(self, answer: TeacherAnswer) -> tuple[tuple[str, ...], ...]:
        return tuple(map(tuple, self.reader.read(Document(answer.texts, path=self.recipe.data.teacher))[0]))

    def soft_targets(self, labels: Classes) -> NDArray[np.float32] | None:
        """Return the probability of each label of the training texts (N, K); None without a teacher."""
        train = self.split.train
        if self.teacher is None:
            return None
        if labels.multiple:
            raise DataError("a teacher needs one label per text; some training texts have several", self.teacher.path)
        targets = labels.matrix(train.labels).astype(np.float32)
        return self.teacher.soft_targets(zip(*train.texts, strict=True), targets, range(len(targets)), labels.ids)

    def _split(self, source: DocumentSource) -> Split[Documents]:
        documents = self._read(source, multiple=True)
        self.multiple = bool((documents.labels.lengths != 1).any())
        return Split.of(documents, self.recipe.data, self.read, examples="texts", classes=documents.labels.max_ranks())

    def read(self, location: str) -> Documents:
        """Return the texts of validation or test data, in the format of the training data."""
        source = classification.document_source(self.recipe.data, location, like=self.layout)
        return self._read(source, multiple=self.multiple)

    def labels_in_names(self, location: str) -> list[str]:
        data = self.recipe.data
        is_read = location in (data.train, data.valid, data.test)
        return classification.document_source(data, location, like=self.layout).labels_in_names() if is_read else []

    def _read(self, source: DocumentSource, *, multiple: bool) -> Documents:
        documents = Documents.empty(self.num_texts)
        read = partial(read_documents, reader=self.reader, multiple=multiple)
        for chunk in ordered_map(read, batched(source, CHUNK_DOCUMENTS)):
            documents.add(chunk)
        if not len(documents):
            raise DataError("no texts", source.location)
        return documents

    def parts(self, labels: Classes) -> classification.ClassifierParts:
        """Return the vocabularies and labels of a new model. Raise DataError if no text has a word."""
        train = self.split.train
        if train.count("empty") == len(train):
            raise DataError(f"nothing to learn: no text has a word ({self.layout})", self.recipe.data.train)
        counts = sum((Counter(texts.words.counts()) for texts in train.texts), Counter[str]())
        lexicon, vectors = self.lexicon(self.recipe, counts, character_ngrams=self.recipe.head.character_ngrams)
        shapes, is_pair = self.contextual.shapes, self.num_texts == 2
        return classification.ClassifierParts(lexicon, vectors, labels, is_pair, contextual=shapes, tuned=self.tuned)

    def encode(self, documents: Documents, parts: classification.ClassifierParts) -> ClassifiedTexts:
        """Return the encoded texts, the input of the model."""
        texts = [EncodedTexts(parts.lexicon, texts).with_contextual(self.contextual) for texts in documents.texts]
        subwords = None if self.subwords is None else SubwordTexts(self.subwords, documents.texts)
        return ClassifiedTexts(tuple(texts), documents.labels, subwords)

    def amount(self, parts: classification.ClassifierParts) -> str:
        train, valid = self.split.train, self.split.valid
        words = sum(len(texts.words) for texts in train.texts)
        held_out = f"{len(valid):,} for validation" if valid else "none for validation"
        if not valid and self.recipe.is_gradient_free:
            held_out = "all of them for cross-validation"
        kind = "labels, several per text" if parts.labels.multiple else "labels"
        return f"{len(train):,} texts of {words:,} words, {held_out}; {len(parts.labels)} {kind} ({self.layout})"

    @property
    def notes(self) -> list[str]:
        empty = self.split.train.count("empty")
        notes = [f"{pluralize(empty, 'text is', 'texts are')} empty"] if empty else []
        if self.recipe.is_gradient_free and not self.recipe.features.vectors:
            notes += propose_vectors(Counter(self.split.train.texts[0].words.counts()))
        return notes

    def protocol(self) -> str:
        """Return a sentence about truncation and segments."""
        size, num_cut = len(self.split.train), self.split.train.count("cut")
        return classification.describe_reading(
            self.recipe.data, f"{num_cut:,} of {size:,} texts are longer:" if num_cut else ""
        )

    def config(self, parts: classification.ClassifierParts) -> dict[str, Any]:
        return {
            "layout": self.layout.to_json(), "pair": self.num_texts == 2, "ngrams": parts.ngrams,
            "d_vectors": d_vectors(parts.pretrained), "contextual": self.contextual.shapes,
        }  # fmt: skip
