"""Detection of the label scheme of a file from its labels."""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from ensue.errors import NESTED_REMEDY, DataError, OverlapError
from ensue.text.schemes import OUTSIDE, SCHEMES, TAG_SEPARATOR, Scheme, is_legal, position, tags_of

MAX_BROKEN_SHARE = 0.05
"""The maximum share of the sentences with spans that may violate the scheme. Annotators make mistakes: the training
file of CoNLL-2003 has a sentence that violates IOB1. `spans` reads invalid labels, too."""
_ALPHABETS: dict[tuple[str, ...], list[Scheme]] = {}
"""Schemes by their letters. Detection tries the schemes of the first entry that has all letters of the file."""
for _scheme, _letters in SCHEMES.items():
    _ALPHABETS.setdefault(_letters.different, []).append(_scheme)
_NAMED = [f"{' or '.join(schemes)} ({'- '.join(letters)}-)" for letters, schemes in _ALPHABETS.items()]
_EXPECTED = f"expected {', '.join(_NAMED[:-1])} or {_NAMED[-1]}"


class SentenceNumber(NamedTuple):
    """The number of a sentence, from 1, and the number of its first line, if it is known."""

    sentence: int
    line: int | None

    def __str__(self) -> str:
        return f"sentence {self.sentence}" if self.line is None else f"line {self.line}"


class Breaks(NamedTuple):
    """The number of sentences that violate a scheme, and the place and reason of the first violation."""

    sentences: int
    place: SentenceNumber
    reason: str

    def __str__(self) -> str:
        return f"{self.reason} ({self.place})"


class SchemeDetector:
    """A detector of the label scheme of a file. Memory is bounded by the number of distinct labels.

    At most the share `max_broken` of the sentences with spans may violate the scheme.
    """

    def __init__(self, *, max_broken: float = MAX_BROKEN_SHARE) -> None:
        self._max_broken = max_broken
        self._sentences = 0
        self._with_spans = 0
        self._counts: Counter[str] = Counter()
        self._first_of: dict[str, SentenceNumber] = {}
        self._without_prefix: tuple[str, SentenceNumber] | None = None
        self.num_broken: Counter[Scheme] = Counter()
        """The number of sentences that violate a scheme."""
        self._first_break: dict[Scheme, tuple[SentenceNumber, str | None, str | None]] = {}

    def feed(self, labels: Sequence[str], line: int | None = None) -> None:
        """Count the labels of a sentence. Messages mention `line`, the number of its first line."""
        self._sentences += 1
        place = SentenceNumber(self._sentences, line)
        for label in labels:
            if label not in self._counts and _has_prefix(label):
                prefix = label if TAG_SEPARATOR in label and len(tags_of(label)) > 1 else label.partition("-")[0]
                self._first_of.setdefault(prefix, place)
            elif label not in self._counts and label != OUTSIDE and self._without_prefix is None:
                self._without_prefix = (label, place)
        self._counts.update(labels)
        self._with_spans += any(position(label).kind != OUTSIDE for label in labels)
        broken: set[Scheme] = set()
        for before, after in zip([None, *labels], [*labels, None], strict=True):
            left, right = position(before or OUTSIDE), position(after or OUTSIDE)
            for scheme in _violated_schemes(left.kind, right.kind, left.label == right.label):
                broken.add(scheme)
                self._first_break.setdefault(scheme, (place, before, after))
        self.num_broken.update(broken)

    def add(self, other: "SchemeDetector") -> None:
        """Add the counts of a detector whose sentences follow the sentences of this detector."""

        def shifted(place: SentenceNumber) -> SentenceNumber:
            return place._replace(sentence=place.sentence + self._sentences)

        for prefix, place in other._first_of.items():
            self._first_of.setdefault(prefix, shifted(place))
        if other._without_prefix and self._without_prefix is None:
            label, place = other._without_prefix
            self._without_prefix = (label, shifted(place))
        for scheme, (place, before, after) in other._first_break.items():
            self._first_break.setdefault(scheme, (shifted(place), before, after))
        self.num_broken.update(other.num_broken)
        self._counts.update(other._counts)
        self._with_spans += other._with_spans
        self._sentences += other._sentences

    def breaks(self, scheme: Scheme) -> Breaks | None:
        """Return the violations of a scheme; None if no sentence violates it."""
        if scheme not in self._first_break:
            return None
        place, before, after = self._first_break[scheme]
        reason = f'"{after}" at the start' if before is None else f'"{after}" after "{before}"'
        return Breaks(self.num_broken[scheme], place, f'"{before}" at the end' if after is None else reason)

    def result(self, path: str | Path | None = None) -> Scheme | None:
        """Return the scheme; None for plain labels, such as parts of speech.

        A label has a scheme if it consists of a prefix, a dash and a class. Some parts of speech look like that, so the
        labels are plain unless most labels other than `O` have a prefix. If every span begins with `B`, the scheme is
        bio; if `B` only separates adjacent spans, the scheme is iob1. `E` distinguishes ioe2 and ioe1 in the same way.
        If several schemes fit, the first one in `SCHEMES` is returned.

        Raises:
            OverlapError: A label has the tags of several spans.
            DataError: (with `path` and line) Most labels have a prefix, but one has none; the prefixes belong to
                different schemes; or too many sentences violate each scheme that has the prefixes.
        """
        prefixed = sum(count for label, count in self._counts.items() if _has_prefix(label))
        if prefixed <= self._counts.total() - self._counts[OUTSIDE] - prefixed:
            return None
        if label := next((prefix for prefix in self._first_of if TAG_SEPARATOR in prefix), ""):
            line = self._first_of[label].line
            raise OverlapError(f'the label "{label}" has several spans; {NESTED_REMEDY}', path, line)
        if self._without_prefix:
            label, place = self._without_prefix
            prefix, other = next(iter(self._first_of.items()))
            at = f" ({place})" if path is None or place.line is None else ""
            message = f'the label "{label}"{at} has no prefix, but others have, as {prefix}- in {other}; {_EXPECTED}'
            raise DataError(message, path, place.line)
        prefixes = set(self._first_of)
        schemes = next((schemes for letters, schemes in _ALPHABETS.items() if prefixes <= {*letters}), [])
        if not schemes:
            places = ", ".join(f"{prefix}- (first in {place})" for prefix, place in self._first_of.items())
            latest = max(self._first_of.values(), key=lambda place: place.sentence)
            raise DataError(f"mixed schemes: {places}; {_EXPECTED}", path, latest.line)
        return self._least_violated(schemes, path)

    def _least_violated(self, schemes: Sequence[Scheme], path: str | Path | None) -> Scheme:
        best = min(schemes, key=self.num_broken.__getitem__)
        if self.num_broken[best] > self._max_broken * self._with_spans:
            counts = "; ".join(
                f"{self.num_broken[scheme]} of {self._with_spans} sentences with spans are not {scheme}, "
                f"the first by {self.breaks(scheme)}"
                for scheme in schemes
            )
            raise DataError(f"mixed schemes: {counts}", path, self._first_break[best][0].line)
        return best


@lru_cache
def _violated_schemes(left: str, right: str, is_same: bool) -> tuple[Scheme, ...]:
    """Return the schemes that two positions of these kinds, in spans of the same class or not, violate."""
    label = f"{right}-" if is_same else f"{right}-other"
    return tuple(scheme for scheme in SCHEMES if not is_legal(scheme, f"{left}-", label))


def _has_prefix(label: str) -> bool:
    return label.partition("-")[2] != "" and position(label).kind != OUTSIDE
