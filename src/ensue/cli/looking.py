"""The commands that need no model: data, gradients, cache."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ensue.cli.options import EncodingOption, OneThreadOption, say
from ensue.console.imports import importing_torch
from ensue.errors import EnsueError


def data(
    path: Annotated[
        str,
        typer.Argument(help="Data: a file, folder or glob; or two files: train.en,train.de.", show_default=False),
    ],
    format: Annotated[str | None, typer.Option(help="The format; default: by name and first lines.")] = None,
    words: Annotated[str, typer.Option(help="The column or key of the words, or of the text.")] = "",
    labels: Annotated[str, typer.Option(help="The column or key of the labels.")] = "",
    sources: Annotated[str, typer.Option(help="Of pairs: the columns, keys or language of the source.")] = "",
    targets: Annotated[str, typer.Option(help="Of pairs: those of the target.")] = "",
    against: Annotated[str, typer.Option(help="Of pairs: a test, to see what of it is also in the data.")] = "",
    encoding: EncodingOption = "utf-8",
) -> None:
    """Show what a file is taken for, its labels, its first error. It also names the command that trains on the file."""
    from ensue.console.data_summary import show_data

    show_data(
        path, format=format, words=words, labels=labels, sources=sources, targets=targets, against=against,
        encoding=encoding,
    )  # fmt: skip


def gradients(
    encoders: Annotated[
        list[str] | None,
        typer.Argument(help="Names of encoders; default: elman, lstm, gru, clockwork, mingru.", show_default=False),
    ] = None,
    positions: Annotated[
        int, typer.Option(min=1, max=100_000, help="Positions from the first symbol to the recall.")
    ] = 200,
    out: Annotated[Path, typer.Option(help="The picture to write: .png or .svg.")] = Path("gradients.png"),
    steps: Annotated[int, typer.Option(min=0, max=1_000_000, help="Training steps; 0: no training.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="The same seed draws the same picture.")] = 0,
    d_model: Annotated[int, typer.Option(min=1, max=10_000, help="Features of the state.")] = 64,
    threads: OneThreadOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout, with every norm.")] = False,
) -> None:
    """Measure how far gradients reach back in recurrent encoders. On a copy task, before and after training."""
    with importing_torch():
        from ensue.console.gradients import show_gradients

    show_gradients(
        encoders or [], out, positions=positions, steps=steps, seed=seed, d_model=d_model, threads=threads or 1,
        as_json=as_json,
    )  # fmt: skip
    say(f"wrote {out}")


def cache(
    older_than: Annotated[
        str | None,
        typer.Option(help="Remove files that were not used for this long: 30d, 12h, 2w.", show_default=False),
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Remove all files of the cache.")] = False,
) -> None:
    """Show or remove the files of the cache. All of them can be made again: ids, tokenizers, compiled cells."""
    from ensue.console.cache import clear_cache, show_cache

    if clear and older_than is not None:
        raise EnsueError("cache takes --older-than or --clear, one of the two")
    clear_cache(older_than) if clear or older_than is not None else show_cache()
