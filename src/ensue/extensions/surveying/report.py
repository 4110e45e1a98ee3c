"""The bases of the reports of `ensue data`: facts, tables, notes, and a command that trains on the data."""

import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from rich.console import Console
from rich.table import Table

from ensue.data.files import join_locations, locations_in
from ensue.errors import distinct_names, list_names, pluralize
from ensue.extensions.surveying.counts import MAX_TEXTS, LabeledSummary, Lengths, Repeats, Summary
from ensue.extensions.surveying.oddities import label_notes, outlier_note

MAX_ROWS = 25  # the maximum number of rows of a table
_FILE_WIDTH = 10_000
"""The width in characters of tables that are not written to a terminal."""
SomeLabeled = TypeVar("SomeLabeled", bound=LabeledSummary)
SomeSummary = TypeVar("SomeSummary", bound=Summary)


class Report(Generic[SomeSummary]):
    """The report on data of one kind. `columns` maps options to the columns that they choose."""

    def __init__(self, summary: SomeSummary, columns: Mapping[str, str]) -> None:
        self.summary, self.columns = summary, columns

    def facts(self) -> Iterator[tuple[str, str]]:
        """Yield the rows of the first table after the row with the name of the data."""
        raise NotImplementedError

    def tables(self) -> Iterator[Table]:
        """Yield the other tables."""
        yield from ()

    def notes(self) -> Iterator[str]:
        """Yield notes about unusual data."""
        if self.summary.null_texts.count:
            yield f"texts that stand for a missing value, such as nan: {self.summary.null_texts}"

    def recipe(self) -> tuple[str, str, str]:
        """Return the name of a recipe for the data ("": no recipe), a name for the run, and the reason."""
        raise NotImplementedError

    def settings(self) -> Iterator[str]:
        """Yield the settings that training needs to read the data as this report does."""
        if self.summary.incomplete:
            yield "data.incomplete=skip"
        if self.summary.encoding != "utf-8":
            yield f"data.encoding={self.summary.encoding}"
        if not self.summary.detected.is_default and self.summary.detected.kind != "text":
            yield f"data.format={self.summary.detected.format}"

    def text(self) -> str:
        """Return the report as text."""
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        files = f", {self.summary.num_files:,} files" if self.summary.num_files > 1 else ""
        for row in [("data", join_locations(self.summary.location) + files), *self.facts()]:
            table.add_row(*row)
        notes = "\n".join(f"note: {note}" for note in self.notes())
        blocks = [*map(render, [table, *self.tables()]), render(notes) if notes else ""]
        if not self.summary.error and (command := self.command()):
            recipe, _, reason = self.recipe()
            why = f"recipe: {recipe}, since {reason}\n" if command.startswith("ensue train") else ""
            blocks.append(f"{why}next: {command}")
        return "\n\n".join(filter(None, blocks)) + "\n"

    def command(self) -> str:
        """Return the command that trains on the data; "" without a recipe."""
        recipe, name, _ = self.recipe()
        if not recipe or "\0" in self.summary.characters:
            return ""
        settings = [argument for setting in self.settings() for argument in ("--set", setting)]
        train = [argument for name in locations_in(self.summary.location) for argument in ("--train", name)]
        return shlex.join(["ensue", "train", recipe, *train, *settings, "--out", name])

    def size_rows(self) -> Iterator[tuple[str, str]]:
        """Yield the numbers of words and characters."""
        for name, count, distinct in (
            ("words", self.summary.words.total(), self.summary.words),
            ("characters", self.summary.num_characters, self.summary.characters),
        ):
            yield name, f"{count:,}, {len(distinct):,} distinct"


class LabeledReport(Report[SomeLabeled]):
    """The base of the reports on sentences and on texts."""

    unit: str
    """The noun for the items that `size` counts."""
    labeled_noun: str
    """The noun for items with a label."""
    outlier_remedy: str
    """The remedy for outliers, a template in which "{}" stands for the limit in words."""
    splitter = ""
    """The suggested splitter; "": the default."""
    separator_remedy = "--set data.separator=, (or ; or |) reads several labels from a field"

    def classes(self) -> Counter[str]:
        """Return the counts of labels, or of the classes of spans."""
        return self.summary.labels

    def text_size_rows(self) -> Iterator[tuple[str, str]]:
        """Yield the numbers of words, characters, incomplete rows, empty items and repeated items."""
        summary = self.summary
        yield from self.size_rows()
        if summary.incomplete:
            yield "incomplete", summary.incomplete
        if summary.empty.count:
            yield "empty", str(summary.empty)
        if summary.repeats.num_repeats:
            count = f"{summary.repeats.num_repeats:,}"
            yield "repeated", describe_repeats(summary.repeats, count, "labels") if summary.is_labeled else count

    def tables(self) -> Iterator[Table]:
        summary = self.summary
        if not summary.lengths:
            return
        prefixes = [""] if len(summary.lengths) == 1 else ["first ", "second "]
        lengths = zip(prefixes, summary.lengths, strict=True)
        yield length_table({f"words in a {prefix}{self.unit}": histogram for prefix, histogram in lengths})
        if summary.labels:
            total = summary.size if self.labeled_noun == self.unit else summary.labels.total()
            yield label_table(f"{self.labeled_noun}s", summary.labels, total)

    def settings(self) -> Iterator[str]:
        yield from super().settings()
        if self.splitter:
            yield f"data.splitter={self.splitter}"

    def notes(self) -> Iterator[str]:
        summary = self.summary
        if "\0" in summary.characters:
            yield "words contain NUL characters; is the file binary?"
        yield from super().notes()
        for lengths in summary.lengths:
            if note := outlier_note(lengths, self.unit, self.outlier_remedy):
                yield note
        if not summary.is_labeled:
            return
        if len(summary.labels) == 1 and not self.splitter:
            label = display_name(next(iter(summary.labels)))
            yield f'all {self.labeled_noun}s have the label "{label}": there is nothing to learn'
        first_lines = summary.first_lines
        singletons = [label for label, count in sort_by_frequency(summary.labels) if count == 1]
        if singletons and len(summary.labels) > 1:
            place = f"; the first at {first_lines[singletons[0]]}" if singletons[0] in first_lines else ""
            yield f"{pluralize(len(singletons), 'label occurs', 'labels occur')} once: {list_names(singletons)}{place}"
        classes, are_words = self.classes() or summary.labels, self.unit != self.labeled_noun
        unit = "spans" if classes is not summary.labels else f"{self.labeled_noun}s"
        lines = {label.partition("-")[2]: line for label, line in reversed(first_lines.items())} | first_lines
        yield from label_notes(classes, lines, unit, separator_remedy=self.separator_remedy, are_words=are_words)

    def command(self) -> str:
        """Return a command that trains on the data, or that predicts labels for data without labels."""
        if "\0" not in self.summary.characters and not self.summary.is_labeled:
            return f"ensue predict RUN {shlex.join(locations_in(self.summary.location))}"
        return super().command() if len(self.summary.labels) > 1 or bool(self.splitter) else ""


def length_table(rows: Mapping[str, Lengths]) -> Table:
    """Return a table of quantiles and means, with a row for each histogram."""
    table = make_table("", "shortest", "median", "mean", "95 %", "longest")
    for name, lengths in rows.items():
        shortest, median, quantile, longest = (f"{lengths.quantile(share):,}" for share in (0, 0.5, 0.95, 1))
        table.add_row(name, shortest, median, f"{lengths.mean:,.1f}", quantile, longest)
    return table


def label_table(unit: str, counts: Counter[str], total: int) -> Table:
    """Return a table of the counts of labels."""
    table = make_table("label", unit, "share")
    add_counts(table, counts, total, lambda name: ())
    return table


def add_counts(table: Table, counts: Counter[str], total: int, more: Callable[[str], Sequence[str]]) -> None:
    """Add rows for the most frequent names, and a row for all others. `more` returns further cells of a name."""
    order = sort_by_frequency(counts)
    names = distinct_names([name for name, _ in order[:MAX_ROWS]])
    for (name, count), text in zip(order, names, strict=False):
        table.add_row(text, f"{count:,}", _percent(count, total), *more(name))
    if rest := order[MAX_ROWS:]:
        count = sum(count for _, count in rest)
        table.add_row(f"and {len(rest):,} more", f"{count:,}", _percent(count, total))


def make_table(*names: str, left: int = 0) -> Table:
    """Return a table with right-aligned columns, except the first column and the column at index `left`."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for index, name in enumerate(names):
        table.add_column(name, justify="left" if index in (0, left) else "right", overflow="fold")
    return table


def sort_by_frequency(counts: Counter[str]) -> list[tuple[str, int]]:
    """Return names and counts by decreasing count. Names with equal counts are in alphabetical order."""
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def describe_repeats(repeats: Repeats, count: str, noun: str) -> str:
    """Return a description of repeated texts: their `count`, and the number with other labels or targets (`noun`)."""
    other = repeats.with_other_labels
    first = f", the first at {other.first}" if other.count else ""
    note = f" (of the first {MAX_TEXTS:,} distinct texts)" if repeats.is_partial else ""
    return f"{count}, {f'{other.count:,} of them with other' if other.count else 'with the same'} {noun}{first}{note}"


def _percent(count: int, total: int) -> str:
    share = 100 * count / max(1, total)
    return "< 0.1 %" if 0 < share < 0.1 else f"{share:.1f} %"


def display_name(text: str) -> str:
    """Return a word or label on one line, shortened and with escapes for unprintable characters."""
    return distinct_names([text])[0]


def render(table: Table | str) -> str:
    """Return a table or text without trailing blanks. On a terminal, lines are wrapped between words."""
    width = None if sys.stdout.isatty() else _FILE_WIDTH
    console = Console(highlight=False, markup=False, emoji=False, width=width)
    with console.capture() as captured:
        console.print(table)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())
