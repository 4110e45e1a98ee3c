"""Reports of `ensue data`: facts, tables, notes, and the recipe to try. Each kind of data has a class of them."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, NamedTuple, TypeVar

from rich.console import Console
from rich.table import Table

from ensue.data.files import locations_in, named_locations
from ensue.data.survey.counts import MOST_REMEMBERED, Lengths, Repeats, Summary
from ensue.data.survey.plain_survey import PlainSummary
from ensue.errors import distinct_names

MOST_ROWS = 25
_WIDE = 10_000
SomeSummary = TypeVar("SomeSummary", bound=Summary)


class Columns(NamedTuple):
    """The columns that the user names, as options of the command."""

    words: str = ""
    labels: str = ""
    sources: str = ""
    targets: str = ""


class Report(Generic[SomeSummary]):
    """The report on data of one kind."""

    def __init__(self, summary: SomeSummary, columns: Columns) -> None:
        self.summary, self.columns = summary, columns

    def facts(self) -> Iterator[tuple[str, str]]:
        """The rows of the first table, behind the name of the data."""
        raise NotImplementedError

    def tables(self) -> Iterator[Table]:
        """Further tables."""
        yield from ()

    def notes(self) -> Iterator[str]:
        """The oddities of the data."""
        yield from ()

    def recipe(self) -> tuple[str, str]:
        """The recipe to try, and a name for the run; "" if there is nothing to train on."""
        raise NotImplementedError

    def settings(self) -> Iterator[str]:
        """The settings that training needs: those that the user gave here, and those that it does not find itself."""
        if self.summary.encoding != "utf-8":
            yield f"data.encoding={self.summary.encoding}"
        if not self.summary.taken.by_itself and self.summary.taken.kind != "text":
            yield f"data.format={self.summary.taken.format}"

    def text(self) -> str:
        """The whole report."""
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        files = f", {self.summary.num_files:,} files" if self.summary.num_files > 1 else ""
        for row in [("data", named_locations(self.summary.location) + files), *self.facts()]:
            table.add_row(*row)
        parts = [*map(rendered, [table, *self.tables()]), "\n".join(f"note: {note}" for note in self.notes())]
        if not self.summary.error and (command := self.command()):
            parts.append(f"next: {command}")
        return "\n\n".join(filter(None, parts)) + "\n"

    def command(self, out: str = "", more: Iterable[str] = ()) -> str:
        """The next command, with `more` arguments; "" if there is none."""
        recipe, name = self.recipe()
        if not recipe or "\0" in self.summary.characters:
            return ""
        settings = [part for setting in self.settings() for part in ("--set", setting)]
        train = [part for name in locations_in(self.summary.location) for part in ("--train", name)]
        return shlex.join(["ensue", "train", recipe, *train, *settings, *more, "--out", out or name])

    def sizes(self) -> Iterator[tuple[str, str]]:
        """Facts about words and characters."""
        for name, count, distinct in (
            ("words", self.summary.words.total(), self.summary.words),
            ("characters", self.summary.num_characters, self.summary.characters),
        ):
            yield name, f"{count:,}, {len(distinct):,} distinct"


class PlainReport(Report[PlainSummary]):
    """The report on running text."""

    def facts(self) -> Iterator[tuple[str, str]]:
        summary = self.summary
        yield "taken for", f"plain text ({summary.taken.sign})"
        yield "lines", f"{len(summary.line_lengths):,}"
        yield from self.sizes()
        if summary.longest_line:
            yield "longest line", f"{summary.longest:,} characters, at {summary.longest_line}"

    def tables(self) -> Iterator[Table]:
        yield length_table({"characters in a line": self.summary.line_lengths})

    def notes(self) -> Iterator[str]:
        summary = self.summary
        if summary.taken.others:  # in other kinds, each file has its own format
            named = ", ".join(summary.taken.others)
            yield f"some files are named {named}; all are read as plain text, as the first one is, a glob chooses"
        if summary.num_nul:
            yield f"{counted(summary.num_nul, 'NUL character')}, the first at {summary.first_nul}; is this text?"

    def recipe(self) -> tuple[str, str]:
        return "char-lstm", "model"


def toml_value(name: str) -> str:
    """A name as TOML, in quotes only where it would not be read as a name."""
    is_bare = re.fullmatch(r"[A-Za-z_][\w.]*", name) and name not in ("true", "false", "inf", "nan")
    return name if is_bare else json.dumps(name, ensure_ascii=False)


def length_table(rows: Mapping[str, Lengths]) -> Table:
    table = table_of("", "shortest", "median", "mean", "95 %", "longest")
    for name, lengths in rows.items():
        least, median, most, longest = (f"{lengths.quantile(share):,}" for share in (0, 0.5, 0.95, 1))
        table.add_row(name, least, median, f"{lengths.mean:,.1f}", most, longest)
    return table


def label_table(unit: str, counts: Counter[str], total: int) -> Table:
    table = table_of("label", unit, "share")
    add_counts(table, counts, total)
    return table


def add_counts(
    table: Table, counts: Counter[str], total: int, more: Mapping[str, tuple[str, ...]] | None = None
) -> None:
    """Adds a row for each of the most frequent names, and one for all others. `more` are further cells by name."""
    order = ranked(counts)
    names = distinct_names([name for name, _ in order[:MOST_ROWS]])
    for (name, count), text in zip(order, names, strict=False):
        table.add_row(text, f"{count:,}", _share(count, total), *(more or {}).get(name, ()))
    if rest := order[MOST_ROWS:]:
        count = sum(count for _, count in rest)
        table.add_row(f"and {len(rest):,} more", f"{count:,}", _share(count, total))


def table_of(*names: str, left: int = 0) -> Table:
    """A table with numbers in all columns but the first and the one at `left`."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for place, name in enumerate(names):
        table.add_column(name, justify="left" if place in (0, left) else "right", overflow="fold")
    return table


def ranked(counts: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def repeated(repeats: Repeats, count: str, what: str) -> str:
    """The `count` of repeated texts, and how many have other labels or targets (`what`)."""
    other = repeats.with_other_labels
    part = f" (of the first {MOST_REMEMBERED:,} distinct ones)" if repeats.is_partial else ""
    return f"{count}, {f'{other:,} of them with other' if other else 'with the same'} {what}{part}"


def counted(count: int, one: str, many: str = "") -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def _share(count: int, total: int) -> str:
    share = 100 * count / max(1, total)
    return "< 0.1 %" if 0 < share < 0.1 else f"{share:.1f} %"


def shown(text: str) -> str:
    """A word or label on one line: shortened if it is long, with escapes for characters that cannot be printed."""
    return distinct_names([text])[0]


def rendered(table: Table) -> str:
    """The table as lines without blanks at their ends. If stdout is no terminal, nothing is cut or folded."""
    width = None if sys.stdout.isatty() else _WIDE
    console = Console(highlight=False, markup=False, emoji=False, width=width)
    with console.capture() as captured:
        console.print(table)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())
