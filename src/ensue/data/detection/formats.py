"""Which format a file has, by its name or its first lines: of labeled sentences, of labeled texts, or of pairs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

from ensue.data.detection import line_signs, pair_signs
from ensue.data.detection.format_names import FOLDERS, PAIR_SUFFIXES, SENTENCE_SUFFIXES, TEXT_SUFFIXES, suffix
from ensue.data.lines import Lines, is_blank
from ensue.data.records.quoting import announced_delimiter, looks_delimited, seen_delimiter
from ensue.data.records.record import sample
from ensue.data.records.tables import DIALECTS
from ensue.errors import DataError
from ensue.notices import say_once

_LINES_TO_LOOK_AT = 100
_PAIR_SIGNS: dict[str, Callable[[Sequence[str]], bool]] = {
    "json": line_signs.is_json,
    "tmx": lambda rows: pair_signs.is_tmx("\n".join(rows[:10])),
    "scan": pair_signs.is_scan,
    "cmudict": pair_signs.is_cmudict,
    "csv": lambda rows: bool(rows) and announced_delimiter(rows[0]) != "",
    "tsv": line_signs.are_tabbed,
}
"""In the order in which they are looked for."""
_BY_DELIMITER = {dialect.delimiter: dialect.name for dialect in DIALECTS}


def sentence_format(lines: Lines) -> str:
    """One of `SENTENCE_FORMATS`; "text" where nothing speaks for another.

    An array of objects is JSON whatever its name. A file of unknown suffix has columns if each of its rows has as many
    and blank lines part them, or tabs do.
    """
    lines.split_array()
    if lines.is_array:
        return "json"
    head = lines.head(_LINES_TO_LOOK_AT)
    named = SENTENCE_SUFFIXES.get(suffix(lines.name))
    if named in (None, "columns") and line_signs.is_conllu(head):
        return "conllu"
    if named:
        return named
    if line_signs.is_json([line for line in head if not is_blank(line)]):
        return "json"
    return "columns" if line_signs.has_columns(head, is_cut=len(head) == _LINES_TO_LOOK_AT) else "text"


def text_format(
    lines: Lines,
    *,
    is_labeled: bool,
    known: str = "",
    labels: Collection[str] = (),
    names: Collection[str] = (),
) -> str:
    """One of `TEXT_FORMATS`, or an empty string where none is seen in a file that should have labels.

    An array of objects is JSON. Else the suffix before `.xz` or `.gz` says it. Else a first line that begins with `{`
    is JSON, one with `__label__` is fastText's, a first row with the `names` of a run's columns is the header of a
    table, tabs in every line make one, and words that come again at the beginning of lines are labels. In a file that
    need not have any they are only if the run has read such lines (`known` is its format) and knows them as its
    `labels`.
    """
    lines.split_array()
    if lines.is_array:
        return "json"
    known = known if known != FOLDERS else ""
    rows = _rows(lines)
    if named := TEXT_SUFFIXES.get(suffix(lines.name)) or _by_signs(rows) or _named_table(rows, names, known):
        return csv_format(lines) if named == "csv" else named
    if (is_labeled or known == "first-word") and line_signs.begin_with_labels(rows, None if is_labeled else labels):
        return "first-word"
    return known if is_labeled else _plain(lines)


def pair_format(lines: Lines, *, is_labeled: bool, known: str = "", names: Collection[str] = ()) -> str:
    """One of `PAIR_FORMATS`, or an empty string where none is seen in a file that should have targets.

    An array of objects is JSON. Else the suffix before `.xz` or `.gz` says it. Else the first lines show it: JSON, TMX,
    SCAN, CMUdict, SIGMORPHON, or tabs. `known`: the format of a run, which a file is that has the `names` of its source
    columns in the first line. Without targets a file of no known sign is plain lines.
    """
    lines.split_array()
    rows = _rows(lines)
    named = "json" if lines.is_array else PAIR_SUFFIXES.get(suffix(lines.name))
    named = named or _named_table(rows, names, known)
    named = named or next((name for name, is_seen in _PAIR_SIGNS.items() if is_seen(rows)), None)
    if named == "tsv" and pair_signs.is_sigmorphon(rows):
        return "sigmorphon"
    if named or not is_labeled:
        return csv_format(lines) if named == "csv" else named or _plain(lines)
    return "tsv" if pair_signs.mostly_tabbed(rows) else known if known.startswith("csv") else ""


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


def _by_signs(rows: Sequence[str]) -> str:
    if line_signs.is_json(rows):
        return "json"
    if line_signs.is_fasttext(rows):
        return "fasttext"
    if rows and announced_delimiter(rows[0]):
        return "csv"
    return "tsv" if line_signs.are_tabbed(rows) else ""


def _named_table(rows: Sequence[str], names: Collection[str], known: str) -> str:
    """The table whose header is the first of these rows, since it has these `names`; "" without one. `known` comes
    first: one name alone is the same in all.
    """
    for dialect in sorted(DIALECTS, key=lambda dialect: dialect.name != known) if names else ():
        with suppress(DataError):  # a text with quotes
            header = next(iter(dialect.first(Lines(rows[:1], ""))), [])
            if set(names) <= {name.strip() for name in header}:
                return dialect.name
    return ""
