"""Batches that do not fit into memory are halved with the same gradients and one note; a single row is an error."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ensue.errors import TrainingError
from ensue.nn.draws import RowSlice
from ensue.recipe import Recipe
from ensue.runs.directory import RunDirectory
from ensue.tasks.classification.task import Classification
from ensue.tasks.contract.task import Task
from ensue.tasks.labeling.task import Labeling
from ensue.training.loop import Trainer
from ensue.training.run import begin_job
from training.classifiers import TEXTS
from training.taggers import TAGGED
from training.tiny import run_tiny
from training.tiny_pairs import pair_recipe
from training.tiny_pairs import pairs as translated
from training.tiny_texts import Listener, classifying, columns, documents, fasttext, pairs, sentences, tagging, tsv

MESSAGES = {
    "cpu": RuntimeError("[enforce fail at alloc_cpu.cpp:121] . DefaultCPUAllocator: can't allocate memory: you tried"),
    "cuda": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    "python": MemoryError(),
}


def limited(monkeypatch: pytest.MonkeyPatch, task: type[Task[Any, Any]], rows: int, error: Exception) -> list[int]:
    """Let the task's loss raise `error` for more rows, and return the list of its numbers of rows."""
    original, num_rows = task.loss, []

    def loss(self: Any, model: Any, batch: Any, state: Any) -> Any:
        num_rows.append(batch.rows)
        if batch.rows > rows:
            raise error
        return original(self, model, batch, state)

    monkeypatch.setattr(task, "loss", loss)
    return num_rows


def tagger(folder: Path, **changes: Any) -> Recipe:
    (folder / "names.txt").write_text(columns(TAGGED))
    return tagging(folder / "names.txt", batch_tokens=1000, **changes)


def classifier(folder: Path, **changes: Any) -> Recipe:
    (folder / "topics.tsv").write_text(tsv(TEXTS))
    return classifying(folder / "topics.tsv", batch_tokens=1000, **changes)


def several_labels(folder: Path, **changes: Any) -> Recipe:
    (folder / "topics.txt").write_text(fasttext(documents(120, most_labels=2)))
    head = {"class_weights": "balanced", "label_smoothing": 0.1}
    return classifying(folder / "topics.txt", head=head, batch_tokens=1000, **changes)


def pair_classifier(folder: Path, **changes: Any) -> Recipe:
    (folder / "pairs.tsv").write_text(pairs(120))
    return classifying(folder / "pairs.tsv", batch_tokens=1000, **changes)


RECIPES: dict[str, tuple[Callable[..., Recipe], type[Task[Any, Any]]]] = {
    "tagger": (tagger, Labeling),
    "classifier": (classifier, Classification),
    "several labels": (several_labels, Classification),
    "pairs": (pair_classifier, Classification),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", [*RECIPES, "contexts", "translation"])
def test_slices_of_a_batch_have_its_rows_and_its_loss(name: str, tmp_path: Path) -> None:
    if name == "translation":
        (tmp_path / "pairs.tsv").write_text(translated(60))
        recipe: Recipe = pair_recipe(tmp_path / "pairs.tsv")
    elif name == "contexts":
        recipe = tagger(tmp_path, data={"context_words": 12})
    else:
        recipe = RECIPES[name][0](tmp_path)
    trainer = trainer_of(recipe, tmp_path, Listener())
    model, task = trainer.model.eval(), trainer.task
    batch = task.lazy_batch(0, trainer.device)
    slices = [RowSlice(slice(0, 2), 5), RowSlice(slice(2, 5), 5), RowSlice(total=batch.rows - 5, start=5)]
    parts = [batch.read(row_slice) for row_slice in slices]
    assert (getattr(parts[0], "sentences", None) is not None) == (name == "contexts")
    assert [part.rows for part in parts] == [2, 3, batch.rows - 5]
    losses = [task.loss(model, part, None)[0] for part in [batch.all_rows, *parts]]
    assert sum(loss.count for loss in losses[1:]) == losses[0].count == batch.count
    torch.testing.assert_close(sum(loss.total for loss in losses[1:]), losses[0].total)
    if name != "contexts":
        for row_slice, part in zip(slices, parts, strict=True):
            assert str(row_slice.select_from(batch.all_rows)) == str(part)


def trainer_of(recipe: Recipe, folder: Path, reporter: Listener) -> Trainer:
    torch.manual_seed(0)
    job = begin_job(recipe, None)
    model = job.build_model()
    run = RunDirectory(folder / "loop")
    run.path.mkdir(exist_ok=True)
    return Trainer(model, job.task, recipe.train, run, precision="float32", reporter=reporter)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("tagger", "crf"),
        ("several labels", ""),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (("tagger", "softmax"), ("classifier", ""), ("pairs", ""))
        ),
    ],
)
def test_gradients_equal_those_of_a_full_batch(
    name: str, head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of rows need not be a multiple of the parts, and lengths differ."""
    make, task = RECIPES[name]
    recipe = make(tmp_path, **({"head": {"kind": head}} if head else {}))
    results = []
    for max_rows in (16, 5, 1):
        with monkeypatch.context() as patch:
            listener = Listener()
            trainer = trainer_of(recipe, tmp_path, listener)
            num_rows = limited(patch, task, max_rows, MESSAGES["cpu"])
            batch = trainer.task.lazy_batch(0, trainer.device)
            assert batch.rows > 8
            loss = trainer._compute_gradients(batch, 0)
            grads = {key: p.grad for key, p in trainer.model.named_parameters() if p.grad is not None}
            results.append((float(loss.total), loss.count, grads))
            assert max(num_rows) == batch.rows
            assert bool(listener.notes) == (max_rows < 16)
    for total, count, grads in results[1:]:
        assert total == pytest.approx(results[0][0], rel=1e-5)
        assert count == results[0][1]
        torch.testing.assert_close(grads, results[0][2], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tagger", "cpu"),
        *(pytest.param("tagger", message, marks=pytest.mark.slow) for message in ("cuda", "python")),
        pytest.param("classifier", "cpu", marks=pytest.mark.slow),
    ],
)
def test_training_continues_in_halves(name: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, task = RECIPES[name]
    recipe = make(tmp_path, encoder="none")
    expected = run_tiny(recipe, tmp_path / "full")
    num_rows = limited(monkeypatch, task, 8, MESSAGES[message])
    listener = Listener()
    outcome = run_tiny(recipe, tmp_path / "run", reporter=listener)
    assert (outcome.reason, outcome.step) == ("finished", 12)
    assert len(listener.notes) == 1
    assert listener.notes[0].startswith("out of memory at step ")
    assert listener.notes[0].endswith(": 2 micro-batches per batch from now on")
    assert sum(rows > 8 for rows in num_rows) == 1
    assert outcome.valid is not None
    assert expected.valid is not None
    assert outcome.valid["accuracy"] == pytest.approx(expected.valid["accuracy"], abs=0.05)


@pytest.mark.parametrize("name", list(RECIPES))
def test_a_row_that_does_not_fit_gives_one_line(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, task = RECIPES[name]
    recipe = make(tmp_path)
    limited(monkeypatch, task, 0, MESSAGES["cpu"])
    with pytest.raises(
        TrainingError,
        match=r"^out of memory at step 1 with a single row; try a smaller encoder\.d_model or shorter texts$",
    ):
        run_tiny(recipe, tmp_path / "run")


def test_the_error_names_a_checkpoint_which_can_be_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = tagger(tmp_path, encoder="none", validations=2)
    original = Labeling.loss
    calls: list[int] = []

    def loss(self: Any, *args: Any) -> Any:
        calls.append(1)
        if len(calls) > 8:  # six steps, the validation, a step
            raise MESSAGES["cpu"]
        return original(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Labeling, "loss", loss)
        with pytest.raises(TrainingError, match=r"at step 8 with a single row; the last checkpoint is .*step-6;"):
            run_tiny(recipe, tmp_path / "run")
    assert run_tiny(None, tmp_path / "run", resume=True).reason == "finished"


def test_other_errors_do_not_halve_the_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = tagger(tmp_path)
    limited(monkeypatch, Labeling, 0, RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        run_tiny(recipe, tmp_path / "run")


def test_a_long_text_that_fits_halves_no_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory suffices for a number of words. The long sentence is a batch, which cannot be halved."""
    long = sentences(1)[0]
    long = long._replace(words=long.words * 40, pos=long.pos * 40, spans=[])
    path = tmp_path / "long.txt"
    path.write_text(columns([*sentences(60, seed=1), long]))
    recipe = tagging(path, data={"labels": "2", "valid_fraction": 0.0}, encoder="none", epochs=1)
    original = Labeling.loss

    def loss(self: Any, model: Any, batch: Any, state: Any) -> Any:
        if batch.tags.numel() > max_words:
            raise MESSAGES["cpu"]
        return original(self, model, batch, state)

    monkeypatch.setattr(Labeling, "loss", loss)
    listener = Listener()
    max_words = len(long.words)
    run_tiny(recipe, tmp_path / "run", reporter=listener)
    assert listener.notes == []
    max_words -= 1
    with pytest.raises(TrainingError, match="with a single row"):
        run_tiny(recipe, tmp_path / "another", reporter=listener)
