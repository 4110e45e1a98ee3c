"""A training run, from the recipe to the model card. Errors of the user are raised before the run directory changes."""

import hashlib
import json
import re
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import nn

from ensue.errors import EnsueError, RecipeError, RunError
from ensue.models.modules import count_parameters
from ensue.outputs import check_outputs
from ensue.ranks import NUM_SHARDS, ProcessGroup, process_group, use_process_group
from ensue.recipe import BUDGETS, Recipe, resumed_recipe
from ensue.recipe.tables import TuningRecipe
from ensue.runs.checkpoint import complete_checkpoints
from ensue.runs.directory import RunDirectory, copy_origins
from ensue.runs.pictures import draw_curve, make_optional
from ensue.runs.reporter import Facts, Outcome, Reporter, write_card
from ensue.runs.weights import bytes_of, convert_disk_errors, in_float32
from ensue.tasks import task_entry
from ensue.tasks.contract.data_set import fingerprints_of, notes_on_shared_files
from ensue.tasks.contract.job import Job
from ensue.training.device import use_mode
from ensue.training.gradients import Gradients
from ensue.training.imported import check_output_directory
from ensue.training.loop import TimePlan, Trainer
from ensue.training.optimizer import Tuning
from ensue.training.processes import DEFAULT_TIMEOUT_SECONDS, DistributedGroup, join_process_group
from ensue.training.runtime import Runtime, choose_runtime
from ensue.types import leaves
from ensue.version import VERSION

CHANGEABLE = {*(f"train.{name}" for name in BUDGETS), "train.checkpoint_every", "train.patience", "train.sharded",
              "data.train"}  # fmt: skip
"""The recipe keys that may change when a run is resumed. The data must have the same fingerprints. `data.valid` and
`data.test` may change, too, if the run has recorded their fingerprints.
"""
DRAWS_VERSION = 2
"""The version of the random numbers of rows (`nn/draws.py`) in `config.json`; version 1 is not recorded."""


def train_run(
    recipe: Recipe | None, out: str | Path, *, resume: bool = False, overwrite: bool = False, device: str = "auto",
    threads: int | None = None, reporter: Reporter | None = None, timeout: float = DEFAULT_TIMEOUT_SECONDS,
    on_start: Callable[[], object] = lambda: None,
) -> Outcome:  # fmt: skip
    """Train a recipe and write the run to a directory, or resume the run in this directory.

    After Ctrl-C or SIGTERM, the current step ends and a checkpoint is saved. If torchrun has started several processes,
    they train one model together.

    Args (other arguments are those of `ensue.train`):
        recipe: The recipe; None resumes a run with its saved recipe.
        timeout: The seconds without an answer from a rank after which the run ends.
        on_start: A function that each process calls before its first step.

    Raises:
        EnsueError: An argument, the recipe or the data are invalid, or training cannot continue.
    """
    started = time.perf_counter()
    with in_float32(), join_process_group(timeout=timeout):
        run = RunDirectory(out, is_output=True)
        is_first = process_group().is_first
        reporter = reporter if is_first and reporter is not None else Reporter()
        fresh = not run.exists or overwrite
        recipe = _check_recipe(run, recipe, resume=resume, overwrite=overwrite)
        group = process_group().with_exact_sums(exact=recipe.train.deterministic)
        with use_process_group(group):
            job = group.first_locally(lambda: begin_job(recipe, None if fresh else run))
            if not fresh:
                _check_data(run, recipe, job)
            model = _build_model(job)
            check_ranks(group, recipe, run, job, model)
            tuning = Tuning(model, recipe.tuning, job.inherited)  # raises RecipeError before anything is written
            saved_runtime, size = None if fresh else run.config["runtime"], getattr(model, "vocabulary_size", 0)
            runtime = choose_runtime(recipe, size, saved_runtime, device=device, threads=threads, notify=reporter.noted)
            if job.contextual is not None:
                group.first_locally(lambda: job.contextual.precompute(torch.device(runtime.device), reporter.working))
            with (
                run.lock() if is_first else nullcontext(),
                convert_disk_errors(run.path, lambda: _disk_full(run)),
                use_mode(runtime, runtime.device),
                _catch_interrupts() as interrupted,
            ):
                if fresh and is_first:
                    _create_run(run, recipe, job, runtime, overwrite=overwrite)
                elif is_first and "draws" not in run.config:
                    reporter.noted("the random numbers of this version differ from the version that began this run")
                group.broadcast("run directory created")
                gradients = _create_gradients(job, model, runtime)
                if gradients.skeleton is not model:  # the parameters are new DTensors
                    tuning = Tuning(model, recipe.tuning, job.inherited)
                plan = None if recipe.train.seconds is None else TimePlan(job, started)
                trainer = Trainer(
                    model, job.task, recipe.train, run, precision=runtime.precision, reporter=reporter,
                    interrupted=interrupted, tuning=tuning, gradients=gradients, plan=plan,
                )  # fmt: skip
                resumed = trainer.resume()
                if is_first and not fresh and recipe != run.recipe:  # written only if the checkpoint is intact
                    run.write({"recipe.toml": recipe.to_toml()})
                facts = Facts(
                    data=job.data, unit=job.unit, num_parameters=count_parameters(model), model=job.recipe.describe(),
                    device=runtime.device, threads=runtime.threads, precision=runtime.precision,
                    protocol=job.protocol(model), notes=(*notes_on_shared_files(job.recipe.data), *job.notes),
                    resumed_from=f"step {trainer.progress.step}" if resumed else "",
                )  # fmt: skip
                reporter.started(facts)
                on_start()
                reason = trainer.train()
                with use_process_group(ProcessGroup()):  # only rank 0 computes the outcome
                    outcome = _finish(run, job, trainer, reason, reporter) if is_first else None
                values = group.broadcast(None if outcome is None else vars(outcome) | {"run": str(run.path)})
                return Outcome(**values | {"run": run.path})


def _create_run(run: RunDirectory, recipe: Recipe, job: Job[Any], runtime: Runtime, *, overwrite: bool) -> None:
    if run.exists and not overwrite:
        raise RunError(f"{run.path}: another process has created this run in the meantime")
    run.clear()
    origins = copy_origins(run, job.origins)
    digests = fingerprints_of(job)
    config = {
        **job.config(), "text": digests.pop("train"), "held_out": digests, "draws": DRAWS_VERSION, "origins": origins,
        "runtime": runtime.model_dump(),
    }  # fmt: skip
    run.create(recipe, files=job.parts.files(), config=config)


def begin_job(recipe: Recipe, run: RunDirectory | None) -> Job[Any]:
    """Return the job of a recipe, with its data; `run` is the directory of a resumed run, or None."""
    if recipe.tuning.rehearse and not recipe.rehearses:
        raise RecipeError(f"tuning.rehearse of a {recipe.what} needs --from RUN, the run with the training data")
    return task_entry(recipe.task).job_class(recipe, run)


def _disk_full(run: RunDirectory) -> str:
    return f"{run.path}: the disk is full; free some space and {'repeat with --resume' if run.exists else 'try again'}"


def _check_recipe(run: RunDirectory, recipe: Recipe | None, *, resume: bool, overwrite: bool) -> Recipe:
    if not re.fullmatch("[^\ud800-\udfff]*", str(run.path)):  # safetensors could not write the weights
        raise RunError(f"{run.path}: a name that is not UTF-8; choose another --out")
    if resume and overwrite:
        raise RunError("--resume continues a run and --overwrite removes it; choose one")
    if recipe is not None and not resume:
        check_outputs(recipe.inputs, folders=[run.path])
    check_output_directory(run.path, overwrite=True)
    if run.exists and not overwrite:
        if not resume:
            raise RunError(f"{run.path}: there is a run already; --resume continues it, --overwrite removes it")
        assert run.config  # raises RunError if config.json is damaged or of another version
        return run.recipe if recipe is None else _resume_recipe(run, recipe)
    if recipe is None:
        raise RunError(f"{run.path}: no run to continue")
    return recipe


def _resume_recipe(run: RunDirectory, recipe: Recipe) -> Recipe:
    """Return the recipe of a resumed run. Raises RecipeError for a changed value of a key that may not change."""
    recipe = resumed_recipe(recipe, run.recipe)
    saved, requested = run.recipe.values(), recipe.values()
    changeable = CHANGEABLE | {"about", "source", "measured"}
    changeable |= {f"data.{name}" for name in run.config.get("held_out", {}) if requested.get(f"data.{name}")}
    for key in sorted((saved.keys() | requested.keys()) - changeable):
        if (old := saved.get(key)) != (new := requested.get(key)):
            raise RecipeError(f"{run.path}: cannot continue with another {key}: the run has {old!r}, found {new!r}")
    return recipe


def _check_data(run: RunDirectory, recipe: Recipe, job: Job[Any]) -> None:
    """Raise RunError if the content of a data file has changed since the run began."""
    digests = fingerprints_of(job)
    for key, recorded in {"train": run.config["text"], **run.config.get("held_out", {})}.items():
        path, digest = getattr(recipe.data, key), digests.get(key, "")
        if recorded not in (digest, digest.partition("+")[0]):  # version 0.1.0 recorded no digest of labels after "+"
            problem = "has changed since" if path == getattr(run.recipe.data, key) else "is not the data with which"
            advice = f"choose another --out; --from {run.path} begins a new run with the weights of this run"
            raise RunError(f"{run.path}: {path} {problem} this run began; {advice}")


def _build_model(job: Job[Any]) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(job.recipe.train.seed)
        try:
            model: nn.Module = job.build_model()
        except ValueError as error:  # inconsistent sizes
            raise RecipeError(f"model: {error}") from None
        except (RuntimeError, MemoryError):  # torch raises RuntimeError if a tensor does not fit into memory
            raise RecipeError("model: too large for this machine's memory; try a smaller encoder.d_model") from None
    return model


def _create_gradients(job: Job[Any], model: nn.Module, runtime: Runtime) -> Gradients:
    """Move the model to its device, shard it if `train.sharded` is true, and return its gradients."""
    train, group, device = job.recipe.train, process_group(), torch.device(runtime.device)
    if not train.sharded or group.size == 1:
        model.to(device)
        return Gradients(model, job.task, seed=train.seed, precision=runtime.precision, group=group)
    from ensue.training.sharding import ShardedGradients  # noqa: PLC0415 (a slow import)

    assert isinstance(group, DistributedGroup)
    return ShardedGradients(model, job.task, seed=train.seed, precision=runtime.precision, group=group, device=device)


def _finish(run: RunDirectory, job: Job[Any], trainer: Trainer, reason: str, reporter: Reporter) -> Outcome:
    finished = reason != "interrupted"
    best = next(iter(deque((r for r in trainer.log.records() if r["kind"] == "valid" and r["best"]), maxlen=1)), None)
    test = None
    if finished:
        model = run.model(trainer.device)
        job.finish(run, model)
        test = job.test(model)
    if test is not None:
        trainer.log.append("test", step=trainer.progress.best_step, scores=test.as_json(), summary=test.summary())
    outcome = Outcome(
        run=run.path, task=job.recipe.task, step=trainer.progress.step, seconds=trainer.progress.seconds,
        reason=reason, best_step=trainer.progress.best_step, valid=best["scores"] if best else None,
        test=test.as_json() if test else None, valid_summary=best["summary"] if best else "",
        test_summary=test.summary() if test else "",
        steps_with_decay=0 if finished else trainer.steps_with_decay(),
    )  # fmt: skip
    _illustrate(run, job, trainer, outcome, sample=best["sample"] if best else "")
    reporter.finished(outcome)
    return outcome


def _illustrate(run: RunDirectory, job: Job[Any], trainer: Trainer, outcome: Outcome, *, sample: str) -> None:
    """Write the pictures and the card, after all other files, since the run is complete without them."""
    curve, card, reporter = run.path / "curve.png", run.path / "README.md", trainer.reporter
    make_optional(
        curve, lambda: draw_curve(trainer.log.records(), curve, title=run.path.name, score=job.task.judged_by), reporter
    )
    if outcome.reason == "interrupted":
        return
    for name, draw in job.pictures().items():
        make_optional(run.path / name, partial(draw, run.path / name), reporter)
    size = count_parameters(trainer.model)
    planned = [] if trainer.plan is None else trainer.plan.lines
    facts: dict[str, Any] = {"num_parameters": size, "sample": sample, "planned": planned}
    make_optional(card, lambda: write_card(run, job, outcome, **facts), reporter)


@contextmanager
def _catch_interrupts() -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether SIGINT or SIGTERM was received. A second signal ends the program."""
    received = threading.Event()
    if threading.current_thread() is not threading.main_thread():  # Python handles signals in the main thread only
        yield received.is_set
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def handle(number: int, frame: FrameType | None) -> None:
        received.set()
        install(before)

    def install(handlers: dict[signal.Signals, Any]) -> None:
        for number, handler in handlers.items():
            signal.signal(number, handler)

    install(dict.fromkeys(before, handle))
    try:
        yield received.is_set
    finally:
        install(before)


def check_ranks(group: ProcessGroup, recipe: Recipe, run: RunDirectory, job: Job[Any], model: nn.Module) -> None:
    """Raise EnsueError if ranks differ in recipe, versions, data or weights, or if the recipe does not support them."""
    if recipe.is_gradient_free and recipe.train.deterministic:
        raise RecipeError(f"train.deterministic: a {recipe.what} is trained by one process and is always deterministic")
    if recipe.train.sharded and recipe.is_gradient_free:
        raise RecipeError(f"train.sharded: a {recipe.what} is trained by one process")
    for name in ("freeze", "unfreeze", "new_first") if recipe.train.sharded else ():
        if getattr(recipe.tuning, name) != getattr(TuningRecipe(), name):
            raise RecipeError(f"train.sharded does not support tuning.{name}; it trains all parameters in every step")
    if group.size == 1:
        return
    if recipe.is_gradient_free:
        raise EnsueError(f"a {recipe.what} is trained by one process, found {group.size}; leave out --processes")
    if group.exact and NUM_SHARDS % group.size:
        raise EnsueError(f"train.deterministic needs 1, 2, 4 or {NUM_SHARDS} processes, found {group.size}")
    rows, source = recipe.train.batch_size, "train.batch_size"
    if (carried := next(leaves(job.task.initial_state(model)), None)) is not None and len(carried) < rows:
        rows, source = len(carried), "limited by the length of the text"
    if group.size > rows:
        raise EnsueError(f"{group.size} processes need at least as many rows in a batch; found {rows} ({source})")
    by_rank = group.all_gather(_collect_rank_values(recipe, run, job, model))
    for rank, values in enumerate(by_rank):
        for name in {**by_rank[0], **values}:
            if (actual := values.get(name, "none")) != (expected := by_rank[0].get(name, "none")):
                problem = f"process {rank} differs in {name}: {_shorten(actual)}"
                raise EnsueError(f"{problem}, process 0 has {_shorten(expected)}")


def _collect_rank_values(recipe: Recipe, run: RunDirectory, job: Job[Any], model: nn.Module) -> dict[str, Any]:
    """Return the values that must be equal on all ranks, by their names in messages; digests of data and weights."""
    checkpoints, digests = complete_checkpoints(run.checkpoints), fingerprints_of(job)
    files = json.dumps(job.parts.files(), sort_keys=True, default=str)
    return {
        **{f"recipe: {key}": value for key, value in recipe.values().items()}, "ensue": VERSION,
        "torch": torch.__version__, "the run directory": str(run.path.absolute()),
        "the newest checkpoint": checkpoints[-1].name if checkpoints else "none",
        "the training data": digests.get("train", ""), "the validation data": digests.get("valid", ""),
        "the test data": digests.get("test", ""), "the teacher's answers": digests.get("teacher", ""),
        "vocabularies and labels": hashlib.sha256(files.encode()).hexdigest(), "the initial weights": _digest(model),
    }  # fmt: skip


def _shorten(value: Any) -> str:
    text = str(value)
    return text if len(text) < 64 or " " in text else f"{text[:12]}..."


def _digest(model: nn.Module) -> str:
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(bytes_of(parameter))
    return digest.hexdigest()
