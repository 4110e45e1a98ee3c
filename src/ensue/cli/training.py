"""The commands that train: quickstart, train, recipes."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer
from typer import Argument, Option

from ensue.cli import options as cli
from ensue.console.output import importing_torch
from ensue.data.files import one_location
from ensue.errors import EnsueError
from ensue.outputs import Access
from ensue.processor import keep_freed_memory
from ensue.tasks import task_entry

if TYPE_CHECKING:
    from ensue.recipe import Recipe
    from ensue.runs.reporter import Outcome


def quickstart(
    text: Annotated[
        Path | None, Argument(help="A text file; default: English text that Python carries."), Access.DATA
    ] = None,
    out: Annotated[
        Path | None, Option(help="The run directory; default: quickstart, quickstart-2, ..."), Access.OUT_FOLDER
    ] = None,
    seconds: Annotated[float, Option(min=1, help="Seconds of training.")] = 40,
    threads: cli.ThreadsOption = None,
) -> None:
    """Train a small language model in about a minute. It shows what the model writes, and commands to try next."""
    from ensue.quickstart import default_run, python_text

    if text is None:
        text_of_python, origin = python_text()
        cli.say(f"training on English that Python carries: {origin}")
    source = str(text_of_python if text is None else text)
    recipe = recipe_of("char-lstm", [f"train.seconds={seconds}", "train.validations=4"], train=[source])
    run = out or default_run()
    if run.exists():
        raise EnsueError(f"{run}: is there already; choose another --out")
    outcome = train_recipe(recipe, run, resume=False, overwrite=False, device="auto", threads=threads)
    exit_if_interrupted(outcome, run)
    from ensue.library import load

    for number, sample in enumerate(load(run).samples("", 2, max_tokens=300, temperature=0.8, seed=0), start=1):
        print(f"\n--- sample {number}\n{sample}")
    curve = f"The learning curve is {run / 'curve.png'}, the" if (run / "curve.png").exists() else "The"
    cli.say(
        f"\n{curve} model card {run / 'README.md'}. Try next:\n"
        f'  ensue generate {cli.quoted(run)} --prompt "The " --temperature 0.7\n'
        f"  ensue score {cli.quoted(run)} {cli.quoted(source)}\n"
        f"  ensue train char-lstm --train {cli.quoted(source)} --out longer"
    )


def train(
    recipe: Annotated[
        str | None, Argument(help="A recipe's name or a TOML file; of data alone a recipe is proposed."), Access.RECIPE
    ] = None,
    train: cli.TrainOption = None,
    valid: cli.ValidOption = None,
    test: cli.TestOption = None,
    out: Annotated[Path | None, Option(help="The run directory; training needs it."), Access.OUT_FOLDER] = None,
    settings: cli.SettingsOption = None,
    resume: Annotated[bool, Option("--resume", help="Continue the run in --out.")] = False,
    overwrite: Annotated[bool, Option("--overwrite", help="Replace the run in --out.")] = False,
    track: Annotated[
        list[str] | None,
        Option(metavar="TRACKER", help="Keep the reports also as csv, tensorboard or wandb; may be repeated."),
    ] = None,
    device: cli.DeviceOption = "auto",
    threads: cli.ThreadsOption = None,
    processes: Annotated[
        int | None, Option(min=1, max=1024, help="Processes on this machine that train together; default: 1.")
    ] = None,
    timeout: Annotated[
        float, Option(min=1, max=1e6, help="Seconds after which a process that does not answer ends the run.")
    ] = 600,
) -> None:
    """Train a model on your data. Example: ensue train char-lstm --train book.txt --out run"""
    if not resume and (data := one_location(train or []) if recipe is None else _data_of(recipe)):
        raise EnsueError(_proposal(data, out, settings or [], {"--valid": valid or [], "--test": test or []}))
    if recipe is None and not resume:
        raise EnsueError("which recipe? `ensue recipes` lists them, `ensue train DATA` proposes one for your data")
    if out is None:
        raise EnsueError("Missing option '--out'.")
    if recipe is None:
        recipe = str(out / "recipe.toml") if settings or train or valid or test else None
    options = {"resume": resume, "overwrite": overwrite, "device": device, "threads": threads}
    with among_processes(processes, timeout) as speaks:
        chosen = None if recipe is None else recipe_of(recipe, settings or [], train=train, valid=valid, test=test)
        outcome = train_recipe(chosen, out, track=track or (), **options)
    if speaks:
        exit_if_interrupted(outcome, out)
        files = ", ".join(name for name in ("curve.png", "README.md") if (out / name).exists())
        cli.say(f"wrote {out}: {files}; try\n  {first_use(outcome.task, out)}")
    elif outcome.reason == "interrupted":
        raise typer.Exit(130)


def _data_of(recipe: str) -> str:
    """The argument, if it is a path of data in the place of a recipe; else ""."""
    from ensue.parsing import MAX_TOML, parse_toml, read_bounded
    from ensue.recipe import recipe_names

    path = Path(recipe)
    if recipe in recipe_names() or path.suffix == ".toml" or not path.exists():
        return ""
    try:
        parse_toml(read_bounded(path, MAX_TOML))
    except (OSError, ValueError):
        return recipe
    return ""


def _proposal(data: str, out: Path | None, settings: list[str], paths: dict[str, list[str]]) -> str:
    """The question for a recipe, with the command that answers it."""
    from ensue.console.data_summary import proposal

    more = [("--set", setting) for setting in settings] + [
        (option, path) for option, several in paths.items() for path in several
    ]
    return f"which recipe? {proposal(data, str(out or ''), [part for pair in more for part in pair])}"


def first_use(task: str, run: Path) -> str:
    """The command to try with a run of that task."""
    entry = task_entry(task)
    command = next(iter(entry.commands))
    pipeline = entry.pipeline_class
    if command == "generate":
        file = " --out FILE" if pipeline.generates_files else ""
    else:
        file = " FILE" if pipeline.reads_vectors else ""
    return f"ensue {command} {cli.quoted(run)}{file}"


def recipes(
    name: Annotated[str | None, Argument(help="Show this recipe with all its keys."), Access.RECIPE] = None,
) -> None:
    """List the recipes that come with ensue, or show one."""
    from ensue.recipe import read_recipe, recipe_names

    if name is not None:
        print(read_recipe(name).to_toml(), end="")
        return
    from ensue.console.tables import show_recipes

    known = {}
    for each in recipe_names():
        try:
            known[each] = read_recipe(each)
        except EnsueError as error:  # of another package
            cli.say(str(error))
    show_recipes(known)


def recipe_of(
    name: str, settings: list[str], *, train: cli.Places = None, valid: cli.Places = None, test: cli.Places = None
) -> Recipe:
    """The recipe of a name or a file, with these settings and paths."""
    from ensue.recipe import read_recipe

    return read_recipe(name, settings, train=train or "", valid=valid or "", test=test or "")


def train_recipe(recipe: Recipe | None, out: Path, *, track: Sequence[str] = (), **options: Any) -> Outcome:
    """Train a recipe, or go on with a run if it is None, and report to the terminal and the trackers."""
    with importing_torch():
        from ensue.console.reporter import ConsoleReporter
        from ensue.runs.hub import refuse_hub
        from ensue.trackers import trackers_of
        from ensue.trackers.tracker import TrackedReporter
        from ensue.training.run import train_run

    refuse_hub(out)
    trackers = trackers_of(track)
    with ConsoleReporter() as console:
        reporter = TrackedReporter(console, out, trackers)
        return train_run(recipe, out, reporter=reporter, begins=keep_freed_memory, **options)


def exit_if_interrupted(outcome: Outcome, run: Path) -> None:
    """End the command with status 130, and the command that goes on, if the run was interrupted."""
    if outcome.reason == "interrupted":
        cli.say(f"saved at step {outcome.step:,}; go on with\n  ensue train --resume --out {cli.quoted(run)}")
        raise typer.Exit(130)


@contextmanager
def among_processes(wanted: int | None, timeout: float) -> Iterator[bool]:
    """A `with` block that runs in each of the processes; it gives whether this one speaks for all.

    If `wanted` are to be started, this process starts them, waits, and ends with their status.
    """
    size = os.environ.get("WORLD_SIZE")
    if size is None and wanted is not None and wanted > 1:
        raise typer.Exit(_started(wanted))
    if size is not None and wanted not in (None, int(size)):
        raise EnsueError(f"--processes {wanted}: torchrun has started {size}; leave the option out")
    if size in (None, "1"):
        yield True
        return
    with importing_torch():
        from ensue.training.processes import joined
    with joined(timeout=timeout) as company:
        yield company.is_first


def _started(count: int) -> int:
    """The exit status of so many processes of this command."""
    with importing_torch():
        from torch.distributed.elastic.multiprocessing.api import SignalException
        from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
        from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # the processes speak for themselves
    config = LaunchConfig(
        min_nodes=1, max_nodes=1, nproc_per_node=count, run_id=uuid4().hex, rdzv_backend="c10d",
        rdzv_endpoint="localhost:0", max_restarts=0, monitor_interval=0.1,
    )  # fmt: skip
    try:
        elastic_launch(config, sys.executable)("-m", "ensue", *sys.argv[1:])
    except ChildFailedError as error:
        codes = {failure.exitcode for failure in error.failures.values()}
        return 130 if codes == {130} else 2 if 2 in codes else 1
    except SignalException:
        return 130
    return 0
