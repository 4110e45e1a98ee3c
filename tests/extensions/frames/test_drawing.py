"""Painters of images: training, scores, samples, inspection, and invalid images in one line."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

import ensue
from ensue.errors import DataError, EnsueError, RecipeError
from ensue.extensions.frames.drawing.model import Images, ImageSize, binarize, read_images
from ensue.recipe import validate_recipe
from ensue.recipe.tables import Recipe
from ensue.training.run import begin_job
from training.tiny import run_tiny, small_recipe
from training.tiny_texts import Listener
from training.together import losses_of


def bars(count: int = 60) -> NDArray[np.float32]:
    """Images of 6 × 5 with one bright row."""
    images = np.full((count, 6, 5), 0.02, np.float32)
    images[np.arange(count), np.random.default_rng(0).integers(6, size=count)] = 0.98
    return images


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    np.savez(folder / "bars.npz", frames=bars())
    return folder


def recipe(train: Path, **changes: Any) -> Recipe:
    return small_recipe(
        "drawing", train, changes, data={"valid_fraction": 0.2}, encoder={"kind": "gru", "d_model": 12},
        decoder={"kind": "lstm", "d_model": 12}, canvas={"glimpses": 3, "d_latent": 3, "read": 2, "write": 3}, steps=8,
        batch_size=20, learning_rate=0.02,
    )  # fmt: skip


@pytest.fixture(scope="module")
def run(files: Path) -> Path:
    listener = Listener()
    run_tiny(recipe(files / "bars.npz"), files / "run", reporter=listener)
    assert listener.facts is not None
    assert listener.facts.data == "50 images of 6 × 5, 10 for validation"
    return files / "run"


@pytest.mark.slow
def test_scores_of_a_painter_are_repeatable_bounds(run: Path, files: Path) -> None:
    model = ensue.load(run)
    scores = model.evaluate(files / "bars.npz", draws=8)
    assert scores["nats_per_image"] == pytest.approx(scores["reconstruction"] + scores["divergence"])
    assert scores["importance_nats"] < scores["nats_per_image"] + 0.1
    assert model.evaluate(files / "bars.npz") == model.evaluate(files / "bars.npz")
    assert "| validation |" in (run / "README.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("attention", [True, False])
def test_a_painter_learns_dependencies_of_pixels(attention: bool, files: Path, tmp_path: Path) -> None:
    pixels = read_images(str(files / "bars.npz"), colors=1, encoding="utf-8").pixels.mean(0)
    each_alone = -(pixels * np.log(pixels) + (1 - pixels) * np.log(1 - pixels)).sum()
    run_tiny(recipe(files / "bars.npz", canvas={"attention": attention}, steps=400), tmp_path / "run")
    assert ensue.load(tmp_path / "run").evaluate(files / "bars.npz")["nats_per_image"] < each_alone - 1


def test_a_sample_depends_on_its_number_and_the_seed_alone(run: Path) -> None:
    model = ensue.load(run)
    three = model.paint(3, seed=5)
    assert three.shape == (3, 3, 6, 5)
    np.testing.assert_allclose(model.paint(2, seed=5), three[:2], atol=1e-6)
    assert not np.allclose(model.paint(1, seed=6), three[:1])


def test_samples_are_written_as_pictures(run: Path, tmp_path: Path) -> None:
    model = ensue.load(run)
    message = model.generate_into(tmp_path / "a.png", samples=4, seed=1)
    assert message == f"wrote {tmp_path / 'a.png'}: 4 samples"
    assert size_of(tmp_path / "a.png") == (3 * 11, 3 * 13, 1)
    message = model.generate_into(tmp_path / "b.png", samples=4, frames=2, seed=1)
    assert message.endswith("4 samples, a row of 2 canvases for each")
    assert size_of(tmp_path / "b.png") == (3 * 11, 3 * 27, 1)
    for suffix in ("gif", "apng"):
        model.generate_into(tmp_path / f"c.{suffix}", samples=2, seed=1)
        assert size_of(tmp_path / f"c.{suffix}") == (3 * 11, 3 * 6, 3)


def test_a_page_shows_the_windows_of_each_glimpse(run: Path, files: Path) -> None:
    model = ensue.load(run)
    inspection = model.inspect(str(files / "bars.npz"))
    assert len(inspection.view) == 4
    view = inspection.view[0]
    assert (view.canvases.shape, view.divergence.shape, len(view.read), len(view.written)) == ((3, 6, 5, 1), (3,), 3, 3)
    assert all(-6 < window.row < 12 and window.deviation > 0 for window in view.read)
    assert inspection.page.count("<rect") >= 4 * 2 * 3
    (alone,) = model.inspect_texts(*view.image[..., 0].tolist()).view  # as requests of the server
    np.testing.assert_array_equal(alone.image, view.image)
    for wrong in ([], ["a"], [[0.5], [0.5, 0.5]], [1.5], [[float("nan")] * 5] * 6):
        with pytest.raises(EnsueError, match=r"expected a path, or a list of arrays|expected 6 × 5|from 0 to 1"):
            model.inspect([wrong])
    with pytest.raises(EnsueError, match="expected a path"):
        model.inspect_texts()


def size_of(path: Path) -> tuple[int, int, int]:
    """Return the width, the height and the number of frames of a picture."""
    with Image.open(path) as opened:
        picture: Any = opened
        return (*picture.size, getattr(picture, "n_frames", 1))


def test_pixels_are_binarized_as_the_option_says() -> None:
    images = Images(np.full((200, 4, 4), 0.3, np.float32), ImageSize(4, 4))
    once = binarize(images, "once").pixels
    np.testing.assert_array_equal(once, binarize(images, "anew").pixels)
    assert set(np.unique(once)) == {0, 1}
    assert once.mean() == pytest.approx(0.3, abs=0.03)
    assert not binarize(images, "threshold").pixels.any()
    np.testing.assert_array_equal(binarize(images, "none").pixels, images.pixels)


def test_color_channels_become_planes(tmp_path: Path) -> None:
    colored = np.random.default_rng(0).random((2, 3, 4, 3), np.float32)
    np.save(tmp_path / "colored.npy", colored.reshape(2, 3, 12))
    images = read_images(str(tmp_path / "colored.npy"), colors=3, encoding="utf-8")
    assert images.size == ImageSize(3, 4, 3)
    planes = images.pixels.reshape(2, 3, 3, 4)
    np.testing.assert_array_equal(planes[1, :, 2], colored[1, :, :, 2])


@pytest.mark.parametrize("binarize_when", ["anew", "once"])
def test_a_batch_is_a_function_of_its_step(binarize_when: str, files: Path) -> None:
    task = begin_job(recipe(files / "bars.npz", data={"binarize": binarize_when}), None).task
    device = torch.device("cpu")
    first, again, next_epoch = (task.batch(step, device).tensors[0] for step in (1, 1, 1 + task.steps_per_epoch))
    assert torch.equal(first, again)
    assert not torch.equal(first, next_epoch)
    assert set(first.unique().tolist()) == {0, 1}
    epoch = torch.cat([task.batch(step, device).tensors[0] for step in range(task.steps_per_epoch)])
    assert len(epoch) == 50
    same = torch.cat([task.batch(step + task.steps_per_epoch, device).tensors[0] for step in range(3)])
    assert torch.equal(epoch.sum(0), same.sum(0)) == (binarize_when == "once")


@pytest.mark.slow
def test_a_page_of_a_model_without_attention_has_no_windows(files: Path, tmp_path: Path) -> None:
    run_tiny(recipe(files / "bars.npz", canvas={"attention": False}, steps=2), tmp_path / "run")
    inspection = ensue.load(tmp_path / "run").inspect(files / "bars.npz")
    assert not inspection.view[0].read
    assert "This model has no attention" in inspection.page


@pytest.mark.slow
def test_two_processes_have_the_losses_of_one(files: Path, tmp_path: Path) -> None:
    small = recipe(files / "bars.npz", steps=6)
    alone = losses_of(small, tmp_path / "one")
    assert losses_of(small, tmp_path / "two", processes=2) == pytest.approx(alone, rel=1e-5)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"a": np.zeros((4, 5)), "b": np.zeros((4, 6))}, "frames of 6 features; expected 5"),
    ({"a": np.zeros((4, 5)), "b": np.zeros((5, 5))}, r"b\.npy: an image of 5 × 5; expected 4 × 5, as in a\.npy"),
    ({"a": np.full((4, 5), 1.5)}, r"a\.npy: a pixel of 1\.5; expected values from 0 to 1"),
    ({"a": np.full((4, 5), -0.5)}, r"a pixel of -0\.5; expected"),
    ({"a": np.full((4, 5), np.nan)}, "a missing value"),
    ({"a": np.zeros((4, 2)), "b": np.zeros((4, 2))}, "a window of 3 × 3 is larger than images of 4 × 2"),
]


@pytest.mark.parametrize(("arrays", "message"), WRONG, ids=[message[:25] for _, message in WRONG])
def test_invalid_images_are_refused_in_one_line(arrays: dict[str, Any], message: str, tmp_path: Path) -> None:
    for name, values in arrays.items():
        np.save(tmp_path / f"{name}.npy", values)
    with pytest.raises((DataError, RecipeError), match=message):
        run_tiny(recipe(tmp_path / "*.npy"), tmp_path / "run")


def test_invalid_paths_and_options_are_refused(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = ensue.load(run)
    np.save(tmp_path / "wide.npy", np.zeros((6, 7)))
    with pytest.raises(DataError, match="an image of 6 × 7; expected 6 × 5, as in the training data"):
        model.evaluate(tmp_path / "wide.npy")
    with pytest.raises(EnsueError, match=r'unknown suffix "\.gfi"; did you mean "\.gif"'):
        model.generate_into(tmp_path / "a.gfi")
    with pytest.raises(EnsueError, match=r"a\.png: no folder"):
        model.generate_into(tmp_path / "nowhere" / "a.png", samples=1)
    for name, call in (("draws", model.evaluate), ("samples", model.generate_into)):
        with pytest.raises(EnsueError, match=f"{name} is 0; expected a whole number from 1 to 100,000"):
            call(tmp_path / "a.png", **{name: 0})
    monkeypatch.setattr("ensue.tasks.contract.chunks.MAX_GENERATED_NUMBERS", 3 * 30)
    assert model.paint(1).size == 3 * 30
    with pytest.raises(EnsueError, match="up to 90 numbers at once; found 180"):
        model.paint(2)
    with pytest.raises(DataError, match=r"rows of 7 numbers are not pixels of 3 numbers each \(canvas\.colors\)"):
        read_images(str(tmp_path / "wide.npy"), colors=3, encoding="utf-8")
    for table in ({"dropout_kind": "variational"}, {"dropout_recurrent": 0.1}):
        with pytest.raises(RecipeError, match=rf"encoder\.{next(iter(table))}"):
            validate_recipe(
                {"task": "drawing", "encoder": {"kind": "lstm", **table}, "decoder": {"kind": "lstm"},
                 "train": {"steps": 1}}, where="x",
            )  # fmt: skip
