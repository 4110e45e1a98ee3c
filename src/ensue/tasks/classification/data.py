"""The labeled texts of a recipe: read, checked, and encoded for a classifier."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ensue.data.compact_texts import Columns, Numbers, StringColumn, Texts, numbered
from ensue.data.examples import Document, DocumentSource
from ensue.data.parallel import batched, in_order
from ensue.errors import DataError, RecipeError
from ensue.ranks import ranks
from ensue.runs.directory import RunDirectory
from ensue.tasks.classification.model import ClassifierParts
from ensue.tasks.classification.recipe import ClassificationRecipe
from ensue.tasks.classification.task import ClassifiedTexts
from ensue.tasks.classification.texts import ReadTexts, TextReader, describe_reading, document_source, subword_reader
from ensue.tasks.contract.data_set import Split
from ensue.tasks.words.data import EncodedTexts, WordsData
from ensue.tasks.words.model import d_vectors
from ensue.tasks.words.subwords import SubwordTexts
from ensue.tasks.words.teacher import Answer, Told
from ensue.text.labels import Classes

DOCUMENTS = 1_000
"""The documents that are read together."""


class Documents(Columns):
    """The texts of a file as words, with their labels. A document has one text, or the two of a pair."""

    @classmethod
    def none(cls, num_texts: int) -> Self:
        """No document yet, for documents of `num_texts` texts."""
        texts = {f"text {number}": Texts() for number in range(num_texts)}
        flags = {"cut": Numbers("b"), "empty": Numbers("b")}
        return cls({**texts, "labels": Texts(), **flags, "groups": StringColumn()})

    @property
    def texts(self) -> tuple[Texts, ...]:
        """Their texts; of pairs first all first ones."""
        return tuple(column for name, column in self.columns.items() if name.startswith("text "))

    @property
    def labels(self) -> Texts:
        """The labels of each document."""
        return self.columns["labels"]  # type: ignore[no-any-return]

    @property
    def num_cut(self) -> int:
        """How many were cut."""
        return int(np.count_nonzero(self.columns["cut"].read(slice(None))))

    @property
    def num_empty(self) -> int:
        """How many have no word."""
        return int(np.count_nonzero(self.columns["empty"].read(slice(None))))

    @property
    def forms(self) -> set[str]:
        """The distinct words."""
        return {form for texts in self.texts for form in texts.words.values}

    @property
    def label_counts(self) -> Counter[str]:
        """How many texts have each label."""
        return Counter(self.labels.words.counts())

    @property
    def sources(self) -> NDArray[np.int64]:
        """The number of the group of each document; without groups that of its words."""
        if any(self.columns["groups"].values):
            return super().sources
        return numbered([digest for texts in self.texts for digest in texts.digests()])

    def append(self, texts: ReadTexts, document: Document) -> None:
        """Append a document with the words that are read of its texts."""
        for column, words in zip(self.texts, texts.words, strict=True):
            column.append(words)
        self.labels.append(document.labels)
        self.columns["cut"].extend([texts.is_cut])
        self.columns["empty"].extend([texts.is_empty])
        self.columns["groups"].extend([document.group])

    def __str__(self) -> str:
        return f"{len(self):,} texts"


@dataclass(frozen=True)
class ReadDocuments:
    """From documents to their words, for any process."""

    reader: TextReader
    multiple: bool

    def __call__(self, documents: Iterable[Document]) -> Documents:
        """Raise DataError for one that the model does not read."""
        documents_read = Documents.none(self.reader.num_texts)
        for document in documents:
            documents_read.append(self.reader.read(document, multiple=self.multiple), document)
        return documents_read


class DocumentData(WordsData[Documents]):
    """The labeled texts of a recipe."""

    unit: ClassVar[str] = "texts"
    examples: ClassVar[str] = "texts"
    one: ClassVar[str] = "text"

    def __init__(self, recipe: ClassificationRecipe, run: RunDirectory | None = None) -> None:
        self.recipe, data = recipe, recipe.data
        if not data.train:
            raise DataError("no training data: --train PATH names a file, or a folder with a folder for each class")
        source = document_source(data, data.train, group=data.group)
        self.layout, self.form = source.layout, str(source.layout)
        self.read_as = f" ({self.layout})"
        super().__init__(recipe, run)
        if self.kept is not None and (recipe.head.ngrams or recipe.tuning.rehearse):
            wrong = "tuning.rehearse" if recipe.tuning.rehearse else "head.ngrams"
            raise RecipeError(f"tuning.keep_labels of a classifier does not go with {wrong}")
        self.fingerprint = source.files.fingerprint()
        self.num_texts = 1 if self.layout.joined else max(1, len(self.layout.texts))
        self.subwords = subword_reader(recipe, self.tuned)
        self.reader = TextReader.of(recipe, self.num_texts, self.subwords)
        key = [self.fingerprint, recipe.most_read, self.reader.blanks]
        self.split = Split.kept(Documents, data, key, lambda: self._split(source))
        self.answers = Told(data.teacher, self._words_of) if data.teacher else None
        if not recipe.features.vectors:  # whose places the first process keeps, too
            ranks().end_turn()
        self.multiple = any(
            part is not None and bool((part.labels.lengths != 1).any()) for part in (self.split.train, self.split.valid)
        )

    def _words_of(self, answer: Answer) -> tuple[tuple[str, ...], ...]:
        read = self.reader.read(Document(answer.texts, path=self.recipe.data.teacher)).words
        return tuple(map(tuple, read))

    def soft_targets(self, labels: Classes) -> NDArray[np.float32] | None:
        """Return the probability of each label of the training texts (N, K); None without a teacher. A text that the
        teacher does not label has the label of its file.

        Raises:
            DataError: The teacher labels none of these texts, or texts have several labels.
        """
        train = self.split.train
        if self.answers is None:
            return None
        if labels.multiple:
            raise DataError("a teacher is for one label a text; some training texts have several", self.answers.path)
        targets = labels.matrix(train.labels).astype(np.float32)
        return self.answers.put(zip(*train.texts, strict=True), targets, range(len(targets)), labels.ids)

    def _split(self, source: DocumentSource) -> Split[Documents]:
        """Return all documents, read from files."""
        documents = self._read(source, multiple=True)
        self.multiple = bool((documents.labels.lengths != 1).any())
        return Split.of(documents, self.recipe.data, self.read, examples="texts", classes=documents.labels.rarest())

    def read(self, location: str) -> Documents:
        """Validation or test data, in the format of the training data."""
        source = document_source(self.recipe.data, location, like=self.layout)
        return self._read(source, multiple=self.multiple)

    def labels_in_names(self, location: str) -> list[str]:
        data = self.recipe.data
        is_read = location in (data.train, data.valid, data.test)
        return document_source(data, location, like=self.layout).labels_in_names() if is_read else []

    def _read(self, source: DocumentSource, *, multiple: bool) -> Documents:
        documents = Documents.none(self.num_texts)
        for part in in_order(ReadDocuments(self.reader, multiple), batched(source, DOCUMENTS)):
            documents.add(part)
        if not len(documents):
            raise DataError("no text in it", source.location)
        return documents

    def parts(self, labels: Classes) -> ClassifierParts:
        """Return the parts of a new model. Raises DataError if there is no word."""
        train = self.split.train
        if train.num_empty == len(train):
            raise DataError(f"nothing to learn: no text has a word ({self.layout})", self.recipe.data.train)
        counts = sum((Counter(texts.words.counts()) for texts in train.texts), Counter[str]())
        lexicon, vectors = self.lexicon(self.recipe, counts)
        return ClassifierParts(
            lexicon, vectors, labels, self.num_texts == 2, contextual=self.contextual.shapes, tuned=self.tuned
        )

    def encoded(self, documents: Documents, parts: ClassifierParts) -> ClassifiedTexts:
        """Return the texts as the model reads them."""
        texts = [EncodedTexts(parts.lexicon, texts).with_contextual(self.contextual) for texts in documents.texts]
        subwords = None if self.subwords is None else SubwordTexts(self.subwords, documents.texts)
        return ClassifiedTexts(tuple(texts), documents.labels, subwords)

    def amount(self, parts: ClassifierParts) -> str:
        train, valid = self.split.train, self.split.valid
        words = sum(len(texts.words) for texts in train.texts)
        held_out = f"{len(valid):,} for validation" if valid else "none for validation"
        kind = "labels, several of them a text" if parts.labels.multiple else "labels"
        return f"{len(train):,} texts of {words:,} words, {held_out}; {len(parts.labels)} {kind} ({self.layout})"

    @property
    def notes(self) -> list[str]:
        empty = self.split.train.num_empty
        return [f"{empty:,} texts are empty"] if empty else []

    def protocol(self) -> str:
        """Return how long texts are read, in one line."""
        train = self.split.train
        cut = train.num_cut
        return describe_reading(self.recipe.data, f"{cut:,} of {len(train):,} texts are longer:" if cut else "")

    def config(self, parts: ClassifierParts) -> dict[str, Any]:
        return {
            "layout": self.layout.to_json(), "pair": self.num_texts == 2, "ngrams": parts.ngrams,
            "d_vectors": d_vectors(parts.pretrained), "contextual": self.contextual.shapes,
        }  # fmt: skip

    @property
    def example(self) -> str:
        return "" if self.num_texts == 2 else "a text of yours"

    def python(self) -> list[str]:
        text = f'"{self.example}"' if self.example else '("a text", "another text")'
        return [f"print(model.predict([{text}]))"]
