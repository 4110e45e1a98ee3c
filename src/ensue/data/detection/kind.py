"""Detection of the kind of data: labeled sentences, labeled texts, pairs, plain text, or a kind of an extension.

The user's choice (`--format`) has priority. Data are pairs if the user names columns of sources or targets, or two
files separated by a comma. Next, the kinds of extensions (`DataKind`) are tried. Folders with a folder or a file for
each class have texts. Otherwise the suffix (before `.xz` and `.gz`) and first lines decide, by the first matching rule:

1. Pairs, if they are certain (`pair_tables`): SCAN, CMUdict, SIGMORPHON, a format of pairs of an extension, or a table
   that has the names of source and target, or two columns that cannot be labels.
2. CoNLL-U by its suffix or first row: sentences.
3. JSON by its suffix, a first `{` or a first `[{`: sentences if an object has a list of tokens or a text with spans,
   pairs if keys have the names of source and target, otherwise texts.
4. Columns by the rules of `sentence_format` (a suffix such as `.conll`, `-DOCSTART-`, or rows of equal numbers of
   columns with blank lines between sentences): sentences. But the data are texts if the file is a `.csv`, if most cells
   of a column have several words, or if it is a `.tsv` without blank lines between rows.
5. A table, `__label__`, or a label at the beginning of each line by the rules of `text_format`: texts. First words are
   not labels if most of them occur once, or occur inside lines at least half as often as at the beginning.
6. Most rows have the same number of columns: sentences if there are blank lines between rows, texts if there are tabs.
7. Otherwise: plain text.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

from ensue.data.decoding import check_encoding
from ensue.data.detection import format_table as table
from ensue.data.detection import signs
from ensue.data.detection.format_table import csv_format, first_lines, pair_format, sentence_format, text_format
from ensue.data.detection.locations import aligned_paths, folder_format
from ensue.data.detection.pair_tables import certain_pair_format, has_pair_keys
from ensue.data.files import files_of
from ensue.data.json_layouts import parse_or_none
from ensue.data.lines import Lines, is_blank
from ensue.data.records.json_objects import TOKEN_KEYS, is_list_of_spans
from ensue.data.records.labeled_files import LabeledFiles
from ensue.data.row_formats import TABLE_SUFFIXES
from ensue.errors import DataError, nearest
from ensue.extension import entries, loadable_entries

Kind = Literal["sentences", "texts", "pairs", "text"]
"""The kinds of data of the core."""
PLAIN = {"text", "plain"}
_FOLDER_REASONS = {table.FOLDERS: "a folder for each class", table.CLASS_FILES: "a file for each class"}
_MIN_FRACTION = 0.75
_BY_LINES = "by its first lines"


class DetectedFormat(NamedTuple):
    """A detected format, with the reason for it, such as "by its suffix .conll".

    `is_default` is whether training detects this format without options. `others` are the suffixes of files with other
    formats.
    """

    kind: str
    """A `Kind`, or the name of a `DataKind`."""
    format: str
    reason: str
    is_default: bool
    others: tuple[str, ...] = ()


class DataKind(ABC):
    """A kind of data of an extension, which recognizes, counts and reports data.

    The name of the entry in the extension is the name of the kind and of the format.
    """

    report: ClassVar[type[Any]]
    """The subclass of `Report` that shows the summary."""

    @abstractmethod
    def reason(self, location: str | Path, encoding: str) -> str:
        """Return the reason why data are of this kind, such as "by its suffix .wav"; "" for data of another kind."""

    @abstractmethod
    def survey(self, detected: DetectedFormat, location: str, words: str, labels: str, encoding: str) -> Any:
        """Return the `Summary` of all data, or of the data before the first invalid line.

        `words` and `labels` are columns chosen by the user. Raises DataError if nothing can be read.
        """


def data_kind(name: str) -> DataKind:
    """Load the kind of data of an extension by its name."""
    return entries("data_kind")[name].load(DataKind)()


def detect(
    location: str | Path, *, format: str = "", words: str = "", labels: str = "", are_pairs: bool = False,
    encoding: str = "utf-8",
) -> DetectedFormat:  # fmt: skip
    """Detect the kind and the format of a file, a folder or a glob.

    `format` and the columns or keys `words` and `labels` are choices of the user. `are_pairs` is whether the user has
    chosen columns of pairs. Raises DataError for an unknown format, a missing path, and lines that cannot be decoded.
    """
    names = [*(known.name for known in table.all_formats() if known.kinds), *entries("data_kind")]
    if format and format not in names:
        advice = nearest(format, names) or f"; expected one of {', '.join(names)}"
        raise DataError(f'unknown format "{format}"{advice}')
    if aligned_paths(str(location)):
        return DetectedFormat("pairs", format or table.ALIGNED, "two files with a comma between them", True)
    if are_pairs or format in table.pair_only_formats():
        return _detect_pairs(location, format, encoding)
    if (named := _detect_by_names(location, format, encoding)) is not None:
        return named
    paths, encoding = files_of(location), check_encoding(encoding)
    path = paths[0]
    head = first_lines(path, encoding=encoding)
    if not head:
        LabeledFiles(location, encoding).check_text()
    format = csv_format(Lines(head, str(path))) if format == "csv" else format
    detected, looks_like = _detect_in_lines(head, path, words, labels), sentence_format(Lines(head, str(path)))
    if format:
        kind = _kind_of(format, head, words, labels)
        detected = DetectedFormat(kind, format, "set by --format", detected.kind == kind and detected.format == format)
    others = {table.suffix(other.name) for other in paths if _format_of_name(other) not in ("", _format_of_name(path))}
    is_default = detected.is_default and (detected.kind != "sentences" or detected.format == looks_like)
    return detected._replace(is_default=is_default, others=tuple(sorted(others)))


def _detect_by_names(location: str | Path, format: str, encoding: str) -> DetectedFormat | None:
    if format in entries("data_kind"):
        return DetectedFormat(format, format, "set by --format", True)
    for name, kind in ({} if format else loadable_entries("data_kind", DataKind)).items():
        if reason := kind().reason(location, encoding):
            return DetectedFormat(name, name, reason, True)
    detected = folder_format(location, encoding=check_encoding(encoding))
    if format == table.FOLDERS or (format and format == detected):
        return DetectedFormat("texts", format, "set by --format", format == detected)
    path = files_of(location)[0]
    if not format and detected and _format_of_name(path) not in table.SENTENCE_FORMATS:
        return DetectedFormat("texts", detected, _FOLDER_REASONS[detected], True)
    if not format and (named := _pair_format_of_name(path)):
        return DetectedFormat("pairs", named, f"by its suffix {table.suffix(path.name)}", True)
    return None


def _format_of_name(path: Path) -> str:
    by_name = sentence_format(Lines([], str(path)))
    return by_name if by_name not in PLAIN else text_format(Lines([], str(path)), is_labeled=True)


def _kind_of(format: str, head: Sequence[str], words: str, labels: str) -> Kind:
    if format == "json":
        if has_sentences(head, words, labels):
            return "sentences"
        are_pairs = not words and not labels and has_pair_keys(list(filter(None, map(_record, head))))
        return "pairs" if are_pairs else "texts"
    return "sentences" if format in table.SENTENCE_FORMATS else "text" if format in PLAIN else "texts"


def _detect_in_lines(head: Sequence[str], path: Path, words: str, labels: str) -> DetectedFormat:
    name, named = str(path), _format_of_name(path)
    format = sentence_format(Lines(head, name))
    by_name = f"by its suffix {table.suffix(name)}"
    reason = by_name if named else _BY_LINES
    if format == "json" and table.suffix(name) in TABLE_SUFFIXES:
        reason = f"made from the rows of a {table.suffix(name)} table"
    if not words and not labels and (pairs := certain_pair_format(head, name)):
        return DetectedFormat("pairs", pairs, by_name if table.format_by_suffix(table.PAIRS, name) else _BY_LINES, True)
    if format == "json":
        return DetectedFormat(_kind_of(format, head, words, labels), format, reason, True)
    rows = [line.rstrip("\r\n") for line in head if not is_blank(line)]
    is_tabbed = table.suffix(name) in (".tsv", ".tab") and not signs.has_sentence_breaks(head)
    is_table = table.suffix(name) == ".csv" or is_tabbed or signs.have_texts(rows)
    is_table = format == "columns" != named and is_table
    if format in table.SENTENCE_FORMATS and not is_table:
        return DetectedFormat("sentences", format, reason, True)
    format_of_texts = text_format(Lines(head, name), is_labeled=True)
    if format_of_texts and not (format_of_texts == "first-word" and signs.are_prose(rows)):
        return DetectedFormat("texts", format_of_texts, reason, True)
    return _detect_uneven_columns(rows, head) or DetectedFormat("text", "text", "no columns, no labels", True)


def _detect_pairs(location: str | Path, format: str, encoding: str) -> DetectedFormat:
    files = LabeledFiles(location, encoding)
    files.check_text()
    detected = _pair_format_of_name(files.paths[0]) or pair_format(next(iter(files)), is_labeled=True)
    reason = "set by --format" if format else "by the named columns"
    return DetectedFormat("pairs", format or detected, reason, format in ("", detected))


def _pair_format_of_name(path: Path) -> str:
    name = table.suffix(path.name).removeprefix(".")
    return name if name in entries("pair_format") else ""


def _detect_uneven_columns(rows: Sequence[str], head: Sequence[str]) -> DetectedFormat | None:
    has_tabs = sum("\t" in row for row in rows) >= _MIN_FRACTION * len(rows)
    widths = Counter(row.count("\t") + 1 if has_tabs else len(row.split()) for row in rows)
    width, count = max(widths.items(), key=lambda item: item[1], default=(0, 0))
    if width < 2 or count < _MIN_FRACTION * len(rows):
        return None
    reason = f"{count:,} of the first {len(rows):,} rows have {width} columns"
    if signs.has_sentence_breaks(head) and not signs.have_texts(rows):
        return DetectedFormat("sentences", "columns", reason, False)
    return DetectedFormat("texts", "tsv", reason, False) if has_tabs else None


def has_sentences(head: Sequence[str], words: str = "", labels: str = "") -> bool:
    """Return whether a JSON object in these lines has a list of tokens or a text with spans, at the chosen keys."""
    return any(_is_sentence(record, words, labels) for record in map(_record, head) if record is not None)


def _is_sentence(record: dict[str, Any], words: str, labels: str) -> bool:
    if any(isinstance(record.get(key), list) for key in ([words] if words else TOKEN_KEYS)):
        return True
    items = ({labels: record.get(labels)} if labels else record).items()
    return any(is_list_of_spans(value) or (key in ("spans", "entities") and value == []) for key, value in items)


def _record(line: str) -> dict[str, Any] | None:
    record = parse_or_none(line)
    return record if isinstance(record, dict) else None
