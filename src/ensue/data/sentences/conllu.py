"""The format CoNLL-U: ten columns, with comments, multiword tokens (`3-4`) and empty nodes (`8.1`).

https://universaldependencies.org/format.html. Columns are named "form" to "misc". The column "feats.Case" has the
values of the key Case in FEATS ("_" without this key), and "misc.NER" has the values of NER in MISC. Trees are not
checked.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, chain, pairwise
from typing import NamedTuple

from ensue.data.lines import Lines, is_blank, paragraphs, strip_line_end
from ensue.data.records.record import column_error, describe_missing_column
from ensue.data.sentences.sentence import Format, Sentence, SourceText, Surface, check_labels
from ensue.errors import DataError

COLUMN_NAMES = ("form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
EMPTY_FIELD = "_"
_COLUMN_INDICES = {name: index for index, name in enumerate(COLUMN_NAMES, 1)}
_RANGE = re.compile(r"([1-9][0-9]{0,8})-([1-9][0-9]{0,8})")
_NEW_DOCUMENT = re.compile(r"#\s*newdoc(?!\S)")


class Conllu(Format):
    """The format CoNLL-U, which reads words from a column, by default "form"."""

    name = "conllu"
    default_words = "form"
    default_column = "upos"
    names = COLUMN_NAMES

    def read(self, lines: Lines) -> Iterator[Sentence]:
        """Yield the sentences; a comment `# newdoc` begins a document.

        Raises DataError for a row without ten columns or a form, and for an id out of order.
        """
        if self.words not in COLUMN_NAMES:
            raise column_error(self.words, COLUMN_NAMES, "words", lines.name, None)
        document = 0
        for index, paragraph in enumerate(paragraphs(lines, _is_comment)):
            document += index > 0 and any(map(_NEW_DOCUMENT.match, paragraph.lines))
            ids, line = _IdChecker(), 0
            words: list[list[str]] = []
            for number, row in enumerate(paragraph.lines, paragraph.first):
                if is_blank(row) or _is_comment(row):
                    continue
                line = line or number
                fields = _fields(row)
                if fault := ids.fault(fields):
                    raise DataError(fault, lines.name, number)
                if fields[0].isdecimal():
                    words.append(fields)
            if fault := ids.fault_at_end():
                raise DataError(fault, lines.name, line)
            source = SourceText(lines.name, "".join(paragraph.lines))
            view = _ColumnView(words)
            yield Sentence(view[self.words], view, line, source, document)

    def labels(self, sentence: Sentence, column: str | None = None) -> tuple[str, ...]:
        """Return the labels in `column`; "" for words without UPOS, whose field is "_"."""
        labels = super().labels(sentence, column)
        is_upos = (column or self.default_column) == "upos"
        return tuple(["" if label == EMPTY_FIELD else label for label in labels]) if is_upos else labels

    def write_columns(self, sentence: Sentence, rows: Sequence[Sequence[str]], columns: Sequence[str]) -> str:
        """Return the text with other values in columns, or at keys of FEATS or MISC, where "_" removes the key.

        Raises DataError for a missing column, and for a label that is empty or has a separator.
        """
        places = [(*_index_and_key(name), name) for name in columns]
        for index, _, name in places:
            if not index:
                raise sentence.error(describe_missing_column(name, COLUMN_NAMES))
        for (_, key, _), labels in zip(places, zip(*rows, strict=True), strict=False):
            check_labels(labels, "\t\r\n|" if key else "\t\r\n", sentence)
        remaining = iter(rows)
        lines = sentence.source.sentence_text.split("\n")
        for number, line in enumerate(lines):
            content = line.removesuffix("\r")
            fields = content.split("\t")
            if not fields[0].isdecimal():
                continue
            for (index, key, name), label in zip(places, next(remaining), strict=True):
                is_sorted = name.startswith("feats")
                fields[index] = _replace_key(fields[index], key, label, is_sorted=is_sorted) if key else label
            lines[number] = "\t".join(fields) + line[len(content) :]
        assert next(remaining, None) is None, "more labels than words"
        return sentence.source.text[: sentence.source.start] + "\n".join(lines)

    def surface(self, sentence: Sentence) -> Surface:
        """Return the text, which is determined by the forms and `SpaceAfter=No`.

        If the words of a multiword token spell the token (`do|n't`), each word has its own offsets. Otherwise, all
        words of the token (`du`: de, le) have the offsets of the token.
        """
        tokens = list(pieces(sentence.source.sentence_text))
        text, offsets = Surface.of([token.form for token in tokens], [token.blank for token in tokens])
        divided = (_divide_token(token, start) for token, (start, _) in zip(tokens, offsets, strict=True))
        return Surface(text, tuple(chain.from_iterable(divided)))


class _IdChecker:
    """A checker of the order of ids in a sentence, which returns descriptions of faults."""

    def __init__(self) -> None:
        self.word, self.empty, self.covered = 0, 0, 0

    def fault(self, fields: list[str]) -> str | None:
        if len(fields) != len(COLUMN_NAMES) + 1:
            return f"expected 10 columns separated by tabs, found {len(fields)}"
        id, form = fields[:2]
        if not form:
            return "the form (column 2) is empty"
        if id == str(self.word + 1):
            self.word += 1
            self.empty = 0
        elif id == f"{self.word}.{self.empty + 1}":
            self.empty += 1
        elif (match := _RANGE.fullmatch(id)) and self.covered <= self.word == int(match[1]) - 1 < int(match[2]):
            self.covered = int(match[2])
        else:
            return f'expected id {self.word + 1}, a range from it or {self.word}.{self.empty + 1}, found "{id}"'
        return None

    def fault_at_end(self) -> str | None:
        if self.word == 0:
            return "a sentence without words"
        if self.covered > self.word:
            return f"a range of words up to {self.covered} in a sentence of {self.word}"
        return None


class _ColumnView(Mapping[str, tuple[str, ...]]):
    """The columns of rows by name, and the values of keys in FEATS and MISC."""

    __slots__ = ("_rows",)

    def __init__(self, rows: list[list[str]]) -> None:
        self._rows = rows

    def __getitem__(self, name: str) -> tuple[str, ...]:
        index, key = _index_and_key(name)
        if not index:
            raise KeyError(name)
        fields = [row[index] for row in self._rows]
        return tuple([_value(field, key) for field in fields] if key else fields)

    def __iter__(self) -> Iterator[str]:
        yield from COLUMN_NAMES
        for name in ("feats", "misc"):
            keys = {entry.partition("=")[0] for field in self[name] for entry in field.split("|") if "=" in entry}
            yield from sorted(f"{name}.{key}" for key in keys if key)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _index_and_key(name: str) -> tuple[int, str]:
    """Return the index of a column in a row (0 if it does not exist), and the key in the column or ""."""
    column, dot, key = name.partition(".")
    if dot and (column not in ("feats", "misc") or not key):
        return 0, ""
    return _COLUMN_INDICES.get(column, 0), key


def _value(field: str, key: str) -> str:
    start = f"{key}="
    return next((entry[len(start) :] for entry in field.split("|") if entry.startswith(start)), EMPTY_FIELD)


def _replace_key(field: str, key: str, value: str, *, is_sorted: bool) -> str:
    entries = [] if field == EMPTY_FIELD else field.split("|")
    old = next((index for index, entry in enumerate(entries) if entry.startswith(f"{key}=")), None)
    following = (index for index, entry in enumerate(entries) if is_sorted and entry.lower() > key.lower())
    index = next(following, len(entries)) if old is None else old
    entries[index : index + (old is not None)] = [] if value == EMPTY_FIELD else [f"{key}={value}"]
    return "|".join(entries) or EMPTY_FIELD


class Piece(NamedTuple):
    """A token of the running text: its form, its words, and whether a blank follows."""

    form: str
    words: list[str]
    blank: bool


def pieces(text: str) -> Iterator[Piece]:
    """Yield the tokens of a sentence, given its lines."""
    last, form, blank = 0, "", True
    words: list[str] = []
    for row in text.split("\n"):
        fields = _fields(row)
        if match := _RANGE.fullmatch(fields[0]):
            last, form, words, blank = int(match[2]), fields[1], [], _blank_follows(fields)
        elif fields[0].isdecimal():
            words.append(fields[1])
            if (id := int(fields[0])) >= last:
                yield Piece(form, words, blank) if id == last else Piece(fields[1], words, _blank_follows(fields))
                words = []


def _blank_follows(fields: list[str]) -> bool:
    return _value(fields[-1], "SpaceAfter") != "No"


def _divide_token(token: Piece, start: int) -> list[tuple[int, int]]:
    if "".join(token.words) != token.form:
        return [(start, start + len(token.form))] * len(token.words)
    return list(pairwise(accumulate(map(len, token.words), initial=start)))


def _fields(row: str) -> list[str]:
    return strip_line_end(row).split("\t")


def _is_comment(line: str) -> bool:
    return line.startswith("#")
