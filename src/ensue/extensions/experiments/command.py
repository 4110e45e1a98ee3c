"""The commands search and compare."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from ensue.cli import options as cli
from ensue.console.output import pause_garbage_collection
from ensue.outputs import Access
from ensue.processor import keep_freed_memory

MIN_TEXT_WIDTH = 14  # the minimum width in characters of a truncated text in a table
if TYPE_CHECKING:  # this import takes seconds, since it imports torch
    from ensue.extensions.experiments.comparison import Comparison


def search(
    recipe: Annotated[str, Argument(help="A recipe's name or a TOML file."), Access.RECIPE],
    space: Annotated[Path, Option(help="A TOML file with ranges and choices of keys."), Access.DATA],
    trials: Annotated[int, Option(min=1, max=1_000_000, help="The total number of trials.")],
    out: Annotated[Path, Option(help="The folder of the search; an existing search is resumed."), Access.OUT_FOLDER],
    train: cli.TrainOption = None, valid: cli.ValidOption = None, test: cli.TestOption = None,
    settings: cli.SettingsOption = None,
    seed: Annotated[int, Option(min=0, max=2**32 - 1, help="The seed of the search.")] = 0,
    prune: Annotated[bool, Option("--prune/--no-prune", help="Stop trials that are worse than the median.")] = True,
    device: cli.DeviceOption = "auto", threads: cli.ThreadsOption = None,
) -> None:  # fmt: skip
    """Search for the best values of a recipe by many runs."""
    from ensue.extensions.experiments.space import check_optuna, read_space
    from ensue.recipe import read_recipe

    check_optuna()
    base_recipe = read_recipe(recipe, settings or [], train=train, valid=valid, test=test)
    ranges = read_space(space, base_recipe)
    with pause_garbage_collection():
        from ensue.extensions.experiments.search import SearchReporter, trial_line
        from ensue.extensions.experiments.search import search as run_search
    keep_freed_memory()
    is_complete = run_search(
        base_recipe, ranges, out, trials=trials, seed=seed, prune=prune, reporter=SearchReporter(),
        on_trial=lambda result: cli.notify(trial_line(result)), device=device, threads=threads,
    )  # fmt: skip
    if not is_complete:
        cli.notify(f"saved; the same command resumes {cli.quote_path(out)}")
        raise typer.Exit(130)
    if (best := out / "best.toml").exists():
        command = f"ensue train {cli.quote_path(best)} --out best"
        cli.notify(f"wrote {out}: README.md, search.png, best.toml; try\n  {command}")


def compare(
    runs: Annotated[list[Path], Argument(help="Run directories of one task, or hf:NAME."), Access.RUN],
    test: Annotated[
        list[str] | None,
        Option(help="Data on which all runs are scored; default: the data that all recipes name; may be repeated."),
        Access.DATA,
    ] = None,
    format: cli.FormatOption = None,
    require: Annotated[
        list[str] | None,
        Option(
            metavar="BOUND",
            help='A bound on a score of the last run, "f1 >= 0.9" or "lost <= 0.5 %"; if it fails, the exit status is '
            "1; may be repeated.",
        ),
    ] = None,
    as_json: Annotated[bool, Option("--json", help="One JSON object on stdout.")] = False,
    columns: cli.Columns = None, encoding: cli.EncodingOption = None, device: cli.DeviceOption = "auto",
    threads: cli.OneThreadOption = None,
) -> None:  # fmt: skip
    """Compare runs of one task: scores and changed answers."""
    from ensue.runs.schema import existing_run

    for run in runs:
        existing_run(run)
    with pause_garbage_collection():
        import torch

        from ensue.extensions.experiments.comparison import compare as compare_runs
    torch.set_num_threads(threads or 1)
    comparison = compare_runs(
        runs, test=test or "", encoding=encoding, device=device, format=format or "", columns=columns,
        require=require or [],
    )  # fmt: skip
    for note in comparison.notes:
        cli.notify(f"note: {note}")
    if as_json:
        print(json.dumps(comparison.as_json()))
    elif sys.stdout.isatty():
        show_comparison(comparison)
    else:
        print("\n".join(comparison_lines(comparison)))
    failed = [bound for bound in comparison.bounds if not bound.holds]
    for bound in failed:
        cli.notify(f"--require {bound}")
    if failed:
        raise typer.Exit(1)


def comparison_lines(comparison: "Comparison") -> Iterator[str]:
    """Yield the tables of `ensue compare`, in Markdown."""
    for number, (title, rows) in enumerate(comparison.tables()):
        yield from [""] * (number > 0) + [title, ""] * bool(title)
        for row in (rows[0], ["---"] * len(rows[0]), *rows[1:]) if rows[1:] else ():
            cells = [_truncate(cell) if name == "text" else cell for name, cell in zip(rows[0], row, strict=True)]
            yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def show_comparison(comparison: "Comparison") -> None:
    """Print the tables on a terminal. The text of an answer is truncated; other cells are wrapped."""
    from rich.cells import cell_len
    from rich.console import Console
    from rich.text import Text

    from ensue.console.tables import table_of

    console = Console(highlight=False, markup=False)
    for number, (title, rows) in enumerate(comparison.tables()):
        console.print("\n" * (number > 0) + title.replace("`", ""), end="\n" * bool(title))
        cells = [[cell.strip("`") for cell in row] for row in rows]
        widths = [max(map(cell_len, column)) + 2 for column in zip(*cells, strict=True)]
        text_width = console.width - sum(widths[:-1]) - 2
        has_room = cells[0][-1] == "text" and text_width >= MIN_TEXT_WIDTH
        if sum(widths) > console.width and not has_room and cells[0][0] != "key":  # a paragraph for each row
            for row in cells[1:]:
                console.print(*(f"{name}: {cell}" for name, cell in zip(cells[0], row, strict=True)), sep="  ")
            continue
        table = table_of(*cells[0], overflow="ellipsis", no_wrap=has_room)
        for row in cells[1:]:
            table.add_row(*map(Text, row[:-1]), Text(_truncate(row[-1], text_width) if has_room else row[-1]))
        console.print(table)


def _truncate(text: str, max_characters: int = 80) -> str:
    line = " ".join(text.split())
    return line if len(line) <= max_characters else line[: max_characters - 1] + "…"
