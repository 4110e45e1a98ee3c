"""The commands that train or prepare training: quickstart, train, recipes, prepare, cache, machine."""

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer
from typer import Argument, Option

from ensue.cli import options as cli
from ensue.console.output import pause_garbage_collection
from ensue.data.files import as_location
from ensue.errors import EnsueError, RecipeError, pluralize
from ensue.outputs import Access
from ensue.processor import keep_freed_memory
from ensue.tasks import task_entry

if TYPE_CHECKING:
    from ensue.recipe import Recipe
    from ensue.runs.reporter import Outcome


def quickstart(
    text: Annotated[
        Path | None, Argument(help="A text file; default: English text that comes with Python."), Access.DATA
    ] = None,
    out: Annotated[
        Path | None, Option(help="The run directory; default: quickstart, quickstart-2, ..."), Access.OUT_FOLDER
    ] = None,
    seconds: Annotated[float, Option(min=1, help="The budget in seconds, from reading the text to the card.")] = 40,
    encoding: Annotated[str, Option(help="The encoding of the text.")] = "utf-8",
    threads: cli.ThreadsOption = None,
) -> None:
    """Train a small language model in about a minute. Samples and commands to try next are shown."""
    from ensue.quickstart import default_run, python_text
    from ensue.recipe import read_recipe

    if text is None:
        text, origin = python_text()
        cli.notify(f"training on English text that comes with Python: {origin}")
    source = str(text)
    settings = [f"train.seconds={seconds}", "train.validations=4", f"data.encoding={encoding}"]
    recipe = read_recipe("char-lstm", settings, train=[source])
    run = out or default_run()
    if run.exists():
        raise EnsueError(f"{run}: exists; choose another --out")
    outcome = train_recipe(recipe, run, resume=False, overwrite=False, device="auto", threads=threads)
    exit_if_interrupted(outcome, run)
    from ensue.library import load

    for number, sample in enumerate(load(run).samples("", 2, max_tokens=300, temperature=0.8, seed=0), start=1):
        print(f"\n--- sample {number}\n{sample}")
    option = "" if encoding == "utf-8" else f" --encoding {encoding}"
    curve = f"The learning curve is {run / 'curve.png'}, the" if (run / "curve.png").exists() else "The"
    cli.notify(
        f"\n{curve} model card {run / 'README.md'}. Try next:\n"
        f'  ensue generate {cli.quote_path(run)} --prompt "The " --temperature 0.7\n'
        f"  ensue score {cli.quote_path(run)} {cli.quote_path(source)}\n"
        f"  ensue train char-lstm --train {cli.quote_path(source)}{option} --out longer"
    )


def train(
    recipe: Annotated[str | None, Access.RECIPE, Argument(
        help="A recipe's name or a TOML file; for a path of data, or auto, the recipe is chosen by the data."
    )] = None,
    train: cli.TrainOption = None, valid: cli.ValidOption = None, test: cli.TestOption = None,
    out: Annotated[Path | None, Option(help="The run directory; required."), Access.OUT_FOLDER] = None,
    settings: cli.SettingsOption = None,
    from_run: Annotated[Path | None, Access.RUN, Option(
        "--from", help="Begin from all weights of this run; new words, subwords and labels are added."
    )] = None,
    minutes: Annotated[
        float | None, Option(min=0.01, help="Budget in minutes, from reading to the card: train.seconds.")
    ] = None,
    resume: Annotated[bool, Option("--resume", help="Continue the run in --out.")] = False,
    overwrite: Annotated[bool, Option("--overwrite", help="Replace the run in --out.")] = False,
    track: Annotated[list[str] | None, Option(
        metavar="TRACKER", help="Also write the reports as csv, tensorboard or wandb; may be repeated."
    )] = None,
    device: cli.DeviceOption = "auto", threads: cli.ThreadsOption = None,
    processes: Annotated[
        int | None, Option(min=1, max=1024, help="Processes on this machine that train together; default: 1.")
    ] = None,
    timeout: Annotated[
        float, Option(min=1, max=1e6, help="Seconds after which the run ends if a process does not answer.")
    ] = 600,
) -> None:  # fmt: skip
    """Train a model on your data. Example: ensue train char-lstm --train book.txt --out run"""
    from ensue.recipe import AUTO, propose

    settings = settings or []
    budget = [] if minutes is None else [f"train.seconds={60 * minutes:g}"]
    if resume and from_run is not None:
        raise EnsueError("--resume continues the run in --out and --from begins a new one; choose one")
    if recipe not in (None, AUTO) and (data := _find_data(recipe)):
        recipe, train = None, [data, *(train or [])]
    if recipe in (None, AUTO) and not (resume or from_run):
        recipe, needed, description = propose(as_location(train or []), [*settings, *budget])
        if out is None:
            raise EnsueError(f"{description}; --out RUN trains it")
        if "WORLD_SIZE" not in os.environ:  # otherwise, the launcher has printed it
            cli.notify(description)
        settings = [*needed, *settings]
    if out is None:
        raise EnsueError("Missing option '--out'.")
    if recipe is None and from_run is None and (settings or budget or train or valid or test):
        recipe = str(out / "recipe.toml")
    with join_processes(processes, timeout) as is_first:
        loaded = _read_recipe(recipe, from_run, settings, budget, train=train, valid=valid, test=test)
        options: Any = {"resume": resume, "overwrite": overwrite, "device": device, "threads": threads}
        outcome = train_recipe(loaded, out, track=track or (), **options)
    if is_first:
        exit_if_interrupted(outcome, out)
        files = ", ".join(name for name in ("curve.png", "README.md") if (out / name).exists())
        cli.notify(f"wrote {out}: {files}; try\n  {first_use(outcome.task, out)}")
    elif outcome.reason == "interrupted":
        raise typer.Exit(130)


def _read_recipe(
    recipe: str | None, from_run: Path | None, settings: list[str], budget: list[str], **paths: list[str] | None
) -> "Recipe | None":
    """Return the recipe, without the budget if a solver trains the model; None if a run is resumed by its recipe."""
    from ensue.recipe import read_recipe

    try:
        if from_run is None:
            return None if recipe is None else read_recipe(recipe, [*settings, *budget], **paths)
        with pause_garbage_collection():
            from ensue.runs.directory import continuing_recipe
        return continuing_recipe(from_run, recipe, [*settings, *budget], **paths)
    except RecipeError:
        loaded = _read_recipe(recipe, from_run, settings, [], **paths) if budget else None
        if loaded is None or not loaded.is_gradient_free:
            raise
    cli.notify("--minutes has no effect: the solver of this model needs no budget")
    return loaded


def _find_data(recipe: str) -> str:
    """Return the argument `recipe` if it is a path of data and not a recipe; else ""."""
    from ensue.parsing import MAX_TOML_CHARACTERS, parse_toml, read_bounded
    from ensue.recipe import recipe_names

    path = Path(recipe)
    if recipe in recipe_names() or path.suffix == ".toml" or not (path.suffix or path.exists()):
        return ""
    with suppress(OSError, ValueError):
        return "" if parse_toml(read_bounded(path, MAX_TOML_CHARACTERS)) else recipe
    return recipe


def first_use(task: str, run: Path) -> str:
    """Return the command that is printed as the next step after training."""
    entry = task_entry(task)
    command, pipeline = next(iter(entry.commands)), entry.pipeline_class
    has_file = pipeline.generates_files if command == "generate" else pipeline.reads_vectors
    file = (" --out FILE" if command == "generate" else " FILE") if has_file else ""
    return f"ensue {command} {cli.quote_path(run)}{file}"


def recipes(
    name: Annotated[str | None, Argument(help="Show this recipe with all its keys."), Access.RECIPE] = None,
) -> None:
    """List the recipes that come with ensue, or show one."""
    from ensue.recipe import read_recipe, recipe_names

    if name is not None:
        print(read_recipe(name).to_toml(), end="")
        return
    from ensue.console.tables import show_recipes

    readable = {}
    for recipe_name in recipe_names():
        try:
            readable[recipe_name] = read_recipe(recipe_name)
        except EnsueError as error:  # a recipe of another package may be invalid
            cli.notify(str(error))
    show_recipes(readable)


def train_recipe(recipe: "Recipe | None", out: Path, *, track: Sequence[str] = (), **options: Any) -> "Outcome":
    """Train by a recipe, or resume the run if the recipe is None, with reports to the terminal and to trackers."""
    with pause_garbage_collection():
        from ensue.console.reporter import ConsoleReporter
        from ensue.trackers import trackers_of
        from ensue.trackers.tracker import TrackedReporter
        from ensue.training.run import train_run

    trackers = trackers_of(track)
    with ConsoleReporter() as console:
        reporter = TrackedReporter(console, out, trackers)
        return train_run(recipe, out, reporter=reporter, on_start=keep_freed_memory, **options)


def exit_if_interrupted(outcome: "Outcome", run: Path) -> None:
    """Exit with status 130 and a message with the commands to resume, if the run was interrupted."""
    if outcome.reason == "interrupted":
        command = f"ensue train --resume --out {cli.quote_path(run)}"
        cli.notify(f"saved at step {outcome.step:,}; resume with\n  {command}")
        if steps := outcome.steps_with_decay:
            seconds = outcome.seconds * (steps / outcome.step - 1)
            cli.notify(
                f"or decay the learning rate to zero in about {seconds:,.0f} s of training with\n"
                f"  {command} --set train.steps={steps}"
            )
        raise typer.Exit(130)


@contextmanager
def join_processes(count: int | None, timeout: float) -> Iterator[bool]:
    """Join the process group of a run in a `with` block, and yield whether this process has rank 0.

    Without torchrun and with a `count` above 1, start `count` processes, wait for them, and exit with their status.
    """
    size = os.environ.get("WORLD_SIZE")
    if size is None and count is not None and count > 1:
        raise typer.Exit(_run_processes(count))
    if size is not None and count not in (None, int(size)):
        raise EnsueError(f"--processes {count}: torchrun has started {size}; leave the option out")
    if size in (None, "1"):
        yield True
        return
    with pause_garbage_collection():
        from ensue.training.processes import join_process_group
    with join_process_group(timeout=timeout) as group:
        yield group.is_first


def _run_processes(count: int) -> int:
    """Run this command in several processes, and return their exit status."""
    with pause_garbage_collection():
        from torch.distributed.elastic.multiprocessing.api import SignalException
        from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
        from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # the processes report their errors
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


def prepare(
    recipe: Annotated[
        str | None, Argument(help="A recipe with the tokenizer: its name or a TOML file."), Access.RECIPE
    ] = None,
    train: cli.TrainOption = None,
    valid: cli.ValidOption = None,
    out: Annotated[
        Path | None, Option(help="The folder of token ids; labeled data go to the cache."), Access.OUT_FOLDER
    ] = None,
    column: Annotated[str, Option(help="The column of Parquet files or data sets, or the key of JSON lines.")] = "",
    settings: cli.SettingsOption = None,
    processes: Annotated[int, Option(min=1, max=1024, help="Processes that tokenize text or read labeled data.")] = 1,
    shard_tokens: Annotated[int, Option(min=1, help="The minimum number of tokens per shard but the last.")] = 1 << 28,
    check: Annotated[bool, Option("--check", help="Read all shards in --out and compare checksums.")] = False,
) -> None:
    """Tokenize a text or read labeled data once for all trainings."""
    if check:
        if out is None:
            raise EnsueError("--check needs --out, the folder of the ids")
        from ensue.data.corpus.prepared import PreparedTokens

        cli.notify(f"{out}: {pluralize(PreparedTokens(out).verify(), 'shard')} with correct checksums")
        return
    if recipe is None:
        raise EnsueError("expected a recipe; `ensue recipes` lists them; only --check works without one")
    from ensue.recipe import read_recipe

    loaded = read_recipe(recipe, settings or [], train=train, valid=valid)
    with pause_garbage_collection():
        from ensue.tasks.contract.data_set import prepare_examples
        from ensue.tasks.texts.corpus import prepare_corpus

    if loaded.is_preparable:
        if out is not None or column:
            raise EnsueError("labeled data go to the cache (ENSUE_CACHE); leave out --out and --column (use data.*)")
        cli.notify(prepare_examples(loaded, processes=processes))
        return
    if out is None:
        raise EnsueError("--out names the folder of the ids")
    prepare_corpus(loaded, out, column=column, processes=processes, shard_tokens=shard_tokens, notify=cli.notify)
    command = f"ensue train {cli.quote_path(recipe)} --train {cli.quote_path(out)} --out run"
    cli.notify(f"{out} is complete; try\n  {command}")


def cache(
    older_than: Annotated[
        str | None, Option(help="Remove files that were not used for this long: 30d, 12h, 2w.")
    ] = None,
    clear: Annotated[bool, Option("--clear", help="Remove all files of the cache.")] = False,
) -> None:
    """Show or remove the files of the cache, such as token ids. Later runs compute removed files again."""
    from ensue.console.cache import clear_cache, show_cache

    if clear and older_than is not None:
        raise EnsueError("expected --older-than or --clear, not both")
    clear_cache(older_than) if clear or older_than is not None else show_cache()


def machine(
    renew: Annotated[bool, Option("--renew", help="Measure again.")] = False,
    as_json: Annotated[bool, Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Show which settings are fastest on this machine. The first training measures them for all later runs."""
    from ensue.console.tables import machine_json, show_machine
    from ensue.training.machine import machine_profile

    profile = machine_profile(cli.notify, renew=renew)
    print(machine_json(profile)) if as_json else show_machine(profile)
