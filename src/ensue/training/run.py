"""A run from recipe to model card: the order in which things are checked, made, trained and written.

Everything that a user may have got wrong is found before the run directory is touched.
"""

from __future__ import annotations

import os
import platform
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from ensue.errors import RecipeError, RunError
from ensue.models.build import build_language_model
from ensue.models.language_model import LanguageModel
from ensue.recipe import BUDGETS, Recipe
from ensue.tasks.language_modeling import LanguageModeling
from ensue.tasks.reading import default_parts, describe_protocol, read
from ensue.training.card import write_card
from ensue.training.corpus import Corpus, count_tokens, language_modeling, read_corpus
from ensue.training.curve import draw_curve
from ensue.training.device import (
    Precision,
    Products,
    autocast,
    choose_device,
    choose_precision,
    choose_products,
    choose_threads,
    denormals_flushed,
    products_set,
    threads_set,
)
from ensue.training.loop import Trainer
from ensue.training.reporter import Facts, Outcome, Reporter
from ensue.training.run_directory import RunDirectory
from ensue.training.weights import full_disk_told

CHANGEABLE = {*(f"train.{name}" for name in BUDGETS), "train.checkpoint_every", "train.patience"}
"""What may differ from the run's own recipe when it is taken up again."""


@dataclass(frozen=True)
class Runtime:
    """Where a run computes; chosen once, kept in config.json, since other threads or types are other roundings."""

    device: str
    threads: int
    precision: Precision
    products: Products

    def as_json(self) -> dict[str, Any]:
        return {
            "device": self.device,
            "threads": self.threads,
            "precision": self.precision,
            "products": self.products,
            "torch": torch.__version__,
            "python": platform.python_version(),
            "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        }


def train_run(
    recipe: Recipe | None,
    out: str | Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    device: str = "auto",
    threads: int | None = None,
    reporter: Reporter | None = None,
) -> Outcome:
    """Train `recipe` into the run directory `out`, or take a run up again (`recipe` may then be None).

    Ctrl-C (or SIGTERM) ends the step, saves and returns. Raises an `EnsueError` for whatever the user can mend.
    """
    run = RunDirectory(out)
    reporter = reporter or Reporter()
    fresh = not run.exists or overwrite
    recipe = _checked(run, recipe, resume=resume, overwrite=overwrite)
    corpus = read_corpus(recipe, None if fresh else run.tokenizer())
    if not fresh and run.config.get("text", corpus.fingerprint) != corpus.fingerprint:
        raise RunError(f"{run.path}: {recipe.data.train} has changed since this run began; choose another --out")
    task = language_modeling(recipe, corpus)
    model = _initial_model(recipe, corpus)
    runtime = _runtime(run, recipe, task, model, fresh=fresh, device=device, threads=threads)
    full = f"{run.path}: the disk is full; free some space and go on with --resume"
    with run.lock(), full_disk_told(lambda: full), _computing(runtime), _interrupt_flag() as interrupted:
        if fresh:
            if run.exists and not overwrite:
                raise RunError(f"{run.path}: another process has trained here in the meantime")
            run.clear()
            run.create(recipe, corpus.tokenizer, text=corpus.fingerprint, runtime=runtime.as_json())
        elif recipe != run.recipe:
            run.save_recipe(recipe)
        trainer = Trainer(
            model.to(runtime.device), task, recipe.train, run,
            precision=runtime.precision, reporter=reporter, interrupted=interrupted,
        )  # fmt: skip
        resumed = trainer.resume()
        reporter.started(_facts(recipe, corpus, task, model, runtime, trainer if resumed else None))
        reason = trainer.train()
        return _finish(run, recipe, corpus, trainer, reason, reporter)


def _checked(run: RunDirectory, recipe: Recipe | None, *, resume: bool, overwrite: bool) -> Recipe:
    """The recipe to train, after everything that can be wrong between it and the run directory."""
    if run.path.exists() and not run.path.is_dir():
        raise RunError(f"{run.path}: is a file; --out names a directory")
    if resume and overwrite:
        raise RunError("--resume goes on with a run and --overwrite removes it; choose one")
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
    """The given recipe, if it differs from the run's in nothing but how long to go on."""
    ours, theirs = _flat(run.recipe.model_dump()), _flat(recipe.model_dump())
    for key in sorted(ours.keys() | theirs.keys()):
        if key in CHANGEABLE or key in ("about", "source", "measured") or ours.get(key) == theirs.get(key):
            continue
        raise RecipeError(
            f"{run.path}: cannot go on with another {key}: the run has {ours.get(key)!r}, asked for {theirs.get(key)!r}"
        )
    return recipe


def _flat(document: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in document.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def _initial_model(recipe: Recipe, corpus: Corpus) -> LanguageModel:
    """Weights from the seed, whatever was drawn before in this process, and biases from the tokens' frequencies."""
    size = corpus.tokenizer.vocabulary_size
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.train.seed)
        try:
            model = build_language_model(recipe.model, vocabulary_size=size)
        except ValueError as error:  # sizes that do not go together
            raise RecipeError(f"model: {error}") from None
        except (RuntimeError, MemoryError):  # what torch raises when there is no room for a tensor
            raise RecipeError("model: too large for this machine's memory; try a smaller model.d_model") from None
    model.head.start_from_counts(torch.from_numpy(count_tokens(corpus.train, size)))
    return model


def _runtime(
    run: RunDirectory, recipe: Recipe, task: LanguageModeling, model: LanguageModel, *,
    fresh: bool, device: str, threads: int | None,
) -> Runtime:  # fmt: skip
    known = {} if fresh else run.config.get("runtime", {})
    chosen = choose_device(known.get("device", device) if device == "auto" else device)
    precision = known.get("precision") or choose_precision(recipe.train.precision, chosen)
    products = known.get("products") or choose_products(chosen)
    if threads is None:
        on_cpu = chosen.type == "cpu"
        threads = known.get("threads") or (_fastest_threads(task, model, precision, products) if on_cpu else 1)
    return Runtime(str(chosen), threads, precision, products)


@contextmanager
def _computing(runtime: Runtime) -> Iterator[None]:
    """Compute as `runtime` says, and as before afterwards."""
    with threads_set(runtime.threads), products_set(runtime.products), denormals_flushed():
        yield


def _fastest_threads(task: LanguageModeling, model: LanguageModel, precision: Precision, products: Products) -> int:
    """Measured on one training step, computed as those of the run will be; it leaves nothing behind."""
    batch = task.batch(0, torch.device("cpu"))

    def trial() -> None:
        with autocast(precision, batch.inputs.device):
            loss, _ = task.loss(model, batch, None)
        loss.mean.backward()  # type: ignore[no-untyped-call]
        model.zero_grad(set_to_none=True)

    with products_set(products), denormals_flushed():
        return choose_threads(trial)


def _facts(
    recipe: Recipe,
    corpus: Corpus,
    task: LanguageModeling,
    model: LanguageModel,
    runtime: Runtime,
    resumed: Trainer | None,
) -> Facts:
    valid_tokens = len(corpus.valid) if corpus.valid else 0
    notes = []
    if task.batches.batch_size < recipe.train.batch_size:
        notes.append(f"the text fills {task.batches.batch_size} rows of a batch, not {recipe.train.batch_size}")
    if corpus.valid is None:
        notes.append("no validation text: the last weights are kept, and no score is measured")
    elif corpus.valid.unknown:
        notes.append(f"{corpus.valid.unknown:,} of {valid_tokens:,} validation tokens are unknown (<unk>)")
    return Facts(
        train_tokens=len(corpus.train),
        valid_tokens=valid_tokens,
        vocabulary_size=corpus.tokenizer.vocabulary_size,
        num_parameters=model.num_parameters,
        model=f"{recipe.model.encoder} {recipe.model.num_layers}×{recipe.model.d_model}",
        device=runtime.device,
        threads=runtime.threads,
        precision=runtime.precision,
        protocol=describe_protocol(model, default_parts(valid_tokens)),
        notes=tuple(notes),
        resumed_from=f"step {resumed.progress.step}" if resumed else "",
    )


def _finish(
    run: RunDirectory, recipe: Recipe, corpus: Corpus, trainer: Trainer, reason: str, reporter: Reporter
) -> Outcome:
    """Draw, score the test text once if there is one, and write the card."""
    finished = reason != "interrupted"
    validations = [record for record in trainer.log.records() if record["kind"] == "valid"]
    best = next((r for r in reversed(validations) if r["best"]), None)
    test = None
    if finished and corpus.test is not None:
        model = run.model(trainer.device)
        test = read(model, corpus.test, start_id=corpus.tokenizer.start_id).as_json()
        trainer.log.append("test", step=trainer.progress.best_step, scores=test)
    outcome = Outcome(
        run=run.path,
        step=trainer.progress.step,
        seconds=trainer.progress.seconds,
        reason=reason,
        best_step=trainer.progress.best_step,
        valid=best["scores"] if best else None,
        test=test,
    )
    draw_curve(trainer.log.records(), run.path / "curve.png", title=run.path.name)
    if finished:
        write_card(run, recipe, corpus, trainer.model, outcome, sample=best["sample"] if best else "")
    reporter.finished(outcome)
    return outcome


@contextmanager
def _interrupt_flag() -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C or SIGTERM sets a flag, the second ends the program as usual."""
    if threading.current_thread() is not threading.main_thread():  # only there can signals be caught
        yield lambda: False
        return
    asked: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def ask(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        restore()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    for number in before:
        signal.signal(number, ask)
    try:
        yield lambda: bool(asked)
    finally:
        restore()
