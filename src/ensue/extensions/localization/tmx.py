"""TMX: units of a translation memory, each with the same text in several languages.

Source: TMX 1.4b (GALA, 2005). Entities are not expanded, and no other file is read.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from ensue.data.decoding import blocks, checked_encoding
from ensue.data.examples.example import Pair
from ensue.data.examples.layout import PairChoice, PairFormat, PairLayout
from ensue.data.lines import Lines
from ensue.data.records.record import Column, sample
from ensue.data.xml_reader import XmlReader
from ensue.errors import DataError, nearest

_ENCODING = re.compile(rb"""<\?xml[^>]*\sencoding\s*=\s*["']([\w.:-]+)["']""")
_MARKS = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_BLOCK = 1 << 20  # with each block a comment that goes on is looked through again from its start
_UNITS_TO_LOOK_AT = 100


class Unit(NamedTuple):
    """The texts of a unit with the codes of their languages, and the line (from 1) where it begins."""

    line: int
    texts: list[tuple[str, str]]


class Tmx(PairFormat):
    """The languages of source and target are those named, as `en` names `en-US`, or the first two of the first unit.

    Several texts of a unit in the target's language are references. Units without one of the two are skipped.
    """

    name = "tmx"

    def layout(self, lines: Lines, choice: PairChoice) -> PairLayout:
        head = [line for _, line in sample(lines)]
        found: dict[str, None] = {}
        for unit in islice(_units(head, lines.name, is_whole=False), _UNITS_TO_LOOK_AT):
            found.update(dict.fromkeys(language for language, _ in unit.texts))
            if len(found) > 1 and not (choice.sources or choice.targets):
                break
        sources = [_language(name, list(found), lines.name) for name in choice.sources[:1]]
        targets = [_language(name, list(found), lines.name) for name in choice.targets[:1]]
        others = (name for name in found if not _is_one_of(name, [*sources, *targets]))
        sources = sources or list(islice(others, 1))
        targets = (targets or list(islice(others, 1))) if choice.is_labeled else []
        if not sources or (choice.is_labeled and not targets):
            raise DataError(f"{_listed(list(found))}; expected units with two languages", lines.name)
        return PairLayout("tmx", (Column(0, sources[0]),), tuple(Column(0, name) for name in targets))

    def read(self, lines: Lines, layout: PairLayout, *, is_labeled: bool) -> Iterator[Pair]:
        wanted = [column.name for column in (*layout.sources, *layout.targets)]
        has_any = False
        for unit in _units((line for _, line in lines), lines.name):
            sides = [[text for language, text in unit.texts if _is(language, name)] for name in wanted]
            if all(sides):
                has_any = True
                yield Pair((sides[0][0],), tuple(sides[1]) if is_labeled else (), lines.name, unit.line)
        if not has_any:
            raise DataError(f"no unit with {' and '.join(wanted)}", lines.name)


def declared_encoding(path: Path) -> str:
    """The encoding that an XML file declares, or UTF-8."""
    head = next(blocks(path))[:1024]
    if marked := _MARKS.get(head[:2]):
        return marked
    found = _ENCODING.match(head.removeprefix(codecs.BOM_UTF8))
    return checked_encoding(found[1].decode("ascii", "replace")) if found else "utf-8"


def _units(lines: Iterator[str] | Sequence[str], name: str, *, is_whole: bool = True) -> Iterator[Unit]:
    """The units of a text. If `is_whole`, it must not end inside an element."""
    reader = _Reader(name)
    for block in _joined(lines):
        yield from reader.feed(block)
    if is_whole:
        yield from reader.feed("", is_last=True)


def _joined(lines: Iterator[str] | Sequence[str]) -> Iterator[str]:
    held: list[str] = []
    size = 0
    for line in lines:
        held.append(line)
        size += len(line)
        if size >= _BLOCK:
            yield "".join(held)
            held, size = [], 0
    yield "".join(held)


class _Reader(XmlReader):
    """Reads a text in blocks, and returns the units that end in each."""

    root = "tmx"
    codes = frozenset(("bpt", "ept", "it", "ph", "ut"))
    language = ""
    unit: Unit | None = None

    def opened(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "tu":
            self.unit, self.size = Unit(self.parser.CurrentLineNumber, []), 0
        elif tag == "tuv":
            self.language = attributes.get("xml:lang") or attributes.get("lang", "")
        elif tag == "seg":
            self.text, self.hidden = [], 0

    def closed(self, tag: str) -> None:
        if tag == "seg" and self.text is not None:
            text = self.taken()
            if self.unit is not None:
                self.unit.texts.append((self.language, text))
        elif tag == "tu" and self.unit is not None:
            self.found.append(self.unit)
            self.unit = None


def _is(language: str, name: str) -> bool:
    """Whether the code of a language is the one named, or the same with a region."""
    return f"{language}-".replace("_", "-").casefold().startswith(f"{name}-".replace("_", "-").casefold())


def _is_one_of(language: str, names: Sequence[str]) -> bool:
    return any(_is(language, name) or _is(name, language) for name in names)


def _language(name: str, known: Sequence[str], file: str) -> str:
    """The name. Raises DataError if there is no such language."""
    if not any(_is(language, name) for language in known):
        raise DataError(f'no language "{name}"{nearest(name, known) or "; there are " + _listed(known)}', file)
    return name


def _listed(languages: Sequence[str]) -> str:
    return ", ".join(language or "one without a code" for language in languages[:12]) or "no units"
