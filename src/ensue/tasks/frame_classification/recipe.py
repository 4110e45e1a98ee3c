"""Recipes of classifiers of frames."""

from __future__ import annotations

from typing import ClassVar, Literal

from ensue.models.word_specification import PoolingHeadSpecification
from ensue.tasks.frames.recipe import FramesRecipe


class FrameClassificationRecipe(FramesRecipe):
    """The recipe of a classifier of frames."""

    what: ClassVar[str] = "classifier of frames"

    task: Literal["frame-classification"] = "frame-classification"
    head: PoolingHeadSpecification = PoolingHeadSpecification()
