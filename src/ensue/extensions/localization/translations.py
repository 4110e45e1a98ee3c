"""Readers of translation files: TMX as pairs, XLIFF and PO (gettext) as rows with `source` and `target`.

A unit of a translation memory (TMX) is a text in several languages. XML is parsed in blocks. Entities are not
expanded, and no other file is opened.

References:
    TMX 1.4b (GALA, 2005).
"""

import codecs
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple
from xml.parsers import expat

from ensue.data.decoding import MAX_CHARACTERS, check_encoding, load_text, read_blocks
from ensue.data.examples.layout import Pair, PairChoice, PairFormat, PairLayout
from ensue.data.lines import Lines
from ensue.data.parallel import join_blocks
from ensue.data.records.record import Column, sample
from ensue.errors import DataError, nearest
from ensue.parsing import MAX_DEPTH

_BETWEEN_WORDS = re.compile(r"(?<=\w)\0+(?=\w)")


class XmlReader(ABC):
    """A parser of a file with the root element `root`. Subclasses append to `items`.

    While `text` is a list, characters are appended to it, except inside the elements `codes`, which contain markup of
    another format, such as HTML tags. A placeholder between words (`x`, `ph`), such as a line break, becomes a space.
    """

    root: ClassVar[str]
    codes: ClassVar[frozenset[str]]

    def __init__(self, name: str) -> None:
        self.name = name
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._add_characters
        self.parser.EntityDeclHandler = self._refuse_declaration
        self.parser.SkippedEntityHandler = self._refuse_entity
        self.depth = self.code_depth = self.size = self.num_fed = 0
        self.text: list[str] | None = None
        self.items: list[Any] = []

    @abstractmethod
    def handle_start(self, tag: str, attributes: dict[str, str]) -> None:
        """Handle the start of an element."""

    @abstractmethod
    def handle_end(self, tag: str) -> None:
        """Handle the end of an element."""

    def feed(self, block: str | bytes, *, is_last: bool = False) -> list[Any]:
        """Parse a block, and return the items that end in the block. Raises DataError (file:line) for invalid XML."""
        try:
            self.parser.Parse(block, is_last)
        except expat.ExpatError as error:
            message = f"not XML ({expat.errors.messages[error.code]} in column {error.offset + 1})"
            raise DataError(message, self.name, error.lineno) from None
        except (LookupError, ValueError) as error:  # unknown encoding
            raise self.error(f"not XML that can be read ({error})") from None
        self.num_fed += len(block)
        if self.num_fed - max(0, self.parser.CurrentByteIndex) > 2 * MAX_CHARACTERS:
            raise self.error(f"more than {MAX_CHARACTERS:,} characters in one tag or comment")
        items, self.items = self.items, []
        return items

    def pop_text(self) -> str:
        """Return the collected text without surrounding white space, and stop collecting."""
        text, self.text = "".join(self.text or ()), None
        return _BETWEEN_WORDS.sub(" ", text).replace("\0", "").strip()

    def error(self, message: str) -> DataError:
        """Return a DataError at the current line."""
        return DataError(message, self.name, self.parser.CurrentLineNumber)

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.error(f"elements nested more than {MAX_DEPTH} deep")
        if self.depth == 1 and tag != self.root:
            raise self.error(f"expected the element {self.root}, found {tag[:40]}")
        if tag in ("x", "ph") and self.text is not None and not self.code_depth:
            self.text.append("\0")  # marks the placeholder; XML cannot contain this character
        self.code_depth += tag in self.codes
        self.handle_start(tag, attributes)

    def _end(self, tag: str) -> None:
        self.depth -= 1
        self.code_depth -= tag in self.codes
        self.handle_end(tag)

    def _add_characters(self, data: str) -> None:
        if self.text is not None and not self.code_depth:
            self.text.append(data)
            self.size += len(data)
            if self.size > MAX_CHARACTERS:
                raise self.error(f"a unit of more than {MAX_CHARACTERS:,} characters")

    def _refuse_declaration(self, *declaration: object) -> None:
        raise self.error(f"an entity is declared ({str(declaration[0])[:40]}); entities are not expanded")

    def _refuse_entity(self, entity: str, is_parameter: bool) -> None:
        if not is_parameter:
            raise self.error(f"unknown entity &{entity[:40]};")


_ENCODING = re.compile(rb"""<\?xml[^>]*\sencoding\s*=\s*["']([\w.:-]+)["']""")
_OPENING = re.compile(r"\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*(?:<!DOCTYPE\s+tmx\b[^>]*>\s*)?<tmx\b", re.DOTALL)
_MAX_OPENING_ROWS, _MAX_OPENING_CHARACTERS = 10, 1 << 12
_MIN_BLOCK_CHARACTERS = 1 << 20  # large, since for each further block, expat scans an open comment from its start
_MAX_DETECTION_UNITS = 100


class Unit(NamedTuple):
    """A unit of a translation memory: its line (from 1), and pairs of language code and text."""

    line: int
    texts: list[tuple[str, str]]


class Tmx(PairFormat):
    """The format TMX.

    Languages are chosen by name (`en` matches `en-US`). By default, the source and the target are the first two
    languages of the file. If a unit has several texts in the target language, they are references. Units that lack the
    source or the target language are skipped.
    """

    name = "tmx"

    def recognizes(self, rows: Sequence[str]) -> bool:
        return _OPENING.match("\n".join(rows[:_MAX_OPENING_ROWS])[:_MAX_OPENING_CHARACTERS]) is not None

    def encoding_of(self, path: Path, encoding: str) -> str:
        return declared_encoding(path) if encoding == "utf-8" else encoding

    def layout(self, lines: Lines, choice: PairChoice) -> PairLayout:
        first_lines = [line for _, line in sample(lines)]
        languages: dict[str, None] = {}
        for unit in islice(_iterate_units(first_lines, lines.name, is_complete=False), _MAX_DETECTION_UNITS):
            languages.update(dict.fromkeys(language for language, _ in unit.texts))
            if len(languages) > 1 and not (choice.sources or choice.targets):
                break
        sources = [_check_language(name, list(languages), lines.name) for name in choice.sources[:1]]
        targets = [_check_language(name, list(languages), lines.name) for name in choice.targets[:1]]
        chosen = [*sources, *targets]
        unchosen = (name for name in languages if not any(_matches(name, c) or _matches(c, name) for c in chosen))
        sources = sources or list(islice(unchosen, 1))
        targets = (targets or list(islice(unchosen, 1))) if choice.is_labeled else []
        if not sources or (choice.is_labeled and not targets):
            raise DataError(f"expected units with two languages, found {_names(list(languages))}", lines.name)
        return PairLayout("tmx", (Column(0, sources[0]),), tuple(Column(0, name) for name in targets))

    def read(self, lines: Lines, layout: PairLayout, *, is_labeled: bool) -> Iterator[Pair]:
        languages = [column.name for column in (*layout.sources, *layout.targets)]
        has_any = False
        for unit in _iterate_units((line for _, line in lines), lines.name):
            texts = [[text for language, text in unit.texts if _matches(language, name)] for name in languages]
            if all(texts):
                has_any = True
                yield Pair((texts[0][0],), tuple(texts[1]) if is_labeled else (), lines.name, unit.line)
        if not has_any:
            raise DataError(f"no unit with {' and '.join(languages)}", lines.name)


TMX = Tmx()


def declared_encoding(path: Path) -> str:
    """Return the encoding that an XML file declares, by default UTF-8."""
    first_lines = next(read_blocks(path))[:1024]
    if first_lines[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return "utf-16"
    match = _ENCODING.match(first_lines.removeprefix(codecs.BOM_UTF8))
    return check_encoding(match[1].decode("ascii", "replace")) if match else "utf-8"


def _iterate_units(lines: Iterator[str] | Sequence[str], name: str, *, is_complete: bool = True) -> Iterator[Unit]:
    reader = _TmxReader(name)
    for block in join_blocks(lines, _MIN_BLOCK_CHARACTERS - 1):
        yield from reader.feed(block)
    if is_complete:
        yield from reader.feed("", is_last=True)


class _TmxReader(XmlReader):
    root = "tmx"
    codes = frozenset(("bpt", "ept", "it", "ph", "ut"))
    language = ""
    unit: Unit | None = None

    def handle_start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "tu":
            self.unit, self.size = Unit(self.parser.CurrentLineNumber, []), 0
        elif tag == "tuv":
            self.language = attributes.get("xml:lang") or attributes.get("lang", "")
        elif tag == "seg":
            self.text, self.code_depth = [], 0

    def handle_end(self, tag: str) -> None:
        if tag == "seg" and self.text is not None:
            text = self.pop_text()
            if self.unit is not None:
                self.unit.texts.append((self.language, text))
        elif tag == "tu" and self.unit is not None:
            self.items.append(self.unit)
            self.unit = None


def _matches(language: str, name: str) -> bool:
    """Return whether `name` is the code `language` or its first subtags, as `en` is for `en-US`."""
    return f"{language}-".replace("_", "-").casefold().startswith(f"{name}-".replace("_", "-").casefold())


def _check_language(name: str, languages: Sequence[str], file: str) -> str:
    if not any(_matches(language, name) for language in languages):
        raise DataError(f'no language "{name}"{nearest(name, languages) or "; there are " + _names(languages)}', file)
    return name


def _names(languages: Sequence[str]) -> str:
    return ", ".join(language or "unnamed language" for language in languages[:12]) or "no units"


Row = dict[str, str]

_CHARSET = re.compile(rb"(?i)Content-Type:[^\"\n]*charset=([\w.:-]+)")
_LINE = re.compile(r'(msgctxt|msgid_plural|msgid|msgstr(?:\[\d{1,3}\])?)?\s*"((?:[^"\\]|\\.)*+)"')
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|(.))")
_ESCAPED_CHARACTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_UNFINISHED_STATES = {"new", "needs-translation", "needs-adaptation", "needs-l10n", "initial"}


def read_po(path: Path, encoding: str) -> Iterator[Row]:
    """Yield the messages that are translated and not fuzzy, with a row for each plural form.

    The source of the first of several forms is the singular. If `encoding` is "utf-8", the default, the encoding in the
    header of the file has priority. Raises DataError (file:line) for invalid files.
    """
    if encoding == "utf-8" and (charset := _CHARSET.search(next(read_blocks(path)))) and charset[1] != b"CHARSET":
        encoding = check_encoding(charset[1].decode("ascii", "replace"))
    has_any = False
    for message in _iterate_messages(load_text(path, encoding), str(path)):
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


def read_xliff(path: Path, encoding: str) -> Iterator[Row]:
    """Yield the translated units of XLIFF 1.2 or segments of XLIFF 2, without their inline codes.

    Units with `translate="no"` are skipped. The file declares its encoding. Raises DataError for an invalid file.
    """
    reader, has_any = _XliffReader(str(path)), False
    for block in read_blocks(path):
        for row in reader.feed(block, is_last=not block):
            has_any = True
            yield row
    if not has_any:
        raise DataError("no unit with a translation", path)


class _XliffReader(XmlReader):
    root = "xliff"
    codes = frozenset(("bpt", "ept", "it", "ph"))
    unit: Row | None = None
    num_alternatives = 0

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.translatable = [True]

    def handle_start(self, tag: str, attributes: dict[str, str]) -> None:
        self.translatable.append(attributes.get("translate", "yes" if self.translatable[-1] else "no") != "no")
        if tag in ("trans-unit", "segment") and self.translatable[-1]:
            self.unit, self.size = {"state": attributes.get("state", "")}, 0
        elif tag == "alt-trans":
            self.num_alternatives += 1
        elif tag in ("source", "target") and self.unit is not None and not self.num_alternatives:
            self.text = []
            self.unit["state"] = attributes.get("state", self.unit["state"])

    def handle_end(self, tag: str) -> None:
        self.translatable.pop()
        if tag == "alt-trans":
            self.num_alternatives -= 1
        elif tag in ("source", "target") and self.unit is not None and not self.num_alternatives:
            self.unit[tag] = self.pop_text()
        elif tag in ("trans-unit", "segment") and self.unit is not None:
            if self.unit.pop("state") not in _UNFINISHED_STATES and self.unit.get("source") and self.unit.get("target"):
                self.items.append(self.unit)
            self.unit = None


def _iterate_messages(content: str, name: str) -> Iterator[Row]:
    message: dict[str, list[str]] = {}
    key, is_fuzzy = "", False
    for number, line in enumerate([*content.split("\n"), "#"], 1):  # the comment at the end completes the last message
        text = line.strip()
        is_new = text.startswith(("#", "msgctxt", "msgid ", 'msgid"')) and any(k.startswith("msgstr") for k in message)
        if is_new:
            if not is_fuzzy and "msgid" in message:
                yield {key: "".join(lines) for key, lines in message.items()}
            message, key, is_fuzzy = {}, "", False
        if text.startswith("#,"):
            is_fuzzy |= "fuzzy" in text
        if not text or text.startswith("#"):
            continue
        match = _LINE.fullmatch(text)
        key = (match[1] or key) if match else ""
        if match is None or not key or (match[1] and key in message):
            raise DataError('expected a message of a PO file, such as msgid "text" and msgstr "Text"', name, number)
        message.setdefault(key, []).append(_ESCAPE.sub(_unescape, match[2]))


def _unescape(match: re.Match[str]) -> str:
    octal, hexadecimal, character = match.groups()
    if octal or hexadecimal:
        return chr(int(octal, 8) if octal else int(hexadecimal, 16))
    return _ESCAPED_CHARACTERS.get(character, character)
