"""A classifier of frames elsewhere: the probability of each label for series."""

from __future__ import annotations

from torch import Tensor

from ensue.models.classifier import Classifier
from ensue.tasks.contract.portable import Portable, PortableFunction
from ensue.tasks.frames.pipeline import LabeledFramesPipeline
from ensue.tasks.frames.portable import PortableFrames, frames_from


def portable(pipeline: LabeledFramesPipeline) -> Portable:
    """The model as one function."""
    frames, labels = PortableFrames(pipeline), pipeline.labels
    function = PortableFunction("model", _classified, frames.inputs, frames.sample)
    settings = {**frames.settings(), "classes": labels.to_json()}
    return Portable(pipeline.model, (function,), ("frame_classifier", "frames"), settings)


def _classified(model: Classifier, frames: Tensor, lengths: Tensor) -> dict[str, Tensor]:
    logits = model([frames_from(frames, lengths)])
    return {"probabilities": model.probabilities(logits), "logits": logits}
