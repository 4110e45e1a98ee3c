"""What series cost under a model of the next frame: the bound frame by frame, and importance sampling."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.data.buckets import by_length
from ensue.data.frames.series import Vectors
from ensue.data.frames.stored import FrameRows
from ensue.metrics.frames import FrameScores
from ensue.models.frame_features import Frames
from ensue.models.frame_predictor import FramePredictor
from ensue.models.modules import device_of, evaluating
from ensue.ranks import spread
from ensue.tasks.frames.data import frames_of

READ_FRAMES, READ_SERIES = 4_096, 256
"""The most frames and series in a batch outside of training."""


class SeriesNats(NamedTuple):
    """What a series costs: the nats of each frame (T,), with latent variables a bound, the mean over draws; the part of
    these variables; and the nats by importance sampling, which for one draw are those of the draw.
    """

    frames: NDArray[np.float64]
    divergence: float
    importance: float


@torch.inference_mode()
def nats_of(model: FramePredictor, rows: FrameRows, *, draws: int = 1) -> list[SeriesNats]:
    """What each series costs, in order, by so many draws of its latent variables, if the model has any.

    The draws of a series follow from its frames, so they are the same whatever else is scored with it.
    """
    device = device_of(model)
    found: list[SeriesNats | None] = [None] * len(rows)

    def scored(chosen: NDArray[np.int64]) -> tuple[NDArray[np.int64], list[SeriesNats]]:
        frames = frames_of(rows, chosen, device)
        sources = [Noise(rows[row], model.d_latent) for row in chosen.tolist()]
        nats, divergence, weight = _cost(model, frames, sources)
        weights = [weight]
        for _ in range(1, draws if model.d_latent else 1):
            one, other, weight = _cost(model, frames, sources)
            nats, divergence, weights = nats + one, divergence + other, [*weights, weight]
        importance, count = -log_mean(np.stack(weights)), len(weights)
        return chosen, [
            SeriesNats(nats[place, : rows.lengths[row]] / count, divergence[place] / count, importance[place])
            for place, row in enumerate(chosen.tolist())
        ]

    with evaluating(model):
        for chosen, costs in spread(scored, by_length(rows.lengths, batch_size=READ_SERIES, batch_tokens=READ_FRAMES)):
            for row, cost in zip(chosen.tolist(), costs, strict=True):
                found[row] = cost
    return [cost for cost in found if cost is not None]


def _cost(model: FramePredictor, frames: Frames, sources: list[Noise]) -> list[NDArray[np.float64]]:
    """The bound on each frame (B, T), the divergence of each series (B,), and the logarithm of its weight (B,)."""
    cost = model(frames, noise_for(sources, frames.shape[1], frames.values.device))
    nats, divergence, ratio = (part.double() for part in cost)
    return [part.cpu().numpy() for part in (nats + divergence, divergence.sum(1), -(nats + ratio).sum(1))]


def log_mean(logs: NDArray[np.float64]) -> NDArray[np.float64]:
    """`log mean exp` over the first dimension."""
    most = logs.max(0)
    mean: NDArray[np.float64] = most + np.log(np.exp(logs - most).mean(0))
    return mean


class Noise:
    """The noise of the latent variables of a series: as many draws as are asked, the same ones whenever it is read."""

    def __init__(self, frames: Vectors, d_latent: int) -> None:
        self.length, self.d_latent = len(frames), d_latent
        self._generator = np.random.default_rng(crc32(np.ascontiguousarray(frames).tobytes()))

    def draw(self, length: int | None = None) -> Vectors:
        """Numbers (length, d_latent) from N(0, 1); by default for each frame."""
        return self._generator.standard_normal((self.length if length is None else length, self.d_latent), np.float32)


def noise_for(sources: list[Noise], length: int, device: torch.device) -> Tensor:
    """A draw for each series (B, length, d_latent), zeros at padding."""
    found = np.zeros((len(sources), length, sources[0].d_latent), np.float32)
    for row, source in zip(found, sources, strict=True):
        row[: source.length] = source.draw()
    return torch.from_numpy(found).to(device)


def scores_of(costs: Iterable[SeriesNats], *, d_latent: int, draws: int = 1) -> FrameScores:
    """The scores of series that cost this much, by so many draws of `d_latent` variables."""
    nats, frames, series, divergence, importance = 0.0, 0, 0, 0.0, 0.0
    for cost in costs:
        nats, frames, series = nats + float(cost.frames.sum()), frames + len(cost.frames), series + 1
        divergence, importance = divergence + cost.divergence, importance + cost.importance
    return FrameScores(
        nats, frames, series, divergence if d_latent else None, importance if d_latent and draws > 1 else None
    )
