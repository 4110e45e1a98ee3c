"""A file of pairs: its format and its layout."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import suppress

from ensue.data.detection.format_table import ALIGNED, READERS, TABBED
from ensue.data.detection.formats import csv_format, pair_format
from ensue.data.detection.signs import CMUDICT_COMMENT, cmudict_entry, scan_sides
from ensue.data.files import FORMAT_OPTION, IN_OPTIONS
from ensue.data.lines import Lines
from ensue.data.pairs.pair import Pair, PairChoice, PairFormat, PairLayout
from ensue.data.pairs.record_pairs import RecordPairs, Sigmorphon
from ensue.data.records.record import Column, columns_counted, records, without_end
from ensue.data.records.tables import TABLES
from ensue.errors import DataError, nearest
from ensue.extensions.localization.tmx import Tmx


class LinePairs(PairFormat):
    """A pair in each line. `about` says where source and target stand, `expected` what a line should be."""

    has_columns = False
    about: str
    expected: str
    comment = "\0"
    """How a line begins that is no pair."""

    def layout(self, lines: Lines, choice: PairChoice) -> PairLayout:
        return PairLayout(self.name, about=self.about)

    def read(self, lines: Lines, layout: PairLayout, *, is_labeled: bool) -> Iterator[Pair]:
        for record in records(lines, lines.name):
            body, _ = without_end(record.text)
            if body.startswith(self.comment):
                continue
            found = self.sides(body)
            if found is None:
                raise DataError(f"expected {self.expected}", lines.name, record.line)
            yield Pair(found[:1], found[1:] if is_labeled else (), lines.name, record.line)

    @abstractmethod
    def sides(self, body: str) -> tuple[str, str] | None:
        """Source and target of a line; None for another line."""


class Scan(LinePairs):
    """`IN: jump twice OUT: I_JUMP I_JUMP`."""

    name = "scan"
    about = "source: after IN:, target: after OUT:"
    expected = '"IN: source OUT: target"'

    def sides(self, body: str) -> tuple[str, str] | None:
        return scan_sides(body)


class Cmudict(LinePairs):
    """`WORD 1 PH ON EMES`, `WORD  PH ON EMES` and `WORD(1)  PH ON EMES`. Each pronunciation is a pair.

    Lines that begin with `;;;` are comments, and so is the rest of a line from ` #`.
    """

    name = "cmudict"
    about = "source: the word, target: its phonemes"
    expected = 'a word and its phonemes, such as "WORD  W ER1 D"'
    comment = CMUDICT_COMMENT

    def sides(self, body: str) -> tuple[str, str] | None:
        return cmudict_entry(body)


class SourceLines(PairFormat):
    """A source in each line, also in an empty one. Several sources are separated by tabs, in the order of the run."""

    name = "plain"

    def layout(self, lines: Lines, choice: PairChoice) -> PairLayout:
        if choice.is_labeled:
            raise DataError("plain lines have no targets; expected pairs", lines.name)
        number = len(choice.sources)
        return PairLayout("plain", tuple(Column(place) for place in range(1, number + 1)) if number > 1 else ())

    def read(self, lines: Lines, layout: PairLayout, *, is_labeled: bool) -> Iterator[Pair]:
        number = max(1, len(layout.sources))
        for record in records(lines, lines.name, empty=True):
            body, _ = without_end(record.text)
            fields = [body] if number == 1 else body.split("\t")
            if not body.strip():
                fields = [""] * number
            if len(fields) != number:
                raise DataError(f"{columns_counted(len(fields))}; expected {number} sources", lines.name, record.line)
            yield Pair(tuple(fields), (), lines.name, record.line)


FORMATS: dict[str, PairFormat] = {
    **{reader.name: RecordPairs(reader) for reader in READERS},
    **{format.name: format for format in (Sigmorphon(), Scan(), Cmudict(), Tmx(), SourceLines())},
}
"""The formats of pairs in one file; two files are `ALIGNED`."""
_WITHOUT_COLUMNS = [name for name, format in FORMATS.items() if not format.has_columns]


def detect_lines(lines: Lines, choice: PairChoice, *, format: str = "", like: PairLayout | None = None) -> PairLayout:
    """How a file is read, by its lines, which can still be read from the first one on.

    What `choice` and `format` leave open is decided by the suffix before `.xz` or `.gz`, else by the first lines. The
    columns of the layout `like` are tried first. Raises DataError if something cannot be decided, with the setting that
    decides it.
    """
    if not choice.sources and not choice.targets and like is not None:
        return _layout_like(like, lines, choice, format)
    name = checked_format(format) or pair_format(lines, is_labeled=choice.is_labeled)
    return _layout(csv_format(lines) if name == "csv" else name, lines, choice)


def checked_format(name: str) -> str:
    """The name. Raises DataError if there is no such format."""
    if name == ALIGNED:
        raise DataError("two files that are aligned have a comma between them, such as train.en,train.de")
    if name and name not in FORMATS:
        raise DataError(f'unknown format "{name}"' + (nearest(name, FORMATS) or f"; expected {', '.join(FORMATS)}"))
    return name


def _layout(name: str, lines: Lines, choice: PairChoice) -> PairLayout:
    if not name:
        formats = ", ".join(format for format in FORMATS if format != "plain")
        advice = f"two files with a comma between them, or {FORMAT_OPTION} says what it is ({formats})"
        what = f"no pairs found; expected a source, a tab and a target in each line, {advice}"
        raise DataError(what, lines.name, options=IN_OPTIONS)
    if name in _WITHOUT_COLUMNS and (choice.sources or choice.targets):
        what = "data.sources and data.targets"
        in_options = {what: "--sources and --targets"}
        raise DataError(f"{name} has no columns; {what} are for tables and JSON", lines.name, options=in_options)
    layout = FORMATS[name].layout(lines, choice)
    if choice.group and not layout.group:
        raise DataError(f"{name} has no columns; data.group is for tables and JSON", lines.name)
    return layout


def _layout_like(like: PairLayout, lines: Lines, choice: PairChoice, format: str) -> PairLayout:
    """The layout with the columns of a run; in another format only if the file has columns of these names.

    What no format is recognized in has that of the run, if this has no columns.
    """
    as_named = like.choice(is_labeled=choice.is_labeled)._replace(group=choice.group)
    names = [column.name for column in like.sources if column.name]
    known = like.format if like.format in FORMATS else ""
    name = checked_format(format) or pair_format(lines, is_labeled=choice.is_labeled, known=known, names=names)
    name = name or (known if known in _WITHOUT_COLUMNS else "")
    name = csv_format(lines) if name == "csv" else like.format if {name, like.format} <= TABBED else name
    if as_named.sources and (name == like.format or (names and {name, like.format} <= TABLES)):
        return _layout(name, lines, as_named)
    if name == "plain":
        return _layout(name, lines, as_named)
    if names and name not in _WITHOUT_COLUMNS:
        with suppress(DataError):
            return _layout(name, lines, as_named)
    return _layout(name, lines, choice)
