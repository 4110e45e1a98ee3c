"""The kind of data: labeled sentences, labeled texts, pairs, plain text, or a kind of an extension (`DataKind`).

The user's choice (`--format`) comes first. Columns that are named as sources or targets are those of pairs, and so are
two files with a comma between them. Then extensions look for their kinds of data. A folder with a folder, or a file,
for each class holds texts. In all other cases the first file decides, by its suffix (before `.xz` and `.gz`) and its
first lines. The first of these rules that fits is taken:

1. Pairs, if that is sure (`pair_tables`): SCAN, CMUdict, SIGMORPHON, a format of pairs of an extension, a table with
   names of source and target, or with two columns that cannot be labels.
2. CoNLL-U by suffix or first row: sentences.
3. JSON by suffix, a first `{` or a first `[{`: sentences if an object has a list of tokens or a text with spans; pairs
   by the names of keys; else texts.
4. Columns, as `sentence_format` sees them (a suffix such as `.conll`, `-DOCSTART-`, rows of as many columns with blank
   lines between them): sentences; texts if the file is a `.csv`, if most cells of a column hold several words, or if it
   is a `.tsv` without blank lines between rows.
5. A table, `__label__`, or a label before each line, as `text_format` sees them: texts. The first words of lines are
   no labels if most lines begin with words that are half as frequent inside of lines, or if most of them come once.
6. Three quarters of the rows have the same number of columns: sentences if there are blank lines between rows, texts if
   there are tabs. One of the other rows is then the first wrong line.
7. Anything else: plain text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

from ensue.data.decoding import checked_encoding
from ensue.data.detection import signs
from ensue.data.detection.format_table import (
    ALIGNED,
    CLASS_FILES,
    FOLDERS,
    ONLY_SENTENCES,
    PAIRS,
    by_suffix,
    known_formats,
    only_pairs,
    suffix,
)
from ensue.data.detection.formats import csv_format, first_lines, pair_format, sentence_format, text_format
from ensue.data.detection.locations import aligned_paths, folder_format
from ensue.data.detection.pair_tables import has_pair_keys, pairs_seen
from ensue.data.files import files_of
from ensue.data.lines import Lines, is_blank
from ensue.data.records.json_objects import TOKEN_KEYS, is_list_of_spans
from ensue.data.records.labeled_files import LabeledFiles
from ensue.errors import DataError, nearest
from ensue.extension import entries, loadable_entries
from ensue.parsing import ParseError, parse_json

Kind = Literal["sentences", "texts", "pairs", "text"]
"""The kinds of data of the core."""
PLAIN = {"text", "plain"}
_SIGN_OF_FOLDER = {FOLDERS: "a folder for each class", CLASS_FILES: "a file for each class"}
_MOST = 0.75
_BY_LINES = "by its first lines"


class Taken(NamedTuple):
    """The format that data are read as. `sign` is how it was recognized. `by_itself` tells whether training recognizes
    it from the path alone. `others` are suffixes of files that seem to have another format.
    """

    kind: str
    """A `Kind`, or the name of the `DataKind` of an extension."""
    format: str
    sign: str
    by_itself: bool
    others: tuple[str, ...] = ()


class DataKind(ABC):
    """A kind of data of an extension: how the data are recognized, counted and reported.

    The name of its entry is the kind and the format.
    """

    report: ClassVar[type[Any]]
    """The subclass of `Report` that shows the summary."""

    @abstractmethod
    def sign(self, location: str | Path, encoding: str) -> str:
        """Return how the data are recognized, such as "by its suffix .wav"; "" for data of another kind."""

    @abstractmethod
    def survey(self, taken: Taken, location: str, words: str, labels: str, encoding: str) -> Any:
        """Return the `Summary` of all data, or of those before the first wrong line.

        Args:
            taken: The format of the data.
            location: Their file, folder or glob.
            words: The column of the words that the user names.
            labels: The column of the labels that the user names.
            encoding: The encoding of text files.

        Raises:
            DataError: Nothing can be read.
        """


def data_kind(name: str) -> DataKind:
    """Return the kind of data of this name, which an extension has."""
    return entries("data_kind")[name].load(DataKind)()  # type: ignore[no-any-return]


def take(
    location: str | Path,
    *,
    format: str = "",
    words: str = "",
    labels: str = "",
    are_pairs: bool = False,
    encoding: str = "utf-8",
) -> Taken:
    """Return the format of a file, a folder or a glob. `words` and `labels` are the columns or keys that the user
    names.

    `are_pairs`: the person names columns of sources or of targets.

    Raises DataError for an unknown format, a path that does not exist, and first lines that cannot be decoded.
    """
    known = [*(each.name for each in known_formats() if each.kinds), *entries("data_kind")]
    if format and format not in known:
        advice = nearest(format, known) or f"; expected one of {', '.join(known)}"
        raise DataError(f'unknown format "{format}"{advice}')
    if aligned_paths(str(location)):
        return Taken("pairs", format or ALIGNED, "two files with a comma between them", True)
    if are_pairs or format in only_pairs():
        return _as_pairs(location, format, encoding)
    if (named := _by_names(location, format, encoding)) is not None:
        return named
    paths, encoding = files_of(location), checked_encoding(encoding)
    path = paths[0]
    head = first_lines(path, encoding=encoding)
    if not head:
        LabeledFiles(location, encoding).check_text()
    format = csv_format(Lines(head, str(path))) if format == "csv" else format
    seen, looks_like = _seen(head, path, words, labels), sentence_format(Lines(head, str(path)))
    if format:
        kind = _kind_of(format, head, words, labels)
        seen = Taken(kind, format, "as --format says", seen.kind == kind and seen.format == format)
    others = {suffix(other.name) for other in paths if _named(other) not in ("", _named(path))}
    return seen._replace(
        by_itself=seen.by_itself and (seen.kind != "sentences" or seen.format == looks_like),
        others=tuple(sorted(others)),
    )


def _by_names(location: str | Path, format: str, encoding: str) -> Taken | None:
    """Return the format by the user's choice, by the signs of an extension, or by the names of files and folders."""
    if format in entries("data_kind"):
        return Taken(format, format, "as --format says", True)
    for name, kind in ({} if format else loadable_entries("data_kind", DataKind)).items():
        if sign := kind().sign(location, encoding):
            return Taken(name, name, sign, True)
    shown = folder_format(location, encoding=checked_encoding(encoding))
    if format == FOLDERS or (format and format == shown):
        return Taken("texts", format, "as --format says", format == shown)
    path = files_of(location)[0]
    if not format and shown and _named(path) not in ONLY_SENTENCES:
        return Taken("texts", shown, _SIGN_OF_FOLDER[shown], True)
    if not format and (named := _named_pairs(path)):
        return Taken("pairs", named, f"by its suffix {suffix(path.name)}", True)
    return None


def _named(path: Path) -> str:
    """Return the format by the suffix; "" if it has none."""
    by_name = sentence_format(Lines([], str(path)))
    return by_name if by_name not in PLAIN else text_format(Lines([], str(path)), is_labeled=True)


def _kind_of(format: str, head: Sequence[str], words: str, labels: str) -> Kind:
    if format == "json":
        if has_sentences(head, words, labels):
            return "sentences"
        are_pairs = not words and not labels and has_pair_keys(list(filter(None, map(_record, head))))
        return "pairs" if are_pairs else "texts"
    return "sentences" if format in ONLY_SENTENCES else "text" if format in PLAIN else "texts"


def _seen(head: Sequence[str], path: Path, words: str, labels: str) -> Taken:
    """Return the format of a file, by its name and its first lines."""
    name, named = str(path), _named(path)
    format = sentence_format(Lines(head, name))
    by_name = f"by its suffix {suffix(name)}"
    sign = by_name if named else _BY_LINES
    if not words and not labels and (pairs := pairs_seen(head, name)):
        return Taken("pairs", pairs, by_name if by_suffix(PAIRS, name) else _BY_LINES, True)
    if format == "json":
        return Taken(_kind_of(format, head, words, labels), format, sign, True)
    rows = [line.rstrip("\r\n") for line in head if not is_blank(line)]
    is_table = format == "columns" != named and _is_table(rows, head, suffix(name))
    if format in ONLY_SENTENCES and not is_table:
        return Taken("sentences", format, sign, True)
    documented = text_format(Lines(head, name), is_labeled=True)
    if documented and not (documented == "first-word" and signs.are_prose(rows)):
        return Taken("texts", documented, sign, True)
    return _nearly(rows, head) or Taken("text", "text", "no columns, no labels", True)


def _as_pairs(location: str | Path, format: str, encoding: str) -> Taken:
    """Return the format of data that the user calls pairs."""
    files = LabeledFiles(location, encoding)
    files.check_text()
    path = files.paths[0]
    seen = _named_pairs(path) or pair_format(next(iter(files)), is_labeled=True)
    sign = "as --format says" if format else "by the columns named"
    return Taken("pairs", format or seen, sign, format in ("", seen))


def _named_pairs(path: Path) -> str:
    """The format of pairs of an extension, by the suffix; "" for another file."""
    name = suffix(path.name).removeprefix(".")
    return name if name in entries("pair_format") else ""


def _is_table(rows: Sequence[str], head: Sequence[str], suffix: str) -> bool:
    is_tsv = suffix in (".tsv", ".tab")
    return suffix == ".csv" or signs.have_texts(rows) or (is_tsv and not signs.is_parted(head))


def _nearly(rows: Sequence[str], head: Sequence[str]) -> Taken | None:
    """Columns, or a table, if only some of the first lines are wrong."""
    has_tabs = sum("\t" in row for row in rows) >= _MOST * len(rows)
    widths = Counter(row.count("\t") + 1 if has_tabs else len(row.split()) for row in rows)
    width, count = max(widths.items(), key=lambda item: item[1], default=(0, 0))
    if width < 2 or count < _MOST * len(rows):
        return None
    sign = f"{count:,} of the first {len(rows):,} rows have {width} columns"
    if signs.is_parted(head) and not signs.have_texts(rows):
        return Taken("sentences", "columns", sign, False)
    return Taken("texts", "tsv", sign, False) if has_tabs else None


def has_sentences(head: Sequence[str], words: str = "", labels: str = "") -> bool:
    """Return whether a JSON object on one of these lines has a list of tokens, or a text with spans, under the keys
    named.
    """
    return any(_is_sentence(record, words, labels) for record in map(_record, head) if record is not None)


def _is_sentence(record: dict[str, Any], words: str, labels: str) -> bool:
    if any(isinstance(record.get(key), list) for key in ([words] if words else TOKEN_KEYS)):
        return True
    named = {labels: record.get(labels)} if labels else record
    return any(
        is_list_of_spans(value) or (key in ("spans", "entities") and value == []) for key, value in named.items()
    )


def _record(line: str) -> dict[str, Any] | None:
    try:
        record = parse_json(line)
    except ParseError:  # which reading will raise
        return None
    return record if isinstance(record, dict) else None
