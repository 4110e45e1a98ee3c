"""Detection of the label scheme of a file from its labels."""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from ensue.errors import NESTED_REMEDY, DataError, OverlapError
from ensue.text.schemes import OUTSIDE, SCHEMES, TAG_SEPARATOR, Scheme, is_legal, position, tags_of

MAX_VIOLATION_FRACTION = 0.05
"""The maximum fraction of the sentences with spans that may violate the scheme, since annotators make mistakes: the
training file of CoNLL-2003 has a sentence that violates IOB1. `schemes.spans` also decodes invalid labels."""
_BY_PREFIXES: dict[tuple[str, ...], list[Scheme]] = {}
"""Schemes by their prefixes. Detection tries the schemes of the first entry with all prefixes of the file."""
for _scheme, _prefixes in SCHEMES.items():
    _BY_PREFIXES.setdefault(_prefixes.distinct, []).append(_scheme)
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
        self._without_prefix: tuple[str, SentenceNumber] | None = None
        self.num_violating: Counter[Scheme] = Counter()
        """The number of sentences that violate a scheme."""
        self._first_violation: dict[Scheme, tuple[SentenceNumber, str | None, str | None]] = {}

    def feed(self, labels: Sequence[str], line: int | None = None) -> None:
        """Count the labels of a sentence. Messages mention `line`, the number of its first line."""
        self._sentences += 1
        place = SentenceNumber(self._sentences, line)
        for label in labels:
            if label not in self._counts and _has_prefix(label):
                prefix = label if TAG_SEPARATOR in label and len(tags_of(label)) > 1 else label.partition("-")[0]
                self._first_sentence_of.setdefault(prefix, place)
            elif label not in self._counts and label != OUTSIDE and self._without_prefix is None:
                self._without_prefix = (label, place)
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

        def shifted(place: SentenceNumber) -> SentenceNumber:
            return place._replace(sentence=place.sentence + self._sentences)

        for prefix, place in other._first_sentence_of.items():
            self._first_sentence_of.setdefault(prefix, shifted(place))
        if other._without_prefix and self._without_prefix is None:
            label, place = other._without_prefix
            self._without_prefix = (label, shifted(place))
        for scheme, (place, before, after) in other._first_violation.items():
            self._first_violation.setdefault(scheme, (shifted(place), before, after))
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
        if label := next((prefix for prefix in self._first_sentence_of if TAG_SEPARATOR in prefix), ""):
            line = self._first_sentence_of[label].line
            raise OverlapError(f'the label "{label}" has several spans; {NESTED_REMEDY}', path, line)
        if self._without_prefix:
            label, place = self._without_prefix
            prefix, other = next(iter(self._first_sentence_of.items()))
            at = f" ({place})" if path is None or place.line is None else ""
            message = f'the label "{label}"{at} has no prefix, but others have, as {prefix}- in {other}; {_EXPECTED}'
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
