"""The columns of label and texts in a table or in JSON, by the user's choice, their names or their contents.

1. The user's choice (`DocumentChoice`): a name of the header, or a number from 1. With a name there is a header.
2. Names, without regard to case and signs. Label: "label" or "labels", else the only one of `LABELS`. Text: the two of
   `PAIRS`; else "text", else the only one of `TEXTS`. A title (`TITLES`) is joined before the text.
3. Content of the first rows. Label: the only column of short values of which at most a quarter differ (of two such, one
   without blanks). Text: the only column with three words or more on average, or the one that is twice as long as any.

The first row is a header if the user says so. It also is one if none of its values occurs again in its column, and it
has the name of a text, two names of any kind, or one word over each text. If a rule finds several columns, that is an
error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

from ensue.data.detection.signs import are_few
from ensue.data.examples.layout import DocumentChoice
from ensue.data.records.record import (
    LONGEST_NAME,
    Column,
    distinct_columns,
    first_columns,
    group_and_others,
    named_column,
    simplified,
)
from ensue.errors import DataError, listed

LABELS = (
    ("label", "labels"),
    (
        *("class", "classes", "category", "categories", "target", "sentiment", "airlinesentiment", "emotion", "intent"),
        *("gold", "goldlabel", "y", "tag", "tags", "topic", "polarity", "quality", "stance", "spam"),
    ),
    ("accept",),
)
"""Names of a label; those of a group before those of the next. The last is that of a choice in Prodigy."""
TEXTS = (
    ("text", "texts"),
    ("sentence", "sentences"),
    (
        *("review", "reviewtext", "reviewbody", "content", "message", "document", "utterance", "tweet", "comment"),
        *("commenttext", "description", "body", "abstract", "question", "query", "dialogue", "phrase", "post", "sms"),
    ),
)
TITLES = ("title", "subject", "headline", "reviewtitle")
PAIRS = (
    *(("sentence1", "sentence2"), ("sentencea", "sentenceb"), ("#1string", "#2string"), ("string1", "string2")),
    *(("text1", "text2"), ("texta", "textb"), ("premise", "hypothesis"), ("question1", "question2")),
    *(("question", "sentence"), ("question", "passage"), ("query", "passage"), ("query", "document")),
)
OTHERS = ("id", "ids", "index", "idx", "no", "number", "date", "time", "author", "user", "source", "rating", "score")
_NAMES = {*TITLES, *OTHERS, *(name for group in (*LABELS, *TEXTS, *PAIRS) for name in group)}
_TEXT_NAMES = {name for group in (*TEXTS, *PAIRS) for name in group}


class TableColumns(NamedTuple):
    """The columns of a table. `header` tells whether the first row is one."""

    header: bool
    labels: Column | None
    texts: tuple[Column, ...]
    joined: bool
    group: Column | None


def find_columns(
    rows: Sequence[Sequence[str]], choice: DocumentChoice, name: str, *, has_keys: bool = False
) -> TableColumns:
    """The columns of a table by its first rows, which are keys if it `has_keys`. Raises DataError if none fit."""
    header = not has_keys and (_has_header(rows, choice) if choice.header is None else choice.header)
    columns = first_columns(rows, name, header=header, has_keys=has_keys)
    group, others = group_and_others(columns, choice.group, name)
    table = _Table(columns, others, rows[1:] if header or has_keys else rows, name)
    label, texts, joined = table.decide(choice)
    labels = distinct_columns(filter(None, [label]), columns, [choice.labels], name)
    texts = distinct_columns(texts, columns, choice.texts, name)
    return TableColumns(header, next(iter(labels), None), texts, joined, group)


class _Table:
    """The columns without that of groups, and the first cells of each."""

    def __init__(
        self, columns: Sequence[Column], others: Sequence[Column], rows: Sequence[Sequence[str]], name: str
    ) -> None:
        self.columns, self.name, width, left = list(others), name, len(columns), {*others}
        places = [place for place, column in enumerate(columns) if column in left]
        self.cells = [[row[place].strip() for row in rows if len(row) == width] for place in places]

    def decide(self, choice: DocumentChoice) -> tuple[Column | None, tuple[Column, ...], bool]:
        texts = tuple(named_column(self.columns, name, self.name) for name in choice.texts)
        label = self._label(choice, texts)
        if len(texts) > 2 and not choice.joined:
            raise DataError(f"{len(texts)} texts; expected one or a pair, or data.joined=true", self.name)
        if label in texts:
            raise DataError(f"{label} is named as label and as text", self.name)
        joined = choice.joined
        if not texts:
            texts, is_title = self._texts_by_name(label)
            joined = joined or is_title
        if label is None and choice.is_labeled:
            label = self._label_by_content(texts)
        return label, texts or (self._text_by_content(label),), joined

    def _label(self, choice: DocumentChoice, texts: Sequence[Column]) -> Column | None:
        if not choice.labels:
            return self._label_by_name(texts)
        try:
            return named_column(self.columns, choice.labels, self.name)
        except DataError:
            if choice.is_labeled:
                raise
            is_key = not self.columns[0].number  # an object may lack it, and get it in writing
            return Column(0, choice.labels) if is_key else None

    def _by_name(self, names: Sequence[str], taken: Sequence[Column]) -> list[Column]:
        return [column for name, column in self._named if name in names and column not in taken]

    @cached_property
    def _named(self) -> list[tuple[str, Column]]:
        """The columns that are left with their simplified names."""
        return [(simplified(column.name), column) for column in self.columns]

    def _label_by_name(self, texts: Sequence[Column]) -> Column | None:
        for names in LABELS:
            if columns := self._by_name(names, texts):
                return self._only(columns, "label", "labels")
        return None

    def _texts_by_name(self, label: Column | None) -> tuple[tuple[Column, ...], bool]:
        taken = [] if label is None else [label]
        for pair in PAIRS:
            sides = [self._by_name([name], taken) for name in pair]
            if all(sides):
                return tuple(self._only(columns, "text", "texts") for columns in sides), False
        for names in TEXTS:
            if body := self._by_name(names, taken):
                title = self._by_name(TITLES, taken)[:1]
                return (*title, self._only(body, "text", "texts")), bool(title)
        return (), False

    def _label_by_content(self, texts: Sequence[Column]) -> Column:
        free = [place for place, column in enumerate(self.columns) if column not in texts]
        places = [place for place in free if are_few(self.cells[place])]
        if len(places) != 1 and len(self.columns) == 2:
            words = [place for place in places or free if not any(" " in cell for cell in self.cells[place])]
            places = words if len(words) == 1 else places
        return self._only([self.columns[place] for place in places], "label", "labels")

    def _text_by_content(self, label: Column | None) -> Column:
        free = [place for place, column in enumerate(self.columns) if column != label]
        lengths = {place: _mean(len(cell) for cell in self.cells[place]) for place in free}
        long = [place for place in free if _num_words(self.cells[place]) >= 3]
        if not long:
            top = sorted(free, key=lambda place: -lengths[place])
            long = top[:1] if len(top) < 2 or lengths[top[0]] >= 2 * lengths[top[1]] else top
        return self._only([self.columns[place] for place in long], "text", "texts")

    def _only(self, candidates: Sequence[Column], kind: str, key: str) -> Column:
        if len(candidates) == 1:
            return candidates[0]
        columns = listed([str(column) for column in candidates or self.columns], most=12)
        which = f"it may be {columns}" if candidates else f"none of {columns} looks like it"
        setting, option = f"--set data.{key}=...", f"--{'words' if key == 'texts' else key} NAME"
        message = f"cannot tell which is the {kind}: {which}; {setting} names it"
        raise DataError(message, self.name, options={setting: option})


def _has_header(rows: Sequence[Sequence[str]], choice: DocumentChoice) -> bool:
    if choice.has_names:
        return True
    first = rows[0] if rows else [""]
    names = {simplified(name) for name in first} - {""}
    columns = list(zip(*(row for row in rows[1:] if len(row) == len(first)), strict=True))
    if (
        any(name and name in column for name, column in zip(first, columns, strict=False))
        or max(map(len, first)) > LONGEST_NAME
    ):
        return False
    return len(names & _NAMES) >= 2 or bool(names & _TEXT_NAMES) or _stands_out(first, columns)


def _stands_out(first: Sequence[str], columns: Sequence[Sequence[str]]) -> bool:
    """Whether there are columns of labels and of texts, and the first row has one word in each column of texts."""
    if not columns or len(columns[0]) < 10:
        return False
    texts = [name for name, cells in zip(first, columns, strict=True) if _num_words(cells) >= 3]
    return any(map(are_few, columns)) and bool(texts) and not any(" " in name for name in texts)


def _num_words(cells: Sequence[str]) -> float:
    """The mean number of words of the cells."""
    return _mean(cell.count(" ") + 1 for cell in cells)


def _mean(numbers: Iterable[int]) -> float:
    values = list(numbers)
    return sum(values) / len(values) if values else 0.0
