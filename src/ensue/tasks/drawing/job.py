"""The job of training a painter, and the parts of the model: the size of its images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

import torch

from ensue.data.frames.series import SeriesOptions
from ensue.data.frames.source import FrameSource
from ensue.errors import DataError
from ensue.models.painter import ImageSize, Painter, build_painter
from ensue.runs.directory import RunDirectory
from ensue.stored import Bounds, arguments
from ensue.tasks.contract.data_set import Split
from ensue.tasks.contract.job import Job
from ensue.tasks.contract.model import ModelParts
from ensue.tasks.contract.task import NamedScores
from ensue.tasks.drawing import DrawingRecipe
from ensue.tasks.drawing.task import Drawing, Images, binarized, read_images, score_painter

Side = Annotated[int, Bounds(1, 1_000_000)]


@dataclass(frozen=True)
class DrawingParts(ModelParts):
    """The parts that a painter is built from."""

    size: ImageSize

    @classmethod
    def read(cls, run: RunDirectory) -> Self:
        def size_of(content: Any) -> ImageSize:
            return ImageSize(**arguments({"rows": Side, "columns": Side, "colors": Side}, content, kind="image"))

        return cls(run.read_json("image.json", size_of))

    def files(self) -> dict[str, Any]:
        return {"image.json": {"kind": "image", "format_version": 1, **self.size._asdict()}}

    def commands(self, recipe: Any, path: str) -> list[str]:
        return [
            f"ensue generate {path} --out samples.png --samples 64", f"ensue generate {path} --out strokes.gif",
            f"ensue evaluate {path} FILE --json",
        ]  # fmt: skip

    def python(self, recipe: Any) -> list[str]:
        return ['print(model.evaluate("FILE").summary())', "canvases = model.paint(16)"]

    def build(self, recipe: DrawingRecipe) -> Painter:
        return build_painter(recipe.canvas, recipe.encoder, recipe.decoder, size=self.size)


class DrawingJob(Job[Painter]):
    """Trains a painter of images of one size."""

    unit: ClassVar[str] = "images"
    recipe: DrawingRecipe
    parts: DrawingParts

    def __init__(self, recipe: DrawingRecipe, run: RunDirectory | None = None) -> None:
        self.recipe = recipe
        data = recipe.data
        if not data.train:
            raise DataError("no training data: --train PATH names a file or a folder of images")
        self.fingerprint = FrameSource(data.train, SeriesOptions(encoding=data.encoding)).fingerprint()
        self.size = None if run is None else run.parts.size
        self.split = Split.of(self.read(data.train, group=data.group), data, self.read, examples="images")
        self.parts = DrawingParts(self.split.train.size)
        self.task = Drawing(self.split.train, self.split.valid, recipe)

    def read(self, location: str, *, group: str = "") -> Images:
        """The images of a location, of the size of those before."""
        data, colors = self.recipe.data, self.recipe.canvas.colors
        images = read_images(location, colors=colors, encoding=data.encoding, size=self.size, group=group)
        self.size = images.size
        return images

    def prepare(self, model: Painter) -> None:
        model.begin_with(torch.from_numpy(self.split.train.pixels.mean(0)))

    def test(self, model: Painter) -> NamedScores | None:
        if self.split.test is None:
            return None
        return score_painter(model, binarized(self.split.test, self.recipe.data.binarize))

    @property
    def data(self) -> str:
        train, valid = self.split.train, self.split.valid
        kept = f"{len(valid):,} for validation" if valid else "none for validation"
        return f"{len(train):,} images of {train.size}, {kept}"

    @property
    def notes(self) -> list[str]:
        return self.split.notes

    def about(self) -> str:
        return f"of images of {self.parts.size}"
