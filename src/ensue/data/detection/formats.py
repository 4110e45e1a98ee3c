"""Which format a file has, by its name or its first lines: of labeled sentences, of labeled texts, or of pairs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from ensue.data.decoding import MAX_CHARACTERS
from ensue.data.detection import signs
from ensue.data.detection.format_table import FOLDERS, PAIRS, SENTENCES, TEXTS, by_sign, by_suffix
from ensue.data.lines import Lines, is_blank
from ensue.data.records.quoting import looks_delimited, seen_delimiter
from ensue.data.records.record import SAMPLE_ROWS, json_records, sample
from ensue.data.records.tables import DIALECTS
from ensue.data.row_formats import text_blocks
from ensue.errors import DataError
from ensue.notices import say_once

_LINES_TO_LOOK_AT = 100
_BY_DELIMITER = {dialect.delimiter: dialect.name for dialect in DIALECTS}


def sentence_format(lines: Lines) -> str:
    """One of the formats of sentences; "text" where nothing speaks for another.

    An array of objects is JSON whatever its name. A file of unknown suffix has columns if each of its rows has as many
    and blank lines part them, or tabs do.
    """
    lines.split_array()
    if lines.is_array:
        return "json"
    head = lines.head(_LINES_TO_LOOK_AT)
    named = by_suffix(SENTENCES, lines.name)
    signed = by_sign(SENTENCES, [line for line in head if not is_blank(line)])
    if signed == "conllu" and named in ("", "columns"):
        return signed
    has_columns = signs.has_columns(head, is_cut=len(head) == _LINES_TO_LOOK_AT)
    return named or signed or ("columns" if has_columns else "text")


def text_format(
    lines: Lines, *, is_labeled: bool, known: str = "", labels: Collection[str] = (), names: Collection[str] = ()
) -> str:
    """One of the formats of texts, or an empty string where none is seen in a file that should have labels.

    An array of objects is JSON. Else the suffix before `.xz` or `.gz` says it. Else a first line that begins with `{`
    is JSON, one with `__label__` is fastText's, a first row with the `names` of a run's columns is the header of a
    table, tabs in every line make one, and words that come again at the beginning of lines are labels. In a file that
    need not have any they are only if the run has read such lines (`known` is its format) and knows them as its
    `labels`.
    """
    known = known if known != FOLDERS else ""
    if named := _recognized(TEXTS, lines, names, known):
        return named
    rows = _rows(lines)
    if (is_labeled or known == "first-word") and signs.begin_with_labels(rows, None if is_labeled else labels):
        return "first-word"
    return known if is_labeled else _plain(lines)


def pair_format(lines: Lines, *, is_labeled: bool, known: str = "", names: Collection[str] = ()) -> str:
    """One of the formats of pairs, or an empty string where none is seen in a file that should have targets.

    An array of objects is JSON. Else the suffix before `.xz` or `.gz` says it. Else the first lines show it: JSON, a
    format of an extension, SCAN, CMUdict, SIGMORPHON, or tabs. `known`: the format of a run, which a file is that has
    the `names` of its source columns in the first line. Without targets a file of no known sign is plain lines.
    """
    named = _recognized(PAIRS, lines, names, known)
    rows = _rows(lines)
    if named == "tsv" and signs.is_sigmorphon(rows):
        return "sigmorphon"
    if named or not is_labeled:
        return named or _plain(lines)
    return "tsv" if signs.mostly_tabbed(rows) else known if known.startswith("csv") else ""


def csv_format(lines: Lines) -> str:
    """Whether a CSV file has commas or semicolons, or tabs, which only its first line can say (`sep=`)."""
    return _BY_DELIMITER[seen_delimiter(sample(lines), lines.name)]


def _plain(lines: Lines) -> str:
    """The format of a text in each line, with a notice where the lines might be rows of a table."""
    if looks_delimited(sample(lines), lines.name):
        say_once(
            f"plain {lines.name}",
            f"{lines.name}: a text is read from each line; if these are rows, --format csv reads them",
        )
    return "plain"


def _rows(lines: Lines) -> list[str]:
    """The first lines that are not blank, without their ends."""
    return [line.rstrip("\r\n") for _, line in sample(lines) if not is_blank(line)]


def _recognized(kind: str, lines: Lines, names: Collection[str], known: str) -> str:
    """The format by the suffix, by the `names` of a run's columns, or by the signs of the first rows; "" for none."""
    lines.split_array()
    if lines.is_array:
        return "json"
    rows = _rows(lines)
    name = by_suffix(kind, lines.name) or _named_table(rows, names, known) or by_sign(kind, rows)
    return csv_format(lines) if name == "csv" else name


def _named_table(rows: Sequence[str], names: Collection[str], known: str) -> str:
    """The table whose header has these `names`, `known` first; "" if none does. One name alone fits all tables."""
    for dialect in sorted(DIALECTS, key=lambda dialect: dialect.name != known) if names else ():
        with suppress(DataError):  # a text with quotes
            header = next(iter(dialect.first(Lines(rows[:1], ""))), [])
            if set(names) <= {name.strip() for name in header}:
                return dialect.name
    return ""


def first_lines(path: Path, *, encoding: str = "utf-8") -> list[str]:
    """Return the first complete lines of a file with their ends, or the first complete values of an array.

    They are those of the first block, or of as many blocks as the first line or value takes.
    """
    blocks = text_blocks(path, encoding)
    text, block = "", next(blocks, None)
    while block is not None:
        text, block = text + block, next(blocks, None)
        lines = Lines([text], str(path))
        if values := _values(lines):
            return values
        if ("\n" in text and not lines.is_array) or len(text) > MAX_CHARACTERS:
            break
    *whole, rest = [f"{line}\n" for line in text.split("\n")]
    if rest != "\n" and (block is None or not whole):
        whole.append(rest[:-1])
    return whole[:SAMPLE_ROWS]


def _values(lines: Lines) -> list[str]:
    """The first values of a JSON array; none where the lines are no array."""
    lines.split_array()
    values: list[str] = []
    if lines.is_array:
        with suppress(DataError):  # the block may end inside of a value
            values.extend(islice((record.text for record in json_records(lines, is_array=True)), SAMPLE_ROWS))
    return values
