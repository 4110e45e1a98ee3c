"""The labeled sentences of a file in memory, for training, and how the file is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ensue.data.compact_texts import StringColumn, Texts
from ensue.data.sentences.columns import Columns
from ensue.data.sentences.formats import PlainText
from ensue.data.sentences.sentence import Format, Sentence
from ensue.data.sentences.source import SentenceSource
from ensue.errors import DataError
from ensue.tasks.labeling.recipe import LabelingRecipe


@dataclass
class Sentences:
    """The sentences of a file in memory: words, labels, and other columns that the model reads."""

    texts: Texts = field(default_factory=Texts)
    labels: list[list[str]] = field(default_factory=list)
    columns: dict[str, StringColumn] = field(default_factory=dict)
    sizes: list[int] = field(default_factory=list)
    """How many sentences each context has that is read in one piece."""
    groups: list[str] = field(default_factory=list)
    """For each sentence the group that the data name; "" for none."""

    def append(self, sentence: Sentence, labels: Sequence[str], *, goes_on: bool = False, group: str = "") -> None:
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
        columns = {name: column.take(self.texts.places(rows)) for name, column in self.columns.items()}
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
    def label_counts(self) -> Counter[str]:
        """How many words have each label."""
        return Counter(label for labels in self.labels for label in labels)

    def __len__(self) -> int:
        return len(self.labels)

    def __str__(self) -> str:
        return f"{len(self):,} sentences, {len(self.texts.words):,} words"


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


def num_columns(source: SentenceSource) -> int:
    """The number of columns, if they have numbers and no names; else 0."""
    if not isinstance(source.format, Columns):
        return 0
    first = source.first()
    return 0 if first is None else len(first.columns)
