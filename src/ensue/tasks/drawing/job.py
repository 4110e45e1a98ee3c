"""The job of training a painter."""

from __future__ import annotations

from typing import ClassVar

import torch

from ensue.data.frames.series import Reading
from ensue.data.frames.source import FrameSource
from ensue.errors import DataError
from ensue.models.painter import Painter
from ensue.runs.directory import RunDirectory
from ensue.tasks.contract.task import NamedScores
from ensue.tasks.drawing.images import Images, binarized, read_images
from ensue.tasks.drawing.model import DrawingParts
from ensue.tasks.drawing.recipe import DrawingRecipe
from ensue.tasks.drawing.task import Drawing, score_painter
from ensue.tasks.split_job import SplitJob


class DrawingJob(SplitJob[Painter, Images]):
    """Trains a painter of images of one size."""

    unit: ClassVar[str] = "images"
    examples: ClassVar[str] = "images"
    recipe: DrawingRecipe
    parts: DrawingParts

    def __init__(self, recipe: DrawingRecipe, run: RunDirectory | None = None) -> None:
        self.recipe = recipe
        data = recipe.data
        if not data.train:
            raise DataError("no training data: --train PATH names a file or a folder of images")
        self.fingerprint = FrameSource(data.train, Reading(encoding=data.encoding)).fingerprint()
        self.size = None if run is None else run.parts.size
        self.train, self.valid, self.valid_from = self.split(self.read(data.train, group=data.group))
        self.test_data = self.read(data.test) if data.test else None
        self.parts = DrawingParts(self.train.size)
        self.task = Drawing(self.train, self.valid, recipe)

    def read(self, location: str, *, group: str = "") -> Images:
        data, colors = self.recipe.data, self.recipe.canvas.colors
        images = read_images(location, colors=colors, encoding=data.encoding, size=self.size, group=group)
        self.size = images.size
        return images

    def prepare(self, model: Painter) -> None:
        model.begin_with(torch.from_numpy(self.train.pixels.mean(0)))

    def test(self, model: Painter) -> NamedScores | None:
        if self.test_data is None:
            return None
        return score_painter(model, binarized(self.test_data, self.recipe.data.binarize))

    @property
    def data(self) -> str:
        valid = f"{len(self.valid):,} for validation" if self.valid else "none for validation"
        return f"{len(self.train):,} images of {self.train.size}, {valid}"

    @property
    def notes(self) -> list[str]:
        return self.notes_on_validation()

    def about(self) -> str:
        return f"of images of {self.parts.size}"
