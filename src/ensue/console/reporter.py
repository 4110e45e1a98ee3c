"""The progress of a run, on a terminal or line by line."""

from __future__ import annotations

import time
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from ensue.console.tables import label_rows
from ensue.runs.reporter import Facts, Outcome, Reporter, StepReport, Validation

SECONDS_BETWEEN_LINES = 10
SAMPLE_LINES = 4
WORST_LABELS = 8
SECONDS_BETWEEN_REFRESHES = 0.1


class Bar:
    """A live bar on a terminal, a line now and then elsewhere."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.fields[more]}", markup=False),
            console=console,
            transient=True,
            auto_refresh=False,
        )
        self.shown_at = time.monotonic()

    def show(self, what: str, share: float, more: str = "") -> None:
        """Shows the work, the share of it that is done, and `more`, unless the last time was a moment ago."""
        now, begins = time.monotonic(), self.console.is_terminal and not self.progress.task_ids
        wait = SECONDS_BETWEEN_REFRESHES if self.console.is_terminal else SECONDS_BETWEEN_LINES
        if now - self.shown_at < wait and share < 1 and not begins:
            return
        self.shown_at = now
        if not self.console.is_terminal:
            self.console.print(f"{what}  {share:.0%}  {more}".rstrip(), markup=False)
            return
        if begins:
            self.progress.add_task(what, total=1.0, more=more)
            self.progress.start()
        self.progress.update(self.progress.task_ids[0], description=what, completed=share, more=more, refresh=True)

    def stop(self) -> None:
        """Removes the bar; `show` begins another one."""
        for task in self.progress.task_ids:  # none elsewhere
            self.progress.stop()
            self.progress.remove_task(task)


class ConsoleReporter(Reporter):
    """Messages of a run and its progress, everything on stderr. A context manager."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True, highlight=False, soft_wrap=True)
        self.bar = Bar(self.console)
        self.loss = 0.0
        self.speed = 0.0
        self.unit = "tokens"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
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

    def noted(self, note: str) -> None:
        self.console.print(f"note: {note}", style="yellow", markup=False)

    def working(self, what: str, share: float) -> None:
        if share < 1:
            self.bar.show(what, share)
        else:
            self.bar.stop()

    def stepped(self, report: StepReport) -> None:
        self.loss = _smoothed(self.loss, report.loss)
        self.speed = _smoothed(self.speed, report.speed)
        number = f"{self.speed / 1000:,.1f}k" if self.speed >= 1000 else f"{self.speed:.0f}"
        more = f"loss {self.loss:.3f}  {number} {self.unit}/s  {_clock(report.seconds_left)} left"
        self.bar.show(f"step {report.step:,}", report.share, more)

    def validated(self, validation: Validation) -> None:
        self.console.print(
            f"[bold]step {validation.step:,}[/bold]  validation: {validation.summary}"
            f"{'  best so far' if validation.best else ''}"
        )
        for line in shortened(validation.sample):
            self.console.print(Text(f"  {line}", style="dim"))

    def finished(self, outcome: Outcome) -> None:
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


def _smoothed(old: float, new: float) -> float:
    return new if old == 0 else 0.95 * old + 0.05 * new


def shortened(sample: str) -> list[str]:
    """The first lines of a sample that hold something, without control characters."""
    lines = "".join(c if c.isprintable() or c == "\n" else "�" for c in sample).split("\n")
    return [line for line in lines if line.strip()][:SAMPLE_LINES]


def _clock(seconds: float) -> str:
    if seconds == float("inf"):
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
