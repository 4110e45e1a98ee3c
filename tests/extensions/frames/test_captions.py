"""Captions of images: training, prediction, inspection, and invalid data in one line."""

import json
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import ensue
from ensue.console.inspection import write_inspection
from ensue.errors import EnsueError
from ensue.extensions.frames.page import encode_png
from ensue.recipe.tables import Recipe
from training.tiny import run_tiny, small_recipe
from training.tiny_texts import Listener

ROWS, COLUMNS = 4, 12


def images(count: int = 48, seed: int = 0) -> tuple[NDArray[np.float32], list[str]]:
    """Return images of one to three bars, each in the upper or the lower half, from left to right."""
    generator = np.random.default_rng(seed)
    pixels_of_images, captions = np.zeros((count, ROWS, COLUMNS), np.float32), []
    for image in pixels_of_images:
        is_low = generator.integers(2, size=generator.integers(1, 4))
        for number, low in enumerate(is_low):
            image[2 * low : 2 * low + 2, 4 * number : 4 * number + 4] = 1
        captions.append(" ".join(("up", "down")[low] for low in is_low))
    return pixels_of_images, captions


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("captions")
    frames, captions = images()
    np.savez(folder / "bars.npz", frames=frames, labels=captions)
    return folder


def recipe(train: Path | str, **changes: Any) -> Recipe:
    return small_recipe(
        "captioning", train, changes, data={"valid_fraction": 0.2}, features={"normalize": "none"},
        grid={"channels": [6], "halvings": 1}, attention={"doubly_stochastic": 0.1}, tokens={"d_embedding": 4},
        decoder={"kind": "lstm", "d_model": 12}, steps=60, batch_size=16, learning_rate=0.03,
    )  # fmt: skip


@pytest.fixture(scope="module")
def run(data: Path, steps_to_learn: Callable[[int], int]) -> Path:
    listener = Listener()
    run_tiny(recipe(data / "bars.npz", steps=steps_to_learn(60)), data / "run", reporter=listener)
    assert listener.facts is not None
    assert listener.facts.data.startswith("38 series, 152 frames of 12 features, 10 for validation; captions of ")
    return data / "run"


@pytest.mark.slow
def test_a_captioner_learns_to_describe_images(run: Path, data: Path) -> None:
    model = ensue.load(run)
    scores = model.evaluate(data / "bars.npz")
    assert scores.exact_match > 0.9
    frames, captions = images(8, seed=1)
    outputs = model.predict(list(frames))
    assert np.mean([output.text == caption for output, caption in zip(outputs, captions, strict=True)]) > 0.8
    lines = list(model.prediction_lines(str(data / "bars.npz"), as_json=True))
    assert json.loads(lines[3])["series"] == "bars.npz[3]"
    (series,) = list(model.source(data / "bars.npz"))[3:4]
    assert json.loads(lines[3])["log_probability"] == pytest.approx(
        -model.score(series, json.loads(lines[3])["text"]), abs=1e-4
    )
    assert next(iter(model.prediction_lines(str(data / "bars.npz")))).startswith("bars.npz[0]\t")
    nats = [float(line.split("\t")[0]) for line in model.score_lines(str(data / "bars.npz"))]
    assert len(nats) == 48
    assert model.scored_items(data / "bars.npz").compute()["exact_match"] == scores.exact_match
    ensemble = model.with_others(ensue.load(run)).with_search(width=2, n_best=2)
    assert [output.text for output in ensemble.predict(list(frames))] == [
        output.text for output in model.with_search(width=2).predict(list(frames))
    ]
    constrained = model.with_glossary([("", "!up"), ("left", "down")])
    assert all("up" not in output.text.split() and not output.lacks for output in constrained.predict(list(frames)))
    assert "A captioner (grid 6 → lstm 1×12" in (run / "README.md").read_text()


def test_the_page_shows_the_attended_places(run: Path, data: Path, tmp_path: Path) -> None:
    model = ensue.load(run)
    page = write_inspection([model], [f"{data / 'bars.npz'}[3]"], tmp_path / "page.html").read_text()
    view = model.inspect(f"{data / 'bars.npz'}[3]").view
    assert view.series == "bars.npz[3]"
    assert view.grid == (2, 6)
    assert view.alignment.shape == (len(view.output), 12)
    np.testing.assert_allclose(view.alignment.sum(1), 1, atol=1e-5)
    assert ((view.gates > 0) & (view.gates < 1)).all()
    assert page.count("<image href=") == len(view.output)
    assert "http:" not in page.replace("http://www.w3.org", "")
    forced = model.inspect(images(1)[0][0], "up down")
    assert forced.view.search is None
    assert forced.view.output[:2] == ("up", "down")
    assert model.inspect_texts(*images(1)[0][0].tolist()).view.image.shape == (ROWS, COLUMNS, 1)  # as a request
    with pytest.raises(EnsueError, match="the server has no scores of images"):
        model.score_json(images(1)[0][0].tolist())
    with pytest.raises(EnsueError, match=r"several series; expected one, such as .*bars\.npz\[0\]"):
        model.inspect(data / "bars.npz")
    with pytest.raises(EnsueError, match=r"no series number 48"):
        model.inspect(f"{data / 'bars.npz'}[48]")


def test_a_png_is_read_back() -> None:
    image = pytest.importorskip("PIL.Image")
    for colors in (1, 3):
        pixels = np.random.default_rng(0).integers(0, 256, (5, 7, colors)).astype(np.uint8)
        decoded = np.asarray(image.open(BytesIO(encode_png(pixels))))
        np.testing.assert_array_equal(decoded.reshape(pixels.shape), pixels)


@pytest.mark.slow
def test_vectors_can_have_several_captions(tmp_path: Path) -> None:
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (30, 2))
    for number, vector in enumerate(signs):
        np.save(tmp_path / f"{number}.npy", vector[None])
    captions = [" ".join(("low", "high")[int(sign > 0)] for sign in vector) for vector in signs]
    rows = [f"{number}.npy,{text}|{text} indeed" for number, text in enumerate(captions)]
    table = tmp_path / "all.csv"
    table.write_text("\n".join(["path,caption", *rows, ""]))
    recipe_of_vectors = recipe(
        table, grid={"kind": "none"}, data={"separator": "|"}, features={"normalize": "training"}, steps=40
    )
    run_tiny(recipe_of_vectors, tmp_path / "run")
    model = ensue.load(tmp_path / "run")
    assert model.evaluate(table).exact_match > 0.9  # one of the two
    assert model.predict([signs[:1]])[0].text.startswith(captions[0])
    assert "Attention" in model.inspect(tmp_path / "0.npy").page
    twice = tmp_path / "twice.csv"
    twice.write_text(f"path,caption\n0.npy,{captions[0]}\n0.npy,other\n1.npy,{captions[1]}\n")
    assert model.evaluate(twice).examples == 2


def test_invalid_images_and_captions_are_refused_in_one_line(run: Path, data: Path, tmp_path: Path) -> None:
    frames, captions = images(4)
    bare, empty, larger, wider, framed, table, colors = (
        tmp_path / f"{name}.{'csv' if name == 'table' else 'npz'}"
        for name in ("bare", "empty", "larger", "wider", "framed", "table", "colors")
    )
    np.savez(bare, frames=frames)
    np.savez(empty, frames=frames, labels=[*captions[:3], " "])
    np.savez(larger, frames=frames.repeat(2, 1), labels=captions)
    np.savez(wider, frames=frames.repeat(3, 2), labels=captions)
    np.savez(framed, frames=frames[0], labels=list("abcd"))
    np.savez(colors, frames=frames[:, :, :11], labels=captions)
    np.save(tmp_path / "one.npy", frames[0])
    np.save(tmp_path / "two.npy", frames[0, :2])
    table.write_text("path,caption\none.npy,up\ntwo.npy,down\n")
    model = ensue.load(run)
    for path, message in (
        (bare, r"bare\.npz\[0\]: no caption; data\.labels names the column"),
        (empty, r"empty\.npz\[3\]: an empty caption"),
        (larger, r"larger\.npz\[0\]: an image of 8 rows; expected 4, since all images have one size"),
        (wider, r"frames of 36 features; expected 12, as in the training data: perhaps color images"),
        (framed, r"framed\.npz: a label for each frame; expected a caption of the series"),
        (table, r"two\.npy: an image of 2 rows; expected 4"),
    ):
        with pytest.raises(EnsueError, match=message):
            model.evaluate(path)
    for path, message in ((bare, "no caption"), (empty, "an empty caption"), (table, r"two\.npy: an image of 2 rows")):
        with pytest.raises(EnsueError, match=message):
            run_tiny(recipe(path), tmp_path / "never")
    with pytest.raises(EnsueError, match=r"rows of 11 numbers are not pixels of 3 numbers each \(grid\.colors\)"):
        run_tiny(recipe(colors, grid={"colors": 3}), tmp_path / "never")
    with pytest.raises(EnsueError, match="numbers of the shape"):
        model.predict([frames[0, :, :5]])
    with pytest.raises(EnsueError, match="an image of 2 rows"):
        model.predict([frames[0, :2]])
