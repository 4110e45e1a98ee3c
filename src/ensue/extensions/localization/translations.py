"""Files of translators: TMX as pairs, XLIFF and PO (gettext) as rows with `source` and `target`.

A unit of a translation memory (TMX) has the same text in several languages. XML is read in blocks; entities are not
expanded, and no other file is read.

References:
    TMX 1.4b (GALA, 2005).
"""

from __future__ import annotations

import codecs
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple
from xml.parsers import expat

from ensue.data.decoding import MAX_CHARACTERS, blocks, checked_encoding, whole_text
from ensue.data.examples.example import Pair
from ensue.data.examples.layout import PairChoice, PairFormat, PairLayout
from ensue.data.lines import Lines
from ensue.data.records.record import Column, sample
from ensue.errors import DataError, nearest
from ensue.parsing import MAX_DEPTH

_BETWEEN_WORDS = re.compile(r"(?<=\w)\0+(?=\w)")


class XmlReader(ABC):
    """Reader of a file whose outermost element is `root`. It collects items in `items`.

    Between an assignment of `[]` to `text` and its end, `text` takes the characters, but for those inside `codes`:
    elements that hold codes of another format, such as the tags of a web page. A placeholder (`x`, `ph`), such as a
    line break, becomes a blank between words.
    """

    root: ClassVar[str]
    codes: ClassVar[frozenset[str]]

    def __init__(self, name: str) -> None:
        self.name = name
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._characters
        self.parser.EntityDeclHandler = self._declared
        self.parser.SkippedEntityHandler = self._skipped
        self.depth = self.hidden = self.size = self.fed = 0
        self.text: list[str] | None = None
        self.items: list[Any] = []

    @abstractmethod
    def opened(self, tag: str, attributes: dict[str, str]) -> None:
        """Notes that an element begins."""

    @abstractmethod
    def closed(self, tag: str) -> None:
        """Notes that an element ends."""

    def feed(self, block: str | bytes, *, is_last: bool = False) -> list[Any]:
        """Feeds a block; returns what ends in it. Raises DataError (file:line) for what is not XML."""
        try:
            self.parser.Parse(block, is_last)
        except expat.ExpatError as error:
            what = f"not XML ({expat.errors.messages[error.code]} in column {error.offset + 1})"
            raise DataError(what, self.name, error.lineno) from None
        except (LookupError, ValueError) as error:  # an encoding that Python does not know
            raise self.error(f"not XML that can be read ({error})") from None
        self.fed += len(block)
        if self.fed - max(0, self.parser.CurrentByteIndex) > 2 * MAX_CHARACTERS:
            raise self.error(f"more than {MAX_CHARACTERS:,} characters in one tag or comment")
        items, self.items = self.items, []
        return items

    def taken(self) -> str:
        """The text that was gathered, without white space around it."""
        text, self.text = "".join(self.text or ()), None
        return _BETWEEN_WORDS.sub(" ", text).replace("\0", "").strip()

    def error(self, message: str) -> DataError:
        """A DataError at the line that is read."""
        return DataError(message, self.name, self.parser.CurrentLineNumber)

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.error(f"elements nested more than {MAX_DEPTH} deep")
        if self.depth == 1 and tag != self.root:
            raise self.error(f"expected the element {self.root}, found {tag[:40]}")
        if tag in ("x", "ph") and self.text is not None and not self.hidden:
            self.text.append("\0")  # which no XML has
        self.hidden += tag in self.codes
        self.opened(tag, attributes)

    def _end(self, tag: str) -> None:
        self.depth -= 1
        self.hidden -= tag in self.codes
        self.closed(tag)

    def _characters(self, data: str) -> None:
        if self.text is not None and not self.hidden:
            self.text.append(data)
            self.size += len(data)
            if self.size > MAX_CHARACTERS:
                raise self.error(f"a unit of more than {MAX_CHARACTERS:,} characters")

    def _declared(self, *declaration: object) -> None:
        raise self.error(f"an entity is declared ({str(declaration[0])[:40]}); entities are not expanded")

    def _skipped(self, entity: str, is_parameter: bool) -> None:
        if not is_parameter:
            raise self.error(f"the entity &{entity[:40]}; is not known")


_ENCODING = re.compile(rb"""<\?xml[^>]*\sencoding\s*=\s*["']([\w.:-]+)["']""")
_OPENING = re.compile(r"\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*(?:<!DOCTYPE\s+tmx\b[^>]*>\s*)?<tmx\b", re.DOTALL)
_MAX_OPENING_ROWS, _MAX_OPENING_CHARACTERS = 10, 1 << 12
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

    def recognizes(self, rows: Sequence[str]) -> bool:
        return _OPENING.match("\n".join(rows[:_MAX_OPENING_ROWS])[:_MAX_OPENING_CHARACTERS]) is not None

    def encoding_of(self, path: Path, encoding: str) -> str:
        return declared_encoding(path) if encoding == "utf-8" else encoding

    def layout(self, lines: Lines, choice: PairChoice) -> PairLayout:
        head = [line for _, line in sample(lines)]
        languages: dict[str, None] = {}
        for unit in islice(_units(head, lines.name, is_whole=False), _UNITS_TO_LOOK_AT):
            languages.update(dict.fromkeys(language for language, _ in unit.texts))
            if len(languages) > 1 and not (choice.sources or choice.targets):
                break
        sources = [_language(name, list(languages), lines.name) for name in choice.sources[:1]]
        targets = [_language(name, list(languages), lines.name) for name in choice.targets[:1]]
        others = (name for name in languages if not _is_one_of(name, [*sources, *targets]))
        sources = sources or list(islice(others, 1))
        targets = (targets or list(islice(others, 1))) if choice.is_labeled else []
        if not sources or (choice.is_labeled and not targets):
            raise DataError(f"{_listed(list(languages))}; expected units with two languages", lines.name)
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


TMX = Tmx()


def declared_encoding(path: Path) -> str:
    """The encoding that an XML file declares, or UTF-8."""
    head = next(blocks(path))[:1024]
    if marked := _MARKS.get(head[:2]):
        return marked
    match = _ENCODING.match(head.removeprefix(codecs.BOM_UTF8))
    return checked_encoding(match[1].decode("ascii", "replace")) if match else "utf-8"


def _units(lines: Iterator[str] | Sequence[str], name: str, *, is_whole: bool = True) -> Iterator[Unit]:
    """The units of a text. If `is_whole`, it must not end inside an element."""
    reader = _TmxReader(name)
    for block in _blocks(lines):
        yield from reader.feed(block)
    if is_whole:
        yield from reader.feed("", is_last=True)


def _blocks(lines: Iterator[str] | Sequence[str]) -> Iterator[str]:
    held: list[str] = []
    size = 0
    for line in lines:
        held.append(line)
        size += len(line)
        if size >= _BLOCK:
            yield "".join(held)
            held, size = [], 0
    yield "".join(held)


class _TmxReader(XmlReader):
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
            self.items.append(self.unit)
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


Message = dict[str, str]

_CHARSET = re.compile(rb"(?i)Content-Type:[^\"\n]*charset=([\w.:-]+)")
_LINE = re.compile(r'(msgctxt|msgid_plural|msgid|msgstr(?:\[\d{1,3}\])?)?\s*"((?:[^"\\]|\\.)*+)"')
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|(.))")
_SIGNS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_UNFINISHED = {"new", "needs-translation", "needs-adaptation", "needs-l10n", "initial"}


def po_rows(path: Path, encoding: str) -> Iterator[Message]:
    """The messages that are translated and not fuzzy. Of plural forms each is a pair: the first with the singular.

    The header names the encoding, unless the person does. Raises DataError (file:line) for what is no PO file.
    """
    if encoding == "utf-8" and (named := _CHARSET.search(next(blocks(path)))) and named[1] != b"CHARSET":
        encoding = checked_encoding(named[1].decode("ascii", "replace"))
    has_any = False
    for message in _messages(whole_text(path, encoding), str(path)):
        forms = [text for key, text in message.items() if key.startswith("msgstr")]
        plural = message.get("msgid_plural")
        sources = [message["msgid"]] if plural is None or len(forms) > 1 else []
        sources += [plural or ""] * (len(forms) - len(sources))
        for source, target in zip(sources, forms, strict=True):
            if source and target:
                has_any = True
                context = {"context": message["msgctxt"]} if "msgctxt" in message else {}
                yield {"source": source, "target": target, **context}
    if not has_any:
        raise DataError("no message with a translation", path)


def xliff_rows(path: Path, encoding: str) -> Iterator[Message]:
    """The units of XLIFF 1.2, or the segments of XLIFF 2, that are translated, without inline codes and without
    those that say `translate="no"`.

    The file declares its encoding. Raises DataError (file:line) for what is no XLIFF.
    """
    reader, has_any = _Xliff(str(path)), False
    for block in blocks(path):
        for row in reader.feed(block, is_last=not block):
            has_any = True
            yield row
    if not has_any:
        raise DataError("no unit with a translation", path)


class _Xliff(XmlReader):
    root = "xliff"
    codes = frozenset(("bpt", "ept", "it", "ph"))
    unit: Message | None = None
    aside = 0

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.translated = [True]

    def opened(self, tag: str, attributes: dict[str, str]) -> None:
        inherited = "yes" if self.translated[-1] else "no"
        self.translated.append(attributes.get("translate", inherited) != "no")
        if tag in ("trans-unit", "segment") and self.translated[-1]:
            self.unit, self.size = {"state": attributes.get("state", "")}, 0
        elif tag == "alt-trans":
            self.aside += 1
        elif tag in ("source", "target") and self.unit is not None and not self.aside:
            self.text = []
            self.unit["state"] = attributes.get("state", self.unit["state"])

    def closed(self, tag: str) -> None:
        self.translated.pop()
        if tag == "alt-trans":
            self.aside -= 1
        elif tag in ("source", "target") and self.unit is not None and not self.aside:
            self.unit[tag] = self.taken()
        elif tag in ("trans-unit", "segment") and self.unit is not None:
            if self.unit.pop("state") not in _UNFINISHED and self.unit.get("source") and self.unit.get("target"):
                self.items.append(self.unit)
            self.unit = None


def _messages(content: str, name: str) -> Iterator[Message]:
    """The messages by their keywords, without fuzzy and obsolete ones."""
    message: dict[str, list[str]] = {}
    key, is_fuzzy = "", False
    for number, line in enumerate(content.split("\n"), 1):
        text = line.strip()
        is_new = text.startswith(("#", "msgctxt", "msgid ", 'msgid"')) and any(k.startswith("msgstr") for k in message)
        if is_new:
            if not is_fuzzy and "msgid" in message:
                yield _joined(message)
            message, key, is_fuzzy = {}, "", False
        if text.startswith("#,"):
            is_fuzzy |= "fuzzy" in text
        if not text or text.startswith("#"):
            continue
        match = _LINE.fullmatch(text)
        key = (match[1] or key) if match else ""
        if match is None or not key or (match[1] and key in message):
            raise DataError('expected a message of a PO file, such as msgid "text" and msgstr "Text"', name, number)
        message.setdefault(key, []).append(_ESCAPE.sub(_sign, match[2]))
    if not is_fuzzy and "msgid" in message and any(k.startswith("msgstr") for k in message):
        yield _joined(message)


def _joined(message: dict[str, list[str]]) -> Message:
    return {key: "".join(lines) for key, lines in message.items()}


def _sign(match: re.Match[str]) -> str:
    octal, hexadecimal, sign = match.groups()
    return chr(int(octal, 8)) if octal else chr(int(hexadecimal, 16)) if hexadecimal else _SIGNS.get(sign, sign)
