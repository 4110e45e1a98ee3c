"""Statistics of misaligned spans, which begin or end inside a word, and the search for the reason.

A reading is an interpretation of offsets, such as offsets in bytes. The reason for misaligned spans is a different
reading or splitter, if most spans begin and end with words in this reading or with this splitter.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from ensue.data.sentences.sentence import Format, Sentence
from ensue.text.tokens import tokens

MIN_FRACTION = 0.01
"""The minimum share of misaligned spans that is reported before training."""
MAX_CHARACTERS = 500_000
"""The maximum number of characters of texts with misaligned spans, and of other texts, in which readings are tried."""
MIN_COUNTED_CHARACTERS = 200
"""A shorter text counts as this many characters, which bounds the number of texts."""
MIN_MOST, MIN_SOME, MAX_FEW = 0.9, 0.2, 0.02
"""Shares of spans: the minimum of "most" and "some" spans, and the maximum of "few" spans."""
MIN_SOLVED = 2
"""The minimum number of borders that a reading aligns, or of strings that are repeated only with a reading."""
MIN_REPEATED_SHARE = 0.3
"""The minimum share of strings that are repeated with another reading only, for this reading to be likely."""
UNSEGMENTED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f]"
)
"""Matches a letter of Thai, Lao, Burmese, Khmer, Japanese or Chinese, which have no blanks between words."""
SPLITTER_REMEDY = "--set data.splitter=characters reads each character as a word"
INVALID_OFFSET = -1
"""The index of offsets inside a character or outside of the text."""
Offsets = tuple[int, int]
TextWithSpans = tuple[str, list[Offsets]]
Sizes = Callable[[str], Iterable[int]]


class Unit(NamedTuple):
    """A unit of offsets: the size of each character, and Python code that converts the offset n to an index."""

    name: str
    sizes: Sizes
    python: str


UNITS = (
    Unit("UTF-16 code units", lambda text: (1 + (char > "\uffff") for char in text),
         'len(text.encode("utf-16-le")[: 2 * n].decode("utf-16-le"))'),
    Unit("UTF-8 bytes", lambda text: (len(char.encode()) for char in text), "len(text.encode()[:n].decode())"),
    Unit("line ends as two characters", lambda text: (1 + (char == "\n") for char in text),
         'n - text.replace("\\n", "\\r\\n")[:n].count("\\n")'),
)  # fmt: skip


class OffsetReading(NamedTuple):
    """A reading of offsets, with its description, a remedy, and the function that converts spans."""

    about: str
    remedy: str
    read: Callable[[str, Sequence[Offsets]], list[Offsets]]

    def __str__(self) -> str:
        return f"the offsets look like {self.about}; {self.remedy}"


def _reading_in_unit(unit: Unit) -> OffsetReading:
    def read(text: str, spans: Sequence[Offsets]) -> list[Offsets]:
        index = {offset: number for number, offset in enumerate([0, *accumulate(unit.sizes(text))])}
        return [(index.get(start, INVALID_OFFSET), index.get(end, INVALID_OFFSET)) for start, end in spans]

    return OffsetReading(unit.name, f"in Python, convert an offset n by {unit.python}", read)


def _shifted_reading(about: str, start: int, end: int) -> OffsetReading:
    expected = " and ".join(f"{name} {shift:+}" for name, shift in (("start", start), ("end", end)) if shift)
    return OffsetReading(about, f"expected {expected}", lambda _, spans: [(a + start, b + end) for a, b in spans])


IN_UNITS = tuple(map(_reading_in_unit, UNITS))
INCLUSIVE = _shifted_reading("inclusive ends", 0, 1)
ONE_BASED = _shifted_reading("one-based offsets with inclusive ends", -1, 0)
SHIFTED = tuple(_shifted_reading(f"offsets shifted by {-by:+}", by, by) for size in range(1, 6) for by in (-size, size))
READINGS = (*IN_UNITS, INCLUSIVE, ONE_BASED, *SHIFTED)


class SplitText(NamedTuple):
    """A text with its spans, and the starts and ends of its words."""

    text: str
    spans: list[Offsets]
    starts: set[int]
    ends: set[int]

    @classmethod
    def of(cls, text: str, spans: Iterable[Offsets], splitter: str) -> "SplitText":
        """Split a text into words."""
        words = tokens(text, splitter)
        return cls(text, list(spans), {word.start for word in words}, {word.end for word in words})


@dataclass
class SpanBorders:
    """A counter of spans, and of misaligned spans, in sentences of a format."""

    format: Format
    columns: Sequence[str | None] = (None,)
    num_spans: int = 0
    num_misaligned: int = 0
    first: str = ""
    texts: tuple[list[TextWithSpans], list[TextWithSpans]] = field(default_factory=lambda: ([], []))
    """Two lists of texts and their spans: without and with misaligned spans."""
    remaining: list[int] = field(default_factory=lambda: [MAX_CHARACTERS, MAX_CHARACTERS])

    def feed(self, sentence: Sentence) -> None:
        """Count the spans of a sentence."""
        for column in self.columns:
            misaligned = len(self.format.misaligned(sentence, column))
            if not self.num_misaligned and misaligned:
                self.first = f"{sentence.source.name}:{sentence.line}"
            self.num_misaligned += misaligned
            text, spans = self.format.text_spans(sentence, column)
            self.num_spans += len(spans)
            if spans and self.remaining[misaligned > 0] > 0:
                self.texts[misaligned > 0].append((text, spans))
                self.remaining[misaligned > 0] -= max(MIN_COUNTED_CHARACTERS, len(text))

    @cached_property
    def reason(self) -> "Reason | None":
        """The reason of misaligned spans; None if their share is small."""
        if self.num_misaligned <= MIN_FRACTION * self.num_spans:
            return None
        others, misaligned = ([SplitText.of(*text, self.format.splitter) for text in texts] for texts in self.texts)
        return reason([*others, *misaligned], misaligned)

    def note(self) -> str:
        """Describe the share of misaligned spans, the first span, the reason and the remedy; "" for a small share."""
        count = misaligned_spans(self.num_misaligned, self.num_spans, self.first) if self.reason else ""
        return f"{count}: {self.reason}" if count else ""


def misaligned_spans(count: int, total: int, first: str) -> str:
    """Describe the number of misaligned spans and the place of the first misaligned span."""
    return f"{count:,} of {total:,} spans ({count / total:.1%}) begin or end inside of a word, the first at {first}"


class Reason(NamedTuple):
    """The reason of misaligned spans: another reading of offsets or another splitter, if one is likely."""

    reading: OffsetReading | None = None
    splitter: str = ""
    is_explained: bool = True

    def __str__(self) -> str:
        phrases = [] if self.reading is None else [str(self.reading)]
        if self.splitter == "characters":
            phrases.append(f"the language is agglutinative or has no blanks; {SPLITTER_REMEDY}")
        elif self.splitter:
            phrases.append(f"--set data.splitter={self.splitter} cuts words where spans begin and end")
        if not self.is_explained:
            phrases.append("no other reading of the offsets fits; were the texts changed after they were labeled?")
        return "; ".join(phrases) or "most spans of these texts are aligned with words; correct the misaligned spans"


def reason(texts: Sequence[SplitText], misaligned: Sequence[SplitText]) -> Reason:
    """Return the reason of misaligned spans, given all texts and the texts with misaligned spans."""
    reading = find_by_words(texts) or find_by_repetition(texts)
    interpreted = misaligned if reading is None else _convert_spans(texts, reading)
    if _Fit.of(interpreted).fraction >= MIN_MOST:
        return Reason(reading)
    are_few = _Fit.of(texts if reading is None else interpreted).fraction >= MIN_MOST
    splitter = _find_splitter(interpreted, are_few=are_few)
    return Reason(reading, splitter, are_few or splitter != "")


def reading_of(text: str, spans: Sequence[Offsets], splitter: str) -> OffsetReading | None:
    """Return the reading that best fits a text whose spans exceed the text; None if no reading fits."""
    texts = [SplitText.of(text, spans, splitter)]
    interpreted = [(reading, _convert_spans(texts, reading)) for reading in READINGS]
    valid = [item for item in interpreted if all(0 <= a < b <= len(text) for a, b in item[1][0].spans)]
    has_blanks = not UNSEGMENTED.search(text)  # otherwise words are unknown, and the first readings are most likely
    return max(valid, key=lambda item: has_blanks and _Fit.of(item[1]).total)[0] if valid else None


def _convert_spans(texts: Sequence[SplitText], reading: OffsetReading) -> list[SplitText]:
    return [text._replace(spans=reading.read(text.text, text.spans)) for text in texts]


def find_by_words(texts: Sequence[SplitText]) -> OffsetReading | None:
    """Return the reading in which spans begin and end with words; None without such a reading.

    In languages with suffixes, spans begin with words, but few end with words.
    """
    unchanged = _Fit.of(texts)
    fits = [_Fit.of(_convert_spans(texts, reading)) for reading in READINGS]
    best = max(range(len(fits)), key=lambda number: fits[number].total)
    longer = [text._replace(spans=[(a, b + 2) for a, b in text.spans]) for text in texts]
    fit, longer_fit = fits[best], _Fit.of(longer)
    if fit.total - unchanged.total < MIN_SOLVED or fit.starts < MIN_MOST * fit.spans:
        return None
    min_ends = max(MIN_SOME * fit.spans, 2 * longer_fit.ends)
    is_inclusive = unchanged.ends <= MAX_FEW * unchanged.spans and fit.ends >= min_ends
    return READINGS[best] if fit.ends >= MIN_MOST * fit.spans or unchanged.starts < fit.starts or is_inclusive else None


def find_by_repetition(texts: Sequence[SplitText]) -> OffsetReading | None:
    """Return the reading in which strings are repeated, for scripts without blanks; None without such a reading.

    If a string ends too early, the string determines the next character; after a complete name, the next character
    varies (Harris 1955, "From phoneme to morpheme").
    """
    if not any(map(UNSEGMENTED.search, (text.text for text in texts))):
        return None
    strings = _span_strings(texts)
    for reading in IN_UNITS:
        if _Fit.of(_convert_spans(texts, reading)).num_invalid:
            continue
        string_pairs = [*zip(strings, _span_strings(_convert_spans(texts, reading)), strict=True)]
        unchanged = {old for old, new in string_pairs if old == new}
        differing = [(old in unchanged, new in unchanged) for old, new in string_pairs if old != new]
        before, after = (sum(column) for column in zip(*differing, strict=True)) if differing else (0, 0)
        if after >= max(MIN_SOLVED, MIN_REPEATED_SHARE * len(differing), 2 * before):
            return reading
    num, sides = len({*strings}), ((-1, 0), (0, 1))
    for number, reading in enumerate((*SHIFTED[:2], ONE_BASED, INCLUSIVE) if len(strings) >= 2 * num else ()):
        interpreted = _convert_spans(texts, reading)
        is_determined = len({*_span_strings(texts, *sides[number % 2])}) <= 1.1 * num
        max_distinct = num * (1 - MIN_REPEATED_SHARE) if reading in SHIFTED else len(strings)
        distinct = len({*_span_strings(interpreted)})
        borders = min(len({*_span_strings(interpreted, *side)}) for side in sides)
        if is_determined and distinct <= max_distinct and borders >= (1 + MIN_REPEATED_SHARE) * distinct:
            return reading
    return None


def _span_strings(texts: Sequence[SplitText], start: int = 0, end: int = 0) -> list[str]:
    return [text[max(0, a + start) : b + end] for text, spans, *_ in texts for a, b in spans]


def _find_splitter(texts: Sequence[SplitText], *, are_few: bool) -> str:
    """Return the splitter with which cut spans begin and end with words, or "". `are_few`: few of all spans are cut."""
    for name in ("whitespace", "simple"):
        if _Fit.of([SplitText.of(text, spans, name) for text, spans, *_ in texts]).fraction >= MIN_MOST:
            return name
    fit, unsegmented = _Fit.of(texts), sum(bool(UNSEGMENTED.search(text)) for text, *_ in texts)
    has_suffixes = fit.starts >= MIN_MOST * fit.spans and not are_few  # otherwise, names may be parts of compounds
    return "characters" if has_suffixes or 2 * unsegmented > len(texts) else ""


class _Fit(NamedTuple):
    """The number of spans that begin with a word, that end with a word, that are invalid, and of all spans."""

    starts: int
    ends: int
    num_invalid: int
    spans: int

    @classmethod
    def of(cls, texts: Iterable[SplitText]) -> "_Fit":
        rows = [(a in text.starts, b in text.ends, min(a, b) < 0) for text in texts for a, b in text.spans]
        starts, ends, num_invalid = (sum(row[column] for row in rows) for column in range(3))
        return cls(starts, ends, num_invalid, len(rows))

    @property
    def total(self) -> int:
        return self.starts + self.ends

    @property
    def fraction(self) -> float:
        return self.total / max(1, 2 * self.spans)
