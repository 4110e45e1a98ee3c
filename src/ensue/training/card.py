"""The model card, RUN/README.md: what a model was trained on, how well it does, how to use and to repeat it."""

from __future__ import annotations

import datetime
import shlex
from typing import Any

from ensue.training.job import Job
from ensue.training.reporter import Outcome
from ensue.training.run_directory import RunDirectory
from ensue.training.weights import write_text
from ensue.version import VERSION


def write_card(run: RunDirectory, job: Job[Any], outcome: Outcome, *, num_parameters: int, sample: str) -> None:
    """Write the card of a finished run."""
    path, recipe, runtime = shlex.quote(str(run.path)), job.recipe, run.config["runtime"]
    budget = recipe.train.budget
    scores = {name: found for name, found in (("validation", outcome.valid), ("test", outcome.test)) if found}
    lines = [
        f"# {run.path.name}",
        "",
        f"A {recipe.what} ({describe_model(recipe.model)}, {num_parameters:,} parameters) {job.about()}, trained with "
        f"ensue {VERSION} on {datetime.date.today().isoformat()}.",
        "",
        "## Scores",
        "",
        *job.score_lines(scores),
        "",
        f"Best of {budget}={getattr(recipe.train, budget):g}: step {outcome.best_step:,} of {outcome.step:,}, "
        f"{outcome.seconds:,.0f} seconds of training ({outcome.reason}). The curve is in `curve.png`, every report in "
        "`metrics.jsonl`.",
        "",
        "## Data",
        "",
        *job.data_lines(),
        "",
        "## Use",
        "",
        "```",
        *job.commands(path),
        "```",
        "",
        "```python",
        "import ensue",
        f"model = ensue.load({str(run.path)!r})",
        *job.python(),
        "```",
        "",
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
    write_text(run.path / "README.md", "\n".join(lines))


def describe_model(specification: Any) -> str:
    """`lstm 2×256`, as the table `[model]` says it."""
    if specification.encoder == "none":
        return "no encoder"
    return f"{specification.encoder} {specification.num_layers}×{specification.d_model}"
