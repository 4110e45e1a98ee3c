"""The parts of a model that reads images in glimpses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from ensue.models.build_frames import build_glimpse_reader
from ensue.models.glimpse_reader import GlimpseReader
from ensue.runs.directory import RunDirectory
from ensue.runs.schema import Config, Size
from ensue.tasks.frames.model import LabeledFrameParts, read_frames_seen
from ensue.tasks.glimpses.recipe import GlimpsesRecipe
from ensue.text.labels import Classes


class GlimpsesConfig(Config):
    """`config.json`."""

    rows: Size


@dataclass(frozen=True)
class GlimpseParts(LabeledFrameParts):
    """The parts of a model that reads images of so many `rows`; its labels are the symbols."""

    config: ClassVar[type[Config]] = GlimpsesConfig
    labels: Classes
    rows: int

    @classmethod
    def read(cls, run: RunDirectory) -> Self:
        labels = run.read_json("labels.json", Classes.from_json)
        return cls(read_frames_seen(run), labels, run.config["rows"])

    def build(self, recipe: GlimpsesRecipe) -> GlimpseReader:
        return build_glimpse_reader(
            self.features(recipe), recipe.encoder, recipe.glimpses, rows=self.rows, num_symbols=len(self.labels)
        )
