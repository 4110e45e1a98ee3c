"""The progress of a run or of a search, on a terminal or line by line."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from ensue.console.tables import label_rows
from ensue.runs.reporter import Facts, Outcome, Reporter, StepReport, Validation

if TYPE_CHECKING:
    from ensue.search.search import TrialResult

SECONDS_BETWEEN_LINES = 10
SAMPLE_LINES = 4
WORST_LABELS = 8
SECONDS_BETWEEN_REFRESHES = 0.1


class ConsoleReporter(Reporter):
    """A live bar on a terminal, a line now and then elsewhere; everything on stderr. A context manager."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True, highlight=False, soft_wrap=True)
        self.live = self.console.is_terminal
        self.bar = Progress(
            TextColumn("step {task.fields[step]:,}"),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f} %  loss {task.fields[loss]:.3f}  {task.fields[speed]}"),
            _TimeLeft(),
            console=self.console,
            transient=True,
            auto_refresh=False,
        )
        self.work = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f} %"),
            console=self.console,
            transient=True,
            auto_refresh=False,
        )
        self.shown_at = 0.0
        self.worked_at = time.monotonic()
        self.loss = 0.0
        self.speed = 0.0
        self.unit = "tokens"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self.live:
            self.work.stop()
            self.bar.stop()

    def started(self, facts: Facts) -> None:
        self.unit = facts.unit
        self.console.print(f"{facts.model}, {facts.num_parameters:,} parameters; {facts.data}", markup=False)
        threads = f"{facts.threads} thread{'s' * (facts.threads != 1)}"
        resumed = f"; going on from {facts.resumed_from}" if facts.resumed_from else ""
        self.console.print(f"{facts.device}, {threads}, {facts.precision}{resumed}")
        if facts.protocol:
            self.console.print(facts.protocol, style="dim", markup=False)
        for note in facts.notes:
            self.noted(note)
        if self.live:
            self.bar.add_task("train", total=1.0, step=0, loss=0.0, speed="", left=None)
            self.bar.start()

    def noted(self, note: str) -> None:
        self.console.print(f"note: {note}", style="yellow", markup=False)

    def working(self, what: str, share: float) -> None:
        now = time.monotonic()
        if self.live:
            if not self.work.task_ids:
                self.work.add_task(what, total=1.0)
                self.work.start()
            self.work.update(self.work.task_ids[0], description=what, completed=share)
            self.work.refresh()
            if share >= 1:
                self.work.stop()
                self.work.remove_task(self.work.task_ids[0])
        elif now - self.worked_at >= SECONDS_BETWEEN_LINES:
            self.worked_at = now
            self.console.print(f"{what}: {share:.0%}", markup=False)

    def stepped(self, report: StepReport) -> None:
        self.loss = _smoothed(self.loss, report.loss)
        self.speed = _smoothed(self.speed, report.speed)
        now = time.monotonic()
        wait = SECONDS_BETWEEN_REFRESHES if self.live else SECONDS_BETWEEN_LINES
        if now - self.shown_at < wait and report.share < 1:
            return
        first, self.shown_at = self.shown_at == 0.0, now
        if self.live:
            self.bar.update(
                self.bar.task_ids[0], completed=report.share, step=report.step, loss=self.loss,
                speed=f"{_thousands(self.speed)} {self.unit}/s", left=report.seconds_left,
            )  # fmt: skip
            self.bar.refresh()
        elif not first:
            self.console.print(
                f"step {report.step:,}  {report.share:.0%}  loss {self.loss:.3f}  "
                f"{_thousands(self.speed)} {self.unit}/s  {_clock(report.seconds_left)} left"
            )

    def validated(self, validation: Validation) -> None:
        self.console.print(
            f"[bold]step {validation.step:,}[/bold]  validation: {validation.summary}"
            f"{'  best so far' if validation.best else ''}"
        )
        for line in shortened(validation.sample):
            self.console.print(Text(f"  {line}", style="dim"))

    def finished(self, outcome: Outcome) -> None:
        if self.live:
            self.bar.stop()
        self.console.print(
            f"{outcome.reason} at step {outcome.step:,} after {outcome.seconds:,.1f} seconds of training"
        )
        for name, summary in (("validation", outcome.valid_summary), ("test", outcome.test_summary)):
            if summary:
                self.console.print(f"best weights (step {outcome.best_step:,}), {name}: {summary}")
        last = outcome.test or outcome.valid or {}
        if len(last.get("per_label", {})) > 1:
            self.console.print(label_rows(last["per_label"], most=WORST_LABELS))


class SearchReporter(Reporter):
    """Says the notes of the runs, each once."""

    def __init__(self) -> None:
        self.said: set[str] = set()

    def noted(self, note: str) -> None:
        if note not in self.said:
            self.said.add(note)
            print(f"note: {note}", file=sys.stderr)


class _TimeLeft(ProgressColumn):
    def render(self, task: Task) -> Text:
        left = task.fields["left"]
        return Text("" if left is None else f"{_clock(left)} left")


def _smoothed(old: float, new: float) -> float:
    return new if old == 0 else 0.95 * old + 0.05 * new


def shortened(sample: str) -> list[str]:
    """The first lines of a sample that hold something, without control characters."""
    lines = "".join(c if c.isprintable() or c == "\n" else "�" for c in sample).split("\n")
    return [line for line in lines if line.strip()][:SAMPLE_LINES]


def _thousands(number: float) -> str:
    return f"{number / 1000:,.1f}k" if number >= 1000 else f"{number:.0f}"


def _clock(seconds: float) -> str:
    if seconds == float("inf"):
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def trial_line(result: TrialResult) -> str:
    """A trial in one line."""
    values = " ".join(f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}" for key, value in
                      result.values.items())  # fmt: skip
    score = "" if result.score is None else f" {result.score:.4f}"
    return f"trial {result.number}: {result.state}{score}  {values}"
