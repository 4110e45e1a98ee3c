"""The commands for better labels: distill, begin, doubt, choose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from ensue.cli import options as cli
from ensue.cli.training import exit_if_interrupted, first_use, recipe_of, train_recipe
from ensue.console.output import importing_torch
from ensue.data.files import one_location
from ensue.errors import EnsueError, nearest
from ensue.outputs import Access, check_outputs, write_text
from ensue.processor import keep_freed_memory

if TYPE_CHECKING:
    from ensue.recipe import Recipe


def distill(
    teachers: Annotated[list[str], Argument(help="Runs of classifiers or taggers, or files of answers."), Access.RUN],
    recipe: Annotated[str, Argument(help="The student's recipe: a name or a TOML file."), Access.RECIPE],
    out: Annotated[Path, Option(help="The student's run directory; its data are beside it."), Access.OUT_FOLDER],
    train: cli.TrainOption = None,
    pool: cli.PoolOption = None,
    valid: cli.ValidOption = None,
    test: cli.TestOption = None,
    gold: Annotated[
        float, Option(min=0, max=1, help="How much a text's own label counts; the teachers count the rest.")
    ] = 0.5,
    temperature: Annotated[float, Option(min=0.01, max=100, help="The teachers' logits are divided by it.")] = 1.0,
    settings: cli.SettingsOption = None,
    overwrite: Annotated[bool, Option("--overwrite", help="Replace the run in --out.")] = False,
    device: cli.DeviceOption = "auto",
    threads: cli.ThreadsOption = None,
) -> None:
    """Train a small model on what larger ones say. Go on with: ensue train --resume --out OUT"""
    chosen = recipe_of(recipe, settings or [], train=train, valid=valid, test=test)
    lessons = {"pool": one_location(pool or []), "gold": gold, "temperature": temperature}
    _learn(teachers, chosen, out, lessons, overwrite=overwrite, device=device, threads=threads)


def begin(
    examples: Annotated[str, Argument(help="A few texts of each label, about eight: a file with labels."), Access.DATA],
    pool: Annotated[str, Argument(help="Texts without labels: a file, a folder or a glob."), Access.DATA],
    vectors: Annotated[Path, Option(help="A run that gives vectors of texts."), Access.RUN],
    out: Annotated[Path, Option(help="The run directory; its data are beside it."), Access.OUT_FOLDER],
    recipe: Annotated[str, Option(help="The recipe of the classifier."), Access.RECIPE] = "classify-bag",
    count: Annotated[int, Option(min=1, max=1_000_000, help="The texts of the pool that are read.")] = 3000,
    test: cli.TestOption = None,
    settings: cli.SettingsOption = None,
    overwrite: Annotated[bool, Option("--overwrite", help="Replace the run in --out.")] = False,
    device: cli.DeviceOption = "auto",
    threads: cli.ThreadsOption = None,
) -> None:
    """Make a classifier of a few examples and many texts."""
    seen = recipe_of(recipe, settings or [], train=[examples])
    with importing_torch():
        from ensue.extensions.annotating.beginning import begun
        from ensue.extensions.annotating.teachers import beside, write_lines
    first = beside(out, "begun")
    inputs = [*seen.inputs, pool, test or [], vectors]
    check_outputs(inputs, files=[first], folders=[out], overwrite=overwrite, are_new=True)
    write_lines(first, begun(str(vectors), seen, pool, count=count, device=device))
    student = recipe_of(recipe, settings or [], test=test)
    _learn([str(first)], student, out, {"pool": str(first)}, overwrite=overwrite, device=device, threads=threads)


def _learn(
    teachers: Sequence[str], recipe: Recipe, out: Path, lessons: Mapping[str, Any], *, overwrite: bool, device: str,
    threads: int | None,
) -> None:  # fmt: skip
    """Makes or trains a student."""
    with importing_torch():
        import torch

        from ensue.console.reporter import ConsoleReporter
        from ensue.extensions.annotating.teachers import student_of
    torch.set_num_threads(threads or 1)
    with ConsoleReporter() as reporter:
        student = student_of(teachers, recipe, out, overwrite=overwrite, device=device, reporter=reporter, **lessons)
    if student is not None:
        outcome = train_recipe(student, out, resume=False, overwrite=overwrite, device=device, threads=threads)
        exit_if_interrupted(outcome, out)
    cli.say(f"wrote {out}; try\n  {first_use(recipe.task, out)}")


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
        from ensue.extensions.annotating.doubts import doubt as doubted
    keep_freed_memory()
    with ConsoleReporter() as reporter:
        found = doubted(
            data, recipe=recipe, settings=settings or [], folds=folds, seed=seed, device=device, threads=threads,
            reporter=reporter,
        )  # fmt: skip
    _show_doubts([row for row, _ in zip(found.rows(), range(top + 1), strict=False)])
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


def _show_doubts(rows: Sequence[Sequence[str]]) -> None:
    """Print the first doubts of labels; the first row has the names of the columns."""
    from rich.console import Console
    from rich.text import Text

    from ensue.console.tables import table_of

    table = table_of(*rows[0], no_wrap=True, overflow="ellipsis")
    for row in rows[1:]:
        table.add_row(*map(Text, row))
    Console(highlight=False).print(table)
