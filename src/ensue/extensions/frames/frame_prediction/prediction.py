"""Series in a model of the next frame: their nats, frames that it draws and reads again, and what it expects next.

The nats are the bound frame by frame, or an estimate by importance sampling.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.data.buckets import by_length
from ensue.extensions.frames.data.series import Vectors
from ensue.extensions.frames.data.stored import FrameRows
from ensue.extensions.frames.models.frame_features import FrameFeatures, Frames
from ensue.extensions.frames.models.frame_predictor import FramePredictor
from ensue.extensions.frames.models.frame_readers import ReaderState
from ensue.extensions.frames.tasks.data import SeriesNoise, frames_of, noise_for
from ensue.metrics.frames import FrameScores
from ensue.models.modules import device_of, evaluating
from ensue.ranks import spread
from ensue.runs.pictures import picture
from ensue.types import select_rows

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


PRIOR_DRAWS = 64
"""Draws of the latent variables of the next frame, over which its mean and deviation are taken."""
Moments = tuple[NDArray[np.float64], NDArray[np.float64]]


@torch.inference_mode()
def free_running(
    model: FramePredictor, begin: Vectors, *, frames: int, samples: int, temperature: float, seed: int | None
) -> NDArray[np.float32]:
    """New frames (samples, frames, d) behind those of a series (T, d), of which T may be 0."""
    device = device_of(model)
    generator = torch.Generator(device)
    generator.seed() if seed is None else generator.manual_seed(int(seed))
    found = np.empty((samples, frames, begin.shape[1]), np.float32)
    scale, shift = (part.cpu().numpy() for part in (model.features.deviation, model.features.mean))
    with evaluating(model):
        state = model.reader.init_state(samples)
        if len(begin):
            state = _state_after(model, FrameRows.of([begin]), [0])
            state = select_rows(state, torch.zeros(samples, dtype=torch.int64, device=device))
        for number in range(frames):
            noise = torch.randn(samples, model.d_latent, generator=generator, device=device)
            density, opened = model.next(temperature * noise, state)
            x = density.draw(temperature=temperature, generator=generator)
            state = model.reader.close(x, opened)
            found[:, number] = x.cpu().numpy() * scale + shift
    return found


@torch.inference_mode()
def next_moments(model: FramePredictor, rows: FrameRows) -> Moments:
    """The mean and the deviation of each feature of the frame behind each series, (N, d): with latent variables those
    of a mixture over draws of these.
    """
    device, draws = device_of(model), PRIOR_DRAWS if model.d_latent else 1
    shape = len(rows), rows.values.shape[1]
    means, deviations = np.empty(shape), np.empty(shape)
    with evaluating(model):
        for chosen in by_length(rows.lengths, batch_size=READ_SERIES, batch_tokens=READ_FRAMES):
            state = _state_after(model, rows, chosen.tolist())
            noise = np.stack([SeriesNoise(rows[row], model.d_latent).draw(draws) for row in chosen])
            moments = [model.next(torch.from_numpy(one).to(device), state)[0].moments() for one in noise.swapaxes(0, 1)]
            means[chosen], deviations[chosen] = over_draws(
                model.features, *map(torch.stack, zip(*moments, strict=True))
            )
    return means, deviations


def _state_after(model: FramePredictor, rows: FrameRows, chosen: list[int]) -> ReaderState:
    """The state after the chosen series."""
    frames = frames_of(rows, chosen, device_of(model))
    sources = [SeriesNoise(rows[row], model.d_latent) for row in chosen]
    return model.read(frames, noise_for(sources, frames.shape[1], frames.values.device))


def over_draws(features: FrameFeatures, means: Tensor, deviations: Tensor) -> Moments:
    """The moments of a mixture of draws (N, ..., d) of normalized features, each as likely as the others, in the units
    of the files.
    """
    means, deviations = means.double(), deviations.double()
    mean = means.mean(0)
    variance = (deviations.square() + (means - mean).square()).mean(0)
    scale, shift = (part.double().cpu().numpy() for part in (features.deviation, features.mean))
    return mean.cpu().numpy() * scale + shift, variance.sqrt().cpu().numpy() * scale


PICTURES = (".png", ".svg", ".pdf")
MOST_CURVES, MOST_SERIES = 8, 24
"""The most features that are curves, and the most series that are drawn."""


def draw_series(path: Path, series: Sequence[Vectors], *, given: int, columns: Sequence[str] = ()) -> str:
    """Draws the first series below each other, with a line behind the `given` frames that they begin with. Returns what
    was drawn.
    """
    shown = series[:MOST_SERIES]
    least, most = min(float(one.min()) for one in shown), max(float(one.max()) for one in shown)
    with picture(path, (7, 0.6 + 1.2 * len(shown))) as figure:
        for axes, frames in zip(figure.subplots(len(shown), sharex=True, squeeze=False)[:, 0], shown, strict=True):
            if frames.shape[1] <= MOST_CURVES:
                axes.plot(frames, linewidth=1)
                axes.set_ylim(least, most)
            else:
                axes.imshow(frames.T, origin="lower", aspect="auto", vmin=least, vmax=most, interpolation="nearest")
            if given:
                axes.axvline(given - 0.5, color="white" if frames.shape[1] > MOST_CURVES else "gray", linestyle="--")
        if columns and len(columns) <= MOST_CURVES:
            figure.axes[0].legend(list(columns), fontsize=7)
        figure.axes[-1].set_xlabel("frame")
    return f"{len(shown):,} of {len(series):,} series" if len(shown) < len(series) else f"{len(series):,} series"
