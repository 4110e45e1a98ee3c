"""Inputs of exported models of frames: frames as they are in the files, and how a sound becomes frames."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ensue.models.frame_features import Frames
from ensue.tasks.contract.portable import TensorForm, mask_of, sample_lengths
from ensue.tasks.frames.pipeline import FramesPipeline


class PortableFrames:
    """The inputs of a model that reads whole series, and the settings of its program."""

    def __init__(self, pipeline: FramesPipeline) -> None:
        self.pipeline, self.width = pipeline, pipeline.seen.shape.width

    @property
    def inputs(self) -> dict[str, TensorForm]:
        """The frames, NaN where a value is missing, and how many of them a series has."""
        frames = TensorForm(("batch", "time", self.width))
        return {"frames": frames, "lengths": TensorForm(("batch",), torch.int64)}

    def sample(self, batch: int, length: int) -> dict[str, Tensor]:
        """Series of up to `length` frames, some of whose values are missing, if they may be."""
        return {"frames": self.values(batch, length), "lengths": sample_lengths(batch, length)}

    def values(self, batch: int, length: int) -> Tensor:
        """Frames (B, T, d) as far from each other as those of the training data."""
        mean, deviation = (torch.tensor(part) for part in (self.pipeline.seen.mean, self.pipeline.seen.deviation))
        values = torch.randn(batch, length, self.width) * deviation + mean
        if self.pipeline.recipe.data.missing == "mean":
            values[torch.rand(values.shape) < 0.1] = torch.nan
        return values

    def settings(self) -> dict[str, Any]:
        """The settings with which the program reads files."""
        shape, reading = self.pipeline.seen.shape, self.pipeline.recipe.reading()
        return {"shape": shape._asdict(), "reading": {**reading._asdict(), "sound": reading.sound._asdict()}}


def frames_from(frames: Tensor, lengths: Tensor) -> Frames:
    """A batch as the model reads it."""
    return Frames(frames, mask_of(frames, lengths))
