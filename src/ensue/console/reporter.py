"""What a person sees: the progress of a run, tables of scores, lists of recipes. Used by the command line alone."""

from __future__ import annotations

import codecs
import json
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.table import Table
from rich.text import Text

from ensue.data.decoding import checked_encoding
from ensue.data.sources import TextSource
from ensue.errors import DataError
from ensue.recipe import BUDGETS, Recipe
from ensue.training.reporter import Facts, Outcome, Reporter, StepReport, Validation

if TYPE_CHECKING:  # they need torch, which takes seconds to import, and a list of recipes does not
    from ensue.metrics.language import LanguageScores
    from ensue.pipeline import LanguagePipeline
    from ensue.tasks.minimal_pairs import MinimalPairScores

SECONDS_BETWEEN_LINES = 10
SAMPLE_LINES = 4
SECONDS_BETWEEN_REFRESHES = 0.1


class ConsoleReporter(Reporter):
    """A live bar on a terminal, a line now and then elsewhere; everything on stderr. A context manager."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True, highlight=False, soft_wrap=True)
        self.live = self.console.is_terminal
        self.bar = Progress(
            TextColumn("step {task.fields[step]:,}"),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f} %  loss {task.fields[loss]:.3f}  {task.fields[speed]} tokens/s"),
            _TimeLeft(),
            console=self.console,
            transient=True,
            auto_refresh=False,
        )
        self.shown_at = 0.0
        self.loss = 0.0
        self.speed = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.live:
            self.bar.stop()

    def started(self, facts: Facts) -> None:
        self.console.print(
            f"{facts.model}, {facts.num_parameters:,} parameters; {facts.train_tokens:,} training tokens, "
            f"{facts.valid_tokens:,} for validation, {facts.vocabulary_size:,} symbols"
        )
        threads = f"{facts.threads} thread{'s' * (facts.threads != 1)}"
        resumed = f"; going on from {facts.resumed_from}" if facts.resumed_from else ""
        self.console.print(f"{facts.device}, {threads}, {facts.precision}{resumed}")
        if facts.valid_tokens:
            self.console.print(f"validation: {facts.protocol}", style="dim")
        for note in facts.notes:
            self.console.print(f"note: {note}", style="yellow")
        if self.live:
            self.bar.add_task("train", total=1.0, step=0, loss=0.0, speed="", left=None)
            self.bar.start()

    def stepped(self, report: StepReport) -> None:
        self.loss = _smoothed(self.loss, report.nats_per_token)
        self.speed = _smoothed(self.speed, report.tokens_per_second)
        now = time.monotonic()
        wait = SECONDS_BETWEEN_REFRESHES if self.live else SECONDS_BETWEEN_LINES
        if now - self.shown_at < wait and report.share < 1:
            return
        first, self.shown_at = self.shown_at == 0.0, now
        if self.live:
            self.bar.update(
                self.bar.task_ids[0], completed=report.share, step=report.step, loss=self.loss,
                speed=_thousands(self.speed), left=report.seconds_left,
            )  # fmt: skip
            self.bar.refresh()
        elif not first:
            self.console.print(
                f"step {report.step:,}  {report.share:.0%}  loss {self.loss:.3f}  {_thousands(self.speed)} tokens/s  "
                f"{_clock(report.seconds_left)} left"
            )

    def validated(self, validation: Validation) -> None:
        scores = validation.scores
        self.console.print(
            f"[bold]step {validation.step:,}[/bold]  validation {_number(scores['nats_per_token'])} nats per token, "
            f"perplexity {_number(scores['perplexity'])}{'  best so far' if validation.best else ''}"
        )
        for line in _shortened(validation.sample):
            self.console.print(Text(f"  {line}", style="dim"))

    def finished(self, outcome: Outcome) -> None:
        if self.live:
            self.bar.stop()
        self.console.print(
            f"{outcome.reason} at step {outcome.step:,} after {outcome.seconds:,.1f} seconds of training"
        )
        for name, scores in (("validation", outcome.valid), ("test", outcome.test)):
            if scores:
                self.console.print(
                    f"best weights (step {outcome.best_step:,}), {name}: {_number(scores['nats_per_token'])} nats per "
                    f"token, perplexity {_number(scores['perplexity'])}, "
                    f"{_number(scores['bits_per_character'])} bits per character"
                )


class _TimeLeft(ProgressColumn):
    def render(self, task: Task) -> Text:
        left = task.fields["left"]
        return Text("" if left is None else f"{_clock(left)} left")


def show_scores(scores: LanguageScores) -> None:
    """A table of two columns on stdout."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(justify="left")
    table.add_column(justify="right")
    for name, value in scores.as_json().items():
        table.add_row(name.replace("_", " "), _number(value))
    Console(highlight=False).print(table)


def show_pairs(result: MinimalPairScores) -> None:
    """A row for each file and one for all on stdout."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("pairs of")
    table.add_column("pairs", justify="right")
    table.add_column("better one more probable", justify="right")
    for row in (*result.rows, *([result.total] if len(result.rows) > 1 else [])):
        table.add_row(row.name, f"{row.pairs:,}", f"{row.accuracy:.1%}")
    Console(highlight=False).print(table)


def show_recipes(recipes: list[tuple[str, Recipe]]) -> None:
    """Name, what it is, its budget and what was measured, on stdout."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("recipe", "what", "budget", "measured"):
        table.add_column(column, overflow="fold")
    for name, recipe in recipes:
        budget = next(key for key in BUDGETS if getattr(recipe.train, key) is not None)
        table.add_row(name, recipe.about, f"{getattr(recipe.train, budget):g} {budget}", recipe.measured)
    Console(highlight=False).print(table)


def score_lines(pipeline: LanguagePipeline, path: str, encoding: str, *, as_json: bool) -> Iterator[str]:
    """A line for each token of a text ("-": stdin): its nats and the token as a JSON string, or one JSON object."""
    chunks = stdin_text(encoding) if path == "-" else TextSource(path, encoding=encoding).chunks()
    for symbol, nats in pipeline.score_stream(chunks):
        if as_json:
            yield json.dumps({"token": symbol, "nats": round(max(nats, 0.0), 6)}, ensure_ascii=False)
        else:
            yield f"{max(nats, 0.0):9.4f}\t{json.dumps(symbol, ensure_ascii=False)[1:-1]}"


def stdin_text(encoding: str) -> Iterator[str]:
    """What comes in, line by line; DataError where it is not in that encoding."""
    if sys.stdin is None:
        raise DataError("closed", "stdin")
    name = checked_encoding(encoding)
    decoder = codecs.getincrementaldecoder("utf-8-sig" if name == "utf-8" else name)()
    line = 1
    try:
        while block := sys.stdin.buffer.readline(1 << 16):
            text = decoder.decode(block)
            line += text.count("\n")
            yield text
        yield decoder.decode(b"", final=True)
    except UnicodeError:
        raise DataError(f"not {name.upper()}; --encoding names another one", "stdin", line) from None


def _smoothed(old: float, new: float) -> float:
    return new if old == 0 else 0.95 * old + 0.05 * new


def _shortened(sample: str) -> list[str]:
    """The first lines of a sample that hold something, without control characters."""
    lines = "".join(c if c.isprintable() or c == "\n" else "�" for c in sample).split("\n")
    return [line for line in lines if line.strip()][:SAMPLE_LINES]


def _number(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4f}" if value < 1000 else f"{value:,.1f}"


def _thousands(number: float) -> str:
    return f"{number / 1000:,.1f}k" if number >= 1000 else f"{number:.0f}"


def _clock(seconds: float) -> str:
    if seconds == float("inf"):
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
