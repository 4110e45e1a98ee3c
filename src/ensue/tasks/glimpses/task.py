"""Reading of images in glimpses: batches, the bound, scores."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from ensue.metrics.symbols import JudgedSymbols, SymbolScores, score_symbols
from ensue.models.frame_features import Frames
from ensue.models.glimpse_reader import GlimpseReader
from ensue.models.modules import evaluating
from ensue.tasks.contract.task import WHOLE, BucketedTask, Cut, TensorBatch, on_device
from ensue.tasks.frames.data import LabeledSeries, frames_of
from ensue.tasks.glimpses.data import read_images, targets_of
from ensue.tasks.glimpses.recipe import GlimpsesRecipe
from ensue.text.classes import Classes
from ensue.types import Loss, State


class ReadingInGlimpses(BucketedTask[GlimpseReader, TensorBatch]):
    """Images in batches with their symbols, judged by the share that is read without a mistake."""

    judged_by = "exact_match"

    def __init__(
        self, train: LabeledSeries, valid: LabeledSeries | None, labels: Classes, recipe: GlimpsesRecipe
    ) -> None:
        self.train, self.valid, self.labels, self.most = train, valid, labels, recipe.glimpses.most_symbols
        self.targets = targets_of(labels, train.labels)
        super().__init__(train.lengths, recipe.train)

    def batch_of(self, rows: NDArray[np.int64], device: torch.device, cut: Cut = WHOLE) -> TensorBatch:
        targets = self.targets[rows]
        longest = int((targets >= 0).sum(1).max())
        frames = frames_of(self.train.rows, rows, device, cut).values
        return TensorBatch((frames, on_device(cut.of(targets)[:, :longest], device)))

    def loss(self, model: GlimpseReader, batch: TensorBatch, state: State) -> tuple[Loss, State]:
        frames, targets = batch.tensors
        return model.loss(Frames(frames, None), targets), None

    def validate(self, model: GlimpseReader) -> SymbolScores | None:
        return None if self.valid is None else score_reader(model, self.labels, self.valid, self.most)


def score_reader(model: GlimpseReader, labels: Classes, data: LabeledSeries, most: int) -> SymbolScores:
    """The scores of a model on images with captions."""
    with evaluating(model):
        return score_symbols(judged(model, labels, data, most))


def judged(model: GlimpseReader, labels: Classes, data: LabeledSeries, most: int) -> Iterator[JudgedSymbols]:
    """The symbols that the model reads in each image, beside those of its caption."""
    answers = read_images(model, labels, data.rows, data.labels, most=most)
    for right, (found, nats) in zip(data.labels, answers, strict=True):
        yield JudgedSymbols(right, found.symbols, nats)
