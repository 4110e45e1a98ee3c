"""How many spans of texts begin or end inside of a word, and why, found by trying other readings of their offsets."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from ensue.data.sentences.sentence import Format, Sentence
from ensue.text.tokens import tokens

MIN_SHARE = 0.01
"""The least share of misaligned spans that is reported before a training."""
MAX_CHARACTERS = 500_000
"""The characters of texts with misaligned spans, and of the others, in which readings are tried."""
MIN_COUNTED = 200
"""The fewest characters that a text counts for."""
NEARLY, SOME, FEW, MIN_SOLVED = 0.9, 0.2, 0.02, 2
REPEATED = 0.3
"""The least share of strings that recur by the right reading, and only by it."""
UNSEGMENTED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f]"
)
"""A letter of a script without blanks between words: Thai, Lao, Burmese, Khmer, Japanese, Chinese."""
CHARACTERS = "--set data.splitter=characters reads each character as a word"
NOWHERE = -1
"""The index of a place that is inside of a character, or behind the text."""
Place = tuple[int, int]
PlacedText = tuple[str, list[Place]]
Sizes = Callable[[str], Iterable[int]]


class Unit(NamedTuple):
    """A unit of offsets: its name, the sizes of the characters of a text, and a place n as Python's index."""

    name: str
    sizes: Sizes
    python: str


UNITS = (
    Unit("UTF-16 code units", lambda text: (1 + (sign > "\uffff") for sign in text),
         'len(text.encode("utf-16-le")[: 2 * n].decode("utf-16-le"))'),
    Unit("UTF-8 bytes", lambda text: (len(sign.encode()) for sign in text), "len(text.encode()[:n].decode())"),
    Unit("line ends as two characters", lambda text: (1 + (sign == "\n") for sign in text),
         'n - text.replace("\\n", "\\r\\n")[:n].count("\\n")'),
)  # fmt: skip


class Reading(NamedTuple):
    """Another reading of offsets: what they are, how they become those of Python, and the places of spans by it."""

    about: str
    remedy: str
    read: Callable[[str, Sequence[Place]], list[Place]]

    def __str__(self) -> str:
        return f"the offsets look like {self.about}; {self.remedy}"


def _in_unit(unit: Unit) -> Reading:
    def read(text: str, places: Sequence[Place]) -> list[Place]:
        index = {place: number for number, place in enumerate([0, *accumulate(unit.sizes(text))])}
        return [(index.get(start, NOWHERE), index.get(end, NOWHERE)) for start, end in places]

    return Reading(unit.name, f"in Python their place n is {unit.python}", read)


def _moved(about: str, start: int, end: int) -> Reading:
    expected = " and ".join(f"{name} {by:+}" for name, by in (("start", start), ("end", end)) if by)
    return Reading(about, f"expected {expected}", lambda _, places: [(a + start, b + end) for a, b in places])


IN_UNITS = tuple(map(_in_unit, UNITS))
INCLUSIVE = _moved("inclusive ends", 0, 1)
FROM_ONE = _moved("places from 1 with inclusive ends", -1, 0)
SHIFTED = tuple(_moved(f"places that are shifted by {-by:+}", by, by) for size in range(1, 6) for by in (-size, size))
READINGS = (*IN_UNITS, INCLUSIVE, FROM_ONE, *SHIFTED)


class Text(NamedTuple):
    """A text with the places of its spans, and the starts and ends of its words."""

    text: str
    places: list[Place]
    starts: set[int]
    ends: set[int]

    @classmethod
    def of(cls, text: str, places: Iterable[Place], splitter: str) -> Text:
        """A text as a splitter cuts it."""
        words = tokens(text, splitter)
        return cls(text, list(places), {word.start for word in words}, {word.end for word in words})


@dataclass
class SpanBorders:
    """Counts the spans of sentences that begin or end inside of a word of the format's splitter."""

    format: Format
    columns: Sequence[str | None] = (None,)
    num_spans: int = 0
    num_misaligned: int = 0
    first: str = ""
    texts: tuple[list[PlacedText], list[PlacedText]] = field(default_factory=lambda: ([], []))
    """Texts without and with misaligned spans, and the places of their spans."""
    room: list[int] = field(default_factory=lambda: [MAX_CHARACTERS, MAX_CHARACTERS])

    def feed(self, sentence: Sentence) -> None:
        """Counts the spans of a sentence."""
        for column in self.columns:
            misaligned = len(self.format.misaligned(sentence, column))
            if not self.num_misaligned and misaligned:
                self.first = f"{sentence.source.name}:{sentence.line}"
            self.num_misaligned += misaligned
            text, places = self.format.text_spans(sentence, column)
            self.num_spans += len(places)
            if places and self.room[misaligned > 0] > 0:
                self.texts[misaligned > 0].append((text, places))
                self.room[misaligned > 0] -= max(MIN_COUNTED, len(text))

    @cached_property
    def reason(self) -> Reason | None:
        """The reason and the remedy; None if the share of such spans is small."""
        if self.num_misaligned <= MIN_SHARE * self.num_spans:
            return None
        others, misaligned = ([Text.of(*one, self.format.splitter) for one in texts] for texts in self.texts)
        return reason([*others, *misaligned], misaligned)

    def note(self) -> str:
        """The share, the place of the first, the reason and the remedy; "" if the share is small."""
        count = misaligned_spans(self.num_misaligned, self.num_spans, self.first) if self.reason else ""
        return f"{count}: {self.reason}" if count else ""


def misaligned_spans(count: int, total: int, first: str) -> str:
    """A remark on spans that begin or end inside of a word, the first of them at a place."""
    return f"{count:,} of {total:,} spans ({count / total:.1%}) begin or end inside of a word, the first at {first}"


class Reason(NamedTuple):
    """Why spans cut words: the reading of their offsets, and the splitter of the texts; both may be unknown."""

    reading: Reading | None = None
    splitter: str = ""
    is_explained: bool = True

    def __str__(self) -> str:
        said = [] if self.reading is None else [str(self.reading)]
        if self.splitter == "characters":
            said.append(f"the language has suffixes or no blanks; {CHARACTERS}")
        elif self.splitter:
            said.append(f"--set data.splitter={self.splitter} cuts words where spans begin and end")
        if not self.is_explained:
            said.append("no other reading of the offsets fits; were the texts changed after they were labeled?")
        return "; ".join(said)


def reason(texts: Sequence[Text], misaligned: Sequence[Text]) -> Reason:
    """The reason why spans begin and end inside of words, and the remedy."""
    reading = by_words(texts) or by_repetition(texts)
    read = misaligned if reading is None else _read(texts, reading)
    if _Fit.of(read).share >= NEARLY:
        return Reason(reading)
    splitter = _splitter(read)
    return Reason(reading, splitter, splitter != "")


def reading_of(text: str, places: Sequence[Place], splitter: str) -> Reading | None:
    """The reading in which places that are not all in the text are, and fit its words best; None if there is none."""
    one = Text.of(text, places, splitter)
    read = [(reading, _read([one], reading)) for reading in READINGS]
    valid = [item for item in read if all(0 <= a < b <= len(text) for a, b in item[1][0].places)]
    has_blanks = not UNSEGMENTED.search(text)  # else no word tells, and units are likelier than a shift
    return max(valid, key=lambda item: has_blanks and _Fit.of(item[1]).total)[0] if valid else None


def _read(texts: Sequence[Text], reading: Reading) -> list[Text]:
    return [one._replace(places=reading.read(one.text, one.places)) for one in texts]


def by_words(texts: Sequence[Text]) -> Reading | None:
    """The reading in which spans begin and end with words, or None. Suffixes leave few spans that end with a word."""
    now = _Fit.of(texts)
    fits = [_Fit.of(_read(texts, reading)) for reading in READINGS]
    best = max(range(len(fits)), key=lambda number: fits[number].total)
    fit, further = fits[best], _Fit.of([one._replace(places=[(a, b + 2) for a, b in one.places]) for one in texts])
    if fit.total - now.total < MIN_SOLVED or fit.starts < NEARLY * fit.spans:
        return None
    is_inclusive = now.ends <= FEW * now.spans and fit.ends >= max(SOME * fit.spans, 2 * further.ends)
    return READINGS[best] if fit.ends >= NEARLY * fit.spans or now.starts < fit.starts or is_inclusive else None


def by_repetition(texts: Sequence[Text]) -> Reading | None:
    """The reading in which the same strings recur, in a script without blanks; None if there is none.

    The character behind a string that ends too early follows from the string, but those around a whole name do not
    (Harris 1955, "From phoneme to morpheme").
    """
    if not any(map(UNSEGMENTED.search, (one.text for one in texts))):
        return None
    now = _strings(texts)
    for reading in IN_UNITS:
        if _Fit.of(_read(texts, reading)).nowhere:
            continue
        both = [*zip(now, _strings(_read(texts, reading)), strict=True)]
        same = {old for old, new in both if old == new}
        moved = [(old in same, new in same) for old, new in both if old != new]
        before, after = (sum(column) for column in zip(*moved, strict=True)) if moved else (0, 0)
        if after >= max(MIN_SOLVED, REPEATED * len(moved), 2 * before):
            return reading
    num, sides = len({*now}), ((-1, 0), (0, 1))
    for number, reading in enumerate((*SHIFTED[:2], FROM_ONE, INCLUSIVE) if len(now) >= 2 * num else ()):
        read, follows = _read(texts, reading), len({*_strings(texts, *sides[number % 2])}) <= 1.1 * num
        most = num * (1 - REPEATED) if reading in SHIFTED else len(now)
        found = len({*_strings(read)})
        borders = min(len({*_strings(read, *side)}) for side in sides)
        if follows and found <= most and borders >= (1 + REPEATED) * found:
            return reading
    return None


def _strings(texts: Sequence[Text], start: int = 0, end: int = 0) -> list[str]:
    """The strings of spans whose starts and ends are moved."""
    return [text[max(0, a + start) : b + end] for text, places, *_ in texts for a, b in places]


def _splitter(texts: Sequence[Text]) -> str:
    """The splitter whose words the spans have; "" if none is likely."""
    for name in ("whitespace", "simple"):
        if _Fit.of([Text.of(text, places, name) for text, places, *_ in texts]).share >= NEARLY:
            return name
    fit, unsegmented = _Fit.of(texts), sum(bool(UNSEGMENTED.search(text)) for text, *_ in texts)
    return "characters" if fit.starts >= NEARLY * fit.spans or 2 * unsegmented > len(texts) else ""


class _Fit(NamedTuple):
    """How many spans begin with a word, how many end with one, how many are not in the text, and how many there are."""

    starts: int
    ends: int
    nowhere: int
    spans: int

    @classmethod
    def of(cls, texts: Iterable[Text]) -> _Fit:
        found = [(a in one.starts, b in one.ends, min(a, b) < 0) for one in texts for a, b in one.places]
        starts, ends, nowhere = (sum(row[column] for row in found) for column in range(3))
        return cls(starts, ends, nowhere, len(found))

    @property
    def total(self) -> int:
        return self.starts + self.ends

    @property
    def share(self) -> float:
        return self.total / max(1, 2 * self.spans)
