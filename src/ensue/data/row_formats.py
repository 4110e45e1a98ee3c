"""The formats that become JSON lines before they are read, by the suffix of a file or by its first characters."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from ensue.data.annotation_files import are_tasks, brat_rows, spacy_rows, task_rows
from ensue.data.decoding import COMPRESSED, MARK, blocks, checked_encoding, decoded, whole_text
from ensue.data.row_files import PARQUET, as_lines, has_rows, json_lines
from ensue.data.xml_reader import XmlReader
from ensue.errors import DataError

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
                self.found.append(self.unit)
            self.unit = None


def _messages(whole: str, name: str) -> Iterator[Message]:
    """The messages by their keywords, without fuzzy and obsolete ones."""
    message: dict[str, list[str]] = {}
    key, is_fuzzy = "", False
    for number, line in enumerate(whole.split("\n"), 1):
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
        found = _LINE.fullmatch(text)
        key = (found[1] or key) if found else ""
        if found is None or not key or (found[1] and key in message):
            raise DataError('expected a message of a PO file, such as msgid "text" and msgstr "Text"', name, number)
        message.setdefault(key, []).append(_ESCAPE.sub(_sign, found[2]))
    if not is_fuzzy and "msgid" in message and any(k.startswith("msgstr") for k in message):
        yield _joined(message)


def _joined(message: dict[str, list[str]]) -> Message:
    return {key: "".join(parts) for key, parts in message.items()}


def _sign(found: re.Match[str]) -> str:
    octal, hexadecimal, sign = found.groups()
    return chr(int(octal, 8)) if octal else chr(int(hexadecimal, 16)) if hexadecimal else _SIGNS.get(sign, sign)


ROWS: dict[str, Callable[[Path, str], Iterator[dict[str, Any]]]] = {
    **dict.fromkeys((".po", ".pot"), po_rows),
    **dict.fromkeys((".xlf", ".xliff"), xliff_rows),
    ".ann": brat_rows,
    ".spacy": spacy_rows,
}
"""The functions from a file and its encoding to its rows."""
ROW_SUFFIXES = (*PARQUET, *ROWS)


def suffix(name: str) -> str:
    """`.csv` for `a.csv.xz`."""
    path = Path(name.lower())
    return Path(path.stem).suffix if path.suffix in COMPRESSED else path.suffix


def files_read(path: Path) -> tuple[Path, ...]:
    """The file, and the one that is read with it where it is there: the text of brat's annotations."""
    text = path.with_suffix(".txt")
    return (path, text) if suffix(path.name) == ".ann" and text.is_file() else (path,)


def text_blocks(path: Path, encoding: str, *, nested: bool = False, marked: bool = False) -> Iterator[str]:
    """The decompressed text of a file in blocks, if `marked` with its byte order mark, or its rows as JSON lines."""
    if has_rows(path):
        return json_lines(path)
    if read := ROWS.get(suffix(path.name)):
        rows = brat_rows(path, encoding, nested=nested) if read is brat_rows else read(path, encoding)
        return as_lines([row] for row in rows)
    blocks = decoded(path, encoding, marked=marked)
    return _json_blocks(blocks, str(path)) if suffix(path.name) == ".json" else blocks


def _json_blocks(blocks: Iterator[str], name: str) -> Iterator[str]:
    first = next(blocks, "")
    if are_tasks(plain := first.removeprefix(MARK), name):
        yield from as_lines([row] for row in task_rows(chain([plain], blocks), name))
    else:
        yield from chain([first] if first else [], blocks)
