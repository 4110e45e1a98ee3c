"""The format of CoNLL's shared tasks: one word per line with several columns, and a blank line after each sentence.

The names of columns are their numbers from "1", and "last". Written files keep comments (`RowLayout`) and `-DOCSTART-`
lines, which begin a document.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ensue.data.lines import FIELD, Lines, Paragraph, RowLayout, check_width, opens_document, paragraphs
from ensue.data.records.record import column_error
from ensue.data.sentences.sentence import Format, Sentence, SourceText, check_labels
from ensue.errors import DataError

_NUM_SAMPLE_LINES = 1000
_NO_ROWS = RowLayout(1, 1, has_tabs=False)


@dataclass(frozen=True, slots=True)
class ColumnLines(SourceText):
    """The lines of a sentence, and the layout of its rows."""

    layout: RowLayout = _NO_ROWS


class Columns(Format):
    """The format of sentences in columns, separated by tabs if the first row has a tab, otherwise by blanks."""

    name = "columns"
    default_words = "1"
    default_column = "last"

    def read(self, lines: Lines) -> Iterator[Sentence]:
        """Yield the sentences. Raises DataError for a row with another number of columns than the first row."""
        layout = RowLayout.of(lines.numbered_head(_NUM_SAMPLE_LINES)) or _NO_ROWS
        check_width(layout.width, lines.name, layout.line)
        document = 0
        for index, paragraph in enumerate(paragraphs(lines, lambda row: opens_document(row) or layout.is_comment(row))):
            document += index > 0 and any(map(opens_document, paragraph.lines))
            numbered = [(n, line) for n, line in enumerate(paragraph.lines, paragraph.first) if layout.is_row(line)]
            yield self._sentence(numbered, paragraph, layout, lines.name, document)

    def _sentence(
        self, rows: list[tuple[int, str]], paragraph: Paragraph, layout: RowLayout, name: str, document: int
    ) -> Sentence:
        source = ColumnLines(name, "".join(paragraph.lines), layout=layout)
        index = _column_index(self.words, layout.width)
        if index is None:
            raise column_error(self.words, list(_ColumnView([], layout.width)), "words", name, rows[0][0])
        view = _ColumnView([self._fields(layout, number, line, name) for number, line in rows], layout.width)
        return Sentence(tuple([fields[index] for fields in view.rows]), view, rows[0][0], source, document)

    def _fields(self, layout: RowLayout, number: int, line: str, name: str) -> list[str]:
        fields = layout.fields(line)
        fields += [""] * (layout.width - len(fields)) if self.is_lenient else []
        if len(fields) != layout.width:
            separator = "tabs" if layout.has_tabs else "blanks"
            expected = f"expected {layout.width} columns separated by {separator} as in line {layout.line}"
            raise DataError(f"{expected}, found {len(fields)}", name, number)
        return fields

    def write_columns(self, sentence: Sentence, rows: Sequence[Sequence[str]], columns: Sequence[str]) -> str:
        """Return the text with other values in `columns`.

        A missing column is appended. If the words are the only column, "last" is appended, too. Raises DataError for a
        label that is empty or has a separator.
        """
        source = sentence.source
        assert isinstance(source, ColumnLines)
        layout, lines = source.layout, source.sentence_text.split("\n")
        for number, name in enumerate(columns):
            index = None if layout.width == 1 and name == "last" else _column_index(name, layout.width)
            forbidden = " \t\r\n" if layout.width > 1 and not layout.has_tabs else "\t\r\n"
            labels = [row[number] for row in rows]
            check_labels(labels, forbidden, sentence)
            values = iter(labels)
            lines = [_replace_field(row, index, next(values), layout) if layout.is_row(row) else row for row in lines]
            assert next(values, None) is None, "more labels than words"
            layout = replace(layout, width=layout.width + (_column_index(name, layout.width) is None))
        return source.text[: source.start] + "\n".join(lines)

    def labels(self, sentence: Sentence, column: str | None = None) -> tuple[str, ...]:
        """Return the labels in a column, by default the last one. Raises DataError if the file has only words."""
        if column is None and len(sentence.columns) == 1:
            raise sentence.error("no labels: the only column of the file has the words")
        return sentence.column(column or self.default_column, "labels")


class _ColumnView(Mapping[str, tuple[str, ...]]):
    """The columns of rows by name."""

    __slots__ = ("rows", "width")

    def __init__(self, rows: list[list[str]], width: int) -> None:
        self.rows, self.width = rows, width

    def __getitem__(self, name: str) -> tuple[str, ...]:
        index = _column_index(name, self.width)
        if index is None:
            raise KeyError(name)
        return tuple([fields[index] for fields in self.rows])

    def __iter__(self) -> Iterator[str]:
        return map(str, range(1, self.width + 1))

    def __len__(self) -> int:
        return self.width


def _column_index(name: str, width: int) -> int | None:
    number = width if name == "last" else int(name) if name.isascii() and name.isdecimal() else 0
    return number - 1 if 1 <= number <= width else None


def _replace_field(line: str, index: int | None, label: str, layout: RowLayout) -> str:
    content = line.removesuffix("\r")
    end = line[len(content) :]
    if layout.has_tabs:
        fields = content.split("\t")
        return "\t".join([*fields, label] if index is None else [*fields[:index], label, *fields[index + 1 :]]) + end
    spans = [match.span() for match in FIELD.finditer(content)]
    if index is not None:
        return content[: spans[index][0]] + label + content[spans[index][1] :] + end
    separator = content[spans[-2][1] : spans[-1][0]] if len(spans) > 1 else "\t"
    return content[: spans[-1][1]] + separator + label + content[spans[-1][1] :] + end
