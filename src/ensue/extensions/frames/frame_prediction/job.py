"""The job of training a model of the next frame, its task, and the parts of the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray

from ensue.extensions.frames.data.stored import FrameRows
from ensue.extensions.frames.frame_prediction import FramePredictionRecipe
from ensue.extensions.frames.frame_prediction.prediction import nats_of, scores_of
from ensue.extensions.frames.models.frame_features import Frames
from ensue.extensions.frames.models.frame_predictor import FramePredictor, build_frame_predictor
from ensue.extensions.frames.tasks.data import LabeledSeries, SeriesData, frames_of
from ensue.extensions.frames.tasks.model import FrameParts, read_frames_seen
from ensue.metrics.frames import FrameScores
from ensue.runs.directory import RunDirectory
from ensue.runs.reporter import score_table
from ensue.tasks.contract.data_set import DataSetJob, Split
from ensue.tasks.contract.task import WHOLE, Batch, BucketedTask, Cut
from ensue.types import Loss, State


@dataclass(frozen=True)
class FramePredictorParts(FrameParts):
    """The parts of a model of the next frame."""

    @classmethod
    def read(cls, run: RunDirectory) -> Self:
        return cls(read_frames_seen(run))

    def build(self, recipe: FramePredictionRecipe) -> FramePredictor:
        return build_frame_predictor(self.features(recipe), recipe.encoder, recipe.latent, recipe.head)

    def commands(self, recipe: Any, path: str) -> list[str]:
        return [
            f"ensue generate {path} --out new.npz --frames 100",
            f"ensue score {path} FILE",
            f"ensue predict {path} FILE --json",
            f"ensue evaluate {path} FILE --json",
        ]

    def python(self, recipe: Any) -> list[str]:
        return ["print(model.generate(frames=100))"]


@dataclass(frozen=True)
class FramesBatch(Batch):
    """Series, each of whose frames is a prediction."""

    frames: Frames


class FramePrediction(BucketedTask[FramePredictor, FramesBatch]):
    """Whole series in batches of similar length; judged by nats per frame."""

    judged_by = "nats_per_frame"
    less_is_better = True

    def __init__(self, train: FrameRows, valid: FrameRows | None, recipe: FramePredictionRecipe) -> None:
        self.train, self.valid = train.cut(recipe.train.longest), valid
        super().__init__(self.train.lengths, recipe.train, num_tokens=int(train.lengths.sum()))

    def count(self, rows: NDArray[np.int64]) -> int:
        return int(self.train.lengths[rows].sum())

    def batch_of(self, rows: NDArray[np.int64], device: torch.device, cut: Cut = WHOLE) -> FramesBatch:
        return FramesBatch(frames_of(self.train, rows, device, cut))

    def loss(self, model: FramePredictor, batch: FramesBatch, state: State) -> tuple[Loss, State]:
        return model.loss(batch.frames), None

    def validate(self, model: FramePredictor) -> FrameScores | None:
        return None if self.valid is None else score(model, self.valid)


def score(model: FramePredictor, rows: FrameRows) -> FrameScores:
    """The scores of a model on series in memory."""
    return scores_of(nats_of(model, rows), d_latent=model.d_latent)


class FramePredictionJob(DataSetJob[FramePredictor, LabeledSeries]):
    """Trains a model of the next frame."""

    unit: ClassVar[str] = "frames"
    recipe: FramePredictionRecipe
    parts: FramePredictorParts
    task: FramePrediction

    def __init__(self, recipe: FramePredictionRecipe, run: RunDirectory | None = None) -> None:
        data = SeriesData(recipe, run)
        super().__init__(recipe, data)
        _keep_end(self.split, recipe)
        self.parts = FramePredictorParts(data.seen()) if run is None else run.parts
        valid = self.split.valid
        self.task = FramePrediction(self.split.train.rows, None if valid is None else valid.rows, recipe)

    @property
    def notes(self) -> list[str]:
        longest = self.recipe.train.longest
        many = int((self.split.train.lengths > longest).sum())
        cut = [f"{many:,} of the series are longer than {longest:,} frames and are cut for training"] if many else []
        return [*super().notes, *cut]

    def test(self, model: FramePredictor) -> FrameScores | None:
        return None if self.split.test is None else score(model, self.split.test.rows)

    def about(self) -> str:
        return f"of {len(self.parts.seen.mean):,} features"

    def score_lines(self, scores: dict[str, dict[str, Any]]) -> list[str]:
        names = ("nats_per_frame", "divergence_per_frame")
        known = [name for name in names if any(name in found for found in scores.values())]
        formats = {**dict.fromkeys(known, ".4f"), "frames": ","}
        return score_table(scores, {name: (name.replace("_", " "), form) for name, form in formats.items()})


def _keep_end(split: Split[LabeledSeries], recipe: FramePredictionRecipe) -> None:
    """Keeps the end of a single series for validation."""
    data, length = recipe.data, int(split.train.lengths[0])
    kept = round(length * data.valid_fraction)
    if len(split.train) == 1 and split.valid is None and 0 < kept < length:
        whole = split.train.rows[0]
        split.train, split.valid = (
            LabeledSeries(FrameRows.of([part]), [()]) for part in np.split(whole, [length - kept])
        )
        split.valid_from, split.notes = f"the last {data.valid_fraction:.0%} of {data.train}", []
