"""The job of training a model that reads images in glimpses."""

from __future__ import annotations

from typing import Any, ClassVar

from ensue.data.frames.series import Series
from ensue.metrics.symbols import SymbolScores
from ensue.models.glimpse_reader import GlimpseReader
from ensue.runs.card import score_table
from ensue.runs.directory import RunDirectory
from ensue.tasks.contract.labels_job import LabelsJob
from ensue.tasks.frames.data import LabeledSeries, LabeledSeriesData
from ensue.tasks.glimpses.model import GlimpseParts
from ensue.tasks.glimpses.recipe import GlimpsesRecipe
from ensue.tasks.glimpses.task import ReadingInGlimpses, caption_of, check_glimpsed, score_reader
from ensue.text.labels import Classes


class ImageData(LabeledSeriesData):
    """Images with their captions."""

    unit: ClassVar[str] = "images"


class GlimpsesJob(LabelsJob[GlimpseReader, LabeledSeries]):
    """Trains a model that reads images in glimpses."""

    counted_by: ClassVar[str] = "examples"
    recipe: GlimpsesRecipe
    parts: GlimpseParts
    task: ReadingInGlimpses

    def __init__(self, recipe: GlimpsesRecipe, run: RunDirectory | None = None) -> None:
        rows = 0 if run is None else run.parts.rows

        def check(series: Series) -> None:
            nonlocal rows
            rows = rows or len(series.frames)
            check_glimpsed(series, recipe, rows)

        data = ImageData(recipe, run, labels_of=lambda series: caption_of(series, recipe), check=check)
        super().__init__(recipe, data)
        labels = Classes(sorted(self.split.train.label_counts))
        self.parts = GlimpseParts(data.seen(), labels, rows) if run is None else run.parts
        self.task = ReadingInGlimpses(self.split.train, self.split.valid, self.parts.labels, recipe)

    def config(self) -> dict[str, Any]:
        return {"rows": self.parts.rows, **super().config()}

    def test(self, model: GlimpseReader) -> SymbolScores | None:
        most = self.recipe.glimpses.most_symbols
        return None if self.split.test is None else score_reader(model, self.parts.labels, self.split.test, most)

    @property
    def score_columns(self) -> dict[str, str]:
        return {"exact_match": "exact match", "edit_rate": "edit rate", "nats_per_symbol": "nats per symbol"}

    def score_lines(self, scores: dict[str, dict[str, Any]]) -> list[str]:
        shares = {key: (title, ".4g") for key, title in self.score_columns.items()}
        return score_table(scores, {**shares, "examples": ("images", ",")})
