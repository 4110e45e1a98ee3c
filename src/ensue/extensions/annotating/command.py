"""The commands distill, begin, doubt and choose."""

from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from ensue.cli import options as cli
from ensue.cli.training import exit_if_interrupted, first_use, train_recipe
from ensue.console.output import pause_garbage_collection
from ensue.data.files import as_location
from ensue.errors import EnsueError, nearest, pluralize
from ensue.outputs import ROW_FORMATS, Access, check_outputs, row_format, row_lines, write_text
from ensue.processor import keep_freed_memory

if TYPE_CHECKING:
    from ensue.recipe import Recipe


def distill(
    teachers: Annotated[list[str], Argument(help="Run directories, or files of predictions."), Access.RUN],
    recipe: Annotated[str, Argument(help="The student's recipe: a name or a TOML file."), Access.RECIPE],
    out: Annotated[Path, Option(help="The student's run directory; the data go next to it."), Access.OUT_FOLDER],
    train: cli.TrainOption = None, pool: cli.PoolOption = None, valid: cli.ValidOption = None,
    test: cli.TestOption = None,
    gold: Annotated[
        float, Option(min=0, max=1, help="The weight of the gold labels; the teachers have the weight 1 - GOLD.")
    ] = 0.5,
    temperature: Annotated[float, Option(min=0.01, max=100, help="The divisor of the teachers' logits.")] = 1.0,
    settings: cli.SettingsOption = None,
    overwrite: Annotated[bool, Option("--overwrite", help="Replace the run in --out.")] = False,
    device: cli.DeviceOption = "auto", threads: cli.ThreadsOption = None,
) -> None:  # fmt: skip
    """Train a small model on the predictions of larger models. Resume with: ensue train --resume --out OUT"""
    from ensue.recipe import read_recipe

    student_recipe = read_recipe(recipe, settings or [], train=train, valid=valid, test=test)
    options = {"pool": as_location(pool or []), "gold": gold, "temperature": temperature}
    _train_student(teachers, student_recipe, out, options, overwrite=overwrite, device=device, threads=threads)


def begin(
    examples: Annotated[str, Argument(help="A few texts of each label, about eight: a file with labels."), Access.DATA],
    pool: Annotated[str, Argument(help="Texts without labels: a file, a folder or a glob."), Access.DATA],
    vectors: Annotated[Path, Option(help="A run with text embeddings."), Access.RUN],
    out: Annotated[Path, Option(help="The run directory; the data go next to it."), Access.OUT_FOLDER],
    recipe: Annotated[str, Option(help="The recipe of the classifier."), Access.RECIPE] = "classify-bag",
    count: Annotated[int, Option(min=1, max=1_000_000, help="The maximum number of texts drawn from the pool.")] = 3000,
    test: cli.TestOption = None, settings: cli.SettingsOption = None,
    overwrite: Annotated[bool, Option("--overwrite", help="Replace the run in --out.")] = False,
    device: cli.DeviceOption = "auto", threads: cli.ThreadsOption = None,
) -> None:  # fmt: skip
    """Train a classifier on few labeled and many unlabeled texts."""
    from ensue.recipe import read_recipe

    example_recipe = read_recipe(recipe, settings or [], train=[examples])
    with pause_garbage_collection():
        from ensue.extensions.annotating.beginning import propagate_labels
        from ensue.extensions.annotating.teachers import path_beside, write_lines
    path = path_beside(out, "begun")
    inputs = [*example_recipe.inputs, pool, test or [], vectors]
    check_outputs(inputs, files=[path], folders=[out], overwrite=overwrite, are_new=True)
    write_lines(path, propagate_labels(str(vectors), example_recipe, pool, count=count, device=device))
    student, options = read_recipe(recipe, settings or [], test=test), {"pool": str(path)}
    _train_student([str(path)], student, out, options, overwrite=overwrite, device=device, threads=threads)


def _train_student(
    teachers: Sequence[str], recipe: "Recipe", out: Path, options: Mapping[str, Any], *, overwrite: bool, device: str,
    threads: int | None,
) -> None:  # fmt: skip
    with pause_garbage_collection():
        import torch

        from ensue.console.reporter import ConsoleReporter
        from ensue.extensions.annotating.teachers import student_recipe
    torch.set_num_threads(threads or 1)
    with ConsoleReporter() as reporter:
        student = student_recipe(
            teachers, recipe, out, overwrite=overwrite, device=device, reporter=reporter, **options
        )
    if student is not None:
        outcome = train_recipe(student, out, resume=False, overwrite=overwrite, device=device, threads=threads)
        exit_if_interrupted(outcome, out)
    cli.notify(f"wrote {out}; try\n  {first_use(recipe.task, out)}")


def doubt(
    data: Annotated[list[str], Argument(help="Labeled sentences or texts: files, folders or globs."), Access.DATA],
    recipe: Annotated[
        str, Option(help="The recipe of the models; default: a quick one for the data."), Access.RECIPE
    ] = "",
    settings: cli.SettingsOption = None,
    folds: Annotated[int, Option(min=2, max=1000, help="The number of folds of the cross-validation.")] = 4,
    top: Annotated[int, Option(min=0, help="The number of doubts that are printed.")] = 20,
    out: Annotated[Path | None, Option(help="A file of all doubts: .csv, .jsonl or .tsv."), Access.OUT_FILE] = None,
    page: Annotated[
        Path | None, Option(help="A page on which doubts are accepted or rejected: .html."), Access.OUT_FILE
    ] = None,
    overwrite: cli.OverwriteOption = False,
    seed: Annotated[int, Option(min=0, max=2**32 - 1, help="The same seed finds the same doubts.")] = 0,
    device: cli.DeviceOption = "auto",
    threads: cli.ThreadsOption = None,
) -> None:
    """Rank labels that are likely wrong, by cross-validation."""
    format = "" if out is None else row_format(out)
    with pause_garbage_collection():
        from ensue.console.reporter import ConsoleReporter
        from ensue.console.tables import show_rows
        from ensue.extensions.annotating.doubts import doubt as find_doubts
    keep_freed_memory()
    with ConsoleReporter() as reporter:
        doubts = find_doubts(
            data, recipe=recipe, settings=settings or [], folds=folds, seed=seed, device=device, threads=threads,
            reporter=reporter,
        )  # fmt: skip
    show_rows(list(islice(doubts.rows(), top + 1)))
    cli.notify(f"doubts: {len(doubts.ranked):,} in {doubts.num_labels:,} {doubts.unit}")
    if out is not None:
        write_text(out, "".join(doubts.lines(format)))
        cli.notify(f"wrote {out}")
    if page is not None:
        write_text(page, doubts.page())
        cli.notify(f"wrote {page}; open it in a browser")


def choose(
    run: cli.RunArgument,
    pool: Annotated[list[str], Argument(help="Texts: files, folders or globs; labels are not read."), Access.DATA],
    count: Annotated[int, Option(min=1, max=1_000_000, help="The number of texts.")],
    format: Annotated[
        str | None,
        Option(help="jsonl, csv, tsv, label-studio, doccano or prodigy; default: by the suffix of --out, or jsonl."),
    ] = None,
    out: Annotated[Path | None, Option(help="The file to write; default: stdout."), Access.OUT_FILE] = None,
    overwrite: cli.OverwriteOption = False,
    without: Annotated[
        list[str] | None, Option(help="A file whose texts are left out, such as the training data."), Access.DATA
    ] = None,
    seed: Annotated[int, Option(min=0, max=2**32 - 1, help="The same seed chooses the same texts.")] = 0,
    columns: cli.Columns = None, encoding: cli.EncodingOption = None, device: cli.DeviceOption = "auto",
    threads: cli.OneThreadOption = None,
) -> None:  # fmt: skip
    """Choose the texts of a pool to label next (active learning).

    The chosen texts are uncertain and diverse.
    """
    from ensue.extensions.annotation_formats.writers import FORMATS, as_json_text, check_suffix, table_row

    suffix, formats = out.suffix.lower()[1:] if out else "", {*FORMATS, *ROW_FORMATS}
    format = format or {"": "jsonl", "json": "label-studio"}.get(suffix, suffix)
    if format not in formats:
        raise EnsueError(f'unknown format "{format}"{nearest(format, formats) or "; expected " + ", ".join(formats)}')
    check_suffix(out, "--format", format)
    pipeline = cli.load_for("choose", run, device, threads, columns=columns)
    options = pipeline.reading(as_location(pool), encoding)
    predictions = pipeline.choose(pool, count, without=without or [], seed=seed, **options)
    rows = (FORMATS.get(format, table_row)(text, pipeline.labels.names) for text in predictions)
    is_table = format not in FORMATS
    text = "".join(row_lines(format, rows) if is_table else as_json_text(rows, is_array=format == "label-studio"))
    if out is None:
        print(text, end="")
        return
    write_text(out, text)
    cli.notify(f"wrote {out}: {pluralize(len(predictions), 'text')}")
