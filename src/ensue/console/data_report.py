"""Reports of `ensue data`: facts, tables, notes, and the recipe to try. Each kind of data has a class of them."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator
from typing import Generic, NamedTuple, TypeVar

from rich.table import Table

from ensue.console.data_tables import counted, length_table, rendered
from ensue.data.files import locations_in, named_locations
from ensue.data.survey.counts import Summary
from ensue.data.survey.plain_survey import PlainSummary

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
