"""Reports of a run: what a reporter is told, the lines of `metrics.jsonl`, and at the end the model card (README.md).

The library prints nothing; a program passes a reporter to be told of its progress.
"""

from __future__ import annotations

import datetime
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ensue.runs.directory import RunDirectory
from ensue.runs.manifest import altered, entry_of
from ensue.runs.schema import RECORD, Entry, checked, parsed, told
from ensue.runs.weights import flush, write_text
from ensue.version import VERSION


@dataclass(frozen=True)
class Facts:
    """The facts of a run that are known before the first step."""

    data: str
    """The amount of data, in one line."""
    unit: str
    """The unit of a prediction: tokens, words or texts."""
    num_parameters: int
    model: str
    device: str
    threads: int
    precision: str
    protocol: str
    """How validation reads its data, in one line."""
    notes: tuple[str, ...] = ()
    """Remarks on the data and the run, such as unknown tokens."""
    resumed_from: str = ""


@dataclass(frozen=True)
class StepReport:
    """The progress of a run; `share` is the used part of the budget, from 0 to 1."""

    step: int
    share: float
    seconds_left: float
    loss: float
    """Nats per prediction, of this step's batch."""
    speed: float
    """Predictions per second, in `Facts.unit`."""


@dataclass(frozen=True)
class Validation:
    """Scores on the validation data after `step` steps; `best` tells whether they are the best so far."""

    step: int
    seconds: float
    scores: dict[str, Any]
    summary: str
    """The scores in one line."""
    best: bool
    sample: str
    selection: float
    """The number that chooses the best weights: the lowest one is the best."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

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
    """The test scores in one line."""


class Reporter:
    """Is told of everything and does nothing. Override the methods for what you want to show."""

    def started(self, facts: Facts) -> None:
        """Called before the first step."""

    def noted(self, note: str) -> None:
        """Called with a remark of one line."""

    def working(self, what: str, share: float) -> None:
        """Called now and then while something is worked out before the first step; `share` is done, from 0 to 1."""

    def stepped(self, report: StepReport) -> None:
        """Called after each step."""

    def validated(self, validation: Validation) -> None:
        """Called after each validation."""

    def is_enough(self) -> bool:
        """Asked before each step of a run of one process: whether the run should end now, as one that stops early."""
        return False

    def finished(self, outcome: Outcome) -> None:
        """Called at the end of the run."""


class MetricsLog:
    """Appends records to a file of JSON lines. `rewind` removes the records that a resumed run will write again."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, kind: str, **record: Any) -> None:
        """Appends a record as a line."""
        with self.path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(json.dumps({"kind": kind, **record}, ensure_ascii=False) + "\n")

    def entry(self) -> Entry | None:
        """The manifest's entry of the log as it is now, on the disk; None before the first line."""
        if not self.path.exists():
            return None
        flush(self.path)
        return entry_of(self.path)

    def rewind(self, start: Entry | None) -> None:
        """Cuts the log back to the entry `start`. Raises RunError if the log does not begin with that content."""
        if start is None:
            write_text(self.path, "")
            return
        with told(self.path):
            size = self.path.stat().st_size
            if size < start.bytes or entry_of(self.path, start.bytes).sha256 != start.sha256:
                raise altered(self.path, start, size)
        with self.path.open("r+b") as file:
            file.truncate(start.bytes)

    def records(self) -> list[dict[str, Any]]:
        """All records. An incomplete last line is skipped. Raises RunError for a line that is no record."""
        with told(self.path):
            *lines, _ = self.path.read_bytes().split(b"\n") if self.path.exists() else [b""]
        records = []
        for number, line in enumerate(lines, 1):
            place = Path(f"{self.path}:{number}")
            with told(place):
                records.append(parsed(line))
            checked(RECORD, records[-1], place)
        return records


@dataclass(frozen=True)
class TaskLines:
    """The parts of a model card that the task writes."""

    about: str
    """The end of the sentence "a tagger ..."."""
    scores: list[str]
    """A table in Markdown."""
    data: list[str]
    """The training, validation and test data, as a list in Markdown."""
    commands: list[str]
    """Commands that use the run."""
    python: list[str]
    """Lines of Python that use `model`."""


def scores_by_data(outcome: Outcome) -> dict[str, dict[str, Any]]:
    """The scores of a run by data: "validation" and "test"."""
    return {name: found for name, found in (("validation", outcome.valid), ("test", outcome.test)) if found}


def score_table(
    scores: Mapping[str, Mapping[str, Any]], columns: Mapping[str, tuple[str, str]], first: str = "data"
) -> list[str]:
    """The scores by data as a table in Markdown. `columns` has their titles and formats; a missing number is a dash,
    and a share is in percent without the sign.
    """
    titles = " | ".join(title for title, _ in columns.values())
    lines = [f"| {first} | {titles} |", "|---" * (len(columns) + 1) + "|"]
    for data, found in scores.items():
        cells = ("-" if found.get(key) is None else format(found[key], form) for key, (_, form) in columns.items())
        lines.append(f"| {data} | {' | '.join(cell.rstrip('%') for cell in cells)} |")
    return lines


def write_card(run: RunDirectory, lines: TaskLines, outcome: Outcome, *, num_parameters: int, sample: str) -> None:
    """Writes the card of a finished run."""
    path, recipe, runtime = shlex.quote(str(run.path)), run.recipe, run.config["runtime"]
    budget = recipe.train.budget
    curve = "The curve is in `curve.png`, e" if (run.path / "curve.png").exists() else "E"
    text = [
        f"# {run.path.name}",
        "",
        f"A {recipe.what} ({recipe.describe()}, {num_parameters:,} parameters) {lines.about}, trained with "
        f"ensue {VERSION} on {datetime.date.today().isoformat()}.",
        "",
        "## Scores",
        "",
        *lines.scores,
        "",
        f"Best of {budget}={getattr(recipe.train, budget):g}: step {outcome.best_step:,} of {outcome.step:,}, "
        f"{outcome.seconds:,.0f} seconds of training ({outcome.reason}). {curve}very report in `metrics.jsonl`.",
        "",
        "## Data",
        "",
        *lines.data,
        *(f"- origin: `{origin['path']}`, weights {origin['sha256'][:12]}" for origin in run.config.get("origins", [])),
        "",
        *use(run, lines.commands, lines.python),
        "## Repeat",
        "",
        "```",
        f"ensue train {path}/recipe.toml --out ANOTHER --threads {runtime['threads']} --device {runtime['device']} "
        f"--set train.precision={runtime['precision']}",
        "```",
        "",
        f"{runtime['machine']}, Python {runtime['python']}, torch {runtime['torch']}, {runtime['threads']} thread"
        f"{'s' * (runtime['threads'] != 1)}, {runtime['precision']}, seed {recipe.train.seed}."
        + (
            " A budget of seconds depends on the machine and cannot be repeated exactly." if budget == "seconds" else ""
        ),
        "",
        *(["## Sample", "", *(f"    {line}" for line in sample.split("\n")), ""] if sample else []),
    ]
    write_text(run.path / "README.md", "\n".join(text))


def use(run: RunDirectory, commands: Sequence[str], python: Sequence[str]) -> list[str]:
    """The lines of a card that say how to use the run."""
    load = f"model = ensue.load({str(run.path)!r})"
    return [
        "## Use", "", "```", *commands, "```", "", "```python", "import ensue", load, *python, "```", "",
    ]  # fmt: skip
