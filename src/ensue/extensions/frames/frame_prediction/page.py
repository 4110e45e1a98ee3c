"""From a model of the next frame and a series to a page about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ensue.extensions.frames.frame_prediction import FramePredictionRecipe
from ensue.extensions.frames.frame_prediction.prediction import PRIOR_DRAWS, over_draws
from ensue.extensions.frames.models.frame_features import Frames
from ensue.extensions.frames.models.frame_predictor import FramePredictor
from ensue.extensions.frames.page import MOST_CURVES, SeriesView, curves_or_map, feature_map, series_section
from ensue.extensions.frames.tasks.data import SeriesNoise
from ensue.inspection.drawing import MOST_FRAMES, FrameColumns, lines
from ensue.inspection.markup import clipped, plain
from ensue.inspection.page import TITLE, Inspection, Section
from ensue.models.modules import device_of, evaluating

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
        mean, deviation = over_draws(model.features, *found.moments())
    weights = found.log_weights.exp().double().mean(0).cpu().numpy()
    return FramePredictorView(
        **vars(series),
        nats=nats + divergence,
        divergence=divergence if size else None,
        mean=mean,
        deviation=deviation,
        weights=weights if weights.shape[1] > 1 else None,
    )


NATS = "−log p of each frame, given those before it. It is below 0 where the density is above 1."
BOUND = (
    "What each frame costs: −log p of the frame, given latent variables that have seen it, and their KL divergence "
    "from the prior. The sum is a bound on −log p."
)
EXPECTED = "What is expected of each frame from those before it, and the frame as it came."
FROM_THE_PRIOR = " The latent variables are drawn from their prior, since nobody has seen the frame."


def series_sections(view: FramePredictorView) -> list[Section]:
    """All sections."""
    columns = view.columns
    sections = [series_section(view, columns), _nats(view, columns), _expected(view, columns)]
    if view.weights is not None:
        names = [f"k = {number}" for number in range(view.weights.shape[1])]
        drawing = curves_or_map(view.weights, columns, names, name="weights of the components")
        sections.append(Section.plain("Components", drawing, about="The weights of the mixture.", note=columns.note))
    return sections


def _nats(view: FramePredictorView, columns: FrameColumns) -> Section:
    if view.divergence is None:
        about, curves = NATS, {"nats": view.nats}
    else:
        about = BOUND
        curves = {"bound": view.nats, "frame": view.nats - view.divergence, "divergence": view.divergence}
    drawing = lines(curves, columns, name="nats of each frame")
    return Section.plain("Nats of each frame", drawing, about=about, note=columns.note)


def _expected(view: FramePredictorView, columns: FrameColumns) -> Section:
    """Of few features a drawing for each, of many a map of each kind of number."""
    frames, mean, deviation = view.frames[: len(columns)].astype(np.float64), view.mean, view.deviation
    about = EXPECTED + (FROM_THE_PRIOR if view.divergence is not None else "")
    if len(view.names) <= MOST_CURVES:
        about += " The pale range is the mean, less and plus the deviation."
        triples = zip(frames.T, mean.T, deviation.T, strict=True)
        drawings = [
            (name, lines({"frame": x, "mean": m, "deviation": s}, columns, ranges={"mean": (m - s, m + s)}, name=name))
            for name, (x, m, s) in zip(view.names, triples, strict=True)
        ]
    else:
        kinds = {"The mean": mean, "The deviation": deviation, "The frame, less the mean": frames - mean}
        kinds["The same, in deviations"] = kinds["The frame, less the mean"] / deviation
        drawings = [
            (name, feature_map(values, columns, view.names, name=name, signed=place > 1))
            for place, (name, values) in enumerate(kinds.items())
        ]
    shown = {"about": about, "note": columns.note, "drawings": drawings}
    return Section("What it expected", "extensions/frames/frame_prediction/expected.html", shown)


def inspect_series(
    model: FramePredictor, series: SeriesView, recipe: FramePredictionRecipe, facts: Mapping[str, str]
) -> Inspection:
    """A series in a model of this recipe; `facts` are those of the model."""
    view = view_series(model, series)
    more = {"latent variables": f"{recipe.latent.kind}, {recipe.latent.size}"} if model.d_latent else {}
    more |= {"components": f"{recipe.head.components}"} if recipe.head.components > 1 else {}
    more |= {"frames": f"{len(view.frames):,}", "nats per frame": plain(float(view.nats.mean()), 4)}
    return Inspection(clipped(view.series, TITLE), view, {**facts, **more}, series_sections(view))
