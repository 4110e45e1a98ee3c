"""Prediction of frames: the density of each next frame of a series."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import model_validator

from ensue.extensions.frames.models.frame_specification import LatentSpecification, MixtureHeadSpecification
from ensue.extensions.frames.tasks import FramesRecipe, FramesTrain
from ensue.models.specification import ONE_WAY, Directions, RecurrentEncoder
from ensue.recipe.tables import Rows
from ensue.tasks.entry import TaskEntry


class FramePredictionTrain(FramesTrain):
    """The table `[train]` of a model of the next frame."""

    longest: Rows = 1_000
    """Longer series are cut for training, into pieces of at most this many frames. They are scored whole."""


class FramePredictionRecipe(FramesRecipe):
    """The recipe of a model of the next frame."""

    what: ClassVar[str] = "model of frames"
    reads: ClassVar[str] = "series of real vectors"

    task: Literal["frame-prediction"] = "frame-prediction"
    directions: Directions = ONE_WAY
    latent: LatentSpecification = LatentSpecification()
    head: MixtureHeadSpecification = MixtureHeadSpecification()
    train: FramePredictionTrain

    @model_validator(mode="after")
    def _knows_no_later_frame(self) -> Self:
        if self.directions.bidirectional:
            raise ValueError("has directions.bidirectional, but a model of the next frame reads from left to right")
        if self.latent.kind == "vrnn" and not isinstance(self.encoder, RecurrentEncoder):
            raise ValueError(f'has latent.kind "vrnn", which needs a recurrent encoder, not {self.encoder.kind}')
        return self


TASK = TaskEntry(
    recipe=FramePredictionRecipe,
    pipeline_tag="time-series-forecasting",
    parts="ensue.extensions.frames.frame_prediction.job:FramePredictorParts",
    job="ensue.extensions.frames.frame_prediction.job:FramePredictionJob",
    pipeline="ensue.extensions.frames.frame_prediction.pipeline:FramePredictionPipeline",
    commands=("generate", "score", "predict", "evaluate", "inspect"),
    judged_by=("nats_per_frame",),
    files=("frames.json",),
)
