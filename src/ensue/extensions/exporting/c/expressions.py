"""Characters as Python knows them, and its regular expressions, as tables in C."""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib import import_module
from itertools import chain, groupby
from typing import Any

from ensue.text import boundaries, lexicon, tokens

TAKE, SPLIT, JUMP, REPEAT, LAZY, SAME, LOOK, COMMIT, DONE = range(9)
"""The operations of expression.h."""
_MOST = 0xFFFFFFFF
_SETS = {"IN", "LITERAL", "NOT_LITERAL", "ANY"}
_MARKS = ("Mn", "Me", "Mc")
Ranges = tuple[tuple[int, int], ...]
"""The first and the last code point of each range of a set, in order, with a gap between two ranges."""


@cache
def _every() -> str:
    return "".join(map(chr, range(sys.maxunicode + 1)))


class Sets:
    """Sets of characters. A set has a number, and a name if there is one."""

    def __init__(self) -> None:
        self._numbers: dict[Ranges, int] = {}
        self._names: dict[str, int] = {}

    def add(self, ranges: Iterable[tuple[int, int]]) -> int:
        """The number of the set with these code points, from the first to the last of each range."""
        return self._numbers.setdefault(tuple(ranges), len(self._numbers))

    def name(self, *names: str) -> None:
        """Adds sets of `PROPERTIES`, which are SET_`name` in C."""
        self._names |= {name: self.add(runs_of(PROPERTIES[name])) for name in names}

    def text(self) -> str:
        """The tables in C."""
        rows, ranges = [], list[int]()
        for found in self._numbers:
            bits = sum(1 << point for first, last in found if first < 128 for point in range(first, min(last, 127) + 1))
            high = [(max(first, 128), last) for first, last in found if last >= 128]
            ascii = ", ".join(f"{bits >> place & _MOST:#x}" for place in range(0, 128, 32))
            rows.append(f"    {{{{{ascii}}}, {len(ranges) // 2}, {len(high)}}},\n")
            ranges += [point for pair in high for point in pair]
        names = "".join(f"#define SET_{name} {number}\n" for name, number in self._names.items())
        head = "typedef struct {\n    uint32_t ascii[4], begin, count;\n} point_set;\n"
        table = f"static const point_set SETS[] = {{\n{''.join(rows)}}};\n"
        return names + head + table + numbers_in_c("RANGES", ranges or [0])


@cache
def runs_of(holds: Callable[[str], object]) -> Ranges:
    """The ranges of the code points of which something `holds`."""
    points = (point for point, sign in enumerate(_every()) if holds(sign))
    groups = groupby(enumerate(points), lambda pair: pair[1] - pair[0])
    found = ([point for _, point in group] for _, group in groups)
    return tuple((group[0], group[-1]) for group in found)


def joined(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """The ranges of what is in any of these."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return tuple(found)


def _is_final(text: str) -> bool:
    return text.lower().endswith("\u03c2")


PROPERTIES: dict[str, Callable[[str], object]] = {
    "CASED": lambda sign: _is_final(f"{sign}\u03a3"),
    "CASE_IGNORABLE": lambda sign: _is_final(f"A{sign}\u03a3") and not _is_final(f"{sign}\u03a3"),
    "CLINGS": lambda sign: sign in boundaries._CLINGING or unicodedata.category(sign) in _MARKS,
    "MARKS": lambda sign: sign in tokens._JOINERS or unicodedata.category(sign) in _MARKS,
    "ALPHANUMERIC": str.isalnum,
    "DIGITS": lexicon._DIGIT.match,
    "LETTERS": lexicon._SHAPES[0][0].match,
    "CAPITALS": str.isupper,
}
"""Sets of characters by what holds of them. Of `lower`, a sigma shows which ones have a case, and which are ignored."""


def numbers_in_c(name: str, numbers: Sequence[int]) -> str:
    """A table of numbers."""
    rows = (", ".join(map(str, numbers[row : row + 16])) for row in range(0, len(numbers), 16))
    return f"static const uint32_t {name}[] = {{\n    " + ",\n    ".join(rows) + "};\n"


def lowercase(sets: Sets) -> str:
    """The tables of `str.lower`, and what a sigma at the end of a word depends on."""
    pairs = [(point, sign.lower()) for point, sign in enumerate(_every()) if sign.lower() != sign and point != 0x3A3]
    longer = [(point, list(map(ord, text))) for point, text in pairs if len(text) > 1]
    longest = max(len(points) for _, points in longer)
    ranges: list[list[int]] = []
    for point, text in pairs:
        if len(text) > 1:
            continue
        change = ord(text) - point
        last = ranges[-1] if ranges else [0, -9, 1, 0]
        step = point - last[1]
        if change == last[3] and (step == last[2] or (last[0] == last[1] and step == 2)):
            last[1], last[2] = point, step
        else:
            ranges.append([point, point, 1, change])
    sets.name("CASED", "CASE_IGNORABLE")
    rows = ",\n    ".join(f"{{{first}, {last}, {step}, {change & _MOST}u}}" for first, last, step, change in ranges)
    padded = ([point, len(points), *points, *[0] * (longest - len(points))] for point, points in longer)
    several = ", ".join(f"{{{', '.join(map(str, row))}}}" for row in padded)
    return (
        f"enum {{ LOWER_LONGEST = {longest}, LOWER_COUNT = {len(ranges)}, LONGER_COUNT = {len(longer)} }};\n"
        f"static const uint32_t LONGER[][{2 + longest}] = {{{several}}};\n"
        "static const struct {\n    uint32_t first, last, step, change;\n"
        f"}} LOWER[] = {{\n    {rows}}};\n"
    )


def splitter_tables(splitter: str, sets: Sets) -> str:
    """The tables of splitting.h."""
    expression, ignores_case = tokens.EXPRESSIONS[splitter]
    sets.name("CLINGS", "MARKS", "ALPHANUMERIC")
    code = numbers_in_c("SPLITTER", program(expression, sets, re.IGNORECASE if ignores_case else 0))
    return f"#define SPLITS_MARKS {int(splitter == 'treebank')}\n{code}"


def program(expression: str, sets: Sets, flags: int = 0) -> list[int]:
    """A regular expression as operations of expression.h. Raises ValueError for what these do not have."""
    return _Program(expression, sets, flags).code


class _Program:
    def __init__(self, expression: str, sets: Sets, flags: int) -> None:
        self._parser, self._compiler = import_module("re._parser"), import_module("re._compiler")
        parsed = self._parser.parse(expression, flags)
        self._state, self._sets = parsed.state, sets
        self._known: dict[str, Ranges] = {}
        self.code: list[int] = []
        self._put(parsed, parsed.state.flags, tail=True)
        self.code.append(DONE)

    def _put(self, parsed: Any, flags: int, *, tail: bool) -> None:
        """Appends a sequence. With `tail` the whole expression matches behind it."""
        items = list(parsed)
        for place, (op, value) in enumerate(items):
            kind, is_last = str(op), tail and place == len(items) - 1
            if kind in _SETS:
                self.code += [TAKE, self._set(op, value, flags)]
            elif kind == "BRANCH":
                self._branch(value[1], flags, tail=is_last)
            elif kind == "SUBPATTERN":
                _, more, less, inside = value
                self._put(inside, (flags | more) & ~less, tail=is_last)
            elif kind in ("MAX_REPEAT", "MIN_REPEAT"):
                before = items[place - 1] if place else (None, None)
                least, most, inside = value
                self._repeat(kind == "MIN_REPEAT", least, most, inside, flags, before, tail=is_last)
            elif kind in ("ASSERT", "ASSERT_NOT"):
                direction, inside = value
                low, high = inside.getwidth()
                if direction < 0 and low != high:
                    raise ValueError("a look behind has one width")
                begin = len(self.code)
                self.code += [LOOK, int(kind == "ASSERT_NOT"), low if direction < 0 else 0, 0]
                self._put(inside, flags, tail=True)
                self.code.append(DONE)
                self.code[begin + 3] = len(self.code)
            else:
                raise ValueError(f"an expression has {kind}")

    def _branch(self, alternatives: Sequence[Any], flags: int, *, tail: bool) -> None:
        ends = []
        for number, alternative in enumerate(alternatives):
            begin, is_last = len(self.code), number == len(alternatives) - 1
            if not is_last:
                self.code += [SPLIT, 0, self._first(alternative, flags)]
            self._put(alternative, flags, tail=tail)
            if not is_last:
                self.code += [JUMP, 0]
                ends.append(len(self.code) - 1)
                self.code[begin + 1] = len(self.code)
        for end in ends:
            self.code[end] = len(self.code)

    def _repeat(self, lazy: bool, least: int, most: Any, inside: Any, flags: int, before: Any, *, tail: bool) -> None:
        most = _MOST if most == self._parser.MAXREPEAT else int(most)
        (op, value), *others = inside
        if not others and str(op) in _SETS:
            self.code += [LAZY if lazy else REPEAT, self._set(op, value, flags), least, most]
        elif lazy or inside.getwidth()[0] == 0:
            raise ValueError("an expression repeats what may be empty, or as few as possible")
        elif str(op) == "GROUPREF":
            is_before = str(before[0]) == "SUBPATTERN" and before[1][0] == value and before[1][3].getwidth() == (1, 1)
            if others or not is_before:
                raise ValueError("an expression repeats a group that is not the character before")
            self.code += [SAME, 0, least, most]
        else:
            for _ in range(least):
                self._put(inside, flags, tail=False)
            begin, ends = len(self.code), []
            for _ in range(1 if most == _MOST else most - least):
                ends.append(len(self.code) + 1)
                self.code += [SPLIT, 0, self._first(inside, flags)]
                self._put(inside, flags, tail=False)
                self.code += [COMMIT] * tail
            if most == _MOST:
                self.code += [JUMP, begin]
            for end in ends:
                self.code[end] = len(self.code)

    def _first(self, parsed: Any, flags: int) -> int:
        """The set of the characters with which a match begins; `_MOST` if it may be empty."""
        found = self._first_ranges(parsed, flags)
        return _MOST if found is None else self._sets.add(found)

    def _first_ranges(self, parsed: Any, flags: int) -> Ranges | None:
        for op, value in parsed:
            kind = str(op)
            if kind in _SETS:
                return self._ranges(op, value, flags)
            if kind == "SUBPATTERN":
                _, more, less, inside = value
                return self._first_ranges(inside, (flags | more) & ~less)
            if kind == "BRANCH":
                parts = [self._first_ranges(alternative, flags) for alternative in value[1]]
                return None if None in parts else joined(chain.from_iterable(filter(None, parts)))
            if kind in ("MAX_REPEAT", "MIN_REPEAT") and value[0]:
                return self._first_ranges(value[2], flags)
            if kind not in ("ASSERT", "ASSERT_NOT"):
                return None
        return None

    def _set(self, op: Any, value: Any, flags: int) -> int:
        return self._sets.add(self._ranges(op, value, flags))

    def _ranges(self, op: Any, value: Any, flags: int) -> Ranges:
        key = f"{op} {value} {flags & re.IGNORECASE}"
        if key not in self._known:
            part = self._parser.SubPattern
            lesser = re.IGNORECASE & ~flags
            one = part(self._state, [(op, value)])
            alone = part(self._state, [(self._parser.SUBPATTERN, (None, 0, lesser, one))])
            runs = part(self._state, [(self._parser.MAX_REPEAT, (1, self._parser.MAXREPEAT, alone))])
            found = self._compiler.compile(runs, flags & re.IGNORECASE).finditer(_every())
            self._known[key] = tuple((match.start(), match.end() - 1) for match in found)
        return self._known[key]
