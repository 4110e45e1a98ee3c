"""Reading images in glimpses: training, predictions, inspection, and invalid images in one line."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import ensue
from ensue.errors import DataError, EnsueError, RecipeError, RunError
from ensue.extensions.frames.glimpses.model import JudgedSymbols, SymbolTally
from ensue.recipe.tables import Recipe
from ensue.runs.directory import RunDirectory
from ensue.tasks.contract.chunks import Shard
from ensue.training.run import begin_job
from training.tiny import run_tiny, seal, small_recipe
from training.together import losses_of

HEIGHT, WIDTH = 4, 12


def strips(count: int, seed: int = 0) -> tuple[NDArray[np.float32], list[str]]:
    """Return images of one or two bars, "low" or "high", from left to right."""
    generator = np.random.default_rng(seed)
    images, captions = np.zeros((count, HEIGHT, WIDTH), np.float32), []
    for image in images:
        symbols = generator.integers(0, 2, generator.integers(1, 3))
        for place, symbol in enumerate(symbols):
            image[2 * (1 - symbol) : 2 * (1 - symbol) + 2, 1 + 6 * place : 5 + 6 * place] = 1
        captions.append(" ".join(["low", "high"][symbol] for symbol in symbols))
    return images, captions


def recipe(train: Path, **changes: Any) -> Recipe:
    glimpses = {
        "size": 4, "scales": 1, "convolutions": [4], "view": 4, "view_convolutions": [2], "start": [0.0, -0.9],
        "move": [0.0, 0.4], "samples": 2,
    }  # fmt: skip
    return small_recipe(
        "glimpses", train, changes, data={"valid_fraction": 0.2}, encoder={"kind": "lstm", "d_model": 8},
        glimpses=glimpses, steps=10, batch_size=16, learning_rate=0.02,
    )  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("glimpses")
    images, captions = strips(60)
    np.savez(folder / "strips.npz", frames=images, labels=captions)
    run_tiny(recipe(folder / "strips.npz"), folder / "run")
    return folder


@pytest.mark.slow
def test_predictions_are_the_same_by_all_interfaces(files: Path) -> None:
    model, data = ensue.load(files / "run"), files / "strips.npz"
    images, _ = strips(3)
    answers = model.predict(images)
    again = model.predict_json(list(model.source(data))[:3])
    lines = list(model.prediction_lines(str(data), as_json=True))
    assert [answer["places"] for answer in again] == [answer.as_json()["places"] for answer in answers]
    assert json.loads(lines[2])["places"] == again[2]["places"]
    assert [
        line for n in (1, 2) for line in model.prediction_lines(str(data), as_json=True, shard=Shard(n, 2))
    ] == lines
    assert next(iter(model.prediction_lines(str(data)))) == f"strips.npz[0]\t{answers[0].text}\n"
    assert answers[0].places.shape == (len(answers[0].symbols) + 1, 2, 2)
    assert answers[0].places[0, 0] == pytest.approx([2, 6 - 0.5 * 6], abs=0.2)
    assert 0 < answers[0].probability < 1
    scores = model.evaluate(data)
    assert scores.as_json().keys() == {"exact_match", "edit_rate", "nats_per_symbol", "symbols", "examples"}
    assert model.scored_items(data).compute()["edit_rate"] == scores.edit_rate
    assert "nats per symbol" in (files / "run" / "README.md").read_text()
    drawn = [model.predict(images, samples=4, seed=seed)[0].probabilities for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    alone = model.predict(images[:1], samples=4, seed=1)[0].probabilities
    assert alone == pytest.approx(drawn[0], rel=1e-5)


@pytest.mark.slow
def test_the_page_shows_the_attended_places(files: Path) -> None:
    model = ensue.load(files / "run")
    inspection = model.inspect_texts(str(files / "strips.npz"))
    assert inspection.page.count("<polyline") == len(inspection.view) == 12
    assert inspection.as_json()[0]["caption"] == strips(1)[1][0]
    one = model.inspect_texts(*strips(1)[0][0].tolist())
    assert [symbol.symbol for symbol in one.view[0].symbols] == [*model.predict(strips(1)[0])[0].symbols, ""]
    np.testing.assert_allclose(one.view[0].symbols[0].places, inspection.view[0].symbols[0].places, rtol=1e-4)


def test_scores_of_symbols_are_those_by_hand() -> None:
    scores = SymbolTally().scores_of(
        [JudgedSymbols(("a", "b"), ("a", "b"), 1.5), JudgedSymbols(("a", "b", "c"), ("b", "c"), 2)]
    )
    assert scores.as_json() == {
        "exact_match": 50, "edit_rate": pytest.approx(20), "nats_per_symbol": 0.5, "symbols": 5, "examples": 2,
    }  # fmt: skip
    with pytest.raises(EnsueError, match="no labeled series to score"):
        SymbolTally().scores_of([])


def saved(folder: Path, images: Any, captions: Any) -> Path:
    np.savez(folder / "odd.npz", frames=np.asarray(images, np.float32), labels=captions)
    return folder / "odd.npz"


WRONG: list[tuple[Callable[[Path], Any], str]] = [
    (lambda folder: saved(folder, np.ones((2, 4, 12)), ["a", " "]), r"odd\.npz\[1\]: no caption; expected one"),
    (lambda folder: saved(folder, np.ones((1, 3, 12)), ["a"]), "an image of 3 × 12 pixels is smaller than a glimpse"),
    (lambda folder: saved(folder, np.ones((2, 2, 4)), ["a", "b", "a", "a"]), "several captions"),
    (lambda folder: saved(folder, np.ones((1, 4, 12)), ["a " * 21]), r"21 symbols; glimpses\.most_symbols is 20"),
]


@pytest.mark.parametrize(("data", "message"), WRONG, ids=[message[:20] for _, message in WRONG])
def test_invalid_images_are_refused_in_one_line(tmp_path: Path, data: Callable[[Path], Path], message: str) -> None:
    with pytest.raises(DataError, match=message):
        run_tiny(
            recipe(data(tmp_path), glimpses={"size": 2, "view": 2} if "several" in message else {}), tmp_path / "run"
        )


def test_images_of_several_sizes_are_refused_in_one_line(files: Path, tmp_path: Path) -> None:
    for name, height in (("a", 4), ("b", 5)):
        np.save(tmp_path / f"{name}.npy", np.ones((height, WIDTH), np.float32))
    (tmp_path / "all.csv").write_text("path,caption\na.npy,low\nb.npy,high\n")
    with pytest.raises(DataError, match=r"b\.npy: an image of 5 rows; expected 4, since all images have one size"):
        run_tiny(recipe(tmp_path / "all.csv", data={"labels": "caption"}), tmp_path / "run")
    with pytest.raises(DataError, match="an image of 5 rows; expected 4"):
        ensue.load(files / "run").predict(np.ones((1, 5, WIDTH)))


@pytest.mark.parametrize(("tables", "message"), [
    ({"glimpses": {"colors": 5}}, r"rows of 12 numbers are not pixels of 5 numbers each \(glimpses\.colors\)"),
    ({"glimpses": {"view": 5}}, "too small for a view 5 times smaller"),
    ({"glimpses": {"scales": 4}}, "much smaller than the widest patch, 32"),
    ({"directions": {"bidirectional": True}}, "reads from left to right"),
    ({"encoder": {"kind": "none"}}, "needs recurrent layers"),
    ({"glimpses": {"start": [0.0]}}, r"glimpses\.start"),
])  # fmt: skip
def test_recipes_that_do_not_fit_are_refused_in_one_line(
    files: Path, tmp_path: Path, tables: dict[str, Any], message: str
) -> None:
    with pytest.raises((DataError, RecipeError), match=message):
        run_tiny(recipe(files / "strips.npz", **tables), tmp_path / "run")


@pytest.mark.slow
def test_several_processes_train_the_same_model(files: Path, tmp_path: Path) -> None:
    for processes, parts in ((2, 1), (3, 2)):
        cut = recipe(files / "strips.npz", accumulate=parts)
        alone = losses_of(cut, tmp_path / f"alone {parts}")
        assert losses_of(cut, tmp_path / f"of {processes}", processes=processes) == pytest.approx(alone, rel=1e-5)


@pytest.mark.slow
def test_a_glimpse_reader_learns_to_read_and_to_stop(tmp_path: Path) -> None:
    images, captions = strips(400)
    np.savez(tmp_path / "strips.npz", frames=images, labels=captions)
    run_tiny(recipe(tmp_path / "strips.npz", steps=300, learning_rate=0.01), tmp_path / "run")
    assert ensue.load(tmp_path / "run").evaluate(tmp_path / "strips.npz").exact_match > 95


@pytest.mark.parametrize(("changes", "message"), [
    ({"task": "frame-prediction"}, r"damaged: config\.json has the task frame-prediction, recipe\.toml glimpses"),
    ({"rows": 2**31}, r"damaged: rows: .* found 2147483648"),
])  # fmt: skip
def test_a_damaged_config_is_refused(files: Path, tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    run = Path(shutil.copytree(files / "run", tmp_path / "run"))
    config = json.loads((run / "config.json").read_text()) | changes
    if "task" in changes:
        del config["rows"]  # which that task does not have
    (run / "config.json").write_text(json.dumps(config))
    seal(run)
    with pytest.raises(RunError, match=message):
        begin_job(RunDirectory(run).recipe, RunDirectory(run))
