"""Python's character properties and regular expressions, as tables in C."""

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
_UNLIMITED = 0xFFFFFFFF
_RANGES_OF_ITEMS: dict[str, tuple[tuple[int, int], ...]] = {}
_SETS = {"IN", "LITERAL", "NOT_LITERAL", "ANY"}
_MARKS = ("Mn", "Me", "Mc")
Ranges = tuple[tuple[int, int], ...]
"""The first and the last code point of each range of a set, in order, with a gap between two ranges."""


@cache
def all_characters() -> str:
    """Return the characters of all code points, in order."""
    return "".join(map(chr, range(sys.maxunicode + 1)))


@cache
def _assigned_characters() -> str:
    """Return all characters except unassigned, private and surrogate code points."""
    return "".join(c for c in all_characters() if unicodedata.category(c) not in ("Cn", "Co", "Cs"))


class CharacterSets:
    """A list of sets of characters, some with names."""

    def __init__(self) -> None:
        self._indices: dict[Ranges, int] = {}
        self._names: dict[str, int] = {}

    def add(self, ranges: Iterable[tuple[int, int]]) -> int:
        """Add a set of code points, given as inclusive ranges, and return its index. Equal sets share an index."""
        return self._indices.setdefault(tuple(ranges), len(self._indices))

    def add_named(self, *names: str) -> None:
        """Add the sets with these names in `PROPERTIES`, for which C has the constants `SET_NAME`."""
        self._names |= {name: self.add(code_points_where(PROPERTIES[name])) for name in names}

    def text(self) -> str:
        """Return the tables of the sets in C."""
        rows, ranges = [], list[int]()
        for points in self._indices:
            bits = sum(1 << point for low, last in points if low < 128 for point in range(low, min(last, 127) + 1))
            high = [(max(first, 128), last) for first, last in points if last >= 128]
            ascii = ", ".join(f"{bits >> shift & _UNLIMITED:#x}" for shift in range(0, 128, 32))
            rows.append(f"    {{{{{ascii}}}, {len(ranges) // 2}, {len(high)}}},\n")
            ranges += [point for pair in high for point in pair]
        names = "".join(f"#define SET_{name} {number}\n" for name, number in self._names.items())
        head = "typedef struct {\n    uint32_t ascii[4], begin, count;\n} point_set;\n"
        table = f"static const point_set SETS[] = {{\n{''.join(rows)}}};\n"
        return names + head + table + c_numbers("RANGES", ranges or [0])


@cache
def code_points_where(predicate: Callable[[str], object]) -> Ranges:
    """Return the ranges of the code points for which a predicate is true."""
    groups = groupby(enumerate(map(ord, filter(predicate, _assigned_characters()))), lambda pair: pair[1] - pair[0])
    return tuple((group[0], group[-1]) for group in ([point for _, point in group] for _, group in groups))


def merge_ranges(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return the union of ranges that may overlap."""
    result: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if result and first <= result[-1][1] + 1:
            result[-1] = result[-1][0], max(result[-1][1], last)
        else:
            result.append((first, last))
    return tuple(result)


def _ends_in_final_sigma(text: str) -> bool:
    return text.lower().endswith("\u03c2")


PROPERTIES: dict[str, Callable[[str], object]] = {
    "CASED": lambda c: _ends_in_final_sigma(f"{c}\u03a3"),
    "CASE_IGNORABLE": lambda c: _ends_in_final_sigma(f"A{c}\u03a3") and not _ends_in_final_sigma(f"{c}\u03a3"),
    "EXTENDING": lambda c: c in boundaries._EXTENDING or unicodedata.category(c) in _MARKS,
    "MARKS": lambda c: c in tokens._JOINERS or unicodedata.category(c) in _MARKS, "ALPHANUMERIC": str.isalnum,
    "DIGITS": lexicon._DIGIT.match, "LETTERS": lexicon._SHAPES[0][0].match, "CAPITALS": str.isupper,
}  # fmt: skip
"""Predicates of sets of characters. CASED and CASE_IGNORABLE follow from the lowercase of a sigma after a character."""


def c_numbers(name: str, numbers: Sequence[int]) -> str:
    """Return a table of numbers in C."""
    rows = (", ".join(map(str, numbers[row : row + 16])) for row in range(0, len(numbers), 16))
    return f"static const uint32_t {name}[] = {{\n    " + ",\n    ".join(rows) + "};\n"


def lowercase_tables(sets: CharacterSets) -> str:
    """Return the tables of `str.lower`, including the sets that a final sigma depends on."""
    pairs = [(ord(c), c.lower()) for c in _assigned_characters() if c.lower() != c != "\u03a3"]
    longer = [(point, list(map(ord, text))) for point, text in pairs if len(text) > 1]
    longest = max(len(points) for _, points in longer)
    ranges: list[list[int]] = []
    for point, text in pairs:
        if len(text) > 1:
            continue
        change = ord(text) - point
        last = ranges[-1] if ranges else [0, -9, 1, 0]  # no character continues this range
        step = point - last[1]
        if change == last[3] and (step == last[2] or (last[0] == last[1] and step == 2)):
            last[1], last[2] = point, step
        else:
            ranges.append([point, point, 1, change])
    sets.add_named("CASED", "CASE_IGNORABLE")
    rows = ",\n    ".join(f"{{{first}, {last}, {step}, {shift & _UNLIMITED}u}}" for first, last, step, shift in ranges)
    padded = ([point, len(points), *points, *[0] * (longest - len(points))] for point, points in longer)
    several = ", ".join(f"{{{', '.join(map(str, row))}}}" for row in padded)
    return (
        f"enum {{ MAX_LOWER_POINTS = {longest}, LOWER_COUNT = {len(ranges)}, LONGER_COUNT = {len(longer)} }};\n"
        f"static const uint32_t LONGER[][{2 + longest}] = {{{several}}};\n"
        "static const struct {\n    uint32_t first, last, step, change;\n"
        f"}} LOWER[] = {{\n    {rows}}};\n"
    )


def splitter_tables(splitter: str, sets: CharacterSets) -> str:
    """Return the tables of splitting.h for a splitter."""
    expression, ignores_case = tokens.EXPRESSIONS[splitter]
    sets.add_named("EXTENDING", "MARKS", "ALPHANUMERIC")
    code = c_numbers("SPLITTER", Program(expression, sets, re.IGNORECASE if ignores_case else 0).code)
    return f"#define SPLITS_MARKS {int(splitter == 'treebank')}\n{code}"


class Program:
    """A regular expression that is compiled for expression.h."""

    def __init__(self, expression: str, sets: CharacterSets, flags: int = 0) -> None:
        """Compile a regular expression. Raises ValueError for unsupported syntax."""
        self._parser, self._compiler = import_module("re._parser"), import_module("re._compiler")
        parsed = self._parser.parse(expression, flags)
        self._state, self._sets = parsed.state, sets
        self.code: list[int] = []
        self._compile(parsed, parsed.state.flags, tail=True)
        self.code.append(DONE)

    def _compile(self, parsed: Any, flags: int, *, tail: bool) -> None:
        """Append the code of parsed items. With `tail`, no code follows them, so that their choices are final."""
        items = list(parsed)
        for index, (op, value) in enumerate(items):
            kind, is_last = str(op), tail and index == len(items) - 1
            if kind in _SETS:
                self.code += [TAKE, self._add_set(op, value, flags)]
            elif kind == "BRANCH":
                self._branch(value[1], flags, tail=is_last)
            elif kind == "SUBPATTERN":
                _, added, removed, inside = value
                self._compile(inside, (flags | added) & ~removed, tail=is_last)
            elif kind in ("MAX_REPEAT", "MIN_REPEAT"):
                before = items[index - 1] if index else (None, None)
                low, high, inside = value
                self._repeat(kind == "MIN_REPEAT", low, high, inside, flags, before, tail=is_last)
            elif kind in ("ASSERT", "ASSERT_NOT"):
                direction, inside = value
                low, high = inside.getwidth()
                if direction < 0 and low != high:
                    raise ValueError("a lookbehind of variable width is unsupported")
                begin = len(self.code)
                self.code += [LOOK, int(kind == "ASSERT_NOT"), low if direction < 0 else 0, 0]
                self._compile(inside, flags, tail=True)
                self.code.append(DONE)
                self.code[begin + 3] = len(self.code)
            else:
                raise ValueError(f"unsupported syntax in an expression: {kind}")

    def _branch(self, alternatives: Sequence[Any], flags: int, *, tail: bool) -> None:
        ends = []
        for alternative in alternatives[:-1]:
            begin = len(self.code)
            self.code += [SPLIT, 0, self._add_first_set(alternative, flags)]
            self._compile(alternative, flags, tail=tail)
            self.code += [JUMP, 0]
            ends.append(len(self.code) - 1)
            self.code[begin + 1] = len(self.code)
        self._compile(alternatives[-1], flags, tail=tail)
        for end in ends:
            self.code[end] = len(self.code)

    def _repeat(self, lazy: bool, low: int, high: Any, inside: Any, flags: int, before: Any, *, tail: bool) -> None:
        high = _UNLIMITED if high == self._parser.MAXREPEAT else int(high)
        (op, value), *others = inside
        if not others and str(op) in _SETS:
            self.code += [LAZY if lazy else REPEAT, self._add_set(op, value, flags), low, high]
        elif lazy or inside.getwidth()[0] == 0:
            raise ValueError("unsupported repetition in an expression: lazy, or of an empty match")
        elif str(op) == "GROUPREF":
            is_before = str(before[0]) == "SUBPATTERN" and before[1][0] == value and before[1][3].getwidth() == (1, 1)
            if others or not is_before:
                raise ValueError("unsupported repetition in an expression: a group other than the prior character")
            self.code += [SAME, 0, low, high]
        else:
            for _ in range(low):
                self._compile(inside, flags, tail=False)
            begin, ends = len(self.code), []
            for _ in range(1 if high == _UNLIMITED else high - low):
                ends.append(len(self.code) + 1)
                self.code += [SPLIT, 0, self._add_first_set(inside, flags)]
                self._compile(inside, flags, tail=False)
                self.code += [COMMIT] * tail
            if high == _UNLIMITED:
                self.code += [JUMP, begin]
            for end in ends:
                self.code[end] = len(self.code)

    def _add_first_set(self, parsed: Any, flags: int) -> int:
        result = self._find_first(parsed, flags)
        return _UNLIMITED if result is None else self._sets.add(result)

    def _find_first(self, parsed: Any, flags: int) -> Ranges | None:
        """Return the characters with which a match can begin; None if they are unknown."""
        for op, value in parsed:
            kind = str(op)
            if kind in _SETS:
                return self._find_ranges(op, value, flags)
            if kind == "SUBPATTERN":
                _, added, removed, inside = value
                return self._find_first(inside, (flags | added) & ~removed)
            if kind == "BRANCH":
                firsts = [self._find_first(alternative, flags) for alternative in value[1]]
                return None if None in firsts else merge_ranges(chain.from_iterable(filter(None, firsts)))
            if kind in ("MAX_REPEAT", "MIN_REPEAT") and value[0]:
                return self._find_first(value[2], flags)
            if kind not in ("ASSERT", "ASSERT_NOT"):
                return None
        return None

    def _add_set(self, op: Any, value: Any, flags: int) -> int:
        return self._sets.add(self._find_ranges(op, value, flags))

    def _find_ranges(self, op: Any, value: Any, flags: int) -> Ranges:
        key = f"{op} {value} {flags & re.IGNORECASE} {self._state.flags}"
        if key not in _RANGES_OF_ITEMS:
            sub_pattern = self._parser.SubPattern
            item = sub_pattern(self._state, [(op, value)])
            group = sub_pattern(self._state, [(self._parser.SUBPATTERN, (None, 0, re.IGNORECASE & ~flags, item))])
            pattern = sub_pattern(self._state, [(self._parser.MAX_REPEAT, (1, self._parser.MAXREPEAT, group))])
            result = self._compiler.compile(pattern, flags & re.IGNORECASE).finditer(all_characters())
            _RANGES_OF_ITEMS[key] = tuple((match.start(), match.end() - 1) for match in result)
        return _RANGES_OF_ITEMS[key]
