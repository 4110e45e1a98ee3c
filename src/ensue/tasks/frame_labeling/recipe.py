"""Recipes of taggers of frames."""

from __future__ import annotations

from typing import ClassVar, Literal

from ensue.models.word_specification import PathHeadSpecification
from ensue.tasks.frames.recipe import FramesRecipe


class FrameLabelingRecipe(FramesRecipe):
    """The recipe of a tagger of frames."""

    what: ClassVar[str] = "tagger of frames"

    task: Literal["frame-labeling"] = "frame-labeling"
    head: PathHeadSpecification = PathHeadSpecification()
