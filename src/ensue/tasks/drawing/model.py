"""The parts of a painter: the size of its images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Self

from ensue.models.build_frames import build_painter
from ensue.models.painter import ImageSize, Painter
from ensue.runs.directory import RunDirectory
from ensue.stored import Bounds, arguments
from ensue.tasks.contract.model import ModelParts
from ensue.tasks.drawing.recipe import DrawingRecipe

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
