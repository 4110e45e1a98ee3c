"""What happens in a model of the next frame with a series, in numbers: what it expects of each frame, and what each
costs. `page.py` draws it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ensue.inspection.drawing import MOST_FRAMES
from ensue.inspection.series import SeriesView
from ensue.models.frame_features import Frames
from ensue.models.frame_predictor import FramePredictor
from ensue.models.modules import device_of, evaluating
from ensue.tasks.frame_prediction.generation import PRIOR_DRAWS, over_draws
from ensue.tasks.frames.noise import SeriesNoise

PRIOR_SEED = 1
"""The seed of the draws from the prior. Those of the scores have another one."""


@dataclass(frozen=True)
class FramePredictorView(SeriesView):
    """A series in a model of the next frame. `nats` (T,) is what each frame costs, as `score` gives it; with latent
    variables a bound, of which `divergence` (T,) is their part.

    `mean` and `deviation` (S, d) are what is expected of each of the first S frames from those before it, in the units
    of the file; `weights` (S, K) are those of a mixture. With latent variables all three are taken over draws from
    their prior, since nobody has seen the frame.
    """

    nats: NDArray[np.float64]
    divergence: NDArray[np.float64] | None
    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]
    weights: NDArray[np.float64] | None


@torch.inference_mode()
def view_series(model: FramePredictor, series: SeriesView) -> FramePredictorView:
    """The view of a series."""
    device, size = device_of(model), model.d_latent
    frames = Frames(torch.from_numpy(series.frames).to(device).unsqueeze(0), None)
    noise = torch.from_numpy(SeriesNoise(series.frames, size).draw()).to(device).unsqueeze(0)
    count, draws = min(len(series.frames), MOST_FRAMES), PRIOR_DRAWS if size else 1
    drawn = SeriesNoise(series.frames, size, seed=PRIOR_SEED).draw(draws * count).reshape(draws, count, size)
    with evaluating(model):
        nats, divergence, _ = (part[0].double().cpu().numpy() for part in model(frames, noise))
        found = model.expected(frames, noise, torch.from_numpy(drawn).to(device))
        mean, deviation = over_draws(*found.moments())
    scale, shift = (part.double().cpu().numpy() for part in (model.features.deviation, model.features.mean))
    weights = found.log_weights.exp().double().mean(0).cpu().numpy()
    return FramePredictorView(
        **vars(series),
        nats=nats + divergence,
        divergence=divergence if size else None,
        mean=mean * scale + shift,
        deviation=deviation * scale,
        weights=weights if weights.shape[1] > 1 else None,
    )
