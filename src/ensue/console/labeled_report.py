"""The reports of `ensue data` on labeled sentences and on labeled texts."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TypeVar

from rich.table import Table

from ensue.console.data_report import (
    MOST_ROWS,
    Report,
    add_counts,
    counted,
    label_table,
    length_table,
    ranked,
    repeated,
    shown,
    table_of,
    toml_value,
)
from ensue.data.detection.format_table import CLASS_FILES, FOLDERS
from ensue.data.files import locations_in
from ensue.data.records.tables import TABLES
from ensue.data.survey.counts import MOST_VALUES, LabeledSummary, Lengths
from ensue.data.survey.document_survey import DocumentSummary
from ensue.data.survey.sentence_survey import SentenceSummary
from ensue.errors import listed

SomeLabeled = TypeVar("SomeLabeled", bound=LabeledSummary)
_KEYS = ("feats.", "misc.")
_MANY, _NEARLY = 100, 0.9
"""So many words of which so many are distinct are read as characters."""
_LABEL_OF = {
    "fasttext": "labels: the words with __label__",
    "first-word": "label: the first word of a line, text: the rest",
    CLASS_FILES: "label: the name of the file, text: a line of it",
    FOLDERS: "label: the name of the folder, text: a file in it",
}


class LabeledReport(Report[SomeLabeled]):
    """The base of both reports."""

    unit: str
    """The unit of which `size` is the number."""
    labeled: str
    """The unit that has a label."""

    def amounts(self) -> Iterator[tuple[str, str]]:
        """Facts about sizes, empty items and repeated ones."""
        summary = self.summary
        yield from self.sizes()
        if summary.num_empty:
            yield "empty", f"{summary.num_empty:,}, the first at {summary.first_empty}"
        if summary.repeats.texts:
            count = f"{summary.repeats.texts:,}"
            yield "repeated", repeated(summary.repeats, count, "labels") if summary.is_labeled else count

    def tables(self) -> Iterator[Table]:
        summary = self.summary
        if not summary.size:
            return
        parts = [""] if len(summary.lengths) == 1 else ["first ", "second "]
        lengths = zip(parts, summary.lengths, strict=True)
        yield length_table({f"words in a {part}{self.unit}": of for part, of in lengths})
        if summary.labels:
            of_words = self.labeled != self.unit
            yield label_table(f"{self.labeled}s", summary.labels, summary.labels.total() if of_words else summary.size)

    def notes(self) -> Iterator[str]:
        summary = self.summary
        if "\0" in summary.characters:
            yield "there are words with NUL characters in them; is this text?"
        if not summary.is_labeled:
            return
        if len(summary.labels) == 1:
            label = shown(next(iter(summary.labels)))
            yield f'all {self.labeled}s have the label "{label}": there is nothing to learn'
        once = [label for label, count in ranked(summary.labels) if count == 1]
        if once and len(summary.labels) > 1:
            yield f"{counted(len(once), 'label occurs', 'labels occur')} once: {listed(once)}"

    def command(self, *given: object) -> str:
        """The next command: train, or predict for data without labels."""
        if "\0" not in self.summary.characters and not self.summary.is_labeled:
            return f"ensue predict RUN {shlex.join(locations_in(self.summary.location))}"
        return super().command(*given) if len(self.summary.labels) > 1 else ""  # type: ignore[arg-type]


class SentenceReport(LabeledReport[SentenceSummary]):
    """The report on labeled sentences."""

    unit, labeled = "sentence", "word"

    def facts(self) -> Iterator[tuple[str, str]]:
        summary = self.summary
        kind = "labeled sentences" if summary.is_labeled else "sentences without labels"
        yield "taken for", f"{summary.taken.format}: {kind} ({summary.taken.sign})"
        if not summary.size:
            return
        yield "read as", f"words: {self._named(summary.words_column)}, labels: {self._labels_column()}"
        if summary.is_labeled:
            yield "scheme", self._scheme()
        yield "sentences", f"{summary.size:,}"
        if summary.num_documents > summary.num_files:
            yield "documents", f"{summary.num_documents:,}"
        yield from self.amounts()

    def tables(self) -> Iterator[Table]:
        yield from super().tables()
        if self.summary.span_lengths:
            yield _span_table(self.summary.span_lengths)
        if self.summary.columns.counts:
            yield self._column_table()

    def notes(self) -> Iterator[str]:
        yield from super().notes()
        if self.summary.borders and (note := self.summary.borders.note()):
            yield note

    def recipe(self) -> tuple[str, str]:
        return "tag-lstm-crf" if self.summary.scheme else "tag-lstm", "tagger"

    def settings(self) -> Iterator[str]:
        yield from super().settings()
        if self.summary.borders and self.summary.borders.reason and self.summary.borders.reason.splitter:
            yield f"data.splitter={self.summary.borders.reason.splitter}"
        for key in ("words", "labels"):
            if name := getattr(self.columns, key):
                yield f"data.{key}={toml_value(name)}"

    def _named(self, name: str) -> str:
        if self.summary.has_keys:
            return f'"{name}"'
        return f"column {name}" if self.summary.width else name

    def _labels_column(self) -> str:
        summary = self.summary
        if not summary.is_labeled:
            return "none"
        last = " (last)" if summary.width and summary.labels_column == str(summary.width) else ""
        return self._named(summary.labels_column) + last

    def _scheme(self) -> str:
        scheme, slips = self.summary.scheme, self.summary.slips
        if scheme is None:
            return "mixed" if self.summary.is_mixed else "plain (no spans)"
        if not slips:
            return scheme
        broken = counted(slips.sentences, "sentence breaks it", "sentences break it")
        return f"{scheme}; {broken}, the first at {slips.first}: {slips.reason}"

    def _column_table(self) -> Table:
        table = table_of("other columns", "distinct values", "most frequent", left=2)
        columns = self.summary.columns.counts
        plain = [name for name in columns if self.summary.has_keys or not name.startswith(_KEYS)]
        for name in plain[:MOST_ROWS]:
            number = f"over {MOST_VALUES:,}" if len(columns[name]) > MOST_VALUES else f"{len(columns[name]):,}"
            table.add_row(self._named(name), number, listed([value for value, _ in ranked(columns[name])]))
        if len(plain) > MOST_ROWS:
            table.add_row(f"and {len(plain) - MOST_ROWS:,} more")
        for prefix in _KEYS:
            keys = Counter(
                {name: columns[name].total() for name in columns if name not in plain and name.startswith(prefix)}
            )
            if keys:
                entries = [f"{name.removeprefix(prefix)} ({len(columns[name]):,})" for name, _ in ranked(keys)]
                table.add_row(f"{prefix}KEY", f"{len(keys):,} keys", listed(entries))
        return table


class DocumentReport(LabeledReport[DocumentSummary]):
    """The report on labeled texts, or pairs of them."""

    unit = labeled = "text"

    def facts(self) -> Iterator[tuple[str, str]]:
        summary, layout = self.summary, self.summary.layout
        kind = "labeled texts" if summary.is_labeled else "texts"
        header = " with a header" if layout.header else ""
        yield "taken for", f"{summary.taken.format}{header}: {kind} ({summary.taken.sign})"
        if not summary.size:
            return
        yield "read as", _LABEL_OF.get(layout.format) or self._columns_read()
        yield "pairs" if len(summary.lengths) > 1 else "texts", f"{summary.size:,}"
        if summary.is_labeled and set(summary.labels_in_a_text.counts) != {1}:
            several = summary.labels_in_a_text
            yield "labels of a text", f"{several.quantile(0)} to {several.quantile(1)}, {several.mean:.2f} on average"
        yield from self.amounts()

    def tables(self) -> Iterator[Table]:
        yield from super().tables()
        yield from self._columns_of_table()

    def notes(self) -> Iterator[str]:
        yield from super().notes()
        if not self.summary.is_labeled:
            return
        if len(self.summary.lengths) == 2:
            yield "the texts are a pair; --set data.joined=true trains on both as one text"
        if self._are_names():
            yield "nearly all words are distinct; data.splitter=characters reads characters in place of words"

    def recipe(self) -> tuple[str, str]:
        return "classify-lstm", "classifier"

    def settings(self) -> Iterator[str]:
        yield from super().settings()
        if self._are_names():
            yield "data.splitter=characters"
        if self.columns.words:
            yield f"data.texts={json.dumps(self.columns.words.split(','), ensure_ascii=False)}"
            if self.summary.layout.joined:
                yield "data.joined=true"
        if self.columns.labels:
            yield f"data.labels={toml_value(self.columns.labels)}"

    def _columns_read(self) -> str:
        layout = self.summary.layout
        texts = " + ".join(map(str, layout.texts)) + (" (joined)" if layout.joined else "")
        label = "none" if not self.summary.is_labeled else str(layout.labels)
        return f"label: {label}, {'texts' if len(self.summary.lengths) > 1 else 'text'}: {texts}"

    def _are_names(self) -> bool:
        """Whether there is nearly a new word at each place, as in lists of names and in texts without blanks."""
        count = self.summary.words.total()
        return count >= _MANY and len(self.summary.words) >= _NEARLY * count

    def _columns_of_table(self) -> Iterator[Table]:
        """The columns that are neither label nor text; all columns if label and text could not be found."""
        summary, columns, layout = self.summary, self.summary.columns.counts, self.summary.layout
        is_unclear = summary.error is not None and not summary.is_labeled
        used = [column for column in (layout.labels, *layout.texts) if column is not None and not is_unclear]
        known = {str(column.number) if column.number else column.name for column in used}
        names = [name for name in columns if name not in known]
        if not names:
            return
        rows = max(counts.total() for counts in columns.values()) - layout.header
        kind = "columns" if is_unclear else "other columns"
        table = table_of(kind, f"distinct in {counted(rows, 'row')}", "first row", left=2)
        for name in names[:MOST_ROWS]:
            values = list(columns[name])
            title = f"column {name}" if summary.taken.format in TABLES else f'"{shown(name)}"'
            title += f' "{shown(values[0])}"' if layout.header else ""
            below = values[layout.header :]
            table.add_row(title, f"{len(below):,}", shown(below[0]) if below else "")
        if len(names) > MOST_ROWS:
            table.add_row(f"and {len(names) - MOST_ROWS:,} more")
        yield table


def _span_table(spans: Mapping[str, Lengths]) -> Table:
    table = table_of("spans of", "spans", "share", "words on average", "longest")
    counts = Counter({name: len(lengths) for name, lengths in spans.items()})
    words = {name: (f"{lengths.mean:.2f}", f"{lengths.quantile(1):,}") for name, lengths in spans.items()}
    add_counts(table, counts, counts.total(), words)
    return table
