"""A model of the next frame in use: generates series, scores frames, predicts the next one, and evaluates."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ensue.arguments import check_path, check_type, check_whole
from ensue.data.files import Location
from ensue.errors import EnsueError
from ensue.extensions.frames.data.arrays import check_writable, content_of
from ensue.extensions.frames.data.series import Series, Vectors
from ensue.extensions.frames.data.stored import FrameRows
from ensue.extensions.frames.frame_prediction import FramePredictionRecipe
from ensue.extensions.frames.frame_prediction.page import inspect_series
from ensue.extensions.frames.frame_prediction.prediction import (
    PICTURES,
    SeriesNats,
    draw_series,
    free_running,
    nats_of,
    next_moments,
    scores_of,
)
from ensue.extensions.frames.models.frame_predictor import FramePredictor
from ensue.extensions.frames.models.frame_readers import PlainReader
from ensue.extensions.frames.tasks.pipeline import AnsweringFramesPipeline, chunked
from ensue.inspection.notebook import Answers, Shown
from ensue.inspection.page import Inspection
from ensue.metrics.frames import FrameScores
from ensue.metrics.scores import ItemRows, ScoredItems, ratio
from ensue.outputs import check_outputs, written
from ensue.tasks.contract.chunks import WHOLE, check_generated, most_read
from ensue.tasks.contract.portable import (
    Portable,
    PortableFunction,
    state_forms,
    state_from,
    state_tensors,
)

MOST_FRAMES, MOST_SAMPLES, MOST_DRAWS = 1_000_000, 10_000, 100_000


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
        """The prediction as JSON values."""
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
        """Series (T, d) that the model writes, `samples` of them; each frame is drawn and read again.

        `prompt` is a series, an array of numbers (T, d) or one of `source`, with which all begin; `frames` come behind
        it. The deviation of what is drawn is multiplied by `temperature`; with 0 it is the mean, of a mixture that of
        the heaviest component. Without a seed the series differ each time. Raises EnsueError for values out of range.
        """
        begin = None if prompt is None else next(self._given([prompt]))
        return self._generated(begin, frames, samples, temperature, seed)

    def _generated(
        self, begin: Series | None, frames: int, samples: int, temperature: float, seed: int | None
    ) -> list[Vectors]:
        check_whole("frames", frames, 1, MOST_FRAMES)
        check_whole("samples", samples, 1, MOST_SAMPLES)
        check_type("temperature", temperature, Real, "a number")
        if not 0 <= temperature < 1e6:
            raise EnsueError(f"temperature is {temperature}; expected a number that is not below 0")
        if seed is not None:
            check_whole("seed", seed, 0, (1 << 63) - 1)
        length = frames + (len(begin.frames) if begin else 0)
        if length > (most := most_read(self.recipe.encoder, 2 * MOST_FRAMES)):
            raise EnsueError(f"{length:,} frames in all; this model ({self.recipe.encoder.kind}) reads up to {most:,}")
        check_generated(samples * length * len(self.seen.mean))
        given = np.zeros((0, len(self.seen.mean)), np.float32) if begin is None else begin.frames
        behind = free_running(self.model, given, frames=frames, samples=samples, temperature=temperature, seed=seed)
        return [np.concatenate((given, one)) for one in behind]

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
                what = draw_series(partial, series, given=len(begin.frames) if begin else 0, columns=shape.columns)
            else:
                partial.write_bytes(content_of(path, series, columns=shape.columns, rate=shape.rate))
        return f"wrote {what} of {len(series[0]):,} frames to {out}"

    def predict(self, texts: Iterable[Any]) -> list[NextFrame]:
        """The next frame behind each series: an array of numbers (T, d), one of `source`, or the samples (n,) of a
        sound at the rate of the training data.
        """
        return Answers(self.expect(self._given(texts)))

    def answers(self, series: Iterable[Series], *, in_full: bool = True) -> Iterator[NextFrame]:
        return self.expect(series)

    def expect(self, series: Iterable[Series]) -> Iterator[NextFrame]:
        """The next frame behind each of a stream of series of any length, in order, in constant memory."""
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
        """The nats of each frame (T,) of a series, read from its beginning; with latent variables a bound."""
        ((_, cost),) = self._costs(self._given([series]))
        return cost.frames

    def score_json(self, text: Any) -> Any:
        nats = [round(cost, 6) for cost in self.score(text).tolist()]
        return {"nats": round(sum(nats), 6), "frames": nats}

    def score_lines(self, location: str, *, encoding: str = "utf-8", as_json: bool = False) -> Iterator[str]:
        """The lines of `ensue score`: the nats of each frame, its series and its number."""
        for one, cost in self._costs(self._read(location, encoding, WHOLE)):
            for number, nats in enumerate(cost.frames.tolist()):
                if as_json:
                    found = {"series": one.name, "frame": number, "nats": round(nats, 6)}
                    yield json.dumps(found, ensure_ascii=False)
                else:
                    yield f"{nats:9.4f}\t{one.name}\t{number}"

    def evaluate(self, location: Location, *, encoding: str = "utf-8", draws: int = 1) -> FrameScores:
        """The nats per frame; with latent variables the bound, and with several `draws` of these also an estimate by
        importance sampling. Raises EnsueError for draws out of range.
        """
        check_whole("draws", draws, 1, MOST_DRAWS)
        costs = (cost for _, cost in self._costs(self._whole(location, encoding), draws=draws))
        return scores_of(costs, d_latent=self.model.d_latent, draws=draws)

    def scored_items(self, location: Location, *, encoding: str = "utf-8") -> ScoredItems:
        rows = ItemRows()
        for _, cost in self._costs(self._whole(location, encoding)):
            rows.append((cost.frames.sum(), len(cost.frames)))
        return rows.scored("series", {"nats_per_frame": ratio(0, 1)})

    def _costs(self, series: Iterable[Series], *, draws: int = 1) -> Iterator[tuple[Series, SeriesNats]]:
        for chunk in chunked(series):
            yield from zip(
                chunk, nats_of(self.model, FrameRows.of([one.frames for one in chunk]), draws=draws), strict=True
            )

    def portable(self) -> Portable:
        if self.model.d_latent:
            kind = self.recipe.latent.kind
            raise EnsueError(f"{self.run}: a model with latent variables ({kind}) has no export to ONNX")
        layers = _layers(self.model)

        def sample(batch: int, length: int) -> dict[str, Tensor]:
            _, state = layers(self.model.features.normalized(self._sample_frames(batch, 2)))
            return {"frames": self._sample_frames(batch, length), **state_tensors(state)}

        inputs = {"frames": self._frames_form, **state_forms(layers.init_state(2))}
        function = PortableFunction("model", _next, inputs, sample)
        settings = {**self._file_settings(), "mean": list(self.seen.mean)}
        return Portable(self.model, (function,), ("frame_predictor", "frames"), settings)

    def __repr__(self) -> str:
        kind = self.recipe.latent.kind
        latent = [] if kind == "none" else [f"{kind} {self.recipe.latent.size}"]
        return self._described(self.recipe.describe(), *latent, f"{self.num_parameters:,} parameters")


def _next(model: FramePredictor, frames: Tensor, **state: Any) -> dict[str, Tensor]:
    """The mixture behind each frame (B, T), in the units of the files. The `state` before the first frame is zeros."""
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
