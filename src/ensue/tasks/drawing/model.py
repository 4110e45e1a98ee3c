"""The parts of a painter: the size of its images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import Field

from ensue.models.build_frames import build_painter
from ensue.models.painter import ImageSize, Painter
from ensue.runs.directory import RunDirectory
from ensue.runs.schema import Content
from ensue.tasks.contract.model import ModelParts
from ensue.tasks.drawing.recipe import DrawingRecipe

Side = Annotated[int, Field(ge=1, le=1_000_000)]


class ImageContent(Content):
    """`image.json`."""

    kind: Literal["image"]
    format_version: Annotated[int, Field(ge=1, le=1)]
    rows: Side
    columns: Side
    colors: Side


@dataclass(frozen=True)
class DrawingParts(ModelParts):
    """The parts that a painter is built from."""

    size: ImageSize

    @classmethod
    def read(cls, run: RunDirectory) -> Self:
        def size_of(content: dict[str, Any]) -> ImageSize:
            return ImageSize(content["rows"], content["columns"], content["colors"])

        return cls(run.read_json("image.json", ImageContent, size_of))

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
