"""The model card, RUN/README.md: data, scores, how to use the model, and how to repeat the run."""

from __future__ import annotations

import datetime
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ensue.runs.directory import RunDirectory
from ensue.runs.reporter import Outcome
from ensue.runs.weights import write_text
from ensue.version import VERSION


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
    """The scores by data as a table in Markdown. `columns` has their titles and formats; a missing number is a dash."""
    titles = " | ".join(title for title, _ in columns.values())
    lines = [f"| {first} | {titles} |", "|---" * (len(columns) + 1) + "|"]
    for data, found in scores.items():
        cells = ("-" if found.get(key) is None else format(found[key], form) for key, (_, form) in columns.items())
        lines.append(f"| {data} | {' | '.join(cells)} |")
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
