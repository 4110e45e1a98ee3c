"""Label schemes: how spans are written as a label for each token, read back, and recognized.

A label is `O` (outside) or a prefix, a dash and the span's class: `B-PER`. There are eight schemes:

- `iob1` (Ramshaw & Marcus 1995): `I` inside; `B` only where a span follows another of its class without a gap.
- `bio` (IOB2): `B` on the first token of every span, `I` on the others.
- `ioe1` (Tjong Kim Sang & Veenstra 1999): `I` inside; `E` only on the last token of a span that another of its class
  follows without a gap.
- `ioe2`: `E` on the last token of every span, `I` on the others.
- `iobes`: `B I ... I E`, and `S` for a span of one token. `bilou`, `bmes` and `bmewo` write it with other letters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from ensue.errors import DataError

Scheme = Literal["iob1", "bio", "ioe1", "ioe2", "iobes", "bilou", "bmes", "bmewo"]
OUTSIDE = "O"
PREFIXES: dict[Scheme, str] = {
    "iob1": "BI",
    "bio": "BI",
    "ioe1": "EI",
    "ioe2": "EI",
    "iobes": "BIES",
    "bilou": "BILU",
    "bmes": "BMES",
    "bmewo": "BMEW",
}
"""The letters of each scheme. Four letters are for the first token, those inside, the last one, and a single one."""
TOLERATED = 0.05
"""The share of sentences with spans that may break the scheme. Annotators make mistakes (CoNLL-2003's training file has
one sentence that breaks IOB1), and `spans` reads these too."""
_ALPHABETS: list[tuple[Scheme, ...]] = [
    ("bio", "iob1"),
    ("ioe2", "ioe1"),
    ("iobes",),
    ("bilou",),
    ("bmes",),
    ("bmewo",),
]
"""Schemes with the same letters, in the order in which they are tried. The first one that has all letters is taken."""
_EXPECTED = (
    "expected bio or iob1 (B- I-), ioe1 or ioe2 (I- E-), iobes (B- I- E- S-), bilou (B- I- L- U-), bmes (B- M- E- S-) "
    "or bmewo (B- M- E- W-)"
)
_KINDS = {"B": "B", "I": "I", "M": "I", "E": "E", "L": "E", "S": "S", "U": "S", "W": "S"}


class Span(NamedTuple):
    """A span of the class `label`: the tokens from `start` up to `end`, which is not included."""

    label: str
    start: int
    end: int


class Position(NamedTuple):
    """The parts of a label: the token's place in a span (B, I, E, S, or O for outside) and the span's class."""

    kind: str
    label: str


@lru_cache(maxsize=1 << 14)
def position(label: str) -> Position:
    """The parts of a label, split at its first dash. A label without one of the prefixes B I M E L S U W is outside."""
    prefix, _, name = label.partition("-")
    kind = _KINDS.get(prefix, OUTSIDE)
    return Position(kind, "" if kind == OUTSIDE else name)


def spans(labels: Sequence[str]) -> list[Span]:
    """The spans of one sentence in order, in any scheme, even if the labels break it.

    Labels are read as by conlleval, the scorer of CoNLL-2000 and 2003 (version 2004-01-26). A span begins at `B`, and
    at an `I` that does not continue a span of its class (after `O`, after another class, at the start of the sentence).
    It ends before `O`, `B` and another class. conlleval knows `E` and `S` only in part, so these are read as by
    seqeval: both end their span, `S` always begins one, and `E` begins one if there is none to end. As in seqeval, a
    label that is a prefix alone (`B`) has the empty class.
    """
    found: list[Span] = []
    start, current = 0, None
    for place, label in enumerate(labels):
        kind, name = position(label)
        if current is not None and (kind in "OBS" or name != current):
            found.append(Span(current, start, place))
            current = None
        if kind == OUTSIDE:
            continue
        if current is None:
            start, current = place, name
        if kind in "ES":
            found.append(Span(current, start, place + 1))
            current = None
    if current is not None:
        found.append(Span(current, start, len(labels)))
    return found


def encode(spans: Iterable[Span], length: int, scheme: Scheme) -> list[str]:
    """The labels of a sentence of `length` tokens with these `spans`, which must not overlap."""
    labels = [OUTSIDE] * length
    ordered = sorted(spans, key=lambda span: span.start)
    for before, span, after in zip([None, *ordered], ordered, [*ordered[1:], None], strict=False):
        first = before.end if before else 0
        assert first <= span.start < span.end <= length, f"{span} in {length} tokens after {before}"
        prefixes = _prefixes(
            scheme, span.end - span.start, follows=_touch(before, span), is_followed=_touch(span, after)
        )
        labels[span.start : span.end] = [_label(prefix, span.label) for prefix in prefixes]
    return labels


def _touch(left: Span | None, right: Span | None) -> bool:
    """Whether two spans are of one class and have no gap between them."""
    return left is not None and right is not None and left.end == right.start and left.label == right.label


def _prefixes(scheme: Scheme, length: int, *, follows: bool, is_followed: bool) -> str:
    """The prefixes of a span; whether it follows another of its class without a gap, and is followed by one."""
    if scheme in ("iob1", "bio"):
        return ("B" if follows or scheme == "bio" else "I") + "I" * (length - 1)
    if scheme in ("ioe1", "ioe2"):
        return "I" * (length - 1) + ("E" if is_followed or scheme == "ioe2" else "I")
    first, inside, last, single = tuple(PREFIXES[scheme])
    return single if length == 1 else first + inside * (length - 2) + last


def _label(prefix: str, name: str) -> str:
    return f"{prefix}-{name}" if name else prefix


def convert(labels: Sequence[str], scheme: Scheme) -> list[str]:
    """The same spans in `scheme`. Labels that break their scheme are read as by `spans`."""
    return encode(spans(labels), len(labels), scheme)


def tag_set(classes: Iterable[str], scheme: Scheme) -> list[str]:
    """Every label that spans of these classes need: `O`, then the others sorted; 2n + 1 for n classes in bio."""
    return [OUTSIDE, *sorted({_label(prefix, name) for name in classes for prefix in PREFIXES[scheme]})]


def legal_transitions(
    tags: Sequence[str], scheme: Scheme
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
    """Which of K tags may begin a sentence (K,), which may follow which (K, K; row before column), which may end (K,).

    Legal paths are exactly the label sequences that `convert` does not change. With the whole `tag_set`, every tag has
    a legal predecessor and successor. With a part of it (`B-X` without `E-X`), a tag may have none.
    """
    foreign = [tag for tag in tags if tag != OUTSIDE and tag.partition("-")[0] not in PREFIXES[scheme]]
    assert not foreign, f"{foreign[0]} is no tag of {scheme}"
    start = np.array([is_legal(scheme, OUTSIDE, tag) for tag in tags], np.bool_)
    pairs = np.array([[is_legal(scheme, before, tag) for tag in tags] for before in tags], np.bool_)
    end = np.array([is_legal(scheme, tag, OUTSIDE) for tag in tags], np.bool_)
    return start, pairs.reshape(len(tags), len(tags)), end


def is_legal(scheme: Scheme, before: str, label: str) -> bool:
    """Whether `scheme` writes `label` after `before`; `O` stands for the start and the end of a sentence."""
    left, right = position(before), position(label)
    is_same = left.label == right.label
    goes_on = left.kind in "BI" and is_same
    match scheme:
        case "bio":
            return right.kind in "OB" or (right.kind == "I" and goes_on)
        case "iob1":
            return right.kind in "OI" or (right.kind == "B" and goes_on)
        case "ioe2":
            return right.kind in "IE" and is_same if left.kind == "I" else right.kind in "OIE"
        case "ioe1":
            return right.kind in "IE" and is_same if left.kind == "E" else right.kind in "OIE"
    return goes_on if right.kind in "IE" else left.kind not in "BI"


class SentenceNumber(NamedTuple):
    """The number of a sentence, from 1, and of the line at which it begins, if known."""

    sentence: int
    line: int | None

    def __str__(self) -> str:
        return f"sentence {self.sentence}" if self.line is None else f"line {self.line}"


class Breaks(NamedTuple):
    """How many sentences break a scheme, and where and how the first one does."""

    sentences: int
    place: SentenceNumber
    reason: str

    def __str__(self) -> str:
        return f"{self.reason} ({self.place})"


class SchemeDetector:
    """Recognizes the scheme of a file from the labels of its sentences. It keeps counts, not sentences."""

    def __init__(self) -> None:
        self._sentences = 0
        self._with_spans = 0
        self._counts: Counter[str] = Counter()
        self._first_of: dict[str, SentenceNumber] = {}
        self._without_prefix: tuple[str, SentenceNumber] | None = None
        self._breaks: dict[Scheme, Breaks] = {}

    def feed(self, labels: Sequence[str], line: int | None = None) -> None:
        """Adds the labels of a sentence; `line` is the number of its first line, for messages."""
        self._sentences += 1
        place = SentenceNumber(self._sentences, line)
        for label in labels:
            if label not in self._counts:
                self._meet(label, place)
        self._counts.update(labels)
        self._with_spans += any(position(label).kind != OUTSIDE for label in labels)
        first_breaks: dict[Scheme, str] = {}
        for before, after in zip([None, *labels], [*labels, None], strict=True):
            for scheme in _broken(before, after):
                first_breaks.setdefault(scheme, _reason(before, after))
        for scheme, reason in first_breaks.items():
            earlier = self._breaks.get(scheme, Breaks(0, place, reason))
            self._breaks[scheme] = earlier._replace(sentences=earlier.sentences + 1)

    def _meet(self, label: str, place: SentenceNumber) -> None:
        prefix = label.partition("-")[0]
        if _has_prefix(label):
            self._first_of.setdefault(prefix, place)
        elif label != OUTSIDE and self._without_prefix is None:
            self._without_prefix = (label, place)

    def breaks(self, scheme: Scheme) -> Breaks | None:
        """The sentences that break `scheme`; None if none does."""
        return self._breaks.get(scheme)

    def result(self, path: str | Path | None = None) -> Scheme | None:
        """The scheme; None for plain labels, such as parts of speech.

        A scheme has labels with prefix, dash and class. A bare `B` or `S` is a plain label, and a file that has only
        `O` is plain. Some codes of parts of speech look like labels with a prefix; so if these are not more than the
        others (without `O`), all labels are plain. A file in which every span begins with `B` is bio. A file in which
        `B` only separates two spans is iob1. `E` tells ioe2 and ioe1 apart in the same way. If several schemes fit,
        it is the first one in `_ALPHABETS`.

        Raises DataError, with `path` and line, for a label without a prefix among a majority that has one, for prefixes
        that no scheme has together, and if more than `TOLERATED` of the sentences with spans break every scheme that
        has the prefixes.
        """
        prefixed = sum(count for label, count in self._counts.items() if _has_prefix(label))
        if prefixed <= self._counts.total() - self._counts[OUTSIDE] - prefixed:
            return None
        if self._without_prefix:
            label, place = self._without_prefix
            prefix, other = next(iter(self._first_of.items()))
            at = f" ({place})" if path is None or place.line is None else ""
            message = f'the label "{label}"{at} has no prefix, but others have, as {prefix}- in {other}; {_EXPECTED}'
            raise DataError(message, path, place.line)
        found = set(self._first_of)
        schemes = next((schemes for schemes in _ALPHABETS if found <= set(PREFIXES[schemes[0]])), ())
        if not schemes:
            places = ", ".join(f"{prefix}- (first in {place})" for prefix, place in self._first_of.items())
            latest = max(self._first_of.values(), key=lambda place: place.sentence)
            raise DataError(f"mixed schemes: {places}; {_EXPECTED}", path, latest.line)
        return self._least_broken(schemes, path)

    def _least_broken(self, schemes: tuple[Scheme, ...], path: str | Path | None) -> Scheme:
        unbroken = next((scheme for scheme in schemes if scheme not in self._breaks), None)
        if unbroken:
            return unbroken
        best = min(schemes, key=lambda scheme: self._breaks[scheme].sentences)
        if self._breaks[best].sentences > TOLERATED * self._with_spans:
            found = "; ".join(
                f"{self._breaks[scheme].sentences} of {self._with_spans} sentences with spans are not {scheme}, "
                f"the first by {self._breaks[scheme]}"
                for scheme in schemes
            )
            raise DataError(f"mixed schemes: {found}", path, self._breaks[best].place.line)
        return best


@lru_cache(maxsize=1 << 16)
def _broken(before: str | None, label: str | None) -> tuple[Scheme, ...]:
    """The schemes that do not write `label` after `before`; None stands for the sentence's start or end."""
    schemes: tuple[Scheme, ...] = get_args(Scheme)
    return tuple(scheme for scheme in schemes if not is_legal(scheme, before or OUTSIDE, label or OUTSIDE))


def _has_prefix(label: str) -> bool:
    return label.partition("-")[2] != "" and position(label).kind != OUTSIDE


def _reason(before: str | None, label: str | None) -> str:
    if label is None:
        return f'"{before}" at the end'
    return f'"{label}" at the start' if before is None else f'"{label}" after "{before}"'


def detect_scheme(sequences: Iterable[Sequence[str]]) -> Scheme | None:
    """The scheme of sentences in memory, as by `SchemeDetector.result`."""
    detector = SchemeDetector()
    for labels in sequences:
        detector.feed(labels)
    return detector.result()
