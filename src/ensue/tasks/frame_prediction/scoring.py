"""Nats of series under a model of the next frame: the bound frame by frame, and importance sampling."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ensue.data.buckets import by_length
from ensue.data.frames.stored import FrameRows
from ensue.metrics.frames import FrameScores
from ensue.models.frame_features import Frames
from ensue.models.frame_predictor import FramePredictor
from ensue.models.modules import device_of, evaluating
from ensue.ranks import spread
from ensue.tasks.frames.data import SeriesNoise, frames_of, noise_for

READ_FRAMES, READ_SERIES = 4_096, 256
"""The most frames and series in a batch outside of training."""


class SeriesNats(NamedTuple):
    """The nats of a series: those of each frame (T,), with latent variables a bound, the mean over draws; the part of
    these variables; and the nats by importance sampling, which for one draw are those of the draw.
    """

    frames: NDArray[np.float64]
    divergence: float
    importance: float


@torch.inference_mode()
def nats_of(model: FramePredictor, rows: FrameRows, *, draws: int = 1) -> list[SeriesNats]:
    """The cost of each series, in order, by so many draws of its latent variables, if the model has any.

    The draws of a series follow from its frames, so they are the same whatever else is scored with it.
    """
    device = device_of(model)
    found: list[SeriesNats | None] = [None] * len(rows)

    def scored(chosen: NDArray[np.int64]) -> tuple[NDArray[np.int64], list[tuple[Any, ...]]]:
        frames = frames_of(rows, chosen, device)
        sources = [SeriesNoise(rows[row], model.d_latent) for row in chosen.tolist()]
        nats, divergence, weight = _cost(model, frames, sources)
        weights = [weight]
        for _ in range(1, draws if model.d_latent else 1):
            one, other, weight = _cost(model, frames, sources)
            nats, divergence, weights = nats + one, divergence + other, [*weights, weight]
        count = len(weights)
        importance = np.log(count) - np.logaddexp.reduce(weights)
        return chosen, [
            (nats[place, : rows.lengths[row]] / count, divergence[place] / count, importance[place])
            for place, row in enumerate(chosen.tolist())
        ]

    with evaluating(model):
        for chosen, costs in spread(scored, by_length(rows.lengths, batch_size=READ_SERIES, batch_tokens=READ_FRAMES)):
            for row, cost in zip(chosen.tolist(), costs, strict=True):
                found[row] = SeriesNats(*cost)
    return [cost for cost in found if cost is not None]


def _cost(model: FramePredictor, frames: Frames, sources: list[SeriesNoise]) -> list[NDArray[np.float64]]:
    """The bound on each frame (B, T), the divergence of each series (B,), and the logarithm of its weight (B,)."""
    cost = model(frames, noise_for(sources, frames.shape[1], frames.values.device))
    nats, divergence, ratio = (part.double() for part in cost)
    return [part.cpu().numpy() for part in (nats + divergence, divergence.sum(1), -(nats + ratio).sum(1))]


def scores_of(costs: Iterable[SeriesNats], *, d_latent: int, draws: int = 1) -> FrameScores:
    """The scores of series that cost this much, by so many draws of `d_latent` variables."""
    nats, frames, series, divergence, importance = 0.0, 0, 0, 0.0, 0.0
    for cost in costs:
        nats, frames, series = nats + float(cost.frames.sum()), frames + len(cost.frames), series + 1
        divergence, importance = divergence + cost.divergence, importance + cost.importance
    return FrameScores(
        nats, frames, series, divergence if d_latent else None, importance if d_latent and draws > 1 else None
    )
