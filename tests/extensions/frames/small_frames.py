"""Small untrained models of frames."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ensue.extensions.frames.classification import FrameClassificationPipeline, FrameClassifierParts
from ensue.extensions.frames.data.source import Shape
from ensue.extensions.frames.frame_prediction.model import FramePredictorParts
from ensue.extensions.frames.frame_prediction.pipeline import FramePredictionPipeline
from ensue.extensions.frames.labeling import FrameLabelingPipeline, FrameTaggerParts
from ensue.extensions.frames.tasks.model import FrameStatistics
from ensue.recipe import validate_recipe
from ensue.text.labels import Classes, Labels
from inspection.small import PLAIN, roughened

LSTM = {"kind": "lstm", "d_model": 5}
MEAN, DEVIATION = 100.0, 20.0


def statistics_of(width: int, *, rate: float = 0.0, columns: tuple[str, ...] = ()) -> FrameStatistics:
    return FrameStatistics(Shape(width, rate, columns, False, "x"), (MEAN,) * width, (DEVIATION,) * width)


def without_normalization(width: int) -> FrameStatistics:
    """Statistics of features that need no normalization."""
    return FrameStatistics(Shape(width, 0.0, (), False, "x"), (0.0,) * width, (1.0,) * width)


def recipe_of(task: str, **tables: Any) -> Any:
    table = {"data": {"train": "x", "missing": "mean"}, "encoder": LSTM, "train": {"steps": 1}} | tables
    return validate_recipe({"task": task, **table}, where="small")


def built(parts: Any, recipe: Any, pipeline: Any) -> Any:
    torch.manual_seed(0)
    model = parts.build(recipe)
    roughened(model)
    return pipeline(model, parts, recipe=recipe, run="runs/small")


def frame_classifier(width: int = 3, classes: Classes | None = None, **tables: Any) -> FrameClassificationPipeline:
    parts = FrameClassifierParts(statistics_of(width), classes or Classes(["up", "down", "flat"]))
    pipeline: FrameClassificationPipeline = built(
        parts, recipe_of("frame-classification", **tables), FrameClassificationPipeline
    )
    return pipeline


def frame_tagger(
    head: str = "crf", labels: Labels = PLAIN, columns: tuple[str, ...] = (), **tables: Any
) -> FrameLabelingPipeline:
    parts = FrameTaggerParts(statistics_of(3, rate=10.0, columns=columns), labels)
    recipe = recipe_of("frame-labeling", head={"kind": head}, **tables)
    pipeline: FrameLabelingPipeline = built(parts, recipe, FrameLabelingPipeline)
    return pipeline


def frame_predictor(kind: str = "none", *, width: int = 2, components: int = 2) -> FramePredictionPipeline:
    latent = {"kind": kind, "size": 2, "d_hidden": 5}
    recipe = recipe_of("frame-prediction", latent=latent, head={"components": components})
    pipeline: FramePredictionPipeline = built(
        FramePredictorParts(statistics_of(width)), recipe, FramePredictionPipeline
    )
    return pipeline


def frames(length: int, width: int = 3, seed: int = 0) -> NDArray[np.float32]:
    generator = np.random.default_rng(seed)
    return (generator.normal(size=(length, width)) * DEVIATION + MEAN).astype(np.float32)
