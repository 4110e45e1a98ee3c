"""Models of frames as ONNX: graphs and programs give the answers of `predict`."""

import struct
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ensue
from ensue.errors import EnsueError
from ensue.extensions.exporting.exporting import export_run
from ensue.text.labels import Classes
from extensions.frames.small_frames import frame_classifier, frame_predictor, frame_tagger, frames
from extensions.frames.tiny_frames import recipe
from extensions.frames.tiny_waves import recipe as recipe_of_next
from extensions.frames.tiny_waves import waves
from inspection.small import PLAIN, SPANS
from training.tiny import run_tiny

from .conftest import Program

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (pip install ensue[onnx])")
pytest.importorskip("onnx", reason="onnx is not installed (pip install ensue[onnx])")

from ensue.extensions.exporting.onnx import functions, writing

pytestmark = [pytest.mark.filterwarnings("ignore::DeprecationWarning"), pytest.mark.usefixtures("in_torch_operations")]
TRANSFORMER = {"kind": "transformer", "d_model": 8, "num_heads": 2, "num_layers": 1, "context": 64}
SHAPES = [(1, 1), (1, 6), (7, 1), (7, 6), (7, 13)]
"""The number of series, and the number of frames of the longest."""


def session(pipeline: Any) -> Any:
    part = pipeline.describe().functions[0]
    return writing.create_session(functions.trace_function(pipeline.model, part.function, part.inputs, name="model"))


def series(batch: int, longest: int, width: int) -> list[np.ndarray[Any, Any]]:
    """Return series of different lengths with a missing value."""
    inputs = [frames(max(1, longest - number), width, seed=number) for number in range(batch)]
    inputs[0][0, 0] = np.nan
    return inputs


def batch_of(inputs: list[np.ndarray[Any, Any]]) -> dict[str, Any]:
    """Return the inputs of a graph, padded with numbers that would change the answers."""
    padded = np.full((len(inputs), max(map(len, inputs)), inputs[0].shape[1]), 1e4, np.float32)
    for row, one in zip(padded, inputs, strict=True):
        row[: len(one)] = one
    return {"frames": padded, "lengths": np.array(list(map(len, inputs)))}


CLASSIFIERS: dict[str, dict[str, Any]] = {
    "lstm": {"head": {"pooling": ["mean", "max"]}},
    "attention": {"encoder": {"kind": "gru", "d_model": 4}, "head": {"pooling": ["attention", "last"]}},
    "transformer": {"encoder": TRANSFORMER},
    "several": {"classes": Classes(["a", "b"], multiple=True, threshold=0.3)},
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_the_graph_of_a_classifier_has_the_probabilities_of_predict(kind: str) -> None:
    pipeline = frame_classifier(**CLASSIFIERS[kind])
    graph = session(pipeline)
    for shape in SHAPES:
        inputs = series(*shape, 3)
        (probabilities,) = graph.run(["probabilities"], batch_of(inputs))
        expected = [list(answer.probabilities.values()) for answer in pipeline.predict(inputs)]
        np.testing.assert_allclose(probabilities, expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("head", ["crf", "softmax", "viterbi"])
def test_the_graph_of_a_tagger_has_the_tags_of_predict(head: str) -> None:
    pipeline = frame_tagger(head, labels=SPANS if head == "viterbi" else PLAIN)
    graph = session(pipeline)
    for shape in SHAPES:
        inputs = series(*shape, 3)
        tags, emissions = graph.run(["tags", "emissions"], batch_of(inputs))
        for one, path, answer in zip(inputs, tags, pipeline.predict(inputs), strict=True):
            labels = pipeline.labels.decode(path[: len(one)].tolist())
            assert (tuple(labels), path[len(one) :].any()) == (answer.labels, False)
        np.testing.assert_allclose(emissions[0], pipeline.inspect(inputs[0]).view.emissions, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_the_graph_of_a_frame_predictor_continues_from_its_state() -> None:
    pipeline = frame_predictor(components=3)
    graph = session(pipeline)
    for batch, length in SHAPES:
        inputs = [frames(length, 2, seed=number) for number in range(batch)]
        leaves = {x.name: x.shape for x in graph.get_inputs() if x.name != "frames"}
        state = {name: np.zeros([batch, *sizes[1:]], np.float32) for name, sizes in leaves.items()}
        first = np.broadcast_to(np.array(pipeline.statistics.mean, np.float32), (batch, 1, 2))
        all_frames, middle = np.concatenate([first, np.stack(inputs)], 1), length // 2 + 1
        for piece in (all_frames[:, :middle], all_frames[:, middle:]):
            if piece.shape[1]:
                weights, means, deviations, *after = graph.run(None, {"frames": piece, **state})
                state = dict(zip(state, after, strict=True))
        mean = (weights[:, -1, :, None] * means[:, -1]).sum(1)
        square = (weights[:, -1, :, None] * (deviations[:, -1] ** 2 + means[:, -1] ** 2)).sum(1)
        for place, prediction in enumerate(pipeline.predict(inputs)):
            np.testing.assert_allclose(mean[place], prediction.mean, rtol=1e-5)
            np.testing.assert_allclose(np.sqrt(square - mean**2)[place], prediction.deviation, rtol=2e-3)


@pytest.mark.parametrize("kind", ["storn", "vrnn"])
def test_latent_variables_are_refused(kind: str) -> None:
    with pytest.raises(EnsueError, match=rf"runs/small: a model with latent variables \({kind}\) cannot be exported"):
        frame_predictor(kind).describe()


def sound(path: Path, seed: int, *, channels: int, bits: int) -> None:
    generator = np.random.default_rng(seed)
    values = generator.integers(0, 256, size=(int(generator.integers(300, 1500)), channels, bits // 8))
    with wave.open(str(path), "wb") as out:
        out.setparams((channels, bits // 8, 8000, len(values), "NONE", ""))
        out.writeframes(struct.pack(f"{values.size}B", *values.ravel().tolist()))


@pytest.mark.slow
@pytest.mark.parametrize("task", ["frame-classification", "frame-labeling", "frame-prediction"])
def test_programs_print_what_predict_prints(task: str, tmp_path: Path, program: Program) -> None:
    inputs = waves(30)
    labels = {
        "frame-classification": ["up", "down"] * 15,
        "frame-labeling": [str(x > 1000) for x in np.concatenate(inputs)[:, 0]],
    }
    arrays = {"frames": np.concatenate(inputs), "lengths": list(map(len, inputs))}
    data = tmp_path / "series.npz"
    np.savez(data, **arrays, **({"labels": labels[task]} if task in labels else {}))
    small_recipe = recipe_of_next(data) if task == "frame-prediction" else recipe(data, task)
    run_tiny(small_recipe, tmp_path / "run")
    export_run(tmp_path / "run", tmp_path / "out", "onnx")
    np.save(tmp_path / "one.npy", inputs[0])
    pipeline = ensue.load(tmp_path / "run", device="cpu")
    for file in (data, tmp_path / "one.npy"):
        expected = "".join(pipeline.prediction_lines(str(file)))
        printed = program(tmp_path / "out", "", str(file))
        if task != "frame-prediction":
            assert printed == expected
        else:  # the last digits may be rounded otherwise
            assert [line.count(" ") for line in printed.split("\n")] == [
                line.count(" ") for line in expected.split("\n")
            ]
            for one, other in zip(printed.split(), expected.split(), strict=True):
                assert one == other or float(one) == pytest.approx(float(other), rel=1e-5)
        assert len(set(expected.split())) > 2


@pytest.mark.slow
def test_a_program_reads_sounds(tmp_path: Path, program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(12):
        label = tmp_path / "sounds" / ("noise" if number % 2 else "other")
        label.mkdir(parents=True, exist_ok=True)
        sound(label / f"{number}.wav", number, channels=1 + number % 2, bits=8 * (1 + number % 4))
    features = {"bands": 12, "lowest": 100.0, "window": 0.02, "top_db": 40.0}
    run_tiny(recipe(tmp_path / "sounds", features=features), tmp_path / "run")
    export_run(tmp_path / "run", tmp_path / "out", "onnx")
    pipeline = ensue.load(tmp_path / "run", device="cpu")
    files = sorted((tmp_path / "sounds").rglob("*.wav"))
    expected = [line for file in files for line in pipeline.prediction_lines(str(file))]
    assert program(tmp_path / "out", "", *map(str, files)) == "".join(expected)
    monkeypatch.setattr("sys.exit", lambda message: (_ for _ in ()).throw(ValueError(message)))
    np.save(tmp_path / "wide.npy", np.zeros((3, 5)))
    with pytest.raises(ValueError, match=r"wide.npy: frames of 5 features; expected 12, as in the training data"):
        program(tmp_path / "out", "", str(tmp_path / "wide.npy"))
