"""Small untrained models of frames, and their interface in C."""

import ctypes
import io
import wave
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from ensue.extensions.frames.classification import FrameClassificationPipeline, FrameClassifierParts
from ensue.extensions.frames.data.source import Shape
from ensue.extensions.frames.labeling import FrameLabelingPipeline
from ensue.extensions.frames.tasks.model import FrameStatistics
from ensue.text.labels import Classes
from extensions.exporting.c.carried import OK, Interface
from extensions.frames.small_frames import built, frame_classifier, frame_tagger, recipe_of
from inspection.small import SPANS

Pipeline = FrameClassificationPipeline | FrameLabelingPipeline
BOTH_WAYS = {"kind": "gru", "d_model": 7, "num_layers": 2, "residual": True}
POOLED = {"pooling": ["mean", "max", "last", "attention"], "d_hidden": 6}
SEVERAL = Classes(["up", "däwn", "flat"], multiple=True, threshold=0.3, temperature=1.7)


def sound_classifier(rate: int = 8000, **features: Any) -> FrameClassificationPipeline:
    bands = features.setdefault("bands", 9)
    statistics = FrameStatistics(Shape(bands, float(rate), (), True, "x"), (-7.0,) * bands, (3.0,) * bands)
    recipe = recipe_of("frame-classification", features=features, data={"train": "x"})
    pipeline: FrameClassificationPipeline = built(
        FrameClassifierParts(statistics, Classes(["a", "b"])), recipe, FrameClassificationPipeline
    )
    return pipeline


def pipeline(kind: str) -> Pipeline:
    match kind:
        case "one":
            return frame_classifier(encoder=BOTH_WAYS, head=POOLED)
        case "several":
            return frame_classifier(classes=SEVERAL, directions={"bidirectional": False}, data={"train": "x"})
        case "sounds":
            return sound_classifier()
        case "spans":
            return frame_tagger("softmax", SPANS, encoder=BOTH_WAYS)
    return frame_tagger("crf", columns=("x", 'y "z"', "w"))


KINDS = ("one", "several", "sounds", "spans", "crf")


class CSeries(ctypes.Structure):
    _fields_ = [("frames", ctypes.c_void_p), ("count", ctypes.c_size_t)]


def series_in_c(series: list[NDArray[np.float32]]) -> Any:
    """Return series as an array of C, which holds their memory."""
    array: Any = (CSeries * len(series))(*((one.ctypes.data, len(one)) for one in series))
    array.series = series
    return array


class CarriedFrames(Interface):
    returns: ClassVar = {
        "memory": ctypes.c_size_t, "label": ctypes.c_char_p, "samples": ctypes.c_int64, "frames": ctypes.c_int64,
        "message": ctypes.c_char_p,
    }  # fmt: skip
    pipeline: Pipeline

    @property
    def is_tagger(self) -> bool:
        return isinstance(self.pipeline, FrameLabelingPipeline)

    def call(self, function: str, *arguments: Any) -> Any:
        return super().call(function, *(ctypes.c_size_t(part) if isinstance(part, int) else part for part in arguments))

    def memory(self, frames: int) -> Any:
        return ctypes.create_string_buffer(self.call("memory", frames))

    def answer(self, series: Any, frames: int = 64, memory: Any = None) -> tuple[int, Any]:
        """Return the code and the probabilities (N, K), or the labels of a tagger and their probabilities."""
        memory = self.memory(frames) if memory is None else memory
        total = sum(one.count for one in series)
        if self.is_tagger:
            labels, shares = np.zeros(total, np.uint32), np.empty(total)
            code = self.call("tag", self.model, memory, frames, series, len(series), address(labels), address(shares))
            return code, ([self.call("label", self.model, id).decode() for id in labels.tolist()], shares)
        shares = np.empty((len(series), len(self.pipeline.labels.names)), np.float32)
        code = self.call("classify", self.model, memory, frames, series, len(series), address(shares))
        return code, shares

    def answered(self, series: list[NDArray[np.float32]], frames: int = 64) -> Any:
        code, answers = self.answer(series_in_c(series), frames)
        assert code == OK
        return answers

    def samples(self, content: bytes) -> NDArray[np.float32] | int:
        """Return the samples of a file, or the code of the error."""
        count = self.call("samples", content, len(content), None, 0)
        samples = np.full(max(count, 0), np.nan, np.float32)
        assert self.call("samples", content, len(content), address(samples), len(samples)) == count
        return samples if count > 0 else count

    def frames(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        inputs = self.model, self.memory(1), address(samples), len(samples)
        count = self.call("frames", *inputs, None, 0)
        frames = np.full((count + 1, self.pipeline.statistics.shape.width), np.nan, np.float32)
        assert self.call("frames", *inputs, address(frames), count) == count
        assert np.isnan(frames[-1]).all()
        return frames[:-1]


def address(x: NDArray[Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(x.ctypes.data)


def series_of(pipeline: Pipeline, seed: int, count: int = 40) -> list[NDArray[np.float32]]:
    """Return series of several lengths, with a missing value if the model permits them."""
    rng = np.random.default_rng(seed)
    mean, deviation = (np.array(part) for part in (pipeline.statistics.mean, pipeline.statistics.deviation))
    lengths = [1, 30, *rng.integers(1, 20, count - 2).tolist()]
    series = [(rng.normal(size=(n, len(mean))) * deviation + mean).astype(np.float32) for n in lengths]
    if pipeline.recipe.data.missing == "mean":
        series[1][3, 1] = np.nan
    return series


def wav(samples: bytes, rate: int = 8000, channels: int = 1, width: int = 2) -> bytes:
    content = io.BytesIO()
    with wave.open(content, "wb") as file:
        file.setparams((channels, width, rate, 0, "NONE", ""))
        file.writeframes(samples)
    return content.getvalue()


def damaged(model: torch.nn.Module) -> None:
    with torch.no_grad():
        next(reversed(list(model.parameters()))).fill_(torch.nan)
