"""The model card, RUN/README.md: what a model was trained on, how well it does, how to use and to repeat it."""

from __future__ import annotations

import datetime
import shlex
from typing import Any

from torch import nn

from ensue.recipe import BUDGETS, Recipe
from ensue.training.corpus import Corpus
from ensue.training.reporter import Outcome
from ensue.training.run_directory import RunDirectory
from ensue.training.weights import write_text
from ensue.version import VERSION


def write_card(
    run: RunDirectory, recipe: Recipe, corpus: Corpus, model: nn.Module, outcome: Outcome, *, sample: str
) -> None:
    """Write the card of a finished run."""
    path = shlex.quote(str(run.path))
    runtime = run.config["runtime"]
    parameters = sum(p.numel() for p in model.parameters())
    budget = next(name for name in BUDGETS if getattr(recipe.train, name) is not None)
    lines = [
        f"# {run.path.name}",
        "",
        f"A language model ({recipe.model.encoder}, {recipe.model.num_layers}×{recipe.model.d_model}, {parameters:,} "
        f"parameters) over {corpus.tokenizer.vocabulary_size:,} {_symbols(recipe)}, trained with ensue {VERSION} on "
        f"{datetime.date.today().isoformat()}.",
        "",
        "## Scores",
        "",
        "| text | nats per token | perplexity | bits per character | tokens | unknown |",
        "|---|---|---|---|---|---|",
        *(_row(name, scores) for name, scores in (("validation", outcome.valid), ("test", outcome.test)) if scores),
        "",
        f"Best of {budget}={getattr(recipe.train, budget):g}: step {outcome.best_step:,} of {outcome.step:,}, "
        f"{outcome.seconds:,.0f} seconds of training ({outcome.reason}). The curve is in `curve.png`, every report in "
        "`metrics.jsonl`.",
        "",
        "## Data",
        "",
        f"- training: `{recipe.data.train}`, {corpus.train.characters:,} characters, {len(corpus.train):,} tokens",
        f"- validation: {corpus.split}" + (f", {len(corpus.valid):,} tokens" if corpus.valid else ""),
        *([f"- test: `{recipe.data.test}`, {len(corpus.test):,} tokens"] if corpus.test else []),
        "",
        "## Use",
        "",
        "```",
        f'ensue generate {path} --prompt "The"',
        f"ensue evaluate {path} TEXT --json",
        f"ensue score {path} TEXT",
        "```",
        "",
        "```python",
        "import ensue",
        f"lm = ensue.load({str(run.path)!r})",
        'print("".join(lm.generate("The")))',
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


def _symbols(recipe: Recipe) -> str:
    return {"bpe": "subwords"}.get(recipe.tokenizer.kind, recipe.tokenizer.kind)


def _row(name: str, scores: dict[str, Any]) -> str:
    numbers = (
        f"{scores[key]:.4f}" if scores[key] is not None else "-"
        for key in ("nats_per_token", "perplexity", "bits_per_character")
    )
    return f"| {name} | {' | '.join(numbers)} | {scores['tokens']:,} | {scores['unknown']:,} |"
