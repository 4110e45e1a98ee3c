"""The label scheme of a file, recognized from its labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from ensue.errors import DataError
from ensue.text.schemes import OUTSIDE, SCHEMES, Scheme, is_legal, position

TOLERATED = 0.05
"""The share of sentences with spans that may break the scheme. Annotators make mistakes (CoNLL-2003's training file has
one sentence that breaks IOB1), and `spans` reads these too."""
_ALPHABETS: dict[tuple[str, ...], list[Scheme]] = {}
"""Schemes by their letters, in the order in which they are tried. The first ones that have all letters are taken."""
for _scheme, _letters in SCHEMES.items():
    _ALPHABETS.setdefault(_letters.different, []).append(_scheme)
_NAMED = [f"{' or '.join(schemes)} ({'- '.join(letters)}-)" for letters, schemes in _ALPHABETS.items()]
_EXPECTED = f"expected {', '.join(_NAMED[:-1])} or {_NAMED[-1]}"


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
    """Recognizes the scheme of a file from the labels of its sentences. It keeps counts, not sentences.

    Up to a share `tolerated` of the sentences with spans may break the scheme.
    """

    def __init__(self, *, tolerated: float = TOLERATED) -> None:
        self._tolerated = tolerated
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

    def add(self, other: SchemeDetector) -> None:
        """Adds the sentences that another one was given, as those that come next."""

        def behind(place: SentenceNumber) -> SentenceNumber:
            return place._replace(sentence=place.sentence + self._sentences)

        for prefix, place in other._first_of.items():
            self._first_of.setdefault(prefix, behind(place))
        if other._without_prefix and self._without_prefix is None:
            label, place = other._without_prefix
            self._without_prefix = (label, behind(place))
        for scheme, found in other._breaks.items():
            earlier = self._breaks.get(scheme, found._replace(sentences=0, place=behind(found.place)))
            self._breaks[scheme] = earlier._replace(sentences=earlier.sentences + found.sentences)
        self._counts.update(other._counts)
        self._with_spans += other._with_spans
        self._sentences += other._sentences

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
        it is the first one in `SCHEMES`.

        Raises DataError, with `path` and line, for a label without a prefix among a majority that has one, for prefixes
        that no scheme has together, and if too many of the sentences with spans break every scheme that
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
        schemes = next((schemes for letters, schemes in _ALPHABETS.items() if found <= {*letters}), [])
        if not schemes:
            places = ", ".join(f"{prefix}- (first in {place})" for prefix, place in self._first_of.items())
            latest = max(self._first_of.values(), key=lambda place: place.sentence)
            raise DataError(f"mixed schemes: {places}; {_EXPECTED}", path, latest.line)
        return self._least_broken(schemes, path)

    def _least_broken(self, schemes: Sequence[Scheme], path: str | Path | None) -> Scheme:
        unbroken = next((scheme for scheme in schemes if scheme not in self._breaks), None)
        if unbroken:
            return unbroken
        best = min(schemes, key=lambda scheme: self._breaks[scheme].sentences)
        if self._breaks[best].sentences > self._tolerated * self._with_spans:
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
    return tuple(scheme for scheme in SCHEMES if not is_legal(scheme, before or OUTSIDE, label or OUTSIDE))


def _has_prefix(label: str) -> bool:
    return label.partition("-")[2] != "" and position(label).kind != OUTSIDE


def _reason(before: str | None, label: str | None) -> str:
    if label is None:
        return f'"{before}" at the end'
    return f'"{label}" at the start' if before is None else f'"{label}" after "{before}"'
