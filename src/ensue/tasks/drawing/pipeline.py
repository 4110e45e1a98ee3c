"""A painter in use: the bound on images, and images painted from noise, as pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray

from ensue.arguments import check_path
from ensue.errors import EnsueError
from ensue.models.modules import device_of
from ensue.models.painter import Painter
from ensue.runs.directory import RunDirectory
from ensue.tasks.drawing.images import binarized, read_images
from ensue.tasks.drawing.picture import check_picture, draw_canvases
from ensue.tasks.drawing.recipe import DrawingRecipe
from ensue.tasks.drawing.task import noise_of, score_painter
from ensue.tasks.pipeline import Pipeline
from ensue.tasks.task import NamedScores

AT_ONCE = 100
"""The images that are painted together."""


class DrawingPipeline(Pipeline):
    """A painter: paints and evaluates."""

    generates_files: ClassVar[bool] = True

    def __init__(self, model: Painter, *, recipe: DrawingRecipe, run: str | Path | None = None) -> None:
        super().__init__(model.eval())
        self.recipe, self.run = recipe, run

    @classmethod
    def of(cls, directory: RunDirectory, device: torch.device) -> Self:
        """The trained model in a run directory."""
        recipe: Any = directory.recipe
        return cls(directory.model(device), recipe=recipe, run=directory.path)

    @torch.inference_mode()
    def paint(self, samples: int = 1, *, seed: int = 0) -> NDArray[np.float32]:
        """The probabilities of pixels after each stroke, (samples, T, rows, columns), with the colors of a pixel as a
        last dim if there are several. A sample depends on its number and the seed alone.
        """
        size, device = self.model.size, device_of(self.model)
        found = []
        for first in range(0, samples, AT_ONCE):
            noise = noise_of(self.model, range(first, min(first + AT_ONCE, samples)), device, seed=seed)
            found.append(self.model.canvases(noise).cpu().numpy())
        canvases = np.concatenate(found).reshape(samples, -1, size.rows, size.planes, size.columns)
        return np.moveaxis(canvases, 3, 4) if size.planes > 1 else canvases[:, :, :, 0]

    def generate_into(
        self, out: str | Path, *, samples: int = 16, frames: int | None = None, seed: int | None = None
    ) -> str:
        """Writes samples as a picture, a tile for each; in a `.gif` or `.apng` they are painted before one's eyes. With
        `frames`, a picture has a row for each sample, with so many states of its canvas, and an animation has so many.
        Returns what was written. Raises EnsueError for a suffix that is none of a picture.
        """
        check_picture(out)
        if seed is None:
            seed = int(np.random.SeedSequence().generate_state(1)[0])
        return draw_canvases(Path(out), self.paint(samples, seed=seed), frames)

    def evaluate(self, location: str | Path, *, encoding: str = "utf-8", draws: int = 1) -> NamedScores:
        """The bound on images in nats per image; with several `draws` of z also an estimate by importance sampling."""
        check_path("the data", location)
        if draws < 1:
            raise EnsueError(f"draws is {draws}; expected 1 or more")
        images = read_images(str(location), planes=self.model.size.planes, encoding=encoding, size=self.model.size)
        return score_painter(self.model, binarized(images, self.recipe.data.binarize), draws=draws)

    def protocol(self, scores: Any) -> str:
        how = {
            "none": "pixels are read as probabilities",
            "threshold": "pixels are 1 from 0.5 on",
        }.get(self.recipe.data.binarize, "pixels are drawn once, with their values as probabilities")
        return f"nats per image: a bound on -log p(x), by draws of z; {how}"

    def __repr__(self) -> str:
        return self._described(
            self.recipe.describe(), f"{self.num_parameters:,} parameters", f"images of {self.model.size}"
        )
