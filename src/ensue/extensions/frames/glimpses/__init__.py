"""Reading of images in glimpses: several for each symbol of a caption, then a stop."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import model_validator

from ensue.extensions.frames.models.frame_specification import GlimpseSpecification
from ensue.extensions.frames.tasks import FramesRecipe
from ensue.models.specification import ONE_WAY, Directions, describe_encoder
from ensue.tasks.entry import TaskEntry


class GlimpsesRecipe(FramesRecipe):
    """The recipe of a model that reads images in glimpses. Both of its recurrent layers are `[encoder]`s."""

    what: ClassVar[str] = "reader of images in glimpses"
    reads: ClassVar[str] = "images with sequences of symbols"

    task: Literal["glimpses"] = "glimpses"
    directions: Directions = ONE_WAY
    glimpses: GlimpseSpecification = GlimpseSpecification()

    @model_validator(mode="after")
    def _goes_on(self) -> Self:
        if self.directions.bidirectional:
            raise ValueError(f"has directions.bidirectional, but a {self.what} does not know what it has not seen")
        if self.encoder.kind == "none":
            raise ValueError(f'has encoder.kind "none", but a {self.what} needs layers that remember')
        return self

    def describe(self) -> str:
        table = self.glimpses
        return f"{table.each} glimpses of {table.scales}×{table.size}×{table.size}, {describe_encoder(self.encoder)}"


TASK = TaskEntry(
    recipe=GlimpsesRecipe,
    pipeline_tag="image-classification",
    parts="ensue.extensions.frames.glimpses.task:GlimpseParts",
    job="ensue.extensions.frames.glimpses.task:GlimpsesJob",
    pipeline="ensue.extensions.frames.glimpses.pipeline:GlimpsesPipeline",
    commands=("predict", "evaluate", "inspect"),
    judged_by=("exact_match",),
    files=("frames.json", "labels.json"),
)
