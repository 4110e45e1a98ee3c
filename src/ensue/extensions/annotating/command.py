"""The commands for better labels: doubt, choose."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from ensue.cli import options as cli
from ensue.console.output import importing_torch
from ensue.errors import EnsueError, nearest
from ensue.outputs import Access, write_text
from ensue.processor import keep_freed_memory


def doubt(
    data: Annotated[list[str], Argument(help="Labeled sentences or texts: files, folders or globs."), Access.DATA],
    recipe: Annotated[
        str, Option(help="The recipe of the models; default: a quick one for the data."), Access.RECIPE
    ] = "",
    settings: cli.SettingsOption = None,
    folds: Annotated[int, Option(min=2, max=1000, help="Models, each of which reads all folds but one.")] = 4,
    top: Annotated[int, Option(min=0, help="So many doubts are shown.")] = 20,
    out: Annotated[Path | None, Option(help="A file of all doubts: .jsonl or .tsv."), Access.OUT_FILE] = None,
    page: Annotated[
        Path | None, Option(help="A page on which doubts are accepted or not: .html."), Access.OUT_FILE
    ] = None,
    overwrite: cli.OverwriteOption = False,
    seed: Annotated[int, Option(min=0, max=2**32 - 1, help="The same seed finds the same doubts.")] = 0,
    device: cli.DeviceOption = "auto",
    threads: cli.ThreadsOption = None,
) -> None:
    """Rank the labels of a file that are likely wrong. Models that have not seen them find them improbable."""
    if out is not None and out.suffix not in (".jsonl", ".tsv"):
        raise EnsueError(f"{out}: expected a name that ends in .jsonl or .tsv")
    with importing_torch():
        from ensue.console.reporter import ConsoleReporter
        from ensue.console.tables import show_doubts
        from ensue.extensions.annotating.doubts import doubt as doubted
    keep_freed_memory()
    with ConsoleReporter() as reporter:
        found = doubted(
            data, recipe=recipe, settings=settings or [], folds=folds, seed=seed, device=device, threads=threads,
            reporter=reporter,
        )  # fmt: skip
    show_doubts([row for row, _ in zip(found.rows(), range(top + 1), strict=False)])
    cli.say(f"{len(found.ranked):,} doubts in {found.num_labels:,} {found.unit}")
    if out is not None:
        write_text(out, "".join(found.json_lines() if out.suffix == ".jsonl" else found.table_lines()))
        cli.say(f"wrote {out}")
    if page is not None:
        write_text(page, found.page())
        cli.say(f"wrote {page}; open it in a browser")


def choose(
    run: cli.RunArgument,
    pool: Annotated[list[str], Argument(help="Texts: files, folders or globs; labels are not read."), Access.DATA],
    count: Annotated[int, Option(min=1, max=1_000_000, help="How many.")],
    format: Annotated[str, Option(help="jsonl, label-studio, doccano or prodigy.")] = "jsonl",
    out: Annotated[Path | None, Option(help="The file to write; default: stdout."), Access.OUT_FILE] = None,
    overwrite: cli.OverwriteOption = False,
    without: Annotated[
        list[str] | None, Option(help="A file whose texts are left out, such as the training data."), Access.DATA
    ] = None,
    seed: Annotated[int, Option(min=0, max=2**32 - 1, help="The same seed chooses the same texts.")] = 0,
    encoding: cli.EncodingOption = "utf-8",
    device: cli.DeviceOption = "auto",
    threads: cli.OneThreadOption = None,
) -> None:
    """Choose the texts of a pool that are worth a label next. The model is least sure of them, and they differ."""
    from ensue.extensions.annotating.tools import FORMATS

    if format not in FORMATS:
        raise EnsueError(f'unknown format "{format}"{nearest(format, FORMATS) or "; expected " + ", ".join(FORMATS)}')
    pipeline = cli.load_for("choose", run, device, threads)
    found = pipeline.choose(pool, count, without=without or [], seed=seed, encoding=encoding)
    text = FORMATS[format](found, pipeline.labels.names)
    if out is None:
        print(text, end="")
        return
    write_text(out, text)
    cli.say(f"wrote {out}: {len(found):,} texts")
