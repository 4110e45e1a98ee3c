"""Classifiers and taggers of frames: training, statistics, predictions, resuming, and invalid data in one line."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import ensue
from ensue.cli.training import first_use
from ensue.errors import DataError, EnsueError, RecipeError, RunError
from ensue.extensions.frames.data.readers import read_numpy
from ensue.extensions.frames.data.series import Series, SeriesOptions
from ensue.extensions.frames.recipe import FrameFeatureSpecification
from ensue.extensions.frames.tasks.model import FrameFeatures, Frames, warp_bands
from ensue.nn.draws import RowSlice, drawing_rows
from ensue.recipe import read_recipe
from ensue.runs.directory import continuing_recipe
from ensue.tasks.contract.chunks import Shard
from extensions.frames.small_frames import frame_classifier
from extensions.frames.tiny_frames import recipe
from kept_runs.make import unpacked
from training.resuming import assert_resumes
from training.tiny import run_tiny, seal
from training.tiny_texts import Listener

SCALE, SHIFT = np.float32(40), np.float32(1000)
"""Features of a large scale and shift, so that models learn only after normalization."""


def series(count: int = 60, seed: int = 0) -> tuple[list[NDArray[np.float32]], list[str], list[list[str]]]:
    """Return series whose first feature is high in "up" frames and low in "down" frames; the majority is the label."""
    generator = np.random.default_rng(seed)
    frames, labels, tags = [], [], []
    for _ in range(count):
        label, length = generator.integers(2), int(generator.integers(3, 7))
        high = np.full(length, label)
        high[0] = 1 - label
        values = generator.normal(size=(length, 2)) * 0.3
        values[:, 0] += 2 * high - 1
        frames.append((values * SCALE + SHIFT).astype(np.float32))
        labels.append(["down", "up"][label])
        tags.append([["down", "up"][place] for place in high])
    return frames, labels, tags


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("frames")
    frames, labels, tags = series()
    arrays = {"frames": np.concatenate(frames), "lengths": list(map(len, frames))}
    np.savez(folder / "labels.npz", **arrays, labels=labels)
    np.savez(folder / "tags.npz", **arrays, labels=[tag for row in tags for tag in row])
    return folder


@pytest.fixture(scope="module")
def runs(files: Path, steps_to_learn: Callable[[int], int]) -> Path:
    for task, name in (("frame-classification", "labels"), ("frame-labeling", "tags")):
        listener = Listener()
        run_tiny(recipe(files / f"{name}.npz", task, steps=steps_to_learn(30)), files / name, reporter=listener)
        assert listener.facts is not None
        assert listener.facts.data.startswith("48 series, ")
        assert listener.facts.data.endswith(" of 2 features, 12 for validation; 2 labels")
    return files


@pytest.mark.slow
def test_a_classifier_learns_and_predicts(runs: Path, files: Path) -> None:
    model = ensue.load(runs / "labels")
    frames, labels, _ = series(count=9, seed=1)
    assert model.evaluate(files / "labels.npz").accuracy > 0.95
    answers = model.predict(frames)
    assert [one.label for one in answers] == labels
    assert answers[0].as_json().keys() == {"series", "labels", "probabilities"}
    lines = list(model.prediction_lines(str(files / "labels.npz"), as_json=True))
    alone = model.predict_json([one.frames for one in model.source(files / "labels.npz")][:1])[0]
    assert json.loads(lines[0])["series"] == "labels.npz[0]"
    assert json.loads(lines[0])["probabilities"] == pytest.approx(alone["probabilities"], abs=1e-5)
    assert (
        model.scored_items(files / "labels.npz").compute()["accuracy"] == model.evaluate(files / "labels.npz").accuracy
    )
    parts = [model.prediction_lines(str(files / "labels.npz"), as_json=True, shard=Shard(n, 2)) for n in (1, 2)]
    assert [line for part in parts for line in part] == lines
    assert (files / "labels" / "README.md").read_text().count("classifier of frames") == 1


@pytest.mark.slow
def test_a_tagger_learns_a_label_for_every_frame(runs: Path, files: Path) -> None:
    model = ensue.load(runs / "tags")
    frames, _, tags = series(count=9, seed=1)
    assert model.evaluate(files / "tags.npz").accuracy > 0.95
    answers = model.predict(frames, confidence=True)
    right = [
        label == tag
        for answer, row in zip(answers, tags, strict=True)
        for label, tag in zip(answer.labels, row, strict=True)
    ]
    assert np.mean(right) > 0.9
    assert all(0.5 <= share <= 1 for answer in answers for share in answer.probabilities)
    assert len(next(iter(model.prediction_lines(str(files / "tags.npz")))).split()) > 3
    assert model.scored_items(files / "tags.npz").compute()["accuracy"] == model.evaluate(files / "tags.npz").accuracy


def test_the_run_stores_the_normalization_by_the_training_data(runs: Path) -> None:
    statistics = json.loads((runs / "labels" / "frames.json").read_text())
    model = ensue.load(runs / "labels")
    np.testing.assert_allclose(statistics["mean"], SHIFT, atol=SCALE)
    np.testing.assert_allclose(model.model.features.mean.numpy(), statistics["mean"], rtol=1e-6)
    assert not any("features" in name for name in model.model.state_dict())


def test_features_are_normalized_and_missing_ones_are_the_mean() -> None:
    features = FrameFeatures(FrameFeatureSpecification(), torch.tensor([1.0, 2.0]), torch.tensor([2.0, 4.0]))
    x = features(Frames(torch.tensor([[[3.0, torch.nan], [1.0, 6.0]]]), None))
    assert x.tolist() == [[[1.0, 0.0], [0.0, 1.0]]]


def test_answers_do_not_depend_on_longer_series_in_the_batch(runs: Path) -> None:
    frames, _, _ = series(count=8, seed=2)
    for name in ("labels", "tags"):
        model = ensue.load(runs / name)
        together, alone = model.predict_json(frames), [model.predict_json([one])[0] for one in frames]
        for one, other in zip(together, alone, strict=True):
            assert one["labels"] == other["labels"]
            shares = [answer["probabilities"] for answer in (one, other)]
            assert shares[0] == pytest.approx(shares[1], abs=1e-5)


def test_noise_is_added_only_in_training() -> None:
    features = FrameFeatures(FrameFeatureSpecification(noise=0.5), torch.zeros(2), torch.ones(2))
    frames = Frames(torch.zeros(1, 2000, 2), None)
    assert features(frames).std() == pytest.approx(0.5, abs=0.05)
    assert not features.eval()(frames).any()


def test_warped_features_are_interpolated() -> None:
    x = torch.arange(10.0).expand(3, 2, 10)
    assert torch.equal(warp_bands(x, shift=0.0, stretch=0.0), x)
    warped = warp_bands(x, shift=2.0, stretch=0.0)
    assert torch.equal(warped[:, 0], warped[:, 1])
    shifts = warped[:, :1, 4:5] - 4
    torch.testing.assert_close(warped, (x + shifts).clamp(0, 9))
    assert len(shifts.unique()) == 3
    assert 0 < shifts.abs().max() <= 2


def test_a_filter_is_a_curve_over_features_and_the_same_for_all_frames() -> None:
    features = FrameFeatures(FrameFeatureSpecification(filter=0.5), torch.zeros(15), torch.ones(15), is_sound=True)
    x = features(Frames(torch.zeros(2000, 3, 15), None))
    assert torch.equal(x[:, 0], x[:, 2])
    assert x[:, 0, ::2].std(0).numpy() == pytest.approx(np.full(8, 0.5), abs=0.05)
    torch.testing.assert_close(x[:, 0, 1], (x[:, 0, 0] + x[:, 0, 2]) / 2)


def test_noise_and_dropout_do_not_depend_on_the_split_of_the_batch() -> None:
    specification = FrameFeatureSpecification(noise=0.5, dropout=0.5, shift=0.5, stretch=0.2, filter=0.1)
    features = FrameFeatures(specification, torch.zeros(2), torch.ones(2), is_sound=True).train()
    values = torch.ones(4, 3, 2)
    torch.manual_seed(0)
    of_all = features(Frames(values, None))
    torch.manual_seed(0)
    with drawing_rows(RowSlice(slice(1, 3), 4)):
        of_some = features(Frames(values[1:3], None))
    assert torch.equal(of_some, of_all[1:3])


def test_an_empty_list_of_poolings_is_refused() -> None:
    with pytest.raises(ValueError, match=r"head\.pooling is empty"):
        frame_classifier(head={"pooling": []})


@pytest.mark.slow
@pytest.mark.parametrize(("task", "name", "head"), [
    ("frame-classification", "labels", {}), ("frame-labeling", "tags", {"kind": "crf"}),
])  # fmt: skip
def test_runs_resume_bit_for_bit(
    runs: Path, files: Path, tmp_path: Path, task: str, name: str, head: dict[str, Any]
) -> None:
    features = {"noise": 0.3, "dropout": 0.1}
    new = recipe(files / f"{name}.npz", task, head=head, features=features, steps=12)
    assert_resumes(new, tmp_path / "new")
    assert_resumes(read_recipe(new, {"encoder.from": str(runs / name)}), tmp_path / "begun")


@pytest.mark.slow
@pytest.mark.parametrize("head", [{"kind": "crf"}, {"kind": "viterbi"}], ids=str)
def test_structured_heads_learn_the_labels(files: Path, tmp_path: Path, head: dict[str, Any]) -> None:
    run_tiny(recipe(files / "tags.npz", "frame-labeling", head=head), tmp_path / "run")
    assert ensue.load(tmp_path / "run").evaluate(files / "tags.npz").accuracy > 0.95


@pytest.mark.slow
def test_several_labels_are_learned_from_series_with_missing_values(tmp_path: Path) -> None:
    rows = ["series,x,y,label"]
    for number in range(30):
        label = ["a", "b", "a b"][number % 3]
        x = "" if number % 5 == 0 else int("a" in label)
        rows += [f"s{number},{x},{int('b' in label)},{label}"] * 3
    (tmp_path / "a.csv").write_text("\n".join(rows) + "\n")
    data = {"separator": " ", "missing": "mean"}
    run_tiny(recipe(tmp_path / "a.csv", data=data), tmp_path / "run")
    model = ensue.load(tmp_path / "run")
    assert (model.labels.multiple, model.labels.names) == (True, ("a", "b"))
    assert model.evaluate(tmp_path / "a.csv").micro_f1 > 0.8
    assert set(model.predict([np.array([[1.0, 1.0]])])[0].labels) == {"a", "b"}


@pytest.mark.filterwarnings("ignore::ensue.notices.Notice")
@pytest.mark.parametrize("name", ["labels", "tags"])
def test_a_model_begins_from_the_layers_of_another(runs: Path, files: Path, tmp_path: Path, name: str) -> None:
    origin = tmp_path / "origin"
    shutil.copytree(runs / name, origin)
    shutil.copy(files / f"{name}.npz", new := tmp_path / "new.npz")
    begun = continuing_recipe(origin, settings={"train.steps": 2, "tuning.freeze": -1}, train=new)
    assert begun.data.train == json.dumps([str(files / f"{name}.npz"), str(new)])
    run_tiny(begun, tmp_path / "run")
    shutil.rmtree(origin)
    before, model = (dict(ensue.load(path).model.named_parameters()) for path in (runs / name, tmp_path / "run"))
    layers = [key for key in model if key.startswith("layers.")]
    assert layers
    assert all(torch.equal(model[key], before[key]) for key in layers)
    assert not all(torch.equal(model[key], before[key]) for key in model.keys() - layers)


def test_origins_that_do_not_fit_are_refused(runs: Path, files: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "wide.npz", frames=np.zeros((4, 2, 5)), labels=["a", "b"] * 2)
    wide, tags = recipe(tmp_path / "wide.npz"), recipe(files / "tags.npz", "frame-labeling")
    for new_recipe, settings, error, message in (
        (wide, {}, DataError, "frames of 5 features; expected 2, as in .*labels"),
        (tags, {}, RecipeError, "labels is a classifier of frames; a tagger of frames begins from a tagger of frames"),
        (recipe(files / "labels.npz"), {"encoder.d_model": 8}, RecipeError, "encoder.d_model is 8; it is 4 in"),
    ):
        with pytest.raises(error, match=message):
            run_tiny(read_recipe(new_recipe, settings | {"encoder.from": str(runs / "labels")}), tmp_path / "run")
        assert not (tmp_path / "run").exists()


WRONG: list[tuple[Callable[[Any], Any], str]] = [
    (lambda model: model.predict([np.zeros((3, 5))]), r"series 0: numbers of the shape \(3, 5\); expected \(T, 2\)"),
    (
        lambda model: model.predict([Series("a", np.zeros((3, 5), np.float32))]),
        r"series a: numbers of the shape \(3, 5\)",
    ),
    (lambda model: model.predict([np.zeros(3)]), r"series 0: numbers of the shape \(3,\)"),
    (lambda model: model.predict([[[1, 2], [3]]]), "series 0: expected arrays of numbers"),
    (lambda model: model.predict([[["a", "b"]]]), "series 0: expected arrays of numbers"),
    (lambda model: model.predict([[[1, float("nan")]]]), "series 0: frame 0 has a number that is not finite"),
    (lambda model: model.predict("abc"), "predict takes a list"),
    (lambda model: next(iter(model.prediction_lines("-"))), "frames are read from a file"),
]


@pytest.mark.parametrize(("call", "message"), WRONG, ids=[message[:30] for _, message in WRONG])
def test_invalid_series_are_refused_in_one_line(runs: Path, call: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(EnsueError, match=message):
        call(ensue.load(runs / "labels"))


def test_data_that_do_not_fit(runs: Path, files: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "wide.npy", np.zeros((3, 5)))
    with pytest.raises(DataError, match="frames of 5 features; expected 2, as in the training data"):
        ensue.load(runs / "labels").evaluate(tmp_path / "wide.npy")
    with pytest.raises(DataError, match=r"the frames have 2 labels .* tag-frames learns a label for each frame"):
        run_tiny(recipe(files / "tags.npz"), tmp_path / "run")
    with pytest.raises(DataError, match="a label of the series; expected one for each frame"):
        run_tiny(recipe(files / "labels.npz", "frame-labeling"), tmp_path / "run")
    np.savez(tmp_path / "bare.npz", frames=np.zeros((3, 2)))
    with pytest.raises(DataError, match=r"no label; data\.pattern reads labels from file names"):
        run_tiny(recipe(tmp_path / "bare.npz"), tmp_path / "run")
    with pytest.raises(RecipeError, match="ngrams"):
        recipe(files / "labels.npz", head={"ngrams": 2})


def test_a_damaged_run_is_refused_in_one_line(runs: Path, tmp_path: Path) -> None:
    file = runs / "labels" / "frames.json"
    before = file.read_text()
    try:
        file.write_text(json.dumps(json.loads(before) | {"mean": [0.0]}))
        seal(runs / "labels")
        with pytest.raises(RunError, match=r"frames\.json: damaged"):
            ensue.load(runs / "labels")
    finally:
        file.write_text(before)
        seal(runs / "labels")


def test_a_header_of_python_2_is_read_without_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "old.npy"
    np.save(path, np.ones((3, 5), np.float32))
    path.write_bytes(path.read_bytes().replace(b"(3, 5), }  ", b"(3L, 5L), }"))
    (series,) = read_numpy(path, SeriesOptions())
    assert series.frames.shape == (3, 5)


def test_the_proposed_command_of_models_without_text_has_a_file() -> None:
    assert first_use("drawing", Path("run")) == "ensue generate run --out FILE"
    assert first_use("frame-labeling", Path("run")) == "ensue predict run FILE"


def test_a_run_without_its_extension_is_refused_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked("tag-frames", tmp_path)
    monkeypatch.setattr("ensue.tasks.entries", lambda kind: {})
    with pytest.raises(RunError, match="needs the task 'frame-labeling', which no installed extension has"):
        ensue.load(tmp_path / "tag-frames")
