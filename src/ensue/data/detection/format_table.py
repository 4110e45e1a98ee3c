"""The formats of labeled data: their names, their kinds of data, their suffixes, and the signs of their first lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ensue.data.decoding import COMPRESSED
from ensue.data.detection import signs
from ensue.data.records.json_objects import JsonObjects
from ensue.data.records.reader import Reader
from ensue.data.records.tables import CommaSeparated, SemicolonSeparated, TabSeparated
from ensue.data.row_formats import ROW_SUFFIXES, extension_format, suffix
from ensue.errors import EnsueError
from ensue.extension import Entry, entries

JSON = (".json", ".jsonl", ".ndjson", *ROW_SUFFIXES)
"""Rows of binary tables, and of the files of tools, are read as JSON."""
SENTENCES, TEXTS, PAIRS = "sentences", "texts", "pairs"
ALIGNED = "aligned"
"""Two files, line by line."""
FOLDERS = "folders"
"""A folder for each class, with a file for each text."""
CLASS_FILES = "class-files"
"""A file for each class, with a text on each line."""


class KnownFormat(NamedTuple):
    """A format, and what it may hold. `sign` tells whether the rows that are not blank are of this format; None if no
    sign does. `reader` reads its records, if these have columns or keys. `sentences` is the class that reads sentences,
    as "module:Class". `is_setting`: whether `data.format` of a recipe may name it.
    """

    name: str
    kinds: tuple[str, ...]
    suffixes: tuple[str, ...] = ()
    sign: Callable[[Sequence[str]], bool] | None = None
    reader: Reader | None = None
    is_setting: bool = True
    sentences: str = ""


COLUMN_SUFFIXES = (".conll", ".bio", ".iob", ".iob2", ".bmes", ".bioes", ".iobes")
_SENTENCES = "ensue.data.sentences."
KNOWN = (
    KnownFormat("columns", (SENTENCES,), COLUMN_SUFFIXES, sentences=_SENTENCES + "columns:Columns"),
    KnownFormat("conllu", (SENTENCES,), (".conllu",), signs.is_conllu, sentences=_SENTENCES + "conllu:Conllu"),
    KnownFormat("tsv", (TEXTS, PAIRS), (".tsv", ".tab"), signs.are_tabbed, TabSeparated()),
    KnownFormat("csv", (TEXTS, PAIRS), (".csv",), signs.announces, CommaSeparated()),
    KnownFormat("csv-semicolon", (TEXTS, PAIRS), reader=SemicolonSeparated()),
    KnownFormat("fasttext", (TEXTS,), (".ft", ".fasttext"), signs.is_fasttext),
    KnownFormat("first-word", (TEXTS,)),
    KnownFormat(CLASS_FILES, (TEXTS,)),
    KnownFormat(FOLDERS, (TEXTS,)),
    KnownFormat("sigmorphon", (PAIRS,)),
    KnownFormat("cmudict", (PAIRS,), (), signs.is_cmudict),
    KnownFormat("scan", (PAIRS,), (), signs.is_scan),
    KnownFormat(
        *("json", (SENTENCES, TEXTS, PAIRS), JSON, signs.is_json, JsonObjects()),
        sentences=_SENTENCES + "json_sentences:JsonSentences",
    ),
    KnownFormat(ALIGNED, (PAIRS,), is_setting=False),
    KnownFormat("conllu-text", (), is_setting=False, sentences=_SENTENCES + "running_text:RunningText"),
    KnownFormat("text", (SENTENCES,), is_setting=False, sentences=_SENTENCES + "formats:PlainText"),
    KnownFormat("plain", (TEXTS, PAIRS), is_setting=False),
)
"""The formats of the core. Signs are tried from the last to the first: a table may hold anything."""
READERS = tuple(known.reader for known in KNOWN if known.reader)
ONLY_SENTENCES = {known.name for known in KNOWN if known.kinds == (SENTENCES,) and known.is_setting}
TABBED = {"tsv", "sigmorphon"}
"""Formats of pairs with tabs between columns."""


def known_formats() -> tuple[KnownFormat, ...]:
    """Return the formats of the core, and the formats of pairs of extensions."""
    return (*KNOWN, *map(_pair_format, entries("pair_format").values()))


def _pair_format(entry: Entry) -> KnownFormat:
    def recognizes(rows: Sequence[str]) -> bool:
        with suppress(EnsueError, AttributeError):  # one that cannot be read has a notice where pairs are read
            return bool(entry.load(object).recognizes(rows))
        return False

    return KnownFormat(entry.name, (PAIRS,), (f".{entry.name}",), recognizes)


def only_pairs() -> tuple[str, ...]:
    """Return the names of the formats that hold pairs alone."""
    return tuple(known.name for known in known_formats() if known.kinds == (PAIRS,))


def settings_of(kind: str) -> tuple[str, ...]:
    """Return the values of `data.format` in recipes."""
    return ("auto", *(known.name for known in known_formats() if kind in known.kinds and known.is_setting))


def by_suffix(kind: str, name: str) -> str:
    """Return the format by the suffix of a file; "" for an unknown suffix. Other formats of extensions become JSON."""
    end = suffix(name)
    if extension_format(name):
        return "json"
    return next((known.name for known in known_formats() if kind in known.kinds and end in known.suffixes), "")


def by_sign(kind: str, rows: Sequence[str]) -> str:
    """Return the format by the first rows, without blank ones and line ends; "" if they show none."""
    names = (each.name for each in reversed(known_formats()) if kind in each.kinds and each.sign and each.sign(rows))
    return next(names, "")


def class_of(name: str) -> str:
    """The class of a file by its name: `Arabic` for `names/Arabic.txt.xz`."""
    path = Path(name)
    return Path(path.stem).stem if path.suffix.lower() in COMPRESSED else path.stem
