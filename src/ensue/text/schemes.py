"""Label schemes: conversion between spans and a label for each token, and detection of the scheme of a file.

A label is `O` (outside) or a prefix, a dash and the span's class: `B-PER`. There are eight schemes:

- `iob1` (Ramshaw & Marcus 1995): `I` on all tokens of a span, except that `B` begins a span that directly follows
  another span of its class.
- `bio` (IOB2): `B` on the first token of every span, `I` on its other tokens.
- `ioe1` (Tjong Kim Sang & Veenstra 1999): `I` on all tokens of a span, except that `E` ends a span that directly
  precedes another span of its class.
- `ioe2`: `E` on the last token of every span, `I` on its other tokens.
- `iobes`: `B I ... I E`, and `S` for a span of one token. `bilou`, `bmes` and `bmewo` are `iobes` in other letters.

If spans overlap, the label of a token has the tags of all its spans, such as `I-ORG|B-LOC`. If two spans of one class
overlap, the class of the second span gets a plus (`B-NP|B-NP+`); the class of a third span gets two.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from heapq import heappop, heappush
from itertools import repeat
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensue.errors import NESTED_REMEDY, DataError, OverlapError

Scheme = Literal["bio", "iob1", "ioe2", "ioe1", "iobes", "bilou", "bmes", "bmewo"]
OUTSIDE = "O"
TAG_SEPARATOR, LAYER_SIGN = "|", "+"
"""The separator of the tags in a label, and the suffix of a class for each further overlapping span of that class."""
MAX_SPANS_OF_WORD = 256
"""The maximum number of spans of a word. The time to encode a word is quadratic in the number of its spans."""
PLACES = "BIES"
"""The possible places of a token in a span: first (B), inside (I), last (E), or the only token (S)."""


class Letters(NamedTuple):
    """The letters of a scheme for the four `PLACES`, and the special letters between adjacent spans of one class."""

    places: str
    after_touching: str = ""
    """The letter of the first token of a span that directly follows a span of its class, if it is special."""
    before_touching: str = ""
    """The letter of the last token of a span that directly precedes a span of its class, if it is special."""

    @property
    def distinct(self) -> tuple[str, ...]:
        """All distinct letters of the scheme."""
        return tuple(dict.fromkeys(self.after_touching + self.places + self.before_touching))


SCHEMES: dict[Scheme, Letters] = {
    "bio": Letters("BIIB"), "iob1": Letters("IIII", after_touching="B"), "ioe2": Letters("IIEE"),
    "ioe1": Letters("IIII", before_touching="E"), "iobes": Letters("BIES"), "bilou": Letters("BILU"),
    "bmes": Letters("BMES"), "bmewo": Letters("BMEW"),
}  # fmt: skip
"""If several schemes fit a file equally well, the first of them in this table is detected."""
_PLACE_OF_LETTER = {letter: place for letters in SCHEMES.values() if len(letters.distinct) == len(PLACES)
             for place, letter in zip(PLACES, letters.places, strict=True)}  # fmt: skip


class Span(NamedTuple):
    """A span of the class `label`: the tokens from `start` to `end` (exclusive)."""

    label: str
    start: int
    end: int


class Position(NamedTuple):
    """The place of a token in a span (`kind`: B, I, E, S; O: outside), and the class of the span (`label`)."""

    kind: str
    label: str


@lru_cache(maxsize=1 << 14)
def position(label: str) -> Position:
    """Split a label at its first dash. The position is `O` unless the prefix is one of B I M E L S U W."""
    prefix, _, name = label.partition("-")
    kind = _PLACE_OF_LETTER.get(prefix, OUTSIDE)
    return Position(kind, "" if kind == OUTSIDE else name)


def spans(labels: Sequence[str]) -> list[Span]:
    """Return the spans of a sentence in order. The labels may have any scheme, and may violate it.

    `B` and `I` are read like conlleval, the scorer of CoNLL-2000 and 2003 (version 2004-01-26). A span begins at `B`,
    or at an `I` after `O`, after another class, or at the start of the sentence. A span ends before `O`, `B` or another
    class. `E` and `S`, which conlleval supports only partly, are read like seqeval: both end a span, `S` always begins
    a span, and `E` begins a span if no span is open. As in seqeval, a prefix without a class (`B`) has the empty class.
    """
    return _spans(enumerate(labels), len(labels))


def _spans(tags: Iterable[tuple[int, str]], length: int) -> list[Span]:
    """Return the spans of pairs (index, tag) in order; tokens of other indices are outside of spans."""
    result: list[Span] = []
    start, end, before = 0, 0, position(OUTSIDE)
    for place, label in [*[tag for tag in tags if tag[1] != OUTSIDE], (length, OUTSIDE)]:
        current = position(label)
        if place > end or not continues(before, current):
            if before.kind != OUTSIDE:
                result.append(Span(before.label, start, end))
            start = place
        before, end = current, place + 1
    return result


def continues(before: Position, current: Position) -> bool:
    """Return whether a token belongs to the same span as the previous token, according to the rules of `spans`."""
    return before.kind in "BI" and current.kind in "IE" and before.label == current.label


def encode(spans: Iterable[Span], length: int, scheme: Scheme) -> list[str]:
    """Return the labels of a sentence of `length` tokens with these `spans`, which must not overlap."""
    tags = _encode(spans, length, scheme)
    return [tags.get(place, OUTSIDE) for place in range(length)]


def _encode(spans: Iterable[Span], length: int, scheme: Scheme) -> dict[int, str]:
    """Return the labels of the tokens in spans by their index."""
    bio: dict[int, str] = {}
    for name, start, end in spans:
        assert 0 <= start < end <= length, f"a span from {start} to {end} in {length} tokens"
        assert bio.keys().isdisjoint(range(start, end)), f"the span from {start} to {end} overlaps {bio}"
        bio |= {start: _label("B", name)} | dict.fromkeys(range(start + 1, end), _label("I", name))
    return {place: _convert_label(scheme, bio.get(place - 1, OUTSIDE), label, bio.get(place + 1, OUTSIDE))
            for place, label in bio.items()}  # fmt: skip


def _label(prefix: str, name: str) -> str:
    return f"{prefix}-{name}" if name else prefix


def encode_overlapping(spans: Iterable[Span], length: int, scheme: Scheme) -> list[str]:
    """Return the labels of a sentence of `length` tokens with these `spans`, which may overlap.

    Raises ValueError for a class that contains "|" or ends with "+", and for a word with more than `MAX_SPANS_OF_WORD`
    spans.
    """
    layers: dict[str, list[Span]] = {}
    ends: list[int] = []
    for span in sorted({*spans}, key=_order_outer_first):
        while ends and ends[0] <= span.start:
            heappop(ends)
        heappush(ends, span.end)
        if len(ends) > MAX_SPANS_OF_WORD:
            raise ValueError(f"a word has more than {MAX_SPANS_OF_WORD} spans")
        name = span.label
        if TAG_SEPARATOR in name or name.endswith(LAYER_SIGN):
            raise ValueError(f'the class "{name}" cannot be written where spans overlap: it has "|", or "+" at its end')
        while name in layers and layers[name][-1].end > span.start:
            name += LAYER_SIGN
        layers.setdefault(name, []).append(span._replace(label=name))
    tags_of_words: list[list[str]] = [[] for _ in range(length)]
    for name in sorted(layers):
        for place, tag in _encode(layers[name], length, scheme).items():
            tags_of_words[place].append(tag)
    return list(map(join_tags, tags_of_words))


def join_tags(tags: Sequence[str]) -> str:
    """Return the label of a word that has these tags."""
    return TAG_SEPARATOR.join(tags) or OUTSIDE


def tags_of(label: str) -> dict[str, str]:
    """Return the tags of a label by their class, including layer signs."""
    kinds = ((position(tag), tag) for tag in label.split(TAG_SEPARATOR))
    return {name: tag for (kind, name), tag in kinds if kind != OUTSIDE}


def layers(labels: Sequence[str]) -> dict[str, dict[int, str]]:
    """Return the layers of a sentence by class, including layer signs. A layer has tags by the index of their word.

    A gap between tags is stored as one `O` at its first word, since a sentence may have many layers with few tags.
    """
    result: dict[str, dict[int, str]] = {}
    for place, label in enumerate(labels):
        for name, tag in tags_of(label).items():
            layer = result.setdefault(name, {0: OUTSIDE})
            layer[place] = tag
            if place + 1 < len(labels):
                layer[place + 1] = OUTSIDE
    return result


def overlapping_spans(labels: Sequence[str]) -> list[Span]:
    """Return the spans of labels that may have several tags. Outer spans precede inner spans."""
    all_spans = (span for layer in layers(labels).values() for span in _spans(layer.items(), len(labels)))
    return sorted({span._replace(label=span.label.rstrip(LAYER_SIGN)) for span in all_spans}, key=_order_outer_first)


def _order_outer_first(span: Span) -> tuple[int, int, str]:
    return span.start, -span.end, span.label


def convert(labels: Sequence[str], scheme: Scheme) -> list[str]:
    """Convert labels to `scheme`. The labels may violate their own scheme; `spans` defines how they are read."""
    return list(map(_convert_label, repeat(scheme), [OUTSIDE, *labels], labels, [*labels[1:], OUTSIDE]))


@lru_cache(maxsize=1 << 14)
def _convert_label(scheme: Scheme, before: str, label: str, after: str) -> str:
    """Return the label of a token in `scheme`; `before` and `after` are the labels of its neighbors."""
    left, current, right = map(position, (before, label, after))
    begins, ends = not continues(left, current), not continues(current, right)
    letters = SCHEMES[scheme]
    prefix = letters.places[PLACES.index("S" if begins and ends else "B" if begins else "E" if ends else "I")]
    if begins and left.kind != OUTSIDE and left.label == current.label:
        prefix = letters.after_touching or prefix
    if ends and right.kind != OUTSIDE and right.label == current.label:
        prefix = letters.before_touching or prefix
    return OUTSIDE if current.kind == OUTSIDE else _label(prefix, current.label)


def tag_set(classes: Iterable[str], scheme: Scheme) -> list[str]:
    """Return `O` and the sorted labels of these classes, such as 2n + 1 labels of n classes in the scheme bio."""
    return [OUTSIDE, *sorted({_label(prefix, name) for name in classes for prefix in SCHEMES[scheme].distinct})]


def distinguished_place(scheme: Scheme, place: str) -> str:
    """Return the place that `scheme` writes in the same way as `place`. For example, bio returns I for E."""
    return place if place == OUTSIDE else _PLACE_OF_LETTER[SCHEMES[scheme].places[PLACES.index(place)]]


def legal_transitions(
    tags: Sequence[str], scheme: Scheme
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which of K tags may begin a sentence (K,), follow each other (K, K; row before column), and end it (K,).

    Legal sequences are exactly those that `convert` does not change. If `tags` lacks some tags of `tag_set`, such as
    `E-X`, another tag, such as `B-X`, may have no legal successor.
    """
    invalid = [tag for tag in tags if tag != OUTSIDE and tag.partition("-")[0] not in SCHEMES[scheme].distinct]
    assert not invalid, f"{invalid[0]} is not a tag of {scheme}"
    start = np.array([is_legal(scheme, OUTSIDE, tag) for tag in tags], np.bool_)
    pairs = np.array([[is_legal(scheme, before, tag) for tag in tags] for before in tags], np.bool_)
    end = np.array([is_legal(scheme, tag, OUTSIDE) for tag in tags], np.bool_)
    return start, pairs.reshape(len(tags), len(tags)), end


def is_legal(scheme: Scheme, before: str, label: str) -> bool:
    """Return whether `label` may follow `before` in `scheme`. Pass `O` for the start and the end of a sentence."""
    left, right = position(before), position(label)
    is_same = left.label == right.label
    continues_span = left.kind in "BI" and is_same
    match scheme:
        case "bio":
            return right.kind in "OB" or (right.kind == "I" and continues_span)
        case "iob1":
            return right.kind in "OI" or (right.kind == "B" and continues_span)
        case "ioe2":
            return right.kind in "IE" and is_same if left.kind == "I" else right.kind in "OIE"
        case "ioe1":
            return right.kind in "IE" and is_same if left.kind == "E" else right.kind in "OIE"
    return continues_span if right.kind in "IE" else left.kind not in "BI"


MAX_VIOLATION_FRACTION = 0.05
"""The maximum fraction of the sentences with spans that may violate the scheme, since annotators make mistakes: the
training file of CoNLL-2003 has a sentence that violates IOB1. `spans` also decodes invalid labels."""
_BY_PREFIXES: dict[tuple[str, ...], list[Scheme]] = {}
"""Schemes by their prefixes. Detection tries the schemes of the first entry with all prefixes of the file."""
for _scheme, _letters in SCHEMES.items():
    _BY_PREFIXES.setdefault(_letters.distinct, []).append(_scheme)
_NAMED = [f"{' or '.join(schemes)} ({'- '.join(letters)}-)" for letters, schemes in _BY_PREFIXES.items()]
_EXPECTED = f"expected {', '.join(_NAMED[:-1])} or {_NAMED[-1]}"


class SentenceNumber(NamedTuple):
    """The number of a sentence, from 1, and the number of its first line, or None if it is unknown."""

    sentence: int
    line: int | None

    def __str__(self) -> str:
        return f"sentence {self.sentence}" if self.line is None else f"line {self.line}"


class Violations(NamedTuple):
    """The number of sentences that violate a scheme, and the place and reason of the first violation."""

    sentences: int
    place: SentenceNumber
    reason: str

    def __str__(self) -> str:
        return f"{self.reason} ({self.place})"


class SchemeDetector:
    """A detector of the label scheme of a file. Memory is bounded by the number of distinct labels.

    At most the fraction `max_violations` of the sentences with spans may violate the scheme.
    """

    def __init__(self, *, max_violations: float = MAX_VIOLATION_FRACTION) -> None:
        self._max_violations = max_violations
        self._sentences = 0
        self._num_tagged = 0
        self._counts: Counter[str] = Counter()
        self._first_sentence_of: dict[str, SentenceNumber] = {}
        self._unprefixed: tuple[str, SentenceNumber] | None = None
        self.num_violating: Counter[Scheme] = Counter()
        """The number of sentences that violate a scheme."""
        self._first_violation: dict[Scheme, tuple[SentenceNumber, str | None, str | None]] = {}

    def feed(self, labels: Collection[str], line: int | None = None) -> None:
        """Count the labels of a sentence. Messages mention `line`, the number of its first line."""
        self._sentences += 1
        place = SentenceNumber(self._sentences, line)
        for label in labels:
            if label not in self._counts and _has_prefix(label):
                prefix = label if TAG_SEPARATOR in label and len(tags_of(label)) > 1 else label.partition("-")[0]
                self._first_sentence_of.setdefault(prefix, place)
            elif label not in self._counts and label != OUTSIDE and self._unprefixed is None:
                self._unprefixed = (label, place)
        self._counts.update(labels)
        self._num_tagged += any(position(label).kind != OUTSIDE for label in labels)
        violated: set[Scheme] = set()
        for before, after in zip([None, *labels], [*labels, None], strict=True):
            left, right = position(before or OUTSIDE), position(after or OUTSIDE)
            for scheme in _violated_schemes(left.kind, right.kind, left.label == right.label):
                violated.add(scheme)
                self._first_violation.setdefault(scheme, (place, before, after))
        self.num_violating.update(violated)

    def add(self, other: "SchemeDetector") -> None:
        """Add the counts of a detector whose sentences follow the sentences of this detector."""

        def shift(place: SentenceNumber) -> SentenceNumber:
            return place._replace(sentence=place.sentence + self._sentences)

        for prefix, place in other._first_sentence_of.items():
            self._first_sentence_of.setdefault(prefix, shift(place))
        if other._unprefixed and self._unprefixed is None:
            label, place = other._unprefixed
            self._unprefixed = (label, shift(place))
        for scheme, (place, before, after) in other._first_violation.items():
            self._first_violation.setdefault(scheme, (shift(place), before, after))
        self.num_violating.update(other.num_violating)
        self._counts.update(other._counts)
        self._num_tagged += other._num_tagged
        self._sentences += other._sentences

    def violations(self, scheme: Scheme) -> Violations | None:
        """Return the violations of a scheme; None if no sentence violates it."""
        if scheme not in self._first_violation:
            return None
        place, before, after = self._first_violation[scheme]
        reason = f'"{after}" at the start' if before is None else f'"{after}" after "{before}"'
        return Violations(self.num_violating[scheme], place, f'"{before}" at the end' if after is None else reason)

    def result(self, path: str | Path | None = None) -> Scheme | None:
        """Return the scheme; None for plain labels, such as parts of speech.

        A label has a scheme if it consists of a prefix, a dash and a class. Some parts of speech have this form, so the
        labels are plain unless most labels other than `O` have a prefix. If every span begins with `B`, the scheme is
        bio; if `B` only separates adjacent spans, the scheme is iob1. `E` distinguishes ioe2 and ioe1 in the same way.
        If several schemes fit equally well, the first of them in `SCHEMES` is returned.

        Raises:
            OverlapError: A label has the tags of several spans.
            DataError: (with `path` and line) Most labels have a prefix, but a label has none; the prefixes belong to
                different schemes; or too many sentences violate each scheme that has the prefixes.
        """
        prefixed = sum(count for label, count in self._counts.items() if _has_prefix(label))
        if prefixed <= self._counts.total() - self._counts[OUTSIDE] - prefixed:
            return None
        if label := next((prefix for prefix in self._first_sentence_of if TAG_SEPARATOR in prefix), ""):
            line = self._first_sentence_of[label].line
            raise OverlapError(f'the label "{label}" has several spans; {NESTED_REMEDY}', path, line)
        if self._unprefixed:
            label, place = self._unprefixed
            prefix, other = next(iter(self._first_sentence_of.items()))
            at = f" ({place})" if path is None or place.line is None else ""
            message = f'the label "{label}"{at} has no prefix, but {other} has {prefix}-; {_EXPECTED}'
            raise DataError(message, path, place.line)
        prefixes = set(self._first_sentence_of)
        schemes = next((schemes for letters, schemes in _BY_PREFIXES.items() if prefixes <= {*letters}), [])
        if not schemes:
            places = ", ".join(f"{prefix}- (first in {place})" for prefix, place in self._first_sentence_of.items())
            latest = max(self._first_sentence_of.values(), key=lambda place: place.sentence)
            raise DataError(f"mixed schemes: {places}; {_EXPECTED}", path, latest.line)
        best = min(schemes, key=self.num_violating.__getitem__)
        if self.num_violating[best] > self._max_violations * self._num_tagged:
            counts = "; ".join(
                f"{self.num_violating[scheme]} of {self._num_tagged} sentences with spans are not {scheme}, "
                f"first violation: {self.violations(scheme)}"
                for scheme in schemes
            )
            raise DataError(f"mixed schemes: {counts}", path, self._first_violation[best][0].line)
        return best


@lru_cache
def _violated_schemes(left: str, right: str, is_same: bool) -> tuple[Scheme, ...]:
    """Return the schemes that two positions of these kinds, in spans of the same class or not, violate."""
    label = f"{right}-" if is_same else f"{right}-other"
    return tuple(scheme for scheme in SCHEMES if not is_legal(scheme, f"{left}-", label))


def _has_prefix(label: str) -> bool:
    return label.partition("-")[2] != "" and position(label).kind != OUTSIDE
