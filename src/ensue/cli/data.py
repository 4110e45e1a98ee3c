"""The commands about data and the machine: data, prepare, cache, machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from ensue.cli import options as cli
from ensue.cli.training import recipe_of
from ensue.console.output import importing_torch
from ensue.data.files import one_location
from ensue.errors import EnsueError
from ensue.outputs import Access


def data(
    paths: Annotated[
        list[str], Argument(help="Data: files, folders or globs; or two files: train.en,train.de."), Access.DATA
    ],
    format: Annotated[str | None, Option(help="The format; default: by name and first lines.")] = None,
    words: Annotated[str, Option(help="The column or key of the words, or of the text.")] = "",
    labels: Annotated[str, Option(help="The column or key of the labels.")] = "",
    sources: Annotated[str, Option(help="Of pairs: the columns, keys or language of the source.")] = "",
    targets: Annotated[str, Option(help="Of pairs: those of the target.")] = "",
    against: Annotated[
        list[str] | None,
        Option(help="Of pairs: a test, to see what of it is also in the data; may be repeated."),
        Access.DATA,
    ] = None,
    encoding: cli.EncodingOption = "utf-8",
) -> None:
    """Show what a file is taken for, its labels, its first error. It also names the command that trains on the file."""
    from ensue.console.data_summary import show_data

    show_data(
        one_location(paths), format=format, words=words, labels=labels, sources=sources, targets=targets,
        against=one_location(against or []), encoding=encoding,
    )  # fmt: skip


def prepare(
    recipe: Annotated[
        str | None, Argument(help="A recipe's name or a TOML file; its tokenizer counts."), Access.RECIPE
    ] = None,
    train: cli.TrainOption = None,
    valid: cli.ValidOption = None,
    out: Annotated[
        Path | None, Option(help="The folder of the ids; labeled data are kept in the cache."), Access.OUT_FOLDER
    ] = None,
    column: Annotated[str, Option(help="The column of Parquet files or data sets, or the key of JSON lines.")] = "",
    settings: cli.SettingsOption = None,
    processes: Annotated[int, Option(min=1, max=1024, help="Processes that make ids or read labeled data.")] = 1,
    shard_tokens: Annotated[int, Option(min=1, help="Ids of a shard, and those to the end of a piece.")] = 1 << 28,
    check: Annotated[bool, Option("--check", help="Read all shards in --out and compare checksums.")] = False,
) -> None:
    """Make ids of a text once, or read labeled data. Later trainings begin with what is there."""
    if check:
        if out is None:
            raise EnsueError("--check needs --out, the folder of the ids")
        from ensue.data.corpus.prepared import Prepared

        cli.say(f"{out}: {Prepared(out).verify():,} shards, all as they were written")
        return
    if recipe is None:
        raise EnsueError("which recipe? `ensue recipes` lists them; only --check needs none")
    chosen = recipe_of(recipe, settings or [], train=train, valid=valid)
    with importing_torch():
        from ensue.tasks.contract.data_set import prepare_examples
        from ensue.tasks.texts.corpus import prepare_corpus

    if chosen.keeps_examples:
        if out is not None or column:
            raise EnsueError(
                "labeled data are kept in the cache (ENSUE_CACHE), and data.* names columns: no --out here"
            )
        cli.say(prepare_examples(chosen, processes=processes))
        return
    if out is None:
        raise EnsueError("--out names the folder of the ids")
    prepare_corpus(chosen, out, column=column, processes=processes, shard_tokens=shard_tokens, say=cli.say)
    cli.say(f"{out} is complete; try\n  ensue train {cli.quoted(recipe)} --train {cli.quoted(out)} --out run")


def cache(
    older_than: Annotated[
        str | None, Option(help="Remove files that were not used for this long: 30d, 12h, 2w.")
    ] = None,
    clear: Annotated[bool, Option("--clear", help="Remove all files of the cache.")] = False,
) -> None:
    """Show or remove the files of the cache. All of them can be made again: ids, tokenizers, compiled cells."""
    from ensue.console.cache import clear_cache, show_cache

    if clear and older_than is not None:
        raise EnsueError("cache takes --older-than or --clear, one of the two")
    clear_cache(older_than) if clear or older_than is not None else show_cache()


def machine(
    renew: Annotated[bool, Option("--renew", help="Measure again.")] = False,
    as_json: Annotated[bool, Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Show how this machine computes fastest. It is measured once, at the first training, and kept for all runs."""
    from ensue.console.tables import machine_json, show_machine
    from ensue.training.machine import machine_profile

    profile = machine_profile(cli.say, renew=renew)
    print(machine_json(profile)) if as_json else show_machine(profile)
