"""Drawing: images that are painted stroke by stroke from noise, with a bound on the probability of each (DRAW)."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import model_validator

from ensue.extensions.frames.models.frame_specification import CanvasSpecification
from ensue.models.specification import CellsSpecification, describe_encoder
from ensue.recipe.tables import DividedData, Recipe, Rows, TrainRecipe
from ensue.tasks.entry import TaskEntry


class DrawingData(DividedData):
    """The table `[data]` of a model that paints."""

    binarize: Literal["anew", "once", "threshold", "none"] = "anew"
    """How a pixel becomes 0 or 1. anew: it is 1 with the probability of its value, drawn in each step of training, and
    once for validation and test; once: drawn once in training too (Larochelle & Murray 2011); threshold: 1 from 0.5 on;
    none: its value is read as a probability.
    """


class DrawingTrain(TrainRecipe):
    """The table `[train]` of a model that paints."""

    batch_size: Rows = 100
    """Images in a batch."""


class DrawingRecipe(Recipe):
    """The recipe of a model that paints."""

    what: ClassVar[str] = "painter"
    reads: ClassVar[str] = "images"

    task: Literal["drawing"] = "drawing"
    data: DrawingData = DrawingData()
    canvas: CanvasSpecification = CanvasSpecification()
    encoder: CellsSpecification
    decoder: CellsSpecification
    train: DrawingTrain

    @model_validator(mode="after")
    def _steps(self) -> Self:
        """Cells are called step by step, in which a mask for a whole sequence does not exist."""
        for name in ("encoder", "decoder"):
            cells = getattr(self, name)
            if cells.dropout_kind == "variational":
                raise ValueError(f'has {name}.dropout_kind "variational", which cells run step by step have not')
            if getattr(cells, "dropout_recurrent", 0.0):
                raise ValueError(f"has {name}.dropout_recurrent, which cells run step by step have not")
        return self

    def describe(self) -> str:
        canvas = self.canvas
        windows = f"windows of {canvas.read} and {canvas.write}" if canvas.attention else "no attention"
        layers = f"{describe_encoder(self.encoder)} and {describe_encoder(self.decoder)}"
        return f"{layers}, {canvas.glimpses} glimpses, {windows}"


TASK = TaskEntry(
    recipe=DrawingRecipe,
    pipeline_tag="unconditional-image-generation",
    parts="ensue.extensions.frames.drawing.task:DrawingParts",
    job="ensue.extensions.frames.drawing.task:DrawingJob",
    pipeline="ensue.extensions.frames.drawing.pipeline:DrawingPipeline",
    commands=("generate", "evaluate", "inspect"),
    judged_by=("nats_per_image",),
    files=("image.json",),
)
