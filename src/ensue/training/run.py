"""A run from recipe to card. Every mistake of the user is found before the run directory is changed."""

from __future__ import annotations

import hashlib
import json
import re
import signal
import threading
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
from ensue.parsing import asked
from ensue.ranks import SHARDS, Ranks, ranks, together
from ensue.recipe import BUDGETS, Recipe, going_on
from ensue.recipe.tables import TuningRecipe
from ensue.runs.checkpoint import complete_checkpoints
from ensue.runs.directory import RunDirectory
from ensue.runs.hub import refuse_hub
from ensue.runs.origin import copy_origins
from ensue.runs.pictures import draw_curve, made
from ensue.runs.reporter import Facts, Outcome, Reporter, write_card
from ensue.runs.weights import bytes_of, disk_errors_told
from ensue.tasks import task_entry
from ensue.tasks.contract.data_set import fingerprints_of, shared_files
from ensue.tasks.contract.job import Job
from ensue.training.device import computing
from ensue.training.gradients import Gradients
from ensue.training.loop import Trainer
from ensue.training.optimizer import Tuning
from ensue.training.processes import TIMEOUT, Processes, joined
from ensue.training.runtime import Runtime, choose_runtime
from ensue.types import leaves
from ensue.version import VERSION

CHANGEABLE = {*(f"train.{name}" for name in BUDGETS), "train.checkpoint_every", "train.patience", "train.sharded",
              "data.train"}  # fmt: skip
"""The keys that may differ from the run's own recipe when it is resumed; of the data the fingerprint has to agree. So
may `data.valid` and `data.test`, if the run has their fingerprints.
"""
DRAWS = 2
"""How random numbers of rows are drawn (`nn/draws.py`); a run that does not say it was begun with others."""


def train_run(
    recipe: Recipe | None,
    out: str | Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    device: str = "auto",
    threads: int | None = None,
    reporter: Reporter | None = None,
    timeout: float = TIMEOUT,
    begins: Callable[[], object] = lambda: None,
) -> Outcome:
    """Trains `recipe` into the run directory `out`, or resumes the run there (`recipe` may then be None).

    Ctrl-C (or SIGTERM) ends the step, saves and returns. Raises an `EnsueError` for mistakes of the user. If torchrun
    has started several processes, they train together; one that does not answer for `timeout` seconds ends the run.
    Each calls `begins` before its first step.
    """
    refuse_hub(out)
    with joined(timeout=timeout):
        run = RunDirectory(out)
        is_first = ranks().is_first  # which alone writes and reports
        reporter = reporter if is_first and reporter is not None else Reporter()
        fresh = not run.exists or overwrite
        recipe = _checked(run, recipe, resume=resume, overwrite=overwrite)
        with together(ranks().adding(exact=recipe.train.deterministic)) as group:
            job = group.in_turn(lambda: begin_job(recipe, None if fresh else run))
            if not fresh:
                _check_data(run, recipe, job)
            model = _initial_model(job)
            check_together(group, recipe, run, job, model)
            Tuning(model, recipe.tuning, job.inherited)  # raises what is wrong with it
            kept, size = None if fresh else run.config["runtime"], getattr(model, "vocabulary_size", 0)
            runtime = choose_runtime(recipe, size, kept, device=device, threads=threads, say=reporter.noted)
            group.in_turn(lambda: job.work_out(torch.device(runtime.device), reporter.working))
            with (
                run.lock() if is_first else nullcontext(),
                disk_errors_told(run.path, lambda: _full(run)),
                computing(runtime, runtime.device),
                _interrupt_flag() as interrupted,
            ):
                if fresh and is_first:
                    _begin(run, recipe, job, runtime, overwrite=overwrite)
                elif is_first and "draws" not in run.config:
                    reporter.noted(
                        "random numbers of rows are drawn in another way since this run began; it has others now"
                    )
                group.first_to_others("begun")
                computed = _gradients(job, model, runtime)
                trainer = Trainer(
                    model, job.task, recipe.train, run,
                    precision=runtime.precision, reporter=reporter, interrupted=interrupted,
                    tuning=Tuning(model, recipe.tuning, job.inherited), computed=computed,
                )  # fmt: skip
                resumed = trainer.resume()
                if (
                    is_first and not fresh and recipe != run.recipe
                ):  # only now: a damaged checkpoint leaves all as it was
                    run.write({"recipe.toml": recipe.to_toml()})
                reporter.started(_facts(job, model, runtime, trainer if resumed else None))
                begins()
                reason = trainer.train()
                with together(Ranks()):  # the others only wait
                    outcome = _finish(run, job, trainer, reason, reporter) if is_first else None
                found = group.first_to_others(None if outcome is None else vars(outcome) | {"run": str(run.path)})
                return Outcome(**found | {"run": run.path})


def _begin(run: RunDirectory, recipe: Recipe, job: Job[Any], runtime: Runtime, *, overwrite: bool) -> None:
    """Writes what is known of a run before its first step."""
    if run.exists and not overwrite:
        raise RunError(f"{run.path}: another process has trained here in the meantime")
    run.clear()
    origins = copy_origins(run, job.origins)
    digests = fingerprints_of(job)
    config = {
        **job.config(),
        "text": digests.pop("train"),
        "held_out": digests,
        "draws": DRAWS,
        "origins": origins,
        "runtime": runtime.model_dump(),
    }
    run.create(recipe, files=job.parts.files(), config=config)


def begin_job(recipe: Recipe, run: RunDirectory | None) -> Job[Any]:
    """The job of a recipe, which reads its data; `run` is the directory of a run that is resumed."""
    job: Job[Any] = task_entry(recipe.task).job_class(recipe, run)
    return job


def _full(run: RunDirectory) -> str:
    return f"{run.path}: the disk is full; free some space and {'go on with --resume' if run.exists else 'try again'}"


def _checked(run: RunDirectory, recipe: Recipe | None, *, resume: bool, overwrite: bool) -> Recipe:
    """The recipe to train, checked against the run directory."""
    if not re.fullmatch("[^\ud800-\udfff]*", str(run.path)):  # weights could not be written there, at the end
        raise RunError(f"{run.path}: a name that is not UTF-8; --out names a directory")
    if asked(run.path).exists() and not run.path.is_dir():
        raise RunError(f"{run.path}: is a file; --out names a directory")
    if resume and overwrite:
        raise RunError("--resume goes on with a run and --overwrite removes it; choose one")
    if recipe is not None and not resume:
        check_outputs(recipe.inputs, folders=[run.path])
    if other := run.holds_other_things():
        raise RunError(f"{run.path}: not empty and not a run directory (it holds {other}); choose another --out")
    if run.exists and not overwrite:
        if not resume:
            raise RunError(f"{run.path}: there is a run already; --resume goes on with it, --overwrite removes it")
        assert run.config  # raises if it is damaged or too new
        return run.recipe if recipe is None else _continued(run, recipe)
    if recipe is None:
        raise RunError(f"{run.path}: no run to go on with")
    return recipe


def _continued(run: RunDirectory, recipe: Recipe) -> Recipe:
    """The given recipe, if it differs from the run's only in the keys `CHANGEABLE`; else RunError."""
    recipe = going_on(recipe, run.recipe)
    ours, theirs = run.recipe.values(), recipe.values()
    known = CHANGEABLE | {f"data.{name}" for name in run.config.get("held_out", {}) if theirs.get(f"data.{name}")}
    for key in sorted(ours.keys() | theirs.keys()):
        if key in known or key in ("about", "source", "measured") or ours.get(key) == theirs.get(key):
            continue
        raise RecipeError(
            f"{run.path}: cannot go on with another {key}: the run has {ours.get(key)!r}, asked for {theirs.get(key)!r}"
        )
    return recipe


def _check_data(run: RunDirectory, recipe: Recipe, job: Job[Any]) -> None:
    """Raises RunError for data that are not those with which the run began, wherever they are now."""
    now = fingerprints_of(job)
    for key, begun in {"train": run.config["text"], **run.config.get("held_out", {})}.items():
        path = getattr(recipe.data, key)
        digest = now.get(key, "")
        if begun not in (digest, digest.partition("+")[0]):  # runs of 0.1.0 have no labels behind "+"
            what = "has changed since" if path == getattr(run.recipe.data, key) else "is not the data with which"
            raise RunError(f"{run.path}: {path} {what} this run began; choose another --out")


def _initial_model(job: Job[Any]) -> nn.Module:
    """The job's model, with weights drawn from the recipe's seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(job.recipe.train.seed)
        try:
            model: nn.Module = job.build_model()
        except ValueError as error:  # sizes that do not go together
            raise RecipeError(f"model: {error}") from None
        except (RuntimeError, MemoryError):  # what torch raises when there is no room for a tensor
            raise RecipeError("model: too large for this machine's memory; try a smaller encoder.d_model") from None
    return model


def _gradients(job: Job[Any], model: nn.Module, runtime: Runtime) -> Gradients:
    """The gradients of the model, which is moved to its device, and may be cut in parts."""
    train, group, device = job.recipe.train, ranks(), torch.device(runtime.device)
    if not train.sharded or group.size == 1:
        model.to(device)
        return Gradients(model, job.task, seed=train.seed, precision=runtime.precision, ranks=group)
    from ensue.training.sharding import ShardedGradients  # noqa: PLC0415 (it takes a while)

    assert isinstance(group, Processes)
    return ShardedGradients(model, job.task, seed=train.seed, precision=runtime.precision, ranks=group, device=device)


def _facts(job: Job[Any], model: nn.Module, runtime: Runtime, resumed: Trainer | None) -> Facts:
    return Facts(
        data=job.data,
        unit=job.unit,
        num_parameters=count_parameters(model),
        model=job.recipe.describe(),
        device=runtime.device,
        threads=runtime.threads,
        precision=runtime.precision,
        protocol=job.protocol(model),
        notes=(*shared_files(job.recipe.data), *job.notes),
        resumed_from=f"step {resumed.progress.step}" if resumed else "",
    )


def _finish(run: RunDirectory, job: Job[Any], trainer: Trainer, reason: str, reporter: Reporter) -> Outcome:
    """Scores the test data once, if there are any, draws the pictures, and writes the card."""
    finished = reason != "interrupted"
    validations = [record for record in trainer.log.records() if record["kind"] == "valid"]
    best = next((r for r in reversed(validations) if r["best"]), None)
    test = None
    if finished:
        model = run.model(trainer.device)
        job.finish(run, model)
        test = job.test(model)
    if test is not None:
        trainer.log.append("test", step=trainer.progress.best_step, scores=test.as_json(), summary=test.summary())
    outcome = Outcome(
        run=run.path,
        task=job.recipe.task,
        step=trainer.progress.step,
        seconds=trainer.progress.seconds,
        reason=reason,
        best_step=trainer.progress.best_step,
        valid=best["scores"] if best else None,
        test=test.as_json() if test else None,
        valid_summary=best["summary"] if best else "",
        test_summary=test.summary() if test else "",
    )
    _illustrate(run, job, trainer, outcome, sample=best["sample"] if best else "")
    reporter.finished(outcome)
    return outcome


def _illustrate(run: RunDirectory, job: Job[Any], trainer: Trainer, outcome: Outcome, *, sample: str) -> None:
    """Makes the pictures and the card of a run. They come last, since the run is complete without them."""
    curve, card, say = run.path / "curve.png", run.path / "README.md", trainer.reporter
    made(curve, lambda: draw_curve(trainer.log.records(), curve, title=run.path.name, score=job.task.judged_by), say)
    if outcome.reason == "interrupted":
        return
    for name, draw in job.pictures().items():
        made(run.path / name, partial(draw, run.path / name), say)
    size = count_parameters(trainer.model)
    made(card, lambda: write_card(run, job.card_lines(run, outcome), outcome, num_parameters=size, sample=sample), say)


@contextmanager
def _interrupt_flag() -> Iterator[Callable[[], bool]]:
    """Yields a function that tells whether Ctrl-C or SIGTERM has come. The second one ends the program at once."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():  # only there can signals be caught
        yield asked.is_set
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def ask(number: int, frame: FrameType | None) -> None:
        asked.set()
        restore()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    for number in before:
        signal.signal(number, ask)
    try:
        yield asked.is_set
    finally:
        restore()


def check_together(group: Ranks, recipe: Recipe, run: RunDirectory, job: Job[Any], model: nn.Module) -> None:
    """Raises EnsueError if the processes cannot train this recipe together, or differ in something."""
    if recipe.has_own_update and recipe.train.deterministic:
        raise RecipeError(f"train.deterministic: a {recipe.what} is trained by one process, and always repeats itself")
    if recipe.train.sharded:
        _check_sharded(recipe)
    if group.size == 1:
        return
    if recipe.has_own_update:
        raise EnsueError(f"a {recipe.what} is trained by one process, found {group.size}; its updates are no sums")
    if group.exact and SHARDS % group.size:
        raise EnsueError(f"train.deterministic needs 1, 2, 4 or {SHARDS} processes, found {group.size}")
    rows, where = recipe.train.batch_size, "train.batch_size"
    if (carried := next(leaves(job.task.initial_state(model)), None)) is not None and len(carried) < rows:
        rows, where = len(carried), "the rows that the text fills"
    if group.size > rows:
        raise EnsueError(f"{group.size} processes need as many rows of a batch; found {rows} ({where})")
    _compare(group.gathered(facts(recipe, run, job, model)))


def _check_sharded(recipe: Recipe) -> None:
    """Raises RecipeError for a recipe whose parameters cannot be held in parts."""
    if recipe.has_own_update:
        raise RecipeError(f"train.sharded: a {recipe.what} is trained by one process")
    for name in ("freeze", "unfreeze", "new_first"):
        if getattr(recipe.tuning, name) != getattr(TuningRecipe(), name):
            raise RecipeError(f"train.sharded does not go with tuning.{name}; it trains all parameters in every step")


def facts(recipe: Recipe, run: RunDirectory, job: Job[Any], model: nn.Module) -> dict[str, Any]:
    """The values that have to be the same everywhere, by names for people; data and weights as digests."""
    found = {f"recipe: {key}": value for key, value in recipe.values().items()}
    found |= {"ensue": VERSION, "torch": torch.__version__, "the run directory": str(run.path.absolute())}
    found["the newest checkpoint"] = next((path.name for path in complete_checkpoints(run.checkpoints)[::-1]), "none")
    digests = fingerprints_of(job)
    parts = {
        "the training data": "train",
        "the validation data": "valid",
        "the test data": "test",
        "the teacher's answers": "teacher",
    }
    found |= {name: digests.get(key, "") for name, key in parts.items()}
    files = json.dumps(job.parts.files(), sort_keys=True, default=str)
    found["vocabularies and labels"] = hashlib.sha256(files.encode()).hexdigest()
    found["the initial weights"] = _digest(model)
    return found


def _compare(by_rank: list[dict[str, Any]]) -> None:
    first = by_rank[0]
    for rank, other in enumerate(by_rank):
        for name in {**first, **other}:
            ours, theirs = (found.get(name, "none") for found in (first, other))
            if ours != theirs:
                raise EnsueError(f"process {rank} differs in {name}: {_short(theirs)}, process 0 has {_short(ours)}")


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) < 64 or " " in text else f"{text[:12]}..."


def _digest(model: nn.Module) -> str:
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(bytes_of(parameter))
    return digest.hexdigest()
