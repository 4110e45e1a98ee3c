"""The pipeline of frame predictors: generation, scores, prediction, evaluation, and the page that shows a series."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.data.files import Data
from ensue.errors import EnsueError, check_integer, check_path, check_type
from ensue.extensions.frames import page
from ensue.extensions.frames.data.readers import check_writable, encode_series
from ensue.extensions.frames.data.series import FrameRows, Series, Vectors
from ensue.extensions.frames.frame_prediction import model as frame_prediction
from ensue.extensions.frames.recipe import FramePredictionRecipe
from ensue.extensions.frames.tasks.data import SeriesNoise
from ensue.extensions.frames.tasks.model import Frames
from ensue.extensions.frames.tasks.pipeline import PROGRAMS, AnsweringFramesPipeline, split_into_chunks
from ensue.inspection.drawing import plot
from ensue.inspection.notebook import Shown
from ensue.inspection.page import Inspection, Section, decimal
from ensue.metrics.scores import ItemRows, ScoredItems, quotient
from ensue.models.modules import device_of, evaluating
from ensue.outputs import atomic_output, check_outputs
from ensue.tasks.contract import description
from ensue.tasks.contract.chunks import UNSHARDED, check_generated, max_positions

PRIOR_SEED = 1
"""The seed of samples from the prior. Samples from the posterior have the seed 0."""


@dataclass(frozen=True)
class FramePredictorView(page.SeriesView):
    """The view of a series in a frame predictor.

    `mean`, `deviation` and `weights` describe predictions of the first S frames, with latent variables from the prior.
    """

    nats: NDArray[np.float64]
    """The surprisal (T,) of the frames in nats, as `score` returns it."""
    divergence: NDArray[np.float64] | None
    """The KL term (T,) of `nats`; None without latent variables."""
    mean: NDArray[np.float64]
    """The means (S, d), in the units of the file."""
    deviation: NDArray[np.float64]
    """The standard deviations (S, d), in the units of the file."""
    weights: NDArray[np.float64] | None
    """The weights (S, K) of a mixture; None for a single component."""


@torch.inference_mode()
def view_series(model: frame_prediction.FramePredictor, series: page.SeriesView) -> FramePredictorView:
    """Return the view of a series."""
    device, size = device_of(model), model.d_latent
    frames = Frames(torch.from_numpy(series.frames).to(device).unsqueeze(0), None)
    noise = torch.from_numpy(SeriesNoise(series.frames, size).draw()).to(device).unsqueeze(0)
    count, draws = min(len(series.frames), page.MAX_DRAWN_FRAMES), frame_prediction.PRIOR_DRAWS if size else 1
    prior_noise = SeriesNoise(series.frames, size, seed=PRIOR_SEED).draw(draws * count).reshape(draws, count, size)
    with evaluating(model):
        nats, divergence, _ = (term[0].double().cpu().numpy() for term in model(frames, noise))
        mixture = model.expected(frames, noise, torch.from_numpy(prior_noise).to(device))
        mean, deviation = frame_prediction.mixture_moments(model.features, *mixture.moments())
    weights = mixture.log_weights.exp().double().mean(0).cpu().numpy()
    return FramePredictorView(
        **vars(series), nats=nats + divergence, divergence=divergence if size else None, mean=mean, deviation=deviation,
        weights=weights if weights.shape[1] > 1 else None,
    )  # fmt: skip


NATS = "−log p of each frame given the earlier frames. A value is negative where the density is above 1."
BOUND = (
    "−log p of each frame, given latent variables from the posterior, and the KL divergence of the posterior from the "
    "prior. Their sum is a bound on −log p."
)
EXPECTED = "Each frame, and its predicted distribution given the earlier frames."
FROM_THE_PRIOR = " The latent variables are drawn from their prior, since the posterior depends on the predicted frame."


def series_sections(view: FramePredictorView) -> list[Section]:
    """Return the sections of the page."""
    columns = view.columns
    sections = [page.series_section(view, columns), _nats_section(view, columns), _prediction_section(view, columns)]
    if view.weights is not None:
        names = [f"k = {number}" for number in range(view.weights.shape[1])]
        drawing = page.draw_curves_or_map(view.weights, columns, names, name="weights of the components")
        sections.append(Section.plain("Components", drawing, about="The weights of the mixture.", note=columns.note))
    return sections


def _nats_section(view: FramePredictorView, columns: page.FrameColumns) -> Section:
    if view.divergence is None:
        about, curves = NATS, {"nats": view.nats}
    else:
        about = BOUND
        curves = {"bound": view.nats, "frame": view.nats - view.divergence, "divergence": view.divergence}
    drawing = plot(curves, columns, name="nats of each frame")
    return Section.plain("Nats of each frame", drawing, about=about, note=columns.note)


def _prediction_section(view: FramePredictorView, columns: page.FrameColumns) -> Section:
    frames, mean, deviation = view.frames[: len(columns)].astype(np.float64), view.mean, view.deviation
    about = EXPECTED + (FROM_THE_PRIOR if view.divergence is not None else "")
    if len(view.names) <= page.MAX_CURVES:
        about += " The shaded band is the mean ± the standard deviation."
        triples = zip(frames.T, mean.T, deviation.T, strict=True)
        drawings = [
            (name, plot({"frame": x, "mean": m, "deviation": s}, columns, ranges={"mean": (m - s, m + s)}, name=name))
            for name, (x, m, s) in zip(view.names, triples, strict=True)
        ]
    else:
        maps = {"The mean": mean, "The deviation": deviation, "The frame − the mean": frames - mean}
        maps["(The frame − the mean) / the deviation"] = (frames - mean) / deviation
        drawings = [
            (name, page.draw_map(values, columns, view.names, name=name, signed=number > 1))
            for number, (name, values) in enumerate(maps.items())
        ]
    shown = {"about": about, "note": columns.note, "drawings": drawings}
    return Section("Predicted distributions", "extensions/frames/frame_prediction/expected.html", shown)


MAX_FRAMES, MAX_SAMPLES, MAX_DRAWS = 1_000_000, 10_000, 100_000


@dataclass(frozen=True)
class NextFrame(Shown):
    """The mean and the standard deviation (d,) of the next frame of a series."""

    series: str
    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]

    @property
    def line(self) -> str:
        """The name of the series and the means."""
        return f"{self.series}\t{' '.join(f'{number:.6g}' for number in self.mean)}"

    def as_json(self) -> dict[str, Any]:
        """Return the prediction as JSON values."""
        moments = {"mean": self.mean, "deviation": self.deviation}
        return {"series": self.series, **{name: [float(f"{x:.6g}") for x in row] for name, row in moments.items()}}


class FramePredictionPipeline(AnsweringFramesPipeline[NextFrame]):
    """The pipeline of a frame predictor."""

    recipe: FramePredictionRecipe
    generates_files: ClassVar[bool] = True

    def generate(
        self, prompt: Any = None, *, frames: int = 100, samples: int = 1, temperature: float = 1.0,
        seed: int | None = None,
    ) -> list[Vectors]:  # fmt: skip
        """Return sampled series (T, d).

        Args:
            prompt: A series that all samples continue: an array (T, d), or a series that `source(path)` yields.
            frames: The number of frames after the prompt.
            samples: The number of series.
            temperature: A factor of the standard deviations; 0: the mean of the component with the largest weight.
            seed: The seed of the samples; None for a random seed.

        Raises:
            EnsueError: An argument is out of range.
        """
        first = None if prompt is None else next(self._to_series([prompt]))
        return self._generate(first, frames, samples, temperature, seed)

    def _generate(
        self, prompt: Series | None, frames: int, samples: int, temperature: float, seed: int | None
    ) -> list[Vectors]:
        check_integer("frames", frames, 1, MAX_FRAMES)
        check_integer("samples", samples, 1, MAX_SAMPLES)
        check_type("temperature", temperature, Real, "a number")
        if not 0 <= temperature < 1e6:
            raise EnsueError(f"temperature is {temperature}; expected a number from 0 to 1,000,000")
        if seed is not None:
            check_integer("seed", seed, 0, (1 << 63) - 1)
        length = frames + (len(prompt.frames) if prompt else 0)
        if length > (limit := max_positions(self.recipe.encoder, 2 * MAX_FRAMES)):
            raise EnsueError(f"{length:,} frames; this model ({self.recipe.encoder.kind}) reads up to {limit:,}")
        check_generated(samples * length * len(self.statistics.mean))
        prefix = np.zeros((0, len(self.statistics.mean)), np.float32) if prompt is None else prompt.frames
        sampled = frame_prediction.sample_frames(
            self.model, prefix, frames=frames, samples=samples, temperature=temperature, seed=seed
        )
        return [np.concatenate((prefix, sample)) for sample in sampled]

    def generate_into(
        self, out: Path, *, prompt: str = "", frames: int = 100, samples: int = 1, temperature: float = 1.0,
        seed: int | None = None, overwrite: bool = False,
    ) -> str:  # fmt: skip
        """Write the series that `generate` returns to a .npz, .npy or .csv file or a picture; return a line of text.

        `prompt` is a file with one series. Without `overwrite`, raises EnsueError if the file `out` exists and was not
        written by ensue.
        """
        check_path("the file to write", out)
        path, shape = Path(out), self.statistics.shape
        check_writable(path, others=frame_prediction.PICTURES)
        check_outputs([self.run or "", prompt], files=[path], overwrite=overwrite)
        prefix = self.read_single(prompt) if prompt else None
        series = self._generate(prefix, frames, samples, temperature, seed)
        amount, prompt_frames = f"{samples:,} series", len(prefix.frames) if prefix else 0
        with atomic_output(path) as partial:
            if path.suffix in frame_prediction.PICTURES:
                names = shape.columns
                amount = frame_prediction.draw_series(partial, series, prompt_frames=prompt_frames, columns=names)
            else:
                partial.write_bytes(encode_series(path, series, columns=shape.columns, rate=shape.rate))
        return f"wrote {amount} of {len(series[0]):,} frames to {out}"

    def answers(self, series: Iterable[Series], *, in_full: bool = True) -> Iterator[NextFrame]:
        return self.expect(series)

    def expect(self, series: Iterable[Series]) -> Iterator[NextFrame]:
        """Yield the mean and standard deviation of the frame after each series, in order and in constant memory."""
        for chunk in split_into_chunks(series):
            means, deviations = frame_prediction.predict_moments(self.model, FrameRows.of_series(chunk))
            for item, mean, deviation in zip(chunk, means, deviations, strict=True):
                yield NextFrame(item.name, mean, deviation)

    def inspect(self, series: Any) -> Inspection:
        """Return the page of a series, given by the path of a file or as for `predict`."""
        view, recipe = view_series(self.model, self.series_view(self.read_single(series))), self.recipe
        facts = {"latent variables": f"{recipe.latent.kind}, {recipe.latent.size}"} if self.model.d_latent else {}
        facts |= {"components": f"{recipe.head.components}"} if recipe.head.components > 1 else {}
        facts |= {"nats per frame": decimal(float(view.nats.mean()), 4)}
        return self._make_inspection(view, series_sections(view), facts)

    def score(self, series: Any) -> NDArray[np.float64]:
        """Return the nats (T,) of the frames of a series; with latent variables an upper bound."""
        ((_, nats),) = self._score_series(self._to_series([series]))
        return nats.frames

    def score_json(self, text: Any) -> Any:
        frames = [round(nats, 6) for nats in self.score(text).tolist()]
        return {"nats": round(sum(frames), 6), "frames": frames}

    def score_lines(self, location: str, *, encoding: str = "utf-8", as_json: bool = False) -> Iterator[str]:
        """Yield the lines of `ensue score`: the nats, the series and the number of each frame."""
        for item, series_nats in self._score_series(self._read(location, encoding, UNSHARDED)):
            for number, nats in enumerate(series_nats.frames.tolist()):
                if as_json:
                    yield json.dumps({"series": item.name, "frame": number, "nats": round(nats, 6)}, ensure_ascii=False)
                else:
                    yield f"{nats:9.4f}\t{item.name}\t{number}"

    def evaluate(self, location: Data, *, encoding: str = "utf-8", draws: int = 1) -> frame_prediction.FrameScores:
        """Return the nats per frame; with latent variables an upper bound.

        Args:
            location: The series.
            encoding: The encoding of tables.
            draws: The number of samples of latent variables. Several samples also give an estimate by importance
                sampling.

        Raises:
            EnsueError: `draws` is out of range.
        """
        check_integer("draws", draws, 1, MAX_DRAWS)
        nats = (nats for _, nats in self._score_series(self._read_labeled(location, encoding), draws=draws))
        return frame_prediction.sum_scores(nats, d_latent=self.model.d_latent, draws=draws)

    def scored_items(self, location: Data, *, encoding: str = "utf-8") -> ScoredItems:
        nats = (nats.frames for _, nats in self._score_series(self._read_labeled(location, encoding)))
        rows = ItemRows((frames.sum(), len(frames)) for frames in nats)
        return rows.build_items("series", {"nats_per_frame": quotient(0, 1)})

    def _score_series(
        self, series: Iterable[Series], *, draws: int = 1
    ) -> Iterator[tuple[Series, frame_prediction.SeriesNats]]:
        for chunk in split_into_chunks(series):
            rows = FrameRows.of_series(chunk)
            yield from zip(chunk, frame_prediction.compute_nats(self.model, rows, draws=draws), strict=True)

    def describe(self) -> description.ModelDescription:
        if self.model.d_latent:
            kind = self.recipe.latent.kind
            raise EnsueError(f"{self.run}: a model with latent variables ({kind}) cannot be exported")
        layers = _get_layers(self.model)

        def sample(batch: int, length: int) -> dict[str, Tensor]:
            _, state = layers(self.model.features.normalized(self._sample_frames(batch, 2)))
            return {"frames": self._sample_frames(batch, length), **description.state_tensors(state)}

        frames = description.TensorSpec(("batch", "time", self.statistics.shape.width))
        inputs = {"frames": frames, **description.state_specs(layers.init_state(2))}
        function = description.TensorFunction("model", _predict_mixture, inputs, sample)
        settings = {**self._make_file_settings(), "mean": list(self.statistics.mean)}
        programs = f"{PROGRAMS}.frame_predictor", f"{PROGRAMS}.frames"
        return description.ModelDescription(
            self._describe_input(), description.VectorOutput(), self.model, (function,), self.model, programs, settings
        )

    def __repr__(self) -> str:
        kind = self.recipe.latent.kind
        latent = [] if kind == "none" else [f"{kind} {self.recipe.latent.size}"]
        return self._format_repr(self.recipe.describe(), *latent, f"{self.num_parameters:,} parameters")


def _predict_mixture(model: frame_prediction.FramePredictor, frames: Tensor, **state: Any) -> dict[str, Tensor]:
    """Return the predicted mixture of the next frame at each position (B, T), in the units of the file."""
    layers, features = _get_layers(model), model.features
    h, after = layers(features.normalized(frames), description.state_from(layers.init_state(1), state))
    log_weights, (mean, log_deviation) = model.head.build_mixture(model.head.projection(h))
    return {
        "weights": log_weights.exp(), "means": mean * features.deviation + features.mean,
        "deviations": log_deviation.exp() * features.deviation, **description.state_tensors(after, "next"),
    }  # fmt: skip


def _get_layers(model: frame_prediction.FramePredictor) -> Any:
    reader = model.reader
    assert isinstance(reader, frame_prediction.PlainReader)
    return reader.layers
