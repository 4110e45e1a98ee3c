"""A tagger of frames elsewhere: the best tags of series, and the scores that they follow from."""

from __future__ import annotations

from torch import Tensor

from ensue.models.tagger import Tagger
from ensue.tasks.contract.portable import Portable, PortableFunction
from ensue.tasks.frames.pipeline import LabeledFramesPipeline
from ensue.tasks.frames.portable import PortableFrames, frames_from
from ensue.tasks.labeling.portable import tag_settings


def portable(pipeline: LabeledFramesPipeline) -> Portable:
    """The model as one function, with the best path inside."""
    frames = PortableFrames(pipeline)
    settings = {**frames.settings(), **tag_settings(pipeline.labels)}
    function = PortableFunction("model", _tagged, frames.inputs, frames.sample)
    return Portable(pipeline.model, (function,), ("frame_tagger", "frames"), settings)


def _tagged(model: Tagger, frames: Tensor, lengths: Tensor) -> dict[str, Tensor]:
    read = frames_from(frames, lengths)
    assert read.mask is not None
    emissions = model(read)
    tags = model.head.best(emissions, read.mask)
    return {"tags": tags.masked_fill(~read.mask, 0), "emissions": emissions.masked_fill(~read.mask.unsqueeze(-1), 0.0)}
