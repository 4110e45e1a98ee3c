"""The labels of several columns of one tagger. The label of a word is then a tuple with a value for each column.

How a column is learned follows from its name. The attributes of "feats" are labels of their own, such as that of
`Number`. Lemmas ("lemma") are edit scripts, which are applied to the form. Other columns are labels as they are.

A column of spans that may overlap is learned in the same way: the tags of each class are labels of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ensue.stored import FORMAT_VERSION, Stored, arguments
from ensue.text.edit_scripts import applied, edit_script
from ensue.text.labels import Labels
from ensue.text.schemes import OUTSIDE, Scheme, Span, joined_tags, overlapping, overlapping_spans, tags_of

Row = tuple[str, ...]
"""The values of a word, one for each column."""
Kind = Literal["label", "attribute", "script", "class"]
KIND_OF: dict[str, Kind] = {"feats": "attribute", "lemma": "script"}
NOTHING = "_"
_LEAST = 1e-6
"""The least probability of a script that counts for that of a lemma."""


class Learned(NamedTuple):
    """A part of a column that is learned by a head of its own; `key` is that of an attribute or class."""

    kind: Kind
    key: str
    labels: Labels


class LabelColumns(Stored):
    """The columns by name, each with what is learned of it: one part, or one for each attribute."""

    kind = "columns"
    scheme = tag_scheme = None
    has_spans = False

    def __init__(self, columns: dict[str, list[Learned]]) -> None:
        self.columns = columns
        self.names = tuple(columns)
        self.learned = [part for parts in columns.values() for part in parts]

    def in_scheme(self, rows: Sequence[Row]) -> list[Row]:
        """The values of each word of another file, with the spans of each column in the scheme of the training file."""
        columns = zip(_by_column(rows, len(self.columns)), self.columns.values(), strict=True)
        said = [values if parts[0].kind != "label" else parts[0].labels.in_scheme(values) for values, parts in columns]
        return list(zip(*said, strict=True))

    def encode(self, rows: Sequence[Row], words: Sequence[str]) -> list[list[int]]:
        """The ids of the tags of each word, one for each part; -1 for what the training data do not have."""
        ids: list[list[int]] = []
        for values, parts in zip(_by_column(rows, len(self.columns)), self.columns.values(), strict=True):
            told = _told(parts, values, words)
            ids += [part.labels.encode(said) for part, said in zip(parts, told, strict=True)]
        return [list(tags) for tags in zip(*ids, strict=True)]

    def decode(self, tags: Sequence[Sequence[int]], words: Sequence[str]) -> list[Row]:
        """The values of each word, as in the file."""
        by_part = iter(_by_column(tags, len(self.learned)))
        columns = []
        for parts in self.columns.values():
            said = [part.labels.decode(next(by_part)) for part in parts]
            columns.append(_values(parts, said, words))
        return list(zip(*columns, strict=True))

    def confidence(
        self, rows: Sequence[Row], marginals: NDArray[np.floating[Any]], words: Sequence[str]
    ) -> list[dict[str, float]]:
        """The probability of each value of each word, from those of the tags (T, K) of all parts side by side.

        The attributes of a word are independent of each other. The probability of a lemma is the sum over the scripts
        that make it.
        """
        ends = np.cumsum([len(part.labels) for part in self.learned])
        shares = iter(np.split(marginals, ends[:-1], axis=1))
        found: dict[str, list[float]] = {}
        for (name, parts), values in zip(self.columns.items(), _by_column(rows, len(self.columns)), strict=True):
            if parts[0].kind == "script":
                found[name] = _shares_of_lemmas(parts[0].labels, values, next(shares), words)
            else:
                told = _told(parts, values, words)
                each = [part.labels.confidence(said, next(shares)) for part, said in zip(parts, told, strict=True)]
                found[name] = [prod(together) for together in zip(*each, strict=True)]
        return [dict(zip(found, one, strict=True)) for one in zip(*found.values(), strict=True)]

    def to_json(self) -> dict[str, Any]:
        columns = {
            name: [{"kind": part.kind, "key": part.key, "labels": part.labels.to_json()} for part in parts]
            for name, parts in self.columns.items()
        }
        return {"kind": self.kind, "format_version": FORMAT_VERSION, "columns": columns}

    @classmethod
    def _restored(cls, columns: dict[str, list[dict[str, Any]]]) -> Self:
        if not columns or not all(columns.values()):
            raise ValueError("a column of which nothing is learned")
        form = {"kind": Kind, "key": str, "labels": Labels}
        return cls({name: [Learned(**arguments(form, part)) for part in parts] for name, parts in columns.items()})

    def __len__(self) -> int:
        return sum(len(part.labels) for part in self.learned)

    def __repr__(self) -> str:
        return f"LabelColumns({', '.join(self.names)}; {len(self.learned)} heads, {len(self)} tags)"


class NestedLabels(Stored):
    """A column of spans that may overlap: labels with the tags of all spans of a word, such as `I-ORG|B-LOC`.

    Each class is learned by a head of its own, and so are further layers of spans of one class.
    """

    kind = "nested"
    has_spans = True

    def __init__(self, learned: list[Learned]) -> None:
        self.learned = learned
        self._columns = LabelColumns({"": learned})
        self.names = tuple(name for part in learned for name in part.labels.names if name != OUTSIDE)

    @property
    def scheme(self) -> Scheme | None:
        """That of the training data."""
        return self.learned[0].labels.scheme

    def spans(self, labels: Sequence[str]) -> list[Span]:
        """The spans that the labels of a sentence write, the outer ones first."""
        return overlapping_spans(labels)

    def in_scheme(self, labels: Sequence[str]) -> Sequence[str]:
        """The labels of a sentence of another file, in the scheme of the training file."""
        assert self.scheme is not None
        return overlapping(overlapping_spans(labels), len(labels), self.scheme)

    def encode(self, labels: Sequence[str], words: Sequence[str] = ()) -> list[list[int]]:
        """The ids of the tags of each word, one for each part."""
        return self._columns.encode([(label,) for label in labels], words or labels)

    def decode(self, tags: Sequence[Sequence[int]], words: Sequence[str] = ()) -> list[str]:
        """The labels of a sentence, in the scheme of the training file."""
        return [label for (label,) in self._columns.decode(tags, words)]

    def confidence(
        self, labels: Sequence[str], marginals: NDArray[np.floating[Any]], words: Sequence[str] = ()
    ) -> list[float]:
        """The probability of each label of a sentence: the product over those of its tags, and of none elsewhere."""
        return [of[""] for of in self._columns.confidence([(label,) for label in labels], marginals, words)]

    def __len__(self) -> int:
        return len(self._columns)

    def __repr__(self) -> str:
        return f"NestedLabels({', '.join(part.key for part in self.learned)}; {len(self)} tags)"


TaggerLabels = Labels | LabelColumns | NestedLabels


def attributes(value: str) -> dict[str, str]:
    """The attributes of a value such as `Case=Nom|Number=Sing`; none for `_`."""
    return dict(entry.split("=", 1) for entry in value.split("|") if "=" in entry)


def written(found: dict[str, str]) -> str:
    """The inverse of `attributes`, in alphabetic order; `_` for none."""
    entries = [f"{key}={found[key]}" for key in sorted(found, key=str.lower)]
    return "|".join(entries) or NOTHING


class Marked(NamedTuple):
    """A value that has several marks: read as marks by key, written, and the value of a part without its mark."""

    read: Callable[[str], dict[str, str]]
    write: Callable[[dict[str, str]], str]
    nothing: str


MARKED: dict[Kind, Marked] = {
    "attribute": Marked(attributes, written, NOTHING),
    "class": Marked(tags_of, lambda found: joined_tags([found[key] for key in sorted(found)]), OUTSIDE),
}


def learned_values(
    kind: Kind, sentences: Iterable[tuple[Sequence[str], Sequence[str]]]
) -> dict[tuple[Kind, str], Counter[str]]:
    """How often each value is learned, for each part of a column, from the words and values of sentences."""
    marked = MARKED.get(kind)
    counts: dict[tuple[Kind, str], Counter[str]] = {}
    total = 0
    for words, values in sentences:
        total += len(values)
        if marked:
            for value in values:
                for key, said in marked.read(value).items():
                    counts.setdefault((kind, key), Counter())[said] += 1
        else:
            given = map(edit_script, words, values) if kind == "script" else values
            counts.setdefault((kind, ""), Counter()).update(given)
    for found in counts.values():
        if marked and total > found.total():
            found[marked.nothing] += total - found.total()
    return dict(sorted(counts.items()))


def _by_column(rows: Sequence[Sequence[Any]], width: int) -> list[Sequence[Any]]:
    """The values of each column; of no rows, so many empty ones."""
    return list(zip(*rows, strict=True)) or [()] * width


def _told(parts: Sequence[Learned], values: Sequence[str], words: Sequence[str]) -> list[list[str]]:
    """The values that each part of a column learns of those of the column."""
    if marked := MARKED.get(parts[0].kind):
        read = list(map(marked.read, values))
        return [[of_word.get(part.key, marked.nothing) for of_word in read] for part in parts]
    return [list(map(edit_script, words, values)) if parts[0].kind == "script" else list(values)]


def _values(parts: Sequence[Learned], said: Sequence[Sequence[str]], words: Sequence[str]) -> list[str]:
    """The values of a column from what each part says."""
    if marked := MARKED.get(parts[0].kind):
        keys = [part.key for part in parts]
        return [
            marked.write({key: value for key, value in zip(keys, of_word, strict=True) if value != marked.nothing})
            for of_word in zip(*said, strict=True)
        ]
    return list(map(applied, said[0], words)) if parts[0].kind == "script" else list(said[0])


def _shares_of_lemmas(
    labels: Labels, lemmas: Sequence[str], shares: NDArray[np.floating[Any]], words: Sequence[str]
) -> list[float]:
    """The probability that a script makes this lemma of the word."""
    scripts = labels.tags.symbols
    return [
        float(sum(row[tag] for tag in np.nonzero(row > _LEAST)[0] if applied(scripts[tag], word) == lemma))
        for row, word, lemma in zip(shares, words, lemmas, strict=True)
    ]
