"""A model of the next frame in use: generates, scores, evaluates, and shows a series."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.arguments import check_path, check_type, check_whole
from ensue.data.files import Location
from ensue.errors import EnsueError
from ensue.extensions.frames.data.readers import check_writable, content_of
from ensue.extensions.frames.data.series import FrameRows, Series, Vectors
from ensue.extensions.frames.frame_prediction.model import (
    PICTURES,
    PRIOR_DRAWS,
    FramePredictor,
    FrameScores,
    PlainReader,
    SeriesNats,
    draw_series,
    free_running,
    nats_of,
    next_moments,
    over_draws,
    scores_of,
)
from ensue.extensions.frames.page import (
    MAX_CURVES,
    MAX_DRAWN_FRAMES,
    FrameColumns,
    SeriesView,
    curves_or_map,
    feature_map,
    series_section,
)
from ensue.extensions.frames.recipe import FramePredictionRecipe
from ensue.extensions.frames.tasks.data import SeriesNoise
from ensue.extensions.frames.tasks.model import Frames
from ensue.extensions.frames.tasks.pipeline import PROGRAMS, AnsweringFramesPipeline, chunked
from ensue.inspection.drawing import lines
from ensue.inspection.markup import clipped, plain
from ensue.inspection.notebook import Answers, Shown
from ensue.inspection.page import TITLE, Inspection, Section
from ensue.metrics.scores import ItemRows, ScoredItems, ratio
from ensue.models.modules import device_of, evaluating
from ensue.outputs import check_outputs, written
from ensue.tasks.contract.chunks import WHOLE, check_generated, most_read
from ensue.tasks.contract.description import (
    ModelDescription,
    TensorFunction,
    VectorOutput,
    state_forms,
    state_from,
    state_tensors,
)

PRIOR_SEED = 1
"""The seed of the draws from the prior; scores use another seed."""


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
    """Return the view of a series."""
    device, size = device_of(model), model.d_latent
    frames = Frames(torch.from_numpy(series.frames).to(device).unsqueeze(0), None)
    noise = torch.from_numpy(SeriesNoise(series.frames, size).draw()).to(device).unsqueeze(0)
    count, draws = min(len(series.frames), MAX_DRAWN_FRAMES), PRIOR_DRAWS if size else 1
    drawn = SeriesNoise(series.frames, size, seed=PRIOR_SEED).draw(draws * count).reshape(draws, count, size)
    with evaluating(model):
        nats, divergence, _ = (part[0].double().cpu().numpy() for part in model(frames, noise))
        mixture = model.expected(frames, noise, torch.from_numpy(drawn).to(device))
        mean, deviation = over_draws(model.features, *mixture.moments())
    weights = mixture.log_weights.exp().double().mean(0).cpu().numpy()
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
    """Return all sections."""
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
    if len(view.names) <= MAX_CURVES:
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
    """Return a series in a model of this recipe; `facts` are those of the model."""
    view = view_series(model, series)
    more = {"latent variables": f"{recipe.latent.kind}, {recipe.latent.size}"} if model.d_latent else {}
    more |= {"components": f"{recipe.head.components}"} if recipe.head.components > 1 else {}
    more |= {"frames": f"{len(view.frames):,}", "nats per frame": plain(float(view.nats.mean()), 4)}
    return Inspection(clipped(view.series, TITLE), view, {**facts, **more}, series_sections(view))


MAX_FRAMES, MAX_SAMPLES, MAX_DRAWS = 1_000_000, 10_000, 100_000


@dataclass(frozen=True)
class NextFrame(Shown):
    """The next frame of a series, by its name: the mean and the deviation of each feature."""

    series: str
    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]

    @property
    def line(self) -> str:
        """The series and the means."""
        return f"{self.series}\t{' '.join(f'{number:.6g}' for number in self.mean)}"

    def as_json(self) -> dict[str, Any]:
        """Return the prediction as JSON values."""
        mean, deviation = ([float(f"{number:.6g}") for number in part] for part in (self.mean, self.deviation))
        return {"series": self.series, "mean": mean, "deviation": deviation}


class FramePredictionPipeline(AnsweringFramesPipeline[NextFrame]):
    """A model of the next frame: generates, scores, predicts and evaluates."""

    recipe: FramePredictionRecipe
    generates_files: ClassVar[bool] = True

    def generate(
        self,
        prompt: Any = None,
        *,
        frames: int = 100,
        samples: int = 1,
        temperature: float = 1.0,
        seed: int | None = None,
    ) -> list[Vectors]:
        """Return series (T, d) that the model writes, `samples` of them; each frame is drawn and read again.

        `prompt` is a series, an array of numbers (T, d) or one of `source`, with which all begin; `frames` come behind
        it. The deviation of what is drawn is multiplied by `temperature`; with 0 it is the mean, of a mixture that of
        the heaviest component. Without a seed the series differ each time. Raises EnsueError for values out of range.
        """
        begin = None if prompt is None else next(self._series_of([prompt]))
        return self._generated(begin, frames, samples, temperature, seed)

    def _generated(
        self, begin: Series | None, frames: int, samples: int, temperature: float, seed: int | None
    ) -> list[Vectors]:
        check_whole("frames", frames, 1, MAX_FRAMES)
        check_whole("samples", samples, 1, MAX_SAMPLES)
        check_type("temperature", temperature, Real, "a number")
        if not 0 <= temperature < 1e6:
            raise EnsueError(f"temperature is {temperature}; expected a number that is not below 0")
        if seed is not None:
            check_whole("seed", seed, 0, (1 << 63) - 1)
        length = frames + (len(begin.frames) if begin else 0)
        if length > (most := most_read(self.recipe.encoder, 2 * MAX_FRAMES)):
            raise EnsueError(f"{length:,} frames in all; this model ({self.recipe.encoder.kind}) reads up to {most:,}")
        check_generated(samples * length * len(self.seen.mean))
        prefix = np.zeros((0, len(self.seen.mean)), np.float32) if begin is None else begin.frames
        behind = free_running(self.model, prefix, frames=frames, samples=samples, temperature=temperature, seed=seed)
        return [np.concatenate((prefix, one)) for one in behind]

    def generate_into(
        self,
        out: Path,
        *,
        prompt: str = "",
        frames: int = 100,
        samples: int = 1,
        temperature: float = 1.0,
        seed: int | None = None,
        overwrite: bool = False,
    ) -> str:
        """`generate` into a file: .npz, .npy or .csv, or a picture. `prompt` names a file with one series. Returns what
        it wrote. Raises EnsueError for a file that ensue did not write, unless `overwrite`.
        """
        check_path("the file to write", out)
        path, shape = Path(out), self.seen.shape
        check_writable(path, others=PICTURES)
        check_outputs([self.run or "", prompt], files=[path], overwrite=overwrite)
        begin = self.only(prompt) if prompt else None
        series = self._generated(begin, frames, samples, temperature, seed)
        what = f"{samples:,} series"
        with written(path) as partial:
            if path.suffix in PICTURES:
                what = draw_series(
                    partial, series, prompt_frames=len(begin.frames) if begin else 0, columns=shape.columns
                )
            else:
                partial.write_bytes(content_of(path, series, columns=shape.columns, rate=shape.rate))
        return f"wrote {what} of {len(series[0]):,} frames to {out}"

    def predict(self, texts: Iterable[Any]) -> list[NextFrame]:
        """Return the next frame behind each series: an array of numbers (T, d), one of `source`, or the samples (n,) of
        a sound at the rate of the training data.
        """
        return Answers(self.expect(self._series_of(texts)))

    def answers(self, series: Iterable[Series], *, in_full: bool = True) -> Iterator[NextFrame]:
        return self.expect(series)

    def expect(self, series: Iterable[Series]) -> Iterator[NextFrame]:
        """Yield the next frame behind each of a stream of series of any length, in order, in constant memory."""
        for chunk in chunked(series):
            means, deviations = next_moments(self.model, FrameRows.of([one.frames for one in chunk]))
            for one, mean, deviation in zip(chunk, means, deviations, strict=True):
                yield NextFrame(one.name, mean, deviation)

    def inspect(self, series: Any) -> Inspection:
        """Look into the model with a series, as numbers and as a page: what it expected of each frame, and what
        each costs. `series` is the path of a file that has one, or as for `predict`.
        """
        shown = self.series_view(self.only(series))
        return inspect_series(self.model, shown, self.recipe, self.facts(self.recipe.describe()))

    def score(self, series: Any) -> NDArray[np.float64]:
        """Return the nats of each frame (T,) of a series, read from its beginning; with latent variables a bound."""
        ((_, cost),) = self._costs(self._series_of([series]))
        return cost.frames

    def score_json(self, text: Any) -> Any:
        nats = [round(cost, 6) for cost in self.score(text).tolist()]
        return {"nats": round(sum(nats), 6), "frames": nats}

    def score_lines(self, location: str, *, encoding: str = "utf-8", as_json: bool = False) -> Iterator[str]:
        """Yield the lines of `ensue score`: the nats of each frame, its series and its number."""
        for one, cost in self._costs(self._read(location, encoding, WHOLE)):
            for number, nats in enumerate(cost.frames.tolist()):
                if as_json:
                    values = {"series": one.name, "frame": number, "nats": round(nats, 6)}
                    yield json.dumps(values, ensure_ascii=False)
                else:
                    yield f"{nats:9.4f}\t{one.name}\t{number}"

    def evaluate(self, location: Location, *, encoding: str = "utf-8", draws: int = 1) -> FrameScores:
        """Return the nats per frame; with latent variables the bound.

        Args:
            location: The series.
            encoding: The encoding of tables.
            draws: With several draws of latent variables there is also an estimate by importance sampling.

        Raises:
            EnsueError: `draws` is out of range.
        """
        check_whole("draws", draws, 1, MAX_DRAWS)
        costs = (cost for _, cost in self._costs(self._scored_series(location, encoding), draws=draws))
        return scores_of(costs, d_latent=self.model.d_latent, draws=draws)

    def scored_items(self, location: Location, *, encoding: str = "utf-8") -> ScoredItems:
        rows = ItemRows()
        for _, cost in self._costs(self._scored_series(location, encoding)):
            rows.append((cost.frames.sum(), len(cost.frames)))
        return rows.scored("series", {"nats_per_frame": ratio(0, 1)})

    def _costs(self, series: Iterable[Series], *, draws: int = 1) -> Iterator[tuple[Series, SeriesNats]]:
        for chunk in chunked(series):
            yield from zip(
                chunk, nats_of(self.model, FrameRows.of([one.frames for one in chunk]), draws=draws), strict=True
            )

    def describe(self) -> ModelDescription:
        if self.model.d_latent:
            kind = self.recipe.latent.kind
            raise EnsueError(f"{self.run}: a model with latent variables ({kind}) cannot be exported")
        layers = _layers(self.model)

        def sample(batch: int, length: int) -> dict[str, Tensor]:
            _, state = layers(self.model.features.normalized(self._sample_frames(batch, 2)))
            return {"frames": self._sample_frames(batch, length), **state_tensors(state)}

        inputs = {"frames": self._frames_form, **state_forms(layers.init_state(2))}
        function = TensorFunction("model", _next, inputs, sample)
        settings = {**self._file_settings(), "mean": list(self.seen.mean)}
        programs = f"{PROGRAMS}.frame_predictor", f"{PROGRAMS}.frames"
        return ModelDescription(
            self._described_input(), VectorOutput(), self.model, (function,), self.model, programs, settings
        )

    def __repr__(self) -> str:
        kind = self.recipe.latent.kind
        latent = [] if kind == "none" else [f"{kind} {self.recipe.latent.size}"]
        return self._described(self.recipe.describe(), *latent, f"{self.num_parameters:,} parameters")


def _next(model: FramePredictor, frames: Tensor, **state: Any) -> dict[str, Tensor]:
    """Return the mixture behind each frame (B, T), in the units of the files. The `state` before the first frame is
    zeros.
    """
    layers, features = _layers(model), model.features
    h, after = layers(features.normalized(frames), state_from(layers.init_state(1), state))
    log_weights, (mean, log_deviation) = model.head.of(model.head.projection(h))
    return {
        "weights": log_weights.exp(),
        "means": mean * features.deviation + features.mean,
        "deviations": log_deviation.exp() * features.deviation,
        **state_tensors(after, "next"),
    }


def _layers(model: FramePredictor) -> Any:
    reader = model.reader
    assert isinstance(reader, PlainReader)
    return reader.layers
