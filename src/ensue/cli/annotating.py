"""The commands for better labels: doubt, choose."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ensue.cli.options import (
    DeviceOption,
    EncodingOption,
    OneThreadOption,
    OverwriteOption,
    RunArgument,
    SettingsOption,
    ThreadsOption,
    load_for,
    say,
)
from ensue.console.output import importing_torch
from ensue.errors import EnsueError, nearest
from ensue.outputs import Access, write_text
from ensue.processor import keep_freed_memory


def doubt(
    data: Annotated[
        list[str], typer.Argument(help="Labeled sentences or texts: files, folders or globs."), Access.DATA
    ],
    recipe: Annotated[
        str, typer.Option(help="The recipe of the models; default: a quick one for the data."), Access.RECIPE
    ] = "",
    settings: SettingsOption = None,
    folds: Annotated[int, typer.Option(min=2, max=1000, help="Models, each of which reads all folds but one.")] = 4,
    top: Annotated[int, typer.Option(min=0, help="So many doubts are shown.")] = 20,
    out: Annotated[Path | None, typer.Option(help="A file of all doubts: .jsonl or .tsv."), Access.OUT_FILE] = None,
    page: Annotated[
        Path | None, typer.Option(help="A page on which doubts are accepted or not: .html."), Access.OUT_FILE
    ] = None,
    overwrite: OverwriteOption = False,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="The same seed finds the same doubts.")] = 0,
    device: DeviceOption = "auto",
    threads: ThreadsOption = None,
) -> None:
    """Rank the labels of a file that are likely wrong. Models that have not seen them find them improbable."""
    if out is not None and out.suffix not in (".jsonl", ".tsv"):
        raise EnsueError(f"{out}: expected a name that ends in .jsonl or .tsv")
    with importing_torch():
        from ensue.annotation.doubts import doubt as doubted
        from ensue.console.reporter import ConsoleReporter
        from ensue.console.tables import show_doubts
    keep_freed_memory()
    with ConsoleReporter() as reporter:
        found = doubted(
            data, recipe=recipe, settings=settings or [], folds=folds, seed=seed, device=device, threads=threads,
            reporter=reporter,
        )  # fmt: skip
    show_doubts([row for row, _ in zip(found.rows(), range(top + 1), strict=False)])
    say(f"{len(found.ranked):,} doubts in {found.num_labels:,} {found.unit}")
    if out is not None:
        write_text(out, "".join(found.json_lines() if out.suffix == ".jsonl" else found.table_lines()))
        say(f"wrote {out}")
    if page is not None:
        write_text(page, found.page())
        say(f"wrote {page}; open it in a browser")


def choose(
    run: RunArgument,
    pool: Annotated[
        list[str], typer.Argument(help="Texts: files, folders or globs; labels are not read."), Access.DATA
    ],
    count: Annotated[int, typer.Option(min=1, max=1_000_000, help="How many.")],
    format: Annotated[str, typer.Option(help="jsonl, label-studio, doccano or prodigy.")] = "jsonl",
    out: Annotated[Path | None, typer.Option(help="The file to write; default: stdout."), Access.OUT_FILE] = None,
    overwrite: OverwriteOption = False,
    without: Annotated[
        list[str] | None, typer.Option(help="A file whose texts are left out, such as the training data."), Access.DATA
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="The same seed chooses the same texts.")] = 0,
    encoding: EncodingOption = "utf-8",
    device: DeviceOption = "auto",
    threads: OneThreadOption = None,
) -> None:
    """Choose the texts of a pool that are worth a label next. The model is least sure of them, and they differ."""
    from ensue.annotation.tools import FORMATS

    if format not in FORMATS:
        raise EnsueError(f'unknown format "{format}"{nearest(format, FORMATS) or "; expected " + ", ".join(FORMATS)}')
    pipeline = load_for("choose", run, device, threads)
    found = pipeline.choose(pool, count, without=without or [], seed=seed, encoding=encoding)
    text = FORMATS[format](found, pipeline.labels.names)
    if out is None:
        print(text, end="")
        return
    write_text(out, text)
    say(f"wrote {out}: {len(found):,} texts")
