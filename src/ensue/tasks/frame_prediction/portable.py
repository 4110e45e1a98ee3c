"""A model of the next frame for export: the density behind each frame and the state, from frames and a state."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ensue.models.frame_predictor import FramePredictor
from ensue.models.frame_readers import PlainReader
from ensue.tasks.contract.portable import (
    Portable,
    PortableFunction,
    TensorForm,
    state_forms,
    state_from,
    state_tensors,
)
from ensue.tasks.frames.pipeline import FramesPipeline
from ensue.tasks.frames.portable import PortableFrames


def portable(pipeline: FramesPipeline) -> Portable:
    """The model as one function of frames and the leaves of the state, zeros before the first one."""
    model, frames = pipeline.model, PortableFrames(pipeline)
    forms = state_forms(_layers(model).init_state(2))

    def sample(batch: int, length: int) -> dict[str, Tensor]:
        before = model.features.normalized(frames.values(batch, 2))
        _, state = _layers(model)(before)
        return {"frames": frames.values(batch, length), **state_tensors(state)}

    inputs = {"frames": TensorForm(("batch", "time", frames.width)), **forms}
    settings = {**frames.settings(), "mean": list(pipeline.seen.mean)}
    return Portable(model, (PortableFunction("model", _next, inputs, sample),), ("frame_predictor", "frames"), settings)


def _next(model: FramePredictor, frames: Tensor, **state: Any) -> dict[str, Tensor]:
    """The mixture behind each frame (B, T), in the units of the files."""
    layers, features = _layers(model), model.features
    h, after = layers(features.normalized(frames), state_from(layers.init_state(1), state))
    log_weights, (mean, log_deviation) = model.head.of(model.head.projection(h))
    return {
        "weights": log_weights.exp(),
        "means": mean * features.deviation + features.mean,
        "deviations": log_deviation.exp() * features.deviation,
        **state_tensors(after, "next"),
    }


def _layers(model: FramePredictor) -> Any:
    reader = model.reader
    assert isinstance(reader, PlainReader)
    return reader.layers
