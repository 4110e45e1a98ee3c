"""The command that makes ids of a text once, for any number of trainings: prepare."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ensue.cli.options import quoted, say
from ensue.cli.training import recipe_of
from ensue.console.imports import importing_torch
from ensue.errors import EnsueError


def prepare(
    recipe: Annotated[
        str | None, typer.Argument(help="A recipe's name or a TOML file; its tokenizer counts.", show_default=False)
    ] = None,
    train: Annotated[str, typer.Option("--train", help="Training text: a file, a folder or a glob, or hf:NAME.")] = "",
    valid: Annotated[str, typer.Option(help="Validation text; default: a tenth of the training text.")] = "",
    out: Annotated[Path, typer.Option(help="The folder of the ids.", show_default=False)] = ...,  # type: ignore[assignment]
    column: Annotated[
        str, typer.Option(help="The column of Parquet files or data sets, or the key of JSON lines.")
    ] = "",
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the recipe.")
    ] = None,
    processes: Annotated[int, typer.Option(min=1, max=1024, help="Processes that make ids.")] = 1,
    shard_tokens: Annotated[int, typer.Option(min=1, help="Ids of a shard, and those to the end of a piece.")] = 1
    << 28,
    check: Annotated[bool, typer.Option("--check", help="Read all shards in --out and compare checksums.")] = False,
) -> None:
    """Make ids of a text of any size once."""
    if check:
        from ensue.data.corpus.prepared import Prepared

        say(f"{out}: {Prepared(out).verify():,} shards, all as they were written")
        return
    if recipe is None:
        raise EnsueError("which recipe? `ensue recipes` lists them; only --check needs none")
    chosen = recipe_of(recipe, settings or [], train=train, valid=valid)
    with importing_torch():
        from ensue.tasks.texts.corpus import prepare_corpus

    prepare_corpus(chosen, out, column=column, processes=processes, shard_tokens=shard_tokens, say=say)
    say(f"{out} is complete; try\n  ensue train {quoted(recipe)} --train {quoted(out)} --out run")
