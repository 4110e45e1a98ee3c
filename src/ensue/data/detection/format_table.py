"""The table of the formats of labeled data, and the detection of formats from names and first lines of files."""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from ensue.data.decoding import COMPRESSED, MAX_CHARACTERS
from ensue.data.detection import signs
from ensue.data.lines import Lines, is_blank
from ensue.data.records.json_objects import JsonObjects
from ensue.data.records.quoting import detect_delimiter, has_quoted_tabs, looks_delimited
from ensue.data.records.record import SAMPLE_ROWS, Reader, json_records, sample
from ensue.data.records.tables import DIALECTS
from ensue.data.row_formats import JSON_SUFFIXES, ROW_SUFFIXES, extension_format, suffix, text_blocks
from ensue.errors import DataError, EnsueError
from ensue.extension import Entry, entries
from ensue.notices import warn_once

SENTENCES, TEXTS, PAIRS = "sentences", "texts", "pairs"
ALIGNED = "aligned"
"""Two files in which lines with equal numbers are pairs."""
FOLDERS = "folders"
"""A folder for each class, with a file for each text."""
CLASS_FILES = "class-files"
"""A file for each class, with a text on each line."""


class KnownFormat(NamedTuple):
    """A format of labeled data."""

    name: str
    kinds: tuple[str, ...]
    """The kinds of data that files of this format can contain."""
    suffixes: tuple[str, ...] = ()
    recognizes: Callable[[Sequence[str]], bool] | None = None
    """The function that recognizes the format from the first rows that are not blank."""
    reader: Reader | None = None
    """The reader of records, for formats with columns or keys."""
    is_setting: bool = True
    """Whether the name is a valid value of `data.format` in recipes."""
    sentences: str = ""
    """The class that reads sentences, as "module:Class"."""


COLUMN_SUFFIXES = (".conll", ".bio", ".iob", ".iob2", ".bmes", ".bioes", ".iobes")
_SENTENCES = "ensue.data.sentences."
_TAB, _COMMA, _SEMICOLON, _QUOTED_TAB = DIALECTS
FORMAT_TABLE = (
    KnownFormat("columns", (SENTENCES,), COLUMN_SUFFIXES, sentences=_SENTENCES + "columns:Columns"),
    KnownFormat("conllu", (SENTENCES,), (".conllu",), signs.is_conllu, sentences=_SENTENCES + "conllu:Conllu"),
    KnownFormat("tsv", (TEXTS, PAIRS), (".tsv", ".tab"), signs.are_tabbed, _TAB),
    KnownFormat("csv", (TEXTS, PAIRS), (".csv",), signs.has_delimiter_line, _COMMA),
    KnownFormat("csv-semicolon", (TEXTS, PAIRS), reader=_SEMICOLON),
    KnownFormat("csv-tab", (TEXTS, PAIRS), recognizes=signs.are_quoted_and_tabbed, reader=_QUOTED_TAB),
    KnownFormat("fasttext", (TEXTS,), (".ft", ".fasttext"), signs.is_fasttext),
    KnownFormat("first-word", (TEXTS,)),
    KnownFormat(CLASS_FILES, (TEXTS,)),
    KnownFormat(FOLDERS, (TEXTS,)),
    KnownFormat("sigmorphon", (PAIRS,)),
    KnownFormat("cmudict", (PAIRS,), (), signs.is_cmudict),
    KnownFormat("scan", (PAIRS,), (), signs.is_scan),
    KnownFormat(
        *("json", (SENTENCES, TEXTS, PAIRS), (*JSON_SUFFIXES, *ROW_SUFFIXES), signs.is_json, JsonObjects()),
        sentences=_SENTENCES + "json_sentences:JsonSentences",
    ),
    KnownFormat(ALIGNED, (PAIRS,), is_setting=False),
    KnownFormat("conllu-text", (), is_setting=False, sentences=_SENTENCES + "running_text:RunningText"),
    KnownFormat("text", (SENTENCES,), is_setting=False, sentences=_SENTENCES + "source:PlainText"),
    KnownFormat("plain", (TEXTS, PAIRS), is_setting=False),
)
"""The formats of the core. They are recognized in reverse order, because tables can look like any other format."""
READERS = tuple(known.reader for known in FORMAT_TABLE if known.reader)
SENTENCE_FORMATS = {known.name for known in FORMAT_TABLE if known.kinds == (SENTENCES,) and known.is_setting}
TABBED_FORMATS = {"tsv", "csv-tab", "sigmorphon"}
"""Formats of pairs whose columns are separated by tabs."""


def all_formats() -> tuple[KnownFormat, ...]:
    """Return the formats of the core and the formats of pairs from extensions."""
    return (*FORMAT_TABLE, *map(_extension_format, entries("pair_format").values()))


def _extension_format(entry: Entry) -> KnownFormat:
    def recognizes(rows: Sequence[str]) -> bool:
        with suppress(EnsueError, AttributeError):  # `pair_formats` reports an extension that cannot be loaded
            return bool(entry.load(object).recognizes(rows))
        return False

    return KnownFormat(entry.name, (PAIRS,), (f".{entry.name}",), recognizes)


def pair_only_formats() -> tuple[str, ...]:
    """Return the names of the formats that contain only pairs."""
    return tuple(known.name for known in all_formats() if known.kinds == (PAIRS,))


def format_choices(kind: str) -> tuple[str, ...]:
    """Return the valid values of `data.format` in recipes for a kind of data."""
    return ("auto", *(known.name for known in all_formats() if kind in known.kinds and known.is_setting))


def format_by_suffix(kind: str, name: str) -> str:
    """Return the format for the suffix of a file; "" for an unknown suffix. Row formats of extensions are "json"."""
    end = suffix(name)
    if extension_format(name):
        return "json"
    return next((known.name for known in all_formats() if kind in known.kinds and end in known.suffixes), "")


def format_by_sign(kind: str, rows: Sequence[str]) -> str:
    """Return the format recognized from the first rows, without blank rows and line ends; "" if none is recognized."""
    candidates = (known for known in reversed(all_formats()) if kind in known.kinds and known.recognizes)
    return next((known.name for known in candidates if known.recognizes and known.recognizes(rows)), "")


def class_of(name: str) -> str:
    """Return the class that a file is named after: `Arabic` for `names/Arabic.txt.xz`."""
    path = Path(name)
    return Path(path.stem).stem if path.suffix.lower() in COMPRESSED else path.stem


_NUM_SAMPLE_LINES = 100
_BY_DELIMITER = {dialect.delimiter: dialect.name for dialect in reversed(DIALECTS)}


def sentence_format(lines: Lines) -> str:
    """Detect the format of sentences; "text" if no other format is recognized.

    An array of objects is JSON, even if another format has the suffix. A file with an unknown suffix has columns
    if all rows have the same number of columns, and there are blank lines between sentences or tabs between columns.
    """
    lines.split_array()
    if lines.is_array:
        return "json"
    head = lines.head(_NUM_SAMPLE_LINES)
    named = format_by_suffix(SENTENCES, lines.name)
    signed = format_by_sign(SENTENCES, [line for line in head if not is_blank(line)])
    if signed == "conllu" and named in ("", "columns"):
        return signed
    has_columns = signs.has_columns(head, is_cut=len(head) == _NUM_SAMPLE_LINES)
    return named or signed or ("columns" if has_columns else "text")


def text_format(
    lines: Lines, *, is_labeled: bool, run_format: str = "", labels: Collection[str] = (),
    names: Collection[str] = (),
) -> str:  # fmt: skip
    """Detect the format of texts; "" if the file should have labels, but none is recognized.

    The first rule that applies determines the format:

    1. An array of objects is JSON.
    2. The suffix is known (before `.xz` or `.gz`).
    3. A table has a header with the `names` of a run's columns.
    4. The first lines are JSON (`{`), fastText (`__label__`) or a table (tabs in all lines, or `sep=;`).
    5. Repeated first words of lines are labels. Unless `is_labeled`, first words are labels if `run_format` is
       "first-word" and all of them are among the run's `labels`.
    6. The format is `run_format`, except "folders"; unless `is_labeled`, "plain".
    """
    run_format = run_format if run_format != FOLDERS else ""
    if named := _detect_by_lines(TEXTS, lines, names, run_format):
        return named
    rows = _sample_rows(lines)
    if (is_labeled or run_format == "first-word") and signs.begin_with_labels(rows, None if is_labeled else labels):
        return "first-word"
    return run_format if is_labeled else _report_plain(lines)


def pair_format(lines: Lines, *, is_labeled: bool, run_format: str = "", names: Collection[str] = ()) -> str:
    """Detect the format of pairs; "" if the file should have targets, but no format is recognized.

    The first rule that applies determines the format:

    1. An array of objects is JSON.
    2. The suffix is known (before `.xz` or `.gz`).
    3. A table has a header with the `names` of a run's source columns.
    4. The first lines are JSON, SCAN, CMUdict, SIGMORPHON, the format of an extension, or have tabs.
    5. Unless `is_labeled`, the format is "plain"; otherwise `run_format`, if it is a CSV format.
    """
    named = _detect_by_lines(PAIRS, lines, names, run_format)
    rows = _sample_rows(lines)
    if named == "tsv" and signs.is_sigmorphon(rows):
        return "sigmorphon"
    if named or not is_labeled:
        return named or _report_plain(lines)
    return "tsv" if signs.are_mostly_tabbed(rows) else run_format if run_format.startswith("csv") else ""


def csv_format(lines: Lines) -> str:
    """Return the name of the format of a CSV file, which may have commas, semicolons or tabs."""
    return _detect_quotes(_BY_DELIMITER[detect_delimiter(sample(lines), lines.name)], lines)


def _detect_quotes(name: str, lines: Lines) -> str:
    is_quoted = name == _TAB.name and has_quoted_tabs(sample(lines, _QUOTED_TAB.sample_lines), lines.name)
    return _QUOTED_TAB.name if is_quoted else name


def _report_plain(lines: Lines) -> str:
    if looks_delimited(sample(lines), lines.name):
        notice = f"{lines.name}: read as plain text, one text per line; if the file is a table, use --format csv"
        warn_once(f"plain {lines.name}", notice)
    return "plain"


def _sample_rows(lines: Lines) -> list[str]:
    return [line.rstrip("\r\n") for _, line in sample(lines) if not is_blank(line)]


def _detect_by_lines(kind: str, lines: Lines, names: Collection[str], run_format: str) -> str:
    lines.split_array()
    if lines.is_array:
        return "json"
    rows = _sample_rows(lines)
    name = format_by_suffix(kind, lines.name) or _named_table(rows, names, run_format) or format_by_sign(kind, rows)
    return csv_format(lines) if name == "csv" else _detect_quotes(name, lines)


def _named_table(rows: Sequence[str], names: Collection[str], run_format: str) -> str:
    for dialect in sorted(DIALECTS, key=lambda dialect: dialect.name != run_format) if names else ():
        with suppress(DataError):  # the row may be a text with quotes
            header = next(iter(dialect.first_rows(Lines(rows[:1], ""))), [])
            if set(names) <= {name.strip() for name in header}:
                return dialect.name
    return ""


def first_lines(path: Path, *, encoding: str = "utf-8") -> list[str]:
    """Return the first `SAMPLE_ROWS` complete lines of a file with their line ends, or complete values of an array.

    Blocks are read until a line or value is complete, so there may be fewer lines or values.
    """
    blocks = text_blocks(path, encoding, nested=True)
    text, block = "", next(blocks, None)
    while block is not None:
        text, block = text + block, next(blocks, None)
        lines, values = Lines([text], str(path)), list[str]()
        lines.split_array()
        with suppress(DataError):  # the block may end inside of a value
            records = json_records(lines if lines.is_array else (), is_array=True)
            values.extend(record.text for record in islice(records, SAMPLE_ROWS))
        if values:
            return values
        if ("\n" in text and not lines.is_array) or len(text) > MAX_CHARACTERS:
            break
    *complete, rest = [f"{line}\n" for line in text.split("\n")]
    if rest != "\n" and (block is None or not complete):
        complete.append(rest[:-1])
    return complete[:SAMPLE_ROWS]
