"""The reporter interface, the log `metrics.jsonl`, and the model card (README.md) of a run.

The library prints nothing. Programs pass a `Reporter` to show the progress.
"""

import datetime
import json
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ensue.errors import pluralize
from ensue.parsing import read_lines
from ensue.runs.directory import RunDirectory
from ensue.runs.manifest import altered_error, entry_of
from ensue.runs.schema import RECORD, FileEntry, convert_read_errors, parse_strictly, validate_content
from ensue.runs.weights import flush, write_text
from ensue.version import VERSION

SECONDS_BETWEEN_REFRESHES = 0.1


@dataclass(frozen=True)
class Facts:
    """Properties of a run that are known before the first step."""

    data: str
    """The size of the data, in one line."""
    unit: str
    """The unit of a prediction, such as tokens, words or texts."""
    num_parameters: int
    model: str
    device: str
    threads: int
    precision: str
    protocol: str
    """How validation reads its data, in one line."""
    notes: tuple[str, ...] = ()
    """Notes of one line on the data and the run, such as the number of unknown tokens."""
    resumed_from: str = ""


@dataclass(frozen=True)
class StepReport:
    """The progress of a run after a step."""

    step: int
    share: float
    """The used share of the budget, from 0 to 1."""
    seconds_left: float
    loss: float
    """The loss of this step's batch, in nats per prediction."""
    speed: float
    """The number of predictions per second, in the unit `Facts.unit`."""


@dataclass(frozen=True)
class Validation:
    """Scores of the validation data after `step` steps."""

    step: int
    seconds: float
    scores: dict[str, Any]
    summary: str
    """The scores in one line."""
    best: bool
    """Whether these are the best scores so far."""
    sample: str
    selection: float
    """The criterion for the best weights; lower is better."""


@dataclass(frozen=True)
class Outcome:
    """The result of a run."""

    run: Path
    task: str
    step: int
    seconds: float
    reason: str
    """"finished", "stopped early" or "interrupted"."""
    best_step: int
    valid: dict[str, Any] | None
    test: dict[str, Any] | None
    valid_summary: str = ""
    test_summary: str = ""
    """The scores on the validation and the test data, each in one line."""
    steps_with_decay: int = 0
    """The budget in steps with which an interrupted run ends soon (`Trainer.steps_with_decay`); 0 if there is none."""


class Reporter:
    """A reporter whose methods do nothing. A subclass overrides the methods for the events that it shows."""

    def started(self, facts: Facts) -> None:
        """Receive the facts before the first step."""

    def noted(self, note: str) -> None:
        """Receive a note of one line."""

    def working(self, name: str, share: float) -> None:
        """Receive the progress of the computation `name`, before or in a step, as a share from 0 to 1."""

    def stepped(self, report: StepReport) -> None:
        """Receive the report of each step."""

    def validated(self, validation: Validation) -> None:
        """Receive the scores of each validation."""

    def is_enough(self) -> bool:
        """Return True to end the run early. Runs with a single process call this method before each step."""
        return False

    def finished(self, outcome: Outcome) -> None:
        """Receive the outcome at the end of the run."""


class ProgressBar(Reporter):
    """A bar on stderr, in a terminal or in the output of a notebook's cell."""

    due_at = 0.0

    def working(self, name: str, share: float) -> None:
        if time.monotonic() >= self.due_at or share >= 1:
            self.due_at = time.monotonic() + SECONDS_BETWEEN_REFRESHES
            bar = f"{name}  {'━' * round(24 * share):24}  {share:4.0%}"
            print(f"\r{' ' * len(bar)}\r" if share >= 1 else f"\r{bar}", end="", file=sys.stderr, flush=True)

    def stepped(self, report: StepReport) -> None:
        self.working(f"step {report.step:,}", min(0.99, report.share))

    def finished(self, outcome: Outcome) -> None:
        self.working(outcome.reason, 1.0)


class MetricsLog:
    """The log of a run, a file of JSON lines."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, kind: str, **record: Any) -> None:
        """Append a record as a line."""
        with self.path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(json.dumps({"kind": kind, **record}, ensure_ascii=False) + "\n")

    def entry(self) -> FileEntry | None:
        """Flush the log and return its entry for the manifest; None before the first line."""
        if not self.path.exists():
            return None
        flush(self.path)
        return entry_of(self.path)

    def rewind(self, start: FileEntry | None) -> None:
        """Truncate the log to the content of the entry `start`. Raises RunError if the log has other content."""
        if start is None:
            write_text(self.path, "")
            return
        with convert_read_errors(self.path):
            size = self.path.stat().st_size
            if size < start.bytes or entry_of(self.path, start.bytes).sha256 != start.sha256:
                raise altered_error(self.path, start, size)
        with self.path.open("r+b") as file:
            file.truncate(start.bytes)

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield the records, except an incomplete last line. Raises RunError for an invalid record."""
        lines, place, number = iter(read_lines(self.path) if self.path.exists() else ()), self.path, 0
        while True:
            with convert_read_errors(place):
                if (line := next(lines, None)) is None:
                    return
                place, number = Path(f"{self.path}:{number + 1}"), number + 1
            with convert_read_errors(place):
                record = parse_strictly(line)
            validate_content(RECORD, record, place)
            yield record


def score_table(
    scores: Mapping[str, Mapping[str, Any]], columns: Mapping[str, tuple[str, str]], row_header: str = "data"
) -> list[str]:
    """Return a table of scores in Markdown, without percent signs. `columns` has the title and format of each score."""
    titles = " | ".join(title for title, _ in columns.values())
    lines = [f"| {row_header} | {titles} |", "|---" * (len(columns) + 1) + "|"]
    for row, values in scores.items():
        cells = ("-" if values.get(key) is None else format(values[key], spec) for key, (_, spec) in columns.items())
        lines.append(f"| {row} | {' | '.join(cell.rstrip('%') for cell in cells)} |")
    return lines


def write_card(
    run: RunDirectory, job: Any, outcome: Outcome, *, num_parameters: int, sample: str, planned: Sequence[str]
) -> None:
    """Write the model card of a finished run. The `Job` writes the lines that depend on the task."""
    path, recipe, runtime = shlex.quote(str(run.path)), run.recipe, run.config["runtime"]
    budget = recipe.train.budget
    curve = "The curve is in `curve.png`, e" if (run.path / "curve.png").exists() else "E"
    origins = run.config.get("origins", [])
    scores = {name: row for name, row in (("validation", outcome.valid), ("test", outcome.test)) if row}
    text = [
        f"# {run.path.name}", "",
        f"A {recipe.what} ({recipe.describe()}, {num_parameters:,} parameters) {job.about()}, trained with "
        f"ensue {VERSION} on {datetime.date.today().isoformat()}.", "",
        "## Scores", "", *job.score_lines(scores), "",
        f"Best of {budget}={getattr(recipe.train, budget):g}: step {outcome.best_step:,} of {outcome.step:,}, "
        f"{outcome.seconds:,.0f} seconds of training ({outcome.reason}). {curve}very report in `metrics.jsonl`.", "",
        "## Data", "", *job.data_lines(), *(f"- {line}" for line in planned),
        *(f"- origin: `{origin['path']}`, weights {origin['sha256'][:12]}" for origin in origins), "",
        *usage_lines(run, recipe, job.parts),
        "## Repeat", "", "```",
        f"ensue train {path}/recipe.toml --out ANOTHER --threads {runtime['threads']} --device {runtime['device']} "
        f"--set train.precision={runtime['precision']}", "```", "",
        f"{runtime['machine']}, Python {runtime['python']}, torch {runtime['torch']}, "
        f"{pluralize(runtime['threads'], 'thread')}, {runtime['precision']}, seed {recipe.train.seed}."
        + " A budget of seconds depends on the machine and cannot be repeated exactly." * (budget == "seconds"), "",
        *(["## Sample", "", *(f"    {line}" for line in sample.split("\n")), ""] if sample else []),
    ]  # fmt: skip
    write_text(run.path / "README.md", "\n".join(text))


def usage_lines(run: RunDirectory, recipe: Any, parts: Any) -> list[str]:
    """Return the section of a card with commands and code that use the run; `parts` are its `ModelParts`."""
    commands = parts.commands(recipe, shlex.quote(str(run.path)))
    python = ["```python", "import ensue", f"model = ensue.load({str(run.path)!r})", *parts.python(recipe), "```"]
    return ["## Use", "", "```", *commands, "```", "", *python, ""]
