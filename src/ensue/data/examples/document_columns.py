"""Detection of the columns of labels and texts in a table or in JSON.

The first rule that applies determines a column. It is an error if several columns satisfy the rule.

1. The user chooses a column (`DocumentChoice`) by its name in the header or its number (from 1).
2. The column has a usual name (`header_words.toml`). The groups of names in `LABELS` and `TEXTS` are tried in order.
   If two columns have names in `PAIRS`, they are a pair of texts. A title (`TITLES`) is joined with the text.
3. The content of the first rows decides. The label is the only column of short values with at most a quarter of
   distinct values, or in a table of two columns the only column of single words. The text is the only column with at
   least three words on average, or a column whose values are twice as long as the values of any other column.

The first row is a header if the user declares a header or chooses a column by name. Otherwise, the first row is a
header if none of its values is repeated in the same column, and if it has a usual name of a text, two usual names of
any kind, or a single word above each text column.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from functools import cached_property
from statistics import fmean
from typing import Any

from ensue.data.detection.pair_tables import HEADER_WORDS, USUAL_NAMES, Columns
from ensue.data.detection.signs import may_be_labels
from ensue.data.examples.layout import BOOLEAN_VALUES, DocumentChoice, DocumentLayout
from ensue.data.records import record as records
from ensue.data.records.record import Column
from ensue.errors import DataError, list_names

Rows = Sequence[Sequence[str]]


def _simplify_all(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(map(records.simplify, names))


LABELS, TEXTS, PAIRS = (tuple(map(_simplify_all, HEADER_WORDS[key])) for key in ("labels", "texts", "pairs"))
"""Groups of names of labels and of texts, in the order of their priority, and names of the two texts of a pair."""
TITLES, OTHERS = (_simplify_all(HEADER_WORDS[key]) for key in ("titles", "others"))
"""Names of titles of texts, and of other columns, which also occur in headers."""
FLAGS = {form: bool(index) for forms in BOOLEAN_VALUES for index, form in enumerate(map(str.casefold, forms))}
"""The truth value of each valid cell of an indicator column, which marks the texts with a label."""
_MULTI_HOT = re.compile(r"""\[ *(["']?[01]["']?)(?: *, *["']?[01]["']?)+ *\]""")
"""Matches a multi-hot list: a 0 or 1 for each label."""
_NAMES = {*TITLES, *OTHERS, *(name for group in (*LABELS, *TEXTS, *PAIRS) for name in group)}
TEXT_NAMES = {name for group in (*TEXTS, *PAIRS) for name in group}
_NUMBER = re.compile(r"\s*[-+]?\d+([.,]\d+)?\s*")
_SIDES = {name for sources, targets in USUAL_NAMES for names in (*sources, targets) for name in names}


def find_columns(
    rows: Rows, choice: DocumentChoice, name: str, *, format: str = "", has_keys: bool = False
) -> DocumentLayout:
    """Detect the columns of a table from its first rows. With `has_keys`, the first row has the keys of JSON objects.

    Raises DataError if a column is missing or ambiguous.
    """
    header = not has_keys and (_has_header(rows, choice) if choice.header is None else choice.header)
    columns = records.first_columns(rows, name, header=header, has_keys=has_keys)
    group, others = records.split_group(columns, choice.group, name)
    table = _Table(columns, others, rows[1:] if header or has_keys else rows, name)
    labels, texts, joined = table.decide(choice)
    labels = records.distinct_columns(labels, columns, choice.labels.split(","), name)
    texts = records.distinct_columns(texts, columns, choice.texts, name)
    label, flags = (labels[0], ()) if len(labels) == 1 else (None, labels)
    if label is not None and choice.is_labeled and table.num_indicators(label):
        flags = tuple(Column(0, name) for name in choice.labels.split(","))
    return DocumentLayout(format, texts, label, header, choice.separator, joined, group, flags=flags)


class FlagsError(DataError):
    """An error for several indicator columns that may be labels. `names` are their names, separated by commas."""

    def __init__(self, *arguments: Any, options: Mapping[str, str] | None = None, names: str = "") -> None:
        super().__init__(*arguments, options=options)
        self.names = names


class _Table:
    """A table with these `columns`. `others`, all columns except the groups, may be labels or texts."""

    def __init__(self, columns: Sequence[Column], others: Sequence[Column], rows: Rows, name: str) -> None:
        self.columns, self.name, candidates = list(others), name, {*others}
        indices = [index for index, column in enumerate(columns) if column in candidates]
        self.cells = [[row[index].strip() for row in rows if len(row) == len(columns)] for index in indices]

    def decide(self, choice: DocumentChoice) -> tuple[Columns, Columns, bool]:
        """Return the column of labels or several indicator columns, the texts, and whether the texts are joined."""
        texts = tuple(records.named_column(self.columns, name, self.name, "texts") for name in choice.texts)
        labels = self._find_labels(choice, texts)
        if len(texts) > 2 and not choice.joined:
            raise DataError(f"{len(texts)} texts; expected one or a pair, or data.joined=true", self.name)
        if duplicate := next((column for column in labels if column in texts), None):
            raise DataError(f"{duplicate} is named as label and as text", self.name)
        joined = choice.joined
        if not texts:
            texts, is_title = self._texts_by_name(labels)
            joined = joined or is_title
        if not labels and choice.is_labeled:
            labels = (self._label_by_content(texts),)
        size = self.num_indicators(labels[0]) if choice.is_labeled and len(labels) == 1 else 0
        if size and choice.labels.count(",") + 1 != size:
            example, setting = ",".join("ABC"[:size]) + ",..." * (size > 3), "--set data.labels="
            problem = f"{labels[0]} has lists of 0 and 1 without names; {setting}{example} names the {size} classes"
            raise DataError(problem, self.name, options={setting: "--labels "})
        return labels, texts or (self._text_by_content(labels),), joined

    def _find_labels(self, choice: DocumentChoice, texts: Columns) -> Columns:
        if not choice.labels:
            for synonyms in LABELS:
                if columns := self._find_by_name(synonyms, texts):
                    is_flag = columns[0] in self._flags and synonyms != LABELS[0]
                    return (self._require_one(self._flags if is_flag else columns, "label", "labels"),)
            return ()
        is_one = any(choice.labels == column.name for column in self.columns)
        names = [choice.labels] if is_one else choice.labels.split(",")
        try:
            return tuple(records.named_column(self.columns, name, self.name, "labels") for name in names)
        except DataError:
            lists = [column for column in self.columns if self.num_indicators(column) == len(names)]
            if len(lists) == 1:
                return (lists[0],)
            if choice.is_labeled:
                raise
            is_key = not self.columns[0].number  # a missing key is added when the object is written
            return (Column(0, choice.labels),) if is_key and len(names) == 1 else ()

    def num_indicators(self, column: Column) -> int:
        """Return the length of the multi-hot lists in a column; 0 for other values, such as lists of label ids."""
        cells = [cell for cell in self.cells[self.columns.index(column)] if cell] if column in self.columns else []
        lists = [cell for cell in cells if _MULTI_HOT.fullmatch(cell)]
        has_repeats = any(max(map(cell.count, "01")) > 1 for cell in lists)
        size = max(cell.count(",") for cell in lists) + 1 if has_repeats else 0
        return size if 2 * len(lists) > len(cells) else 0

    @cached_property
    def _named(self) -> list[tuple[str, Column]]:
        """The columns with their simplified names, which are compared with many words."""
        return [(records.simplify(column.name), column) for column in self.columns]

    @cached_property
    def _flags(self) -> list[Column]:
        """The indicator columns with names, which may be labels."""
        named = zip(self._named, self.cells, strict=True)
        candidates = [(column, cells) for (name, column), cells in named if name and name not in OTHERS]
        return [column for column, cells in candidates
                if len(cells) > 1 and any(cells) and {*map(str.casefold, cells)} <= FLAGS.keys()]  # fmt: skip

    def _find_by_name(self, names: Sequence[str], excluded: Columns) -> list[Column]:
        return [column for name, column in self._named if name in names and column not in excluded]

    def _texts_by_name(self, excluded: Columns) -> tuple[Columns, bool]:
        for pair in PAIRS:
            sides = [self._find_by_name([name], excluded) for name in pair]
            if all(sides):
                return tuple(self._require_one(columns, "text", "texts") for columns in sides), False
        for names in TEXTS:
            if body := self._find_by_name(names, excluded):
                title = self._find_by_name(TITLES, excluded)[:1]
                return (*title, self._require_one(body, "text", "texts")), bool(title)
        return (), False

    def _label_by_content(self, texts: Columns) -> Column:
        unused = [index for index, column in enumerate(self.columns) if column not in texts]
        candidates = [index for index in unused if may_be_labels(self.cells[index])]
        indices = [index for index in candidates if len(set(self.cells[index])) > 1] or candidates
        if len(indices) != 1 and len(self.columns) == 2:
            single_words = [index for index in indices or unused if not any(" " in cell for cell in self.cells[index])]
            indices = single_words if len(single_words) == 1 else indices
        return self._require_one([self.columns[index] for index in indices], "label", "labels")

    def _text_by_content(self, labels: Columns) -> Column:
        unused = [index for index, column in enumerate(self.columns) if column not in labels]
        lengths = {index: fmean(map(len, self.cells[index] or [""])) for index in unused}
        text_indices = [index for index in unused if _mean_words(self.cells[index]) >= 3]
        if not text_indices:
            top = sorted(unused, key=lambda index: -lengths[index])
            text_indices = top[:1] if len(top) < 2 or lengths[top[0]] >= 2 * lengths[top[1]] else top
        return self._require_one([self.columns[index] for index in text_indices], "text", "texts")

    def _require_one(self, candidates: Sequence[Column], kind: str, key: str) -> Column:
        if len(candidates) == 1:
            return candidates[0]
        columns = list_names([str(column) for column in candidates or self.columns], max_names=12)
        which = f"it may be {columns}" if candidates else f"none of {columns} looks like it"
        setting, option = f"--set data.{key}=...", f"--{'words' if key == 'texts' else key} NAME"
        if 2 <= len(candidates) <= 3:
            candidate_names = [column.name for column in candidates]
            names = [c.name if c.name and candidate_names.count(c.name) == 1 else str(c.number) for c in candidates]
            option = " or ".join(option.replace("NAME", shlex.quote(name)) for name in names)
            if key == "labels":
                setting = " or ".join(f"--set {shlex.quote(f'data.labels={name}')}" for name in names)
        message, options = f"cannot tell which is the {kind}: {which}; {setting} names it", {setting: option}
        if key == "texts" and len(candidates) == 2:
            sides = " ".join(map(shlex.join, zip(("--sources", "--targets"), names, strict=True)))
            options[" names it"] = f" names it; {sides} reads pairs"
        flags = ",".join(column.name for column in self._flags)
        if key != "labels" or len(self._flags) < 2:
            raise DataError(message, self.name, options=options)
        several = f"--set {shlex.quote(f'data.labels={flags}')}"
        options[several] = f"--labels {shlex.quote(flags)}"
        problem = f"{message}; {several} reads columns of 0 and 1 as several labels"
        raise FlagsError(problem, self.name, options=options, names=flags)


def _has_header(rows: Rows, choice: DocumentChoice) -> bool:
    if choice.has_names:
        return True
    header, columns = _split_header(rows)
    names = {*map(records.simplify, header)}
    return len(names & _NAMES) >= 2 or bool(names & TEXT_NAMES) or _has_distinct_header(header, columns)


def is_header_of_sources(rows: Rows) -> bool:
    """Return whether the first row has two usual names, a usual name above one text column, or text above numbers."""
    header, columns = _split_header(rows)
    names = {*map(records.simplify, header)}
    is_single = len(columns) == 1 and _mean_words(columns[0]) >= 3
    if len(names & (_NAMES | _SIDES)) >= 2 or (is_single and not names.isdisjoint(TEXT_NAMES | _SIDES)):
        return True
    pairs = zip(header, columns, strict=False) if len(columns) > 1 else ()
    return any(all(map(_NUMBER.fullmatch, cells)) and not _NUMBER.fullmatch(name) for name, cells in pairs)


def _split_header(rows: Rows) -> tuple[Sequence[str], list[tuple[str, ...]]]:
    """Return the first row and the columns below it; empty lists if a cell is too long or repeated in its column."""
    header = rows[0] if rows else [""]
    columns = list(zip(*(row for row in rows[1:] if len(row) == len(header)), strict=True))
    is_repeated = any(name and name in column for name, column in zip(header, columns, strict=False))
    return ([], []) if is_repeated or max(map(len, header)) > records.MAX_NAME_CHARACTERS else (header, columns)


def _has_distinct_header(header: Sequence[str], columns: Sequence[Sequence[str]]) -> bool:
    """Return whether a table has columns of labels and of texts, and a single word above each column of texts."""
    if not columns or len(columns[0]) < 10:  # too few rows for statistics
        return False
    texts = [name for name, cells in zip(header, columns, strict=True) if _mean_words(cells) >= 3]
    return any(map(may_be_labels, columns)) and bool(texts) and not any(" " in name for name in texts)


def _mean_words(cells: Sequence[str]) -> float:
    return fmean([cell.count(" ") + 1 for cell in cells] or [0])
