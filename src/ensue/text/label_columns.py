"""Labels of several columns: the label of a word is a tuple with a value for each column.

The name of a column determines its heads. "feats" has a head for each attribute, such as `Number`. "lemma" has a head
of edit scripts, which are applied to the word form. Any other column has a head of labels, or a head for each class if
spans overlap.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from math import prod
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from ensue.stored import FORMAT_VERSION, Stored, arguments
from ensue.text.edit_scripts import apply_script, edit_script
from ensue.text.labels import Floats, Labels
from ensue.text.schemes import OUTSIDE, Scheme, Span, encode_overlapping, join_tags, overlapping_spans, tags_of

Row = tuple[str, ...]
"""The values of a word, one for each column."""
HeadKind = Literal["label", "attribute", "script", "class"]
HEAD_KINDS: dict[str, HeadKind] = {"feats": "attribute", "lemma": "script"}
EMPTY = "_"  # a value without attributes
_MIN_PROBABILITY = 1e-6
"""Scripts with a lower probability are ignored in the probability of a lemma."""


class LabelHead(NamedTuple):
    """A head and its labels. `key` is the attribute or the span class that the head predicts, else ""."""

    kind: HeadKind
    key: str
    labels: Labels


class LabelColumns(Stored):
    """The label columns of a tagger, by name, each with its heads."""

    kind = "columns"
    tag_scheme = None
    has_spans = False

    def __init__(self, columns: dict[str, list[LabelHead]]) -> None:
        self.columns = columns
        self.names = tuple(columns)
        self.learned = [head for heads in columns.values() for head in heads]

    @property
    def scheme(self) -> Scheme | None:
        """The scheme of the first column if all columns have spans, else None."""
        schemes = [heads[0].labels.scheme for heads in self.columns.values()]
        return schemes[0] if all(schemes) else None

    def convert_scheme(self, rows: Sequence[Row]) -> list[Row]:
        """Convert the values of each word in another file to the label scheme of the training file."""
        columns = zip(_transpose(rows, len(self.columns)), self.columns.values(), strict=True)
        converted = [heads[0].labels.convert_scheme(values) if heads[0].kind == "label" else values
                     for values, heads in columns]  # fmt: skip
        return list(zip(*converted, strict=True))

    def encode(self, rows: Sequence[Row], words: Sequence[str]) -> list[list[int]]:
        """Return the tag ids of each word, one for each head; -1 for values that are not in the training data."""
        ids: list[list[int]] = []
        for values, heads in zip(_transpose(rows, len(self.columns)), self.columns.values(), strict=True):
            targets = _encode_values(heads, values, words)
            ids += [head.labels.encode(labels) for head, labels in zip(heads, targets, strict=True)]
        return [list(tags) for tags in zip(*ids, strict=True)]

    def decode(self, tags: Sequence[Sequence[int]], words: Sequence[str]) -> list[Row]:
        """Return the values of each word from the tag ids that the heads predict."""
        tags_of_heads = iter(_transpose(tags, len(self.learned)))
        columns = []
        for heads in self.columns.values():
            predicted = [head.labels.decode(next(tags_of_heads)) for head in heads]
            columns.append(_decode_labels(heads, predicted, words))
        return list(zip(*columns, strict=True))

    def confidence(self, rows: Sequence[Row], marginals: Floats, words: Sequence[str]) -> list[dict[str, float]]:
        """Return the probability of each value of each word, given the `marginals` (T, K) of the tags of all heads.

        Attributes are treated as independent. The probability of a lemma is the sum over all scripts that yield it.
        """
        probabilities = iter(np.split(marginals, np.cumsum([len(head.labels) for head in self.learned])[:-1], axis=1))
        columns: dict[str, list[float]] = {}
        for (name, heads), values in zip(self.columns.items(), _transpose(rows, len(self.columns)), strict=True):
            if heads[0].kind == "script":
                columns[name] = _lemma_probabilities(heads[0].labels, values, next(probabilities), words)
            else:
                pairs = zip(heads, _encode_values(heads, values, words), strict=True)
                factors = [head.labels.confidence(labels, next(probabilities)) for head, labels in pairs]
                columns[name] = list(map(prod, zip(*factors, strict=True)))
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def to_json(self) -> dict[str, Any]:
        columns = {name: [{"kind": head.kind, "key": head.key, "labels": head.labels.to_json()} for head in heads]
                   for name, heads in self.columns.items()}  # fmt: skip
        return {"kind": self.kind, "format_version": FORMAT_VERSION, "columns": columns}

    @classmethod
    def _restored(cls, columns: dict[str, list[dict[str, Any]]]) -> Self:
        if not columns or not all(columns.values()):
            raise ValueError("a column without heads")
        schema = {"kind": HeadKind, "key": str, "labels": Labels}
        return cls({name: [LabelHead(**arguments(schema, head)) for head in heads] for name, heads in columns.items()})

    def __len__(self) -> int:
        return sum(len(head.labels) for head in self.learned)

    def __repr__(self) -> str:
        return f"LabelColumns({', '.join(self.names)}; {len(self.learned)} heads, {len(self)} tags)"


class NestedLabels(Stored):
    """Labels of spans that may overlap. The label of a word has the tags of all its spans, such as `I-ORG|B-LOC`.

    Each class has a head. If spans of one class overlap, each additional layer of spans has a head, too.
    """

    kind = "nested"
    has_spans = True

    def __init__(self, learned: list[LabelHead]) -> None:
        self.learned = learned
        self._columns = LabelColumns({"": learned})
        self.names = tuple(name for head in learned for name in head.labels.names if name != OUTSIDE)

    @property
    def scheme(self) -> Scheme | None:
        """The scheme of the training data."""
        return self.learned[0].labels.scheme

    def spans(self, labels: Sequence[str]) -> list[Span]:
        """Return the spans of a sentence, outer spans first."""
        return overlapping_spans(labels)

    def convert_scheme(self, labels: Sequence[str]) -> Sequence[str]:
        """Convert the labels of a sentence in another file to the label scheme of the training file."""
        assert self.scheme is not None
        return encode_overlapping(overlapping_spans(labels), len(labels), self.scheme)

    def encode(self, labels: Sequence[str], words: Sequence[str] = ()) -> list[list[int]]:
        """Return the tag ids of each word, one for each head."""
        return self._columns.encode([(label,) for label in labels], words or labels)

    def decode(self, tags: Sequence[Sequence[int]], words: Sequence[str] = ()) -> list[str]:
        """Return the labels of a sentence, in the label scheme of the training file."""
        return [label for (label,) in self._columns.decode(tags, words)]

    def confidence(self, labels: Sequence[str], marginals: Floats, words: Sequence[str] = ()) -> list[float]:
        """Return the probability of each label of a sentence: the product of the probabilities of all heads."""
        return [row[""] for row in self._columns.confidence([(label,) for label in labels], marginals, words)]

    def __len__(self) -> int:
        return len(self._columns)

    def __repr__(self) -> str:
        return f"NestedLabels({', '.join(head.key for head in self.learned)}; {len(self)} tags)"


TaggerLabels = Labels | LabelColumns | NestedLabels


def attributes(value: str) -> dict[str, str]:
    """Split a value such as `Case=Nom|Number=Sing` into its attributes. `_` has no attributes."""
    return dict(entry.split("=", 1) for entry in value.split("|") if "=" in entry)


class Codec(NamedTuple):
    """A pair of functions that split a value into parts by key, such as attributes, and join them again."""

    read: Callable[[str], dict[str, str]]
    write: Callable[[dict[str, str]], str]
    missing: str
    """The value of a key that is absent from a word."""


CODECS: dict[HeadKind, Codec] = {
    "attribute": Codec(
        attributes, lambda tags: "|".join(f"{key}={tags[key]}" for key in sorted(tags, key=str.lower)) or EMPTY, EMPTY
    ),
    "class": Codec(tags_of, lambda tags: join_tags([tags[key] for key in sorted(tags)]), OUTSIDE),
}


def count_head_values(
    kind: HeadKind, sentences: Iterable[tuple[Sequence[str], Sequence[str]]]
) -> dict[tuple[HeadKind, str], Counter[str]]:
    """Count the labels of each head (kind and key) of a column. A sentence is a pair of its words and their values."""
    codec = CODECS.get(kind)
    counts: dict[tuple[HeadKind, str], Counter[str]] = {}
    total = 0
    for words, values in sentences:
        total += len(values)
        if codec:
            for value in values:
                for key, label in codec.read(value).items():
                    counts.setdefault((kind, key), Counter())[label] += 1
        else:
            labels = map(edit_script, words, values) if kind == "script" else values
            counts.setdefault((kind, ""), Counter()).update(labels)
    for counter in counts.values():
        if codec and total > counter.total():
            counter[codec.missing] += total - counter.total()
    return dict(sorted(counts.items()))


def _transpose(rows: Sequence[Sequence[Any]], width: int) -> list[Sequence[Any]]:
    return list(zip(*rows, strict=True)) or [()] * width


def _encode_values(heads: Sequence[LabelHead], values: Sequence[str], words: Sequence[str]) -> list[list[str]]:
    if codec := CODECS.get(heads[0].kind):
        split = list(map(codec.read, values))
        return [[word_values.get(head.key, codec.missing) for word_values in split] for head in heads]
    return [list(map(edit_script, words, values)) if heads[0].kind == "script" else list(values)]


def _decode_labels(heads: Sequence[LabelHead], labels: Sequence[Sequence[str]], words: Sequence[str]) -> list[str]:
    if heads[0].kind in CODECS:
        keys = tuple([head.key for head in heads])
        return [_join_values(heads[0].kind, keys, row) for row in zip(*labels, strict=True)]
    return list(map(apply_script, labels[0], words)) if heads[0].kind == "script" else list(labels[0])


@lru_cache(maxsize=1 << 12)
def _join_values(kind: HeadKind, keys: tuple[str, ...], labels: tuple[str, ...]) -> str:
    codec = CODECS[kind]
    return codec.write({key: label for key, label in zip(keys, labels, strict=True) if label != codec.missing})


def _lemma_probabilities(labels: Labels, lemmas: Sequence[str], marginals: Floats, words: Sequence[str]) -> list[float]:
    scripts = labels.tags.symbols
    return [
        float(sum(row[n] for n in np.nonzero(row > _MIN_PROBABILITY)[0] if apply_script(scripts[n], word) == lemma))
        for row, word, lemma in zip(marginals, words, lemmas, strict=True)
    ]
