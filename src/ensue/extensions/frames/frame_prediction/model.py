"""The density of the next frame: the network, with latent variables (STORN, VRNN) or not, its parts, its training."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray
from torch import Tensor, nn

from ensue.data.buckets import by_length
from ensue.extensions.frames.data.series import FrameRows, Vectors
from ensue.extensions.frames.recipe import FramePredictionRecipe, LatentSpecification, MixtureHeadSpecification
from ensue.extensions.frames.tasks.data import LabeledSeries, SeriesData, SeriesNoise, frames_of, noise_for
from ensue.extensions.frames.tasks.model import FrameFeatures, FrameParts, Frames, read_frames_seen
from ensue.metrics.scores import Scores, finite
from ensue.models.encoders import build_encoder
from ensue.models.modules import device_of, evaluating
from ensue.models.specification import Directions, EncoderSpecification
from ensue.nn import SequenceLayer, VariationalRecurrent
from ensue.nn.draws import ALL_ROWS, RowSlice, normal
from ensue.nn.gaussian import Gaussian
from ensue.nn.heads.mixture import Mixture, MixtureHead
from ensue.nn.recurrent.variational import VariationalState
from ensue.ranks import spread
from ensue.runs.directory import RunDirectory
from ensue.runs.pictures import picture
from ensue.runs.reporter import score_table
from ensue.tasks.contract.data_set import DataSetJob, Split
from ensue.tasks.contract.task import Batch, BucketedTask
from ensue.types import Loss, State, select_rows

ReaderState: TypeAlias = Any
"""The state of a reader between two frames."""


class Read(NamedTuple):
    """The output of a reader: `decoded` for the head, the cost of latent variables (`FrameNats`), and the state."""

    decoded: Float[Tensor, "B T d"]
    divergence: Float[Tensor, "B T"]
    ratio: Float[Tensor, "B T"]
    state: ReaderState


class FrameReader(nn.Module, ABC):
    """A reader of frames. `forward` reads whole series.

    In generation, `open` returns the features before the next frame, with latent variables from the prior, and `close`
    reads the frame.
    """

    d_out: int
    d_latent: int = 0

    @abstractmethod
    def forward(
        self,
        x: Float[Tensor, "B T d"],
        disturbed: Float[Tensor, "B T d"],
        noise: Float[Tensor, "B T d_latent"],
        mask: Bool[Tensor, "B T"] | None = None,
    ) -> Read:
        """Read whole series.

        Args:
            x: Frames without noise.
            disturbed: Frames as the layers read them, in training with noise and dropout.
            noise: Draws from N(0, 1) for the latent variables.
            mask: True at real frames.
        """

    @abstractmethod
    def imagined(
        self, x: Float[Tensor, "1 T d"], noise: Float[Tensor, "1 T d_latent"], draws: Float[Tensor, "N S d_latent"]
    ) -> Float[Tensor, "N S d_out"]:
        """Return features before each of the first S frames of a series, with latent variables from their prior by the
        noise of N `draws`. The frames before are read as `forward` reads them with `noise`.
        """

    @abstractmethod
    def init_state(self, rows: int) -> ReaderState:
        """Return the state before the first frame."""

    @abstractmethod
    def open(self, noise: Float[Tensor, "B d_latent"], state: ReaderState) -> tuple[Tensor, ReaderState]:
        """Return features before the next frame (B, d_out), and what `close` needs."""

    @abstractmethod
    def close(self, x: Float[Tensor, "B d"], opened: ReaderState) -> ReaderState:
        """Return the state after a frame."""


class PlainState(NamedTuple):
    """The last frame, not yet read by the layers, and the state of the layers before the frame."""

    last: Float[Tensor, "B d"]
    layers: State


class PlainReader(FrameReader):
    """`h_t = layers(x_<t)`: the layers read the frame before; before the first frame they read zeros.

    Raises `ValueError` for layers that look ahead.
    """

    def __init__(self, layers: SequenceLayer) -> None:
        super().__init__()
        if not layers.is_causal:
            raise ValueError("the layers of a model of the next frame must be causal")
        self.layers, self.d_out = layers, layers.d_out

    def forward(self, x: Tensor, disturbed: Tensor, noise: Tensor, mask: Tensor | None = None) -> Read:
        zeros = x.new_zeros(x.shape[:2])
        return self._through(x, disturbed, noise, zeros, zeros, mask)

    def _through(
        self, x: Tensor, disturbed: Tensor, z: Tensor, divergence: Tensor, ratio: Tensor, mask: Tensor | None
    ) -> Read:
        decoded, state = self.layers(torch.cat((_before(disturbed), z), dim=-1), mask=mask)
        last = x[:, -1] if mask is None else x[torch.arange(len(x), device=x.device), mask.sum(1) - 1]
        return Read(decoded, divergence, ratio, PlainState(last, state))

    def imagined(self, x: Tensor, noise: Tensor, draws: Tensor) -> Tensor:
        count, length, _ = draws.shape
        read: Read = self(x, x, noise)
        return read.decoded[:, :length].expand(count, -1, -1)

    def init_state(self, rows: int) -> PlainState:
        like = next(self.parameters())
        return PlainState(like.new_zeros(rows, self.layers.d_in - self.d_latent), self.layers.init_state(rows))

    def open(self, noise: Float[Tensor, "B d_latent"], state: PlainState) -> tuple[Tensor, State]:
        return self.layers.step(torch.cat((state.last, noise), dim=-1), state.layers)

    def close(self, x: Float[Tensor, "B d"], opened: State) -> PlainState:
        return PlainState(x, opened)


class StochasticReader(PlainReader):
    """STORN (Bayer & Osendorfer 2014): latent variables z_t ~ N(0, 1), each by itself, are an input of the layers too:

        h_t = layers([x_{t-1}; z_t])_t        q(z_t) = N(μ, σ²), (μ, σ) = W recognition(x)_t + b

    The recognition layers may look ahead; generating does not need them.
    """

    def __init__(self, layers: SequenceLayer, recognition: SequenceLayer, *, d_latent: int) -> None:
        super().__init__(layers)
        self.recognition, self.d_latent = recognition, d_latent
        self.posterior = nn.Linear(recognition.d_out, 2 * d_latent)

    def forward(self, x: Tensor, disturbed: Tensor, noise: Tensor, mask: Tensor | None = None) -> Read:
        posterior = self._posterior(x, mask)
        z = posterior.at(noise)
        return self._through(x, disturbed, z, posterior.divergence(), posterior.ratio(z), mask)

    def _posterior(self, x: Tensor, mask: Tensor | None = None) -> Gaussian:
        return Gaussian.of(self.posterior(self.recognition(x, mask=mask)[0]))

    def imagined(self, x: Tensor, noise: Tensor, draws: Tensor) -> Tensor:
        count, length, _ = draws.shape
        before, z, state = _before(x), self._posterior(x).at(noise), self.layers.init_state(1)
        first = torch.zeros(count, dtype=torch.int64, device=x.device)
        features = []
        for t in range(length):
            drawn = torch.cat((before[:, t].expand(count, -1), draws[:, t]), dim=-1)
            features.append(self.layers.step(drawn, select_rows(state, first))[0])
            _, state = self.layers.step(torch.cat((before[:, t], z[:, t]), dim=-1), state)
        return torch.stack(features, dim=1)


class VariationalReader(FrameReader):
    """VRNN (Chung et al. 2015): prior and posterior of the latent variables depend on all frames before."""

    def __init__(self, layer: VariationalRecurrent) -> None:
        super().__init__()
        self.layer, self.d_latent, self.d_out = layer, layer.d_latent, layer.d_decoded

    def forward(self, x: Tensor, disturbed: Tensor, noise: Tensor, mask: Tensor | None = None) -> Read:
        y, state = self.layer(torch.cat((disturbed, noise), dim=-1), mask=mask)
        posterior, prior = self.layer.gaussians(y)
        z = posterior.at(noise)
        return Read(y[..., : self.d_out], posterior.divergence(prior), posterior.ratio(z, prior), state)

    def imagined(self, x: Tensor, noise: Tensor, draws: Tensor) -> Tensor:
        count, length, _ = draws.shape
        y, _ = self.layer(torch.cat((x, noise), dim=-1))
        h = y[:, :length, self.layer.d_hidden : self.d_out].expand(count, -1, -1).flatten(0, 1)
        decoded, _ = self.layer.imagine(draws.flatten(0, 1), VariationalState(h, None))
        return decoded.view(count, length, -1)

    def init_state(self, rows: int) -> ReaderState:
        return self.layer.init_state(rows)

    def open(self, noise: Float[Tensor, "B d_latent"], state: ReaderState) -> tuple[Tensor, ReaderState]:
        decoded, z = self.layer.imagine(noise, state)
        return decoded, (z, state)

    def close(self, x: Float[Tensor, "B d"], opened: ReaderState) -> ReaderState:
        return self.layer.after(x, *opened)


def _before(x: Float[Tensor, "B T d"]) -> Float[Tensor, "B T d"]:
    """Return the frame before each; before the first one zeros."""
    return torch.cat((x.new_zeros(len(x), 1, x.shape[2]), x[:, :-1]), dim=1)


class FrameNats(NamedTuple):
    """The cost of each frame, in nats (B, T), zero at padding. All are of frames as they are in the files.

    `nats` is `-log p(x_t | z_≤t, x_<t)`, and `divergence` the KL of the posterior of z_t from its prior; without latent
    variables it is zero. Their sum is the bound. `ratio` is `log q(z_t) - log p(z_t)` for the z_t that was drawn, so
    that `nats + ratio` is `-log w_t` of importance sampling.
    """

    nats: Float[Tensor, "B T"]
    divergence: Float[Tensor, "B T"]
    ratio: Float[Tensor, "B T"]


class FramePredictor(nn.Module):
    """`p(x_1 .. x_T) = Π_t p(x_t | x_<t)`, each a mixture of diagonal Gaussians over normalized features.

    A density of normalized features x̂ = (x - μ) / σ becomes one of x by the factor Π 1/σ. So what is lost and scored,
    in nats, is that of the frames as they are in the files, and models with other normalizations can be compared.
    Missing features are summed out.
    """

    def __init__(self, features: FrameFeatures, reader: FrameReader, head: MixtureHead) -> None:
        super().__init__()
        self.features, self.reader, self.head = features, reader, head

    @property
    def d_latent(self) -> int:
        """The number of latent variables per frame; 0 without latent variables."""
        return self.reader.d_latent

    def forward(self, frames: Frames, noise: Float[Tensor, "B T d_latent"]) -> FrameNats:
        """Return the cost of each frame, with latent variables drawn by this noise from N(0, 1)."""
        x = self.features.normalized(frames.values)
        read = self.reader(x, self.features.disturbed(x), noise, mask=frames.mask)
        observed = frames.values.isnan().logical_not()
        scale = (self.features.deviation.log() * observed).sum(-1)
        nats = self.head(read.decoded).nats(x, observed) + scale
        parts = nats, read.divergence, read.ratio
        if frames.mask is not None:
            parts = tuple(part.masked_fill(~frames.mask, 0.0) for part in parts)  # type: ignore[assignment]
        return FrameNats(*parts)

    def loss(self, frames: Frames) -> Loss:
        """Return the bound on all frames, with latent variables drawn as the step's rows."""
        cost = self(frames, normal((*frames.shape, self.d_latent), device=frames.values.device))
        return Loss((cost.nats + cost.divergence).sum(), frames.num_real)

    def read(self, frames: Frames, noise: Float[Tensor, "B T d_latent"]) -> ReaderState:
        """Return the state after the frames of each row."""
        x = self.features.normalized(frames.values)
        return self.reader(x, x, noise, mask=frames.mask).state

    def expected(
        self, frames: Frames, noise: Float[Tensor, "1 T d_latent"], draws: Float[Tensor, "N S d_latent"]
    ) -> Mixture:
        """Return the distributions (N, S) of the first S frames of a series, each given those before it, of normalized
        features; with latent variables one for each of N draws from their prior.
        """
        x = self.features.normalized(frames.values)
        mixture: Mixture = self.head(self.reader.imagined(x, noise, draws))
        return mixture

    def next(self, noise: Float[Tensor, "B d_latent"], state: ReaderState) -> tuple[Mixture, ReaderState]:
        """Return the distribution of the next frame, of normalized features, and what `reader.close` needs with it."""
        decoded, opened = self.reader.open(noise, state)
        return self.head(decoded), opened


def build_frame_predictor(
    features: FrameFeatures,
    encoder: EncoderSpecification,
    latent: LatentSpecification,
    head: MixtureHeadSpecification,
) -> FramePredictor:
    """Return a model of the next frame from its tables."""
    reader = _reader(encoder, latent, features.d_out)
    density = MixtureHead(reader.d_out, features.d_out, components=head.components, least=head.least_deviation)
    return FramePredictor(features, reader, density)


def _reader(encoder: EncoderSpecification, latent: LatentSpecification, d: int) -> FrameReader:
    size, hidden = latent.size, latent.d_hidden
    match latent.kind:
        case "vrnn":
            cell = build_encoder(encoder, d_in=2 * hidden)
            return VariationalReader(VariationalRecurrent(cell, d_x=d, d_latent=size, d_hidden=hidden))
        case "storn":
            recognition = build_encoder(encoder, d_in=d, directions=Directions(bidirectional=latent.looks_ahead))
            return StochasticReader(build_encoder(encoder, d_in=d + size), recognition, d_latent=size)
    return PlainReader(build_encoder(encoder, d_in=d))


MAX_BATCH_FRAMES, MAX_BATCH_SERIES = 4_096, 256
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
    """Return the cost of each series in order, by `draws` of its latent variables, if the model has any.

    The draws of a series depend on its frames alone, not on the other series that are scored.
    """
    device = device_of(model)
    by_series: list[SeriesNats | None] = [None] * len(rows)

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
        for chosen, costs in spread(
            scored, by_length(rows.lengths, batch_size=MAX_BATCH_SERIES, batch_tokens=MAX_BATCH_FRAMES)
        ):
            for row, cost in zip(chosen.tolist(), costs, strict=True):
                by_series[row] = SeriesNats(*cost)
    return [cost for cost in by_series if cost is not None]


def _cost(model: FramePredictor, frames: Frames, sources: list[SeriesNoise]) -> list[NDArray[np.float64]]:
    """Return the bound per frame (B, T), the divergence (B,) and the logarithm of the weight (B,) per series."""
    cost = model(frames, noise_for(sources, frames.shape[1], frames.values.device))
    nats, divergence, ratio = (part.double() for part in cost)
    return [part.cpu().numpy() for part in (nats + divergence, divergence.sum(1), -(nats + ratio).sum(1))]


@dataclass(frozen=True)
class FrameScores(Scores):
    """The nats of `frames` frames in `series` series, as they are in the files. A density may be above 1, and its nats
    below 0: what says something are the differences between models of the same frames.

    With latent variables `total_nats` is the bound, of which `divergence` is the part of the variables; `importance`
    are the nats estimated by importance sampling, from several draws. Both are None without latent variables.
    """

    total_nats: float
    frames: int
    series: int
    divergence: float | None = None
    importance: float | None = None

    @property
    def nats_per_frame(self) -> float:
        """The mean nats of a frame; with latent variables an upper bound."""
        return self.total_nats / self.frames

    def as_json(self) -> dict[str, float | int | None]:
        values = {"nats_per_frame": finite(self.nats_per_frame), "frames": self.frames, "series": self.series}
        for name, total in (("divergence", self.divergence), ("importance_nats", self.importance)):
            if total is not None:
                values[f"{name}_per_frame"] = finite(total / self.frames)
        return values

    def summary(self) -> str:
        bound = (
            "" if self.divergence is None else f" at most, {self.divergence / self.frames:.4f} of the latent variables"
        )
        return f"{self.nats_per_frame:.4f} nats per frame{bound}"


def scores_of(costs: Iterable[SeriesNats], *, d_latent: int, draws: int = 1) -> FrameScores:
    """Return the scores of series that cost this much, by so many draws of `d_latent` variables."""
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
    """Return new frames (samples, frames, d) behind those of a series (T, d), of which T may be 0."""
    device = device_of(model)
    generator = torch.Generator(device)
    generator.seed() if seed is None else generator.manual_seed(int(seed))
    series = np.empty((samples, frames, begin.shape[1]), np.float32)
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
            series[:, number] = x.cpu().numpy() * scale + shift
    return series


@torch.inference_mode()
def next_moments(model: FramePredictor, rows: FrameRows) -> Moments:
    """Return the mean and the deviation of each feature of the frame behind each series, (N, d): with latent variables
    those of a mixture over draws of these.
    """
    device, draws = device_of(model), PRIOR_DRAWS if model.d_latent else 1
    shape = len(rows), rows.values.shape[1]
    means, deviations = np.empty(shape), np.empty(shape)
    with evaluating(model):
        for chosen in by_length(rows.lengths, batch_size=MAX_BATCH_SERIES, batch_tokens=MAX_BATCH_FRAMES):
            state = _state_after(model, rows, chosen.tolist())
            noise = np.stack([SeriesNoise(rows[row], model.d_latent).draw(draws) for row in chosen])
            moments = [model.next(torch.from_numpy(one).to(device), state)[0].moments() for one in noise.swapaxes(0, 1)]
            means[chosen], deviations[chosen] = over_draws(
                model.features, *map(torch.stack, zip(*moments, strict=True))
            )
    return means, deviations


def _state_after(model: FramePredictor, rows: FrameRows, chosen: list[int]) -> ReaderState:
    """Return the state after the chosen series."""
    frames = frames_of(rows, chosen, device_of(model))
    sources = [SeriesNoise(rows[row], model.d_latent) for row in chosen]
    return model.read(frames, noise_for(sources, frames.shape[1], frames.values.device))


def over_draws(features: FrameFeatures, means: Tensor, deviations: Tensor) -> Moments:
    """Return the moments of an equally weighted mixture of draws (N, ..., d), in the units of the files."""
    means, deviations = means.double(), deviations.double()
    mean = means.mean(0)
    variance = (deviations.square() + (means - mean).square()).mean(0)
    scale, shift = (part.double().cpu().numpy() for part in (features.deviation, features.mean))
    return mean.cpu().numpy() * scale + shift, variance.sqrt().cpu().numpy() * scale


PICTURES = (".png", ".svg", ".pdf")
MAX_DRAWN_CURVES, MAX_DRAWN_SERIES = 8, 24
"""The most features that are curves, and the most series that are drawn."""


def draw_series(path: Path, series: Sequence[Vectors], *, prompt_frames: int, columns: Sequence[str] = ()) -> str:
    """Draw the first series below each other, with a line behind their first `prompt_frames` frames.

    Returns:
        The number of series that are drawn, as a text.
    """
    shown = series[:MAX_DRAWN_SERIES]
    least, most = min(float(one.min()) for one in shown), max(float(one.max()) for one in shown)
    with picture(path, (7, 0.6 + 1.2 * len(shown))) as figure:
        for axes, frames in zip(figure.subplots(len(shown), sharex=True, squeeze=False)[:, 0], shown, strict=True):
            if frames.shape[1] <= MAX_DRAWN_CURVES:
                axes.plot(frames, linewidth=1)
                axes.set_ylim(least, most)
            else:
                axes.imshow(frames.T, origin="lower", aspect="auto", vmin=least, vmax=most, interpolation="nearest")
            if prompt_frames:
                axes.axvline(
                    prompt_frames - 0.5, color="white" if frames.shape[1] > MAX_DRAWN_CURVES else "gray", linestyle="--"
                )
        if columns and len(columns) <= MAX_DRAWN_CURVES:
            figure.axes[0].legend(list(columns), fontsize=7)
        figure.axes[-1].set_xlabel("frame")
    return f"{len(shown):,} of {len(series):,} series" if len(shown) < len(series) else f"{len(series):,} series"


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

    def batch_of(self, rows: NDArray[np.int64], device: torch.device, row_slice: RowSlice = ALL_ROWS) -> FramesBatch:
        return FramesBatch(frames_of(self.train, rows, device, row_slice))

    def loss(self, model: FramePredictor, batch: FramesBatch, state: State) -> tuple[Loss, State]:
        return model.loss(batch.frames), None

    def validate(self, model: FramePredictor) -> FrameScores | None:
        return None if self.valid is None else score(model, self.valid)


def score(model: FramePredictor, rows: FrameRows) -> FrameScores:
    """Return the scores of a model on series in memory."""
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
        known = [name for name in names if any(name in of_data for of_data in scores.values())]
        formats = {**dict.fromkeys(known, ".4f"), "frames": ","}
        return score_table(scores, {name: (name.replace("_", " "), form) for name, form in formats.items()})


def _keep_end(split: Split[LabeledSeries], recipe: FramePredictionRecipe) -> None:
    """Hold out the end of a single series for validation."""
    data, length = recipe.data, int(split.train.lengths[0])
    num_valid = round(length * data.valid_fraction)
    if len(split.train) == 1 and split.valid is None and 0 < num_valid < length:
        series = split.train.rows[0]
        split.train, split.valid = (
            LabeledSeries(FrameRows.of([part]), [()]) for part in np.split(series, [length - num_valid])
        )
        split.valid_from, split.notes = f"the last {data.valid_fraction:.0%} of {data.train}", []
