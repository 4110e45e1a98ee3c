"""Trained models of the next frame generate, score and predict series; invalid input is refused in one line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import ensue
from ensue.cli import command_line
from ensue.errors import DataError, EnsueError, RecipeError, TrainingError
from ensue.extensions.frames.data.readers import encode_series
from ensue.extensions.frames.frame_prediction.model import FramePredictionJob, draw_series
from ensue.tasks.contract.chunks import Shard
from extensions.frames.tiny_waves import recipe, waves
from training.tiny import run_tiny, some_slow
from training.together import losses_of

KINDS = ("none", "storn", "vrnn")
COLUMNS = ("x", "y")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("waves") / "waves.csv"
    path.write_bytes(encode_series(path, waves(), columns=COLUMNS))
    return path


@pytest.fixture(scope="module")
def runs(file: Path, steps_to_learn: Callable[[int], int]) -> Path:
    """Train a model without latent variables."""
    run_tiny(recipe(file, train={"steps": steps_to_learn(30), "learning_rate": 0.05}), file.parent / "none")
    return file.parent


@pytest.fixture(scope="module")
def latent(runs: Path, file: Path) -> Path:
    """Train a model with latent variables, too."""
    run_tiny(recipe(file, "vrnn", train={"steps": 4}), runs / "vrnn")
    return runs


some_kinds = pytest.mark.parametrize("kind", ["none", pytest.param("vrnn", marks=pytest.mark.slow)])


def loaded(request: pytest.FixtureRequest, kind: str) -> Any:
    """Return the trained model of a kind."""
    folder: Path = request.getfixturevalue("runs" if kind == "none" else "latent")
    return ensue.load(folder / kind)


@pytest.mark.slow
def test_a_plain_model_learns(runs: Path, file: Path) -> None:
    model = ensue.load(runs / "none")
    scores = model.evaluate(file)
    frames = np.concatenate(waves())
    alone = np.log(frames.std(0)).sum() + 1 + np.log(2 * np.pi)  # nats of a normal distribution of all frames
    assert scores.nats_per_frame < alone - 0.5
    assert scores.as_json().keys() == {"nats_per_frame", "frames", "series"}
    assert (scores.frames, scores.series) == (len(frames), 24)
    assert model.scored_items(file).compute()["nats_per_frame"] == pytest.approx(scores.nats_per_frame)
    assert "| validation | " in (runs / "none" / "README.md").read_text()


@pytest.mark.slow
def test_scores_of_latent_variables_are_bounds(latent: Path, file: Path) -> None:
    model = ensue.load(latent / "vrnn")
    scores = model.evaluate(file, draws=3).as_json()
    assert scores["importance_nats_per_frame"] < scores["nats_per_frame"]
    assert 0 < scores["divergence_per_frame"] < scores["nats_per_frame"]
    assert "including a KL divergence" in model.evaluate(file).summary()
    assert model.evaluate(file, draws=3).as_json() == scores, "draws follow from the frames"
    assert "importance_nats_per_frame" not in model.evaluate(file).as_json()


@some_kinds
def test_series_are_scored_and_predicted_independently(file: Path, kind: str, request: pytest.FixtureRequest) -> None:
    model, series = loaded(request, kind), waves()
    lines = list(model.score_lines(str(file)))
    nats = [float(line.split("\t")[0]) for line in lines]
    assert nats == pytest.approx(np.concatenate([model.score(one) for one in series]), abs=1e-3)
    assert lines[0].split("\t")[1:] == ["0", "0"]
    assert json.loads(next(model.score_lines(str(file), as_json=True))).keys() == {"series", "frame", "nats"}
    answer = model.score_json(series[0])
    assert answer["nats"] == pytest.approx(sum(answer["frames"]))
    together = model.predict(series)
    for one, prediction in zip(series[:4], together, strict=False):
        (alone,) = model.predict([one])
        np.testing.assert_allclose(alone.mean, prediction.mean, rtol=1e-5)
        np.testing.assert_allclose(alone.deviation, prediction.deviation, rtol=1e-4)
        assert abs(prediction.mean - 1000).max() < 100
    parts = [model.prediction_lines(str(file), as_json=True, shard=Shard(n, 2)) for n in (1, 2)]
    assert [line for part in parts for line in part] == list(model.prediction_lines(str(file), as_json=True))
    assert len(next(model.prediction_lines(str(file))).split("\t")[1].split()) == 2


@some_kinds
def test_generated_series_continue_the_prompt_and_repeat_for_a_seed(kind: str, request: pytest.FixtureRequest) -> None:
    model, begin = loaded(request, kind), waves()[0]
    first, second = model.generate(begin, frames=5, samples=2, seed=1)
    assert first.shape == (len(begin) + 5, 2)
    np.testing.assert_array_equal(first[: len(begin)], begin)
    assert abs(first - second)[len(begin) :].min() > 0
    assert abs(first - 1000).max() < 1000
    again = model.generate(begin, frames=5, samples=2, seed=1)
    np.testing.assert_array_equal(again[1], second)
    (mean, other) = model.generate(begin, frames=1, samples=2, temperature=0)
    np.testing.assert_array_equal(mean, other)
    assert [one.shape for one in model.generate(frames=2)] == [(2, 2)]


@pytest.mark.parametrize("suffix", some_slow(["npz", "npy", "csv"], "csv"))
def test_generated_files_can_be_read(runs: Path, tmp_path: Path, suffix: str) -> None:
    out, run = tmp_path / f"new.{suffix}", str(runs / "none")
    result = CliRunner().invoke(
        command_line(), ["generate", run, "--out", str(out), "--frames", "4", "--samples", "2", "--seed", "3"]
    )
    assert result.exit_code == 0
    assert result.stderr == f"wrote 2 series of 4 frames to {out}\n"
    model = ensue.load(run)
    for one, right in zip(model.source(out), model.generate(frames=4, samples=2, seed=3), strict=True):
        np.testing.assert_allclose(one.frames, right, rtol=1e-6)
    prompt = tmp_path / "prompt.csv"
    prompt.write_bytes(encode_series(prompt, waves(1), columns=COLUMNS))
    assert "of 9 frames" in model.generate_into(out, prompt=str(prompt), frames=9 - len(waves(1)[0]))


@pytest.mark.slow
def test_generated_series_are_drawn_with_gaps(runs: Path, tmp_path: Path) -> None:
    model = ensue.load(runs / "none")
    message = model.generate_into(tmp_path / "a.png", samples=30, frames=4)
    assert message == f"wrote 24 of 30 series of 4 frames to {tmp_path / 'a.png'}"
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    with_missing = np.arange(15, dtype=np.float32).reshape(5, 3)
    with_missing[1, 1] = np.nan
    for frames in (np.zeros((5, 9), np.float32), with_missing):
        assert "1 series" in draw_series(tmp_path / "b.svg", [frames], prompt_frames=2)
        assert "<svg" in (tmp_path / "b.svg").read_text()


def test_invalid_options_series_and_recipes_are_refused(runs: Path, file: Path, tmp_path: Path) -> None:
    model = ensue.load(runs / "none")
    with pytest.raises(DataError, match=r'frames are not written as "\.nzp"; did you mean "\.npz"\?'):
        model.generate_into(tmp_path / "a.nzp")
    with pytest.raises(EnsueError, match="no folder"):
        model.generate_into(tmp_path / "none" / "a.npz")
    with pytest.raises(DataError, match="several series; expected one, such as"):
        model.generate_into(tmp_path / "a.npz", prompt=str(file))
    for wrong in (
        {"frames": 0}, {"samples": 0}, {"temperature": -1}, {"seed": -1}, {"frames": 10**6, "samples": 10**4},
    ):  # fmt: skip
        with pytest.raises(EnsueError):
            model.generate(**wrong)
    with pytest.raises(EnsueError, match=r"expected \(T, 2\)"):
        model.score(np.zeros((3, 5)))
    with pytest.raises(EnsueError, match="not from a stream"):
        next(model.score_lines("-"))
    with pytest.raises(DataError, match="cannot hold series of different lengths"):
        encode_series(tmp_path / "a.npy", waves())
    for tables, message in (
        ({"directions": {"bidirectional": True}}, "reads from left to right"),
        ({"head": {"components": 0}}, "components"),
        ({"latent": {"kind": "vrnn"}, "encoder": {"kind": "transformer", "d_model": 8}}, "needs a recurrent encoder"),
    ):
        with pytest.raises(RecipeError, match=message):
            recipe(file, **tables)  # type: ignore[arg-type]


def test_a_single_long_series_is_split_and_its_end_is_for_validation(tmp_path: Path) -> None:
    """Its beginning is split into training examples."""
    path = tmp_path / "a.npy"
    path.write_bytes(encode_series(path, [np.concatenate(waves())[:100]]))
    long_recipe: Any = recipe(path, train={"longest": 40})
    job = FramePredictionJob(long_recipe)
    assert (job.split.train.lengths.tolist(), job.split.valid.lengths.tolist()) == ([75], [25])
    assert job.task.train.lengths.tolist() == [37, 38]
    assert job.split.valid_from == f"the last 25% of {path}"
    assert job.notes == ["1 series is longer than 40 frames, and split for training"]
    batch = job.task.lazy_batch(0, torch.device("cpu"))
    assert (batch.rows, batch.count) == (2, 75)


@some_kinds
def test_a_series_of_one_frame_is_scored_and_predicted(kind: str, request: pytest.FixtureRequest) -> None:
    model = loaded(request, kind)
    assert model.score(np.array([[1000.0, 1000.0]])).shape == (1,)
    assert model.predict([np.array([[1000.0, 1000.0]])])[0].mean.shape == (2,)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_have_the_losses_of_one(file: Path, tmp_path: Path, kind: str) -> None:
    noisy = recipe(file, kind, features={"noise": 0.3, "dropout": 0.1})
    alone = losses_of(noisy, tmp_path / "alone")
    assert losses_of(noisy, tmp_path / "together", processes=2) == pytest.approx(alone, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["transformer", "window", "qrnn"])
def test_generation_does_not_depend_on_the_prompt_length(file: Path, tmp_path: Path, kind: str) -> None:
    """A prompt read as a whole has the same continuation as a prompt read frame by frame."""
    run_tiny(recipe(file, encoder={"d_model": 8, "kind": kind}), tmp_path / "run")
    model, begin = ensue.load(tmp_path / "run"), waves()[0]
    (continued,) = model.generate(begin, frames=3, temperature=0)
    (again,) = model.generate(continued[:-1], frames=1, temperature=0)
    np.testing.assert_allclose(again, continued, rtol=1e-4)


@pytest.mark.slow
def test_generation_is_bounded_by_the_context(file: Path, tmp_path: Path) -> None:
    encoder = {"kind": "transformer", "d_model": 8, "positions": "learned", "context": 10}
    run_tiny(recipe(file, encoder=encoder, train={"steps": 1}), tmp_path / "run")
    model, begin = ensue.load(tmp_path / "run"), waves()[0]
    assert len(model.generate(begin, frames=10 - len(begin))[0]) == 10
    with pytest.raises(EnsueError, match=r"11 frames; this model \(transformer\) reads up to 10"):
        model.generate(begin, frames=11 - len(begin))


@pytest.mark.slow
def test_missing_values_are_marginalized(tmp_path: Path) -> None:
    series = waves()
    for one in series:
        one[1, 0] = np.nan
    path = tmp_path / "a.npz"
    path.write_bytes(encode_series(path, series))
    run_tiny(
        recipe(path, "storn", data={"missing": "mean"}, latent={"kind": "storn", "looks_ahead": True}), tmp_path / "run"
    )
    model = ensue.load(tmp_path / "run")
    assert np.isfinite(model.evaluate(path).nats_per_frame)
    assert np.isfinite(model.generate(series[0], frames=3)[0][-3:]).all()


def test_scores_that_are_not_finite_end_training_in_one_line(tmp_path: Path) -> None:
    """The nats of a frame that is far from all others overflow."""
    frames = np.concatenate(waves(2))
    frames[-1] = 1e38
    np.save(tmp_path / "far.npy", frames)
    with pytest.raises(TrainingError, match=r"the scores are not finite \(nan\) at step"):
        run_tiny(recipe(tmp_path / "far.npy"), tmp_path / "run")
