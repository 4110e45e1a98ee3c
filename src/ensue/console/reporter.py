"""The progress of a run on stderr: a live bar on a terminal, else lines."""

import time
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from ensue.console.tables import label_rows
from ensue.errors import pluralize
from ensue.runs.reporter import Facts, Outcome, Reporter, StepReport, Validation

SECONDS_BETWEEN_LINES = 10
MAX_SAMPLE_LINES = 4
MAX_LABELS = 8
SECONDS_BETWEEN_REFRESHES = 0.1


class ProgressLine:
    """A progress bar on a terminal; without a terminal, a line every ten seconds."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.progress = Progress(
            TextColumn("{task.description}", markup=False), BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f} %"), TextColumn("{task.fields[note]}", markup=False), console=console,
            transient=True, auto_refresh=False,
        )  # fmt: skip
        self.shown_at = time.monotonic()

    def show(self, name: str, share: float, note: str = "") -> None:
        """Show the computation `name`, its completed share, and a `note`; skip an update that follows too early."""
        now, is_new = time.monotonic(), self.console.is_terminal and not self.progress.task_ids
        wait = SECONDS_BETWEEN_REFRESHES if self.console.is_terminal else SECONDS_BETWEEN_LINES
        if now - self.shown_at < wait and share < 1 and not is_new:
            return
        self.shown_at = now
        if not self.console.is_terminal:
            self.console.print(f"{name}  {share:.0%}  {note}".rstrip(), markup=False)
            return
        if is_new:
            self.progress.add_task(name, total=1.0, note=note)
            self.progress.start()
        self.progress.update(self.progress.task_ids[0], description=name, completed=share, note=note, refresh=True)

    def stop(self) -> None:
        """Remove the bar. `show` starts a new bar."""
        for task in self.progress.task_ids:  # empty without a terminal
            self.progress.stop()
            self.progress.remove_task(task)


class ConsoleReporter(Reporter):
    """A context manager that shows messages and progress of a run on stderr."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True, highlight=False, soft_wrap=True)
        self.bar = ProgressLine(self.console)
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
        resumed = f"; resumed from {facts.resumed_from}" if facts.resumed_from else ""
        self.console.print(f"{facts.device}, {pluralize(facts.threads, 'thread')}, {facts.precision}{resumed}")
        if facts.protocol:
            self.console.print(facts.protocol, style="dim", markup=False)
        for note in facts.notes:
            self.noted(note)

    def noted(self, note: str) -> None:
        self.console.print(f"note: {note}", style="yellow", markup=False)

    def working(self, name: str, share: float) -> None:
        if share < 1:
            self.bar.show(name, share)
        else:
            self.bar.stop()

    def stepped(self, report: StepReport) -> None:
        self.loss = _smooth(self.loss, report.loss)
        self.speed = _smooth(self.speed, report.speed)
        number = f"{self.speed / 1000:,.1f}k" if self.speed >= 1000 else f"{self.speed:.0f}"
        note = f"loss {self.loss:.3f}  {number} {self.unit}/s  {_format_duration(report.seconds_left)} left"
        self.bar.show(f"step {report.step:,}", report.share, note)

    def validated(self, validation: Validation) -> None:
        self.console.print(
            f"[bold]step {validation.step:,}[/bold]  validation: {validation.summary}"
            f"{'  best so far' if validation.best else ''}"
        )
        for line in first_lines(validation.sample):
            self.console.print(Text(f"  {line}", style="dim"))

    def finished(self, outcome: Outcome) -> None:
        self.bar.stop()
        seconds = f"{outcome.seconds:,.1f} seconds of training"
        self.console.print(f"{outcome.reason} at step {outcome.step:,} after {seconds}")
        for name, summary in (("validation", outcome.valid_summary), ("test", outcome.test_summary)):
            if summary:
                self.console.print(f"best weights (step {outcome.best_step:,}), {name}: {summary}")
        last = outcome.test or outcome.valid or {}
        if len(last.get("per_label", {})) > 1:
            self.console.print(label_rows(last["per_label"], max_rows=MAX_LABELS))


def _smooth(old: float, new: float) -> float:
    return new if old == 0 else 0.95 * old + 0.05 * new


def first_lines(sample: str) -> list[str]:
    """Return the first non-blank lines of a sample, without control characters."""
    lines = "".join(c if c.isprintable() or c == "\n" else "�" for c in sample).split("\n")
    return [line for line in lines if line.strip()][:MAX_SAMPLE_LINES]


def _format_duration(seconds: float) -> str:
    if seconds == float("inf"):
        return "?"
    minutes, remainder = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{remainder:02}" if hours else f"{minutes}:{remainder:02}"
