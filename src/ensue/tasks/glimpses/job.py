"""The job of training a model that reads images in glimpses."""

from __future__ import annotations

from typing import Any, ClassVar

from ensue.data.frames.series import Series
from ensue.metrics.symbols import SymbolScores
from ensue.models.glimpse_reader import GlimpseReader
from ensue.runs.directory import RunDirectory
from ensue.tasks.frames.job import LabeledFramesJob
from ensue.tasks.glimpses.data import caption_of, check_glimpsed
from ensue.tasks.glimpses.model import GlimpseParts
from ensue.tasks.glimpses.recipe import GlimpsesRecipe
from ensue.tasks.glimpses.task import ReadingInGlimpses, score_reader
from ensue.text.classes import Classes


class GlimpsesJob(LabeledFramesJob[GlimpseReader]):
    """Trains a model that reads images in glimpses."""

    unit: ClassVar[str] = "images"
    counted_by: ClassVar[str] = "examples"
    recipe: GlimpsesRecipe
    parts: GlimpseParts
    task: ReadingInGlimpses

    def __init__(self, recipe: GlimpsesRecipe, run: RunDirectory | None = None) -> None:
        self.rows = 0 if run is None else run.parts.rows
        super().__init__(recipe, run)

    def check(self, series: Series) -> None:
        super().check(series)
        self.rows = self.rows or len(series.frames)
        check_glimpsed(series, self.recipe, self.rows)

    def labels_of(self, series: Series) -> tuple[str, ...]:
        return caption_of(series, self.recipe)

    def made_parts(self) -> GlimpseParts:
        return GlimpseParts(self.seen(), Classes(sorted(self.train.label_counts)), self.rows)

    def begin_task(self) -> None:
        self.task = ReadingInGlimpses(self.train, self.valid, self.parts.labels, self.recipe)

    def config(self) -> dict[str, Any]:
        return {"rows": self.rows, **super().config()}

    def test(self, model: GlimpseReader) -> SymbolScores | None:
        most = self.recipe.glimpses.most_symbols
        return None if self.test_data is None else score_reader(model, self.parts.labels, self.test_data, most)

    @property
    def score_columns(self) -> dict[str, str]:
        return {"exact_match": "exact match", "edit_rate": "edit rate", "nats_per_symbol": "nats per symbol"}

    def score_lines(self, scores: dict[str, dict[str, Any]]) -> list[str]:
        columns = self.score_columns
        lines = [f"| data | {' | '.join(columns.values())} | images |", f"|---{'|---' * len(columns)}|---|"]
        for name, found in scores.items():
            lines.append(f"| {name} | {' | '.join(f'{found[key]:.4g}' for key in columns)} | {found['examples']:,} |")
        return lines
