"""The commands that exchange models with other programs: import, export."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ensue.cli.options import OneThreadOption, OverwriteOption, RunArgument, load_for, say
from ensue.console.imports import importing_torch
from ensue.outputs import Access


def import_(
    path: Annotated[
        Path,
        typer.Argument(
            help="A published model: a directory of transformers or sentence-transformers, hf:NAME of one on the hub, "
            "or a file of vectors."
        ),
        Access.RUN,
    ],
    out: Annotated[Path, typer.Option(help="The run directory to make."), Access.OUT_FOLDER],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a run that is there.")] = False,
) -> None:
    """Make a run of a published model."""
    with importing_torch():
        from ensue.exchange.importing import import_run

    imported = import_run(path, out, overwrite=overwrite)
    for note in imported.notes:
        say(note)
    say(f"wrote {out}: a {imported.recipe.what} ({imported.recipe.describe()}) from {imported.what}")


def push(
    run: RunArgument,
    name: Annotated[str, typer.Argument(help="The repository of the hub, OWNER/NAME.")],
    license: Annotated[
        str, typer.Option(help="Its license, such as mit or cc-by-4.0; default: that of the card.")
    ] = "",
    language: Annotated[str, typer.Option(help="Its language, such as en.")] = "",
    private: Annotated[bool, typer.Option("--private", help="Only you may see a new repository.")] = False,
) -> None:
    """Upload a model, with its card, to the hub of Hugging Face."""
    from ensue.runs.hub import found_run

    run = found_run(run)  # before torch is imported, which takes seconds
    with importing_torch():
        from ensue.exchange.pushing import license_of
        from ensue.exchange.pushing import push as pushed
        from ensue.runs.directory import RunDirectory

    if not license and sys.stdin.isatty() and not license_of(run):
        license = typer.prompt("The license of this model, such as mit or cc-by-4.0", err=True)
    location = pushed(run, name, license=license, language=language, private=private)
    say(f"uploaded {location}; try\n  HF_HUB_OFFLINE=0 ensue {next(iter(RunDirectory(run).entry.commands))} {location}")


def export(
    run: RunArgument,
    format: Annotated[
        str,
        typer.Option(
            help="huggingface, sentence-transformers, onnx, c, web; word vectors: word2vec, word2vec-binary, fasttext."
        ),
    ],
    out: Annotated[Path, typer.Option(help="The directory or file to write."), Access.OUT_FOLDER],
    overwrite: OverwriteOption = False,
    int8: Annotated[bool, typer.Option("--int8", help="Of onnx: matrices in eight bits.")] = False,
    embed: Annotated[bool, typer.Option("--embed", help="Of c: the weights are inside of the C file.")] = False,
    precision: Annotated[str, typer.Option(help="Of c and web: matrices in f32, f16 or int8.")] = "f32",
    threads: OneThreadOption = None,
) -> None:
    """Write a model for other programs."""
    from ensue.runs.hub import found_run

    run = found_run(run)  # before torch is imported, which takes seconds
    with importing_torch():
        from ensue.exchange.exporting import FORMATS, export_run
        from ensue.runs.directory import RunDirectory
    is_plain = (int8, embed, precision) == (False, False, "f32")
    if "export" in RunDirectory(run).entry.commands and format not in FORMATS and is_plain:
        load_for("export", run, "cpu", threads).export(out, format, overwrite=overwrite)
    else:
        for note in export_run(run, out, format, int8=int8, embed=embed, precision=precision, overwrite=overwrite):
            say(note)
    say(f"wrote {out}")
