"""The labeled texts of a file in memory, for training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ensue.data.compact_texts import Ragged, Texts


@dataclass
class Documents:
    """The texts of a file in memory, as words, with their labels. A document has one text, or the two of a pair."""

    texts: tuple[Texts, ...]
    labels: list[tuple[str, ...]] = field(default_factory=list)
    cut: list[bool] = field(default_factory=list)
    """For each text, whether it was cut."""
    empty: list[bool] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    """For each text the group that the data name; "" for none."""

    @classmethod
    def none(cls, num_texts: int) -> Self:
        """No document yet, for documents of `num_texts` texts."""
        return cls(tuple(Texts() for _ in range(num_texts)))

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def forms(self) -> set[str]:
        """The distinct words."""
        return {form for texts in self.texts for form in texts.words.values}

    @property
    def label_counts(self) -> Counter[str]:
        """How many texts have each label."""
        return Counter(label for labels in self.labels for label in labels)

    @property
    def sources(self) -> list[Hashable]:
        """The group of each document; without groups its words."""
        if any(self.groups):
            return [*self.groups]
        columns = [Ragged(texts.words.ids, texts.starts) for texts in self.texts]
        return [tuple(column[row].tobytes() for column in columns) for row in range(len(self))]

    def append(
        self, texts: Sequence[Sequence[str]], labels: tuple[str, ...], *, cut: bool, empty: bool, group: str = ""
    ) -> None:
        """Appends a document, as the words of each of its texts."""
        for column, words in zip(self.texts, texts, strict=True):
            column.append(words)
        self.labels.append(labels)
        self.cut.append(cut)
        self.empty.append(empty)
        self.groups.append(group)

    def select(self, rows: NDArray[np.int64]) -> Self:
        """The documents in these rows."""
        texts = tuple(texts.select(rows) for texts in self.texts)
        labels, cut, empty, groups = (
            [column[row] for row in rows.tolist()] for column in (self.labels, self.cut, self.empty, self.groups)
        )
        return type(self)(texts, labels, cut, empty, groups)
