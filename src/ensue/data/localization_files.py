"""Files of translators as rows of source and target: gettext's PO, and XLIFF 1.2 and 2.

Sources: the GNU gettext manual, "The Format of PO Files"; OASIS, XLIFF 1.2 (2008) and 2.0 (2014). What has no finished
translation is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ensue.data.decoding import blocks, checked_encoding, whole_text
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
