"""Prediction of frames: the density of each next frame of a series."""

from ensue.tasks.entry import TaskEntry
from ensue.tasks.frame_prediction.recipe import FramePredictionRecipe

TASK = TaskEntry(
    recipe=FramePredictionRecipe,
    pipeline_tag="time-series-forecasting",
    parts="ensue.tasks.frame_prediction.model:FramePredictorParts",
    job="ensue.tasks.frame_prediction.job:FramePredictionJob",
    pipeline="ensue.tasks.frame_prediction.pipeline:FramePredictionPipeline",
    commands=("generate", "score", "predict", "evaluate", "inspect"),
    judged_by=("nats_per_frame",),
    files=("frames.json",),
)
