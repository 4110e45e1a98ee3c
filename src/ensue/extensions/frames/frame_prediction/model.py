"""Prediction of the next frame, with or without latent variables (STORN, VRNN): models, training, scores, sampling."""

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

from ensue.data.buckets import batch_by_length
from ensue.errors import pluralize
from ensue.extensions.frames.data.series import FrameRows, Vectors
from ensue.extensions.frames.recipe import FramePredictionRecipe, LatentSpecification
from ensue.extensions.frames.tasks.data import LabeledSeries, SeriesData, SeriesNoise, draw_batch_noise, pad_frames
from ensue.extensions.frames.tasks.model import FrameFeatures, FrameParts, Frames, read_frame_statistics
from ensue.metrics.scores import Scores, finite
from ensue.models.encoders import build_encoder
from ensue.models.modules import device_of, evaluating
from ensue.models.specification import Directions, EncoderSpecification
from ensue.nn import SequenceLayer, VariationalRecurrent
from ensue.nn.draws import ALL_ROWS, RowSlice, normal
from ensue.nn.gaussian import Gaussian, Mixture, MixtureHead
from ensue.nn.recurrent.variational import VariationalState
from ensue.ranks import sharded_map
from ensue.runs.directory import RunDirectory
from ensue.runs.pictures import picture
from ensue.runs.reporter import score_table
from ensue.tasks.contract.data_set import DataSetJob
from ensue.tasks.contract.task import Batch, BucketedTask
from ensue.types import Loss, State, select_rows

ReaderState: TypeAlias = Any
"""The state of a reader between frames."""


class Read(NamedTuple):
    """The output of a reader: features for the head, `divergence` and `ratio` as in `FrameNats`, and the state."""

    decoded: Float[Tensor, "B T d"]
    divergence: Float[Tensor, "B T"]
    ratio: Float[Tensor, "B T"]
    state: ReaderState


class FrameReader(nn.Module, ABC):
    """The base of networks that read frames and return features for the prediction of the next frame.

    `forward` reads complete series. In generation, `open` returns features for the next frame, with latent variables
    from their prior, and `close` reads the frame that was sampled from the prediction.
    """

    d_out: int
    d_latent: int = 0
    """The number of latent variables per frame."""

    @abstractmethod
    def forward(
        self, x: Float[Tensor, "B T d"], augmented: Float[Tensor, "B T d"], noise: Float[Tensor, "B T d_latent"],
        mask: Bool[Tensor, "B T"] | None = None,
    ) -> Read:  # fmt: skip
        """Read complete series.

        Args:
            x: Normalized frames, for the posterior of `StochasticReader`.
            augmented: Normalized frames with noise and dropout in training, for all other layers.
            noise: Samples from N(0, 1) for the latent variables.
            mask: True at frames, False at padding.
        """

    @abstractmethod
    def from_prior(
        self, x: Float[Tensor, "1 T d"], noise: Float[Tensor, "1 T d_latent"], draws: Float[Tensor, "N S d_latent"]
    ) -> Float[Tensor, "N S d_out"]:
        """Return features for the first S frames, with N samples of each frame's latent variables from the prior.

        The latent variables of earlier frames are samples from the posterior, which `noise` determines.
        """

    @abstractmethod
    def init_state(self, rows: int) -> ReaderState:
        """Return the state before the first frame."""

    @abstractmethod
    def open(self, noise: Float[Tensor, "B d_latent"], state: ReaderState) -> tuple[Tensor, ReaderState]:
        """Return features (B, d_out) for the next frame, and the argument `opened` of `close`."""

    @abstractmethod
    def close(self, x: Float[Tensor, "B d"], opened: ReaderState) -> ReaderState:
        """Return the state after a frame."""


class PlainState(NamedTuple):
    """The last frame, and the state of the layers before they read the last frame."""

    last: Float[Tensor, "B d"]
    layers: State


class PlainReader(FrameReader):
    """`h_t = layers(x_{t-1})` with x_0 = 0, without latent variables. Raises ValueError unless layers are causal."""

    def __init__(self, layers: SequenceLayer) -> None:
        super().__init__()
        if not layers.is_causal:
            raise ValueError("expected causal layers")
        self.layers, self.d_out = layers, layers.d_out

    def forward(self, x: Tensor, augmented: Tensor, noise: Tensor, mask: Tensor | None = None) -> Read:
        zeros = x.new_zeros(x.shape[:2])
        return self._read(x, augmented, noise, zeros, zeros, mask)

    def _read(self, x: Tensor, augmented: Tensor, z: Tensor, kl: Tensor, ratio: Tensor, mask: Tensor | None) -> Read:
        decoded, state = self.layers(torch.cat((_shift(augmented), z), dim=-1), mask=mask)
        last = x[:, -1] if mask is None else x[torch.arange(len(x), device=x.device), mask.sum(1) - 1]
        return Read(decoded, kl, ratio, PlainState(last, state))

    def from_prior(self, x: Tensor, noise: Tensor, draws: Tensor) -> Tensor:
        count, length, _ = draws.shape
        read: Read = self(x, x, noise)
        return read.decoded[:, :length].expand(count, -1, -1)

    def init_state(self, rows: int) -> PlainState:
        last = next(self.parameters()).new_zeros(rows, self.layers.d_in - self.d_latent)
        return PlainState(last, self.layers.init_state(rows))

    def open(self, noise: Float[Tensor, "B d_latent"], state: PlainState) -> tuple[Tensor, State]:
        return self.layers.step(torch.cat((state.last, noise), dim=-1), state.layers)

    def close(self, x: Float[Tensor, "B d"], opened: State) -> PlainState:
        return PlainState(x, opened)


class StochasticReader(PlainReader):
    """STORN (Bayer & Osendorfer 2014), whose layers read independent latent variables z_t ~ N(0, 1):

        h_t = layers([x_{t-1}; z_t])_t    q(z_t) = N(μ, σ²), σ = softplus(s) + 1e-4, (μ, s) = W recognition(x)_t + b

    The recognition layers may look ahead, since generation does not need them.
    """

    def __init__(self, layers: SequenceLayer, recognition: SequenceLayer, *, d_latent: int) -> None:
        super().__init__(layers)
        self.recognition, self.d_latent = recognition, d_latent
        self.posterior = nn.Linear(recognition.d_out, 2 * d_latent)

    def forward(self, x: Tensor, augmented: Tensor, noise: Tensor, mask: Tensor | None = None) -> Read:
        posterior = self._posterior(x, mask)
        z = posterior.reparameterize(noise)
        return self._read(x, augmented, z, posterior.divergence(), posterior.ratio(z), mask)

    def _posterior(self, x: Tensor, mask: Tensor | None = None) -> Gaussian:
        return Gaussian.of(self.posterior(self.recognition(x, mask=mask)[0]))

    def from_prior(self, x: Tensor, noise: Tensor, draws: Tensor) -> Tensor:
        count, length, _ = draws.shape
        before, z, state = _shift(x), self._posterior(x).reparameterize(noise), self.layers.init_state(1)
        first = torch.zeros(count, dtype=torch.int64, device=x.device)
        features = []
        for t in range(length):
            inputs = torch.cat((before[:, t].expand(count, -1), draws[:, t]), dim=-1)
            features.append(self.layers.step(inputs, select_rows(state, first))[0])
            _, state = self.layers.step(torch.cat((before[:, t], z[:, t]), dim=-1), state)
        return torch.stack(features, dim=1)


class VariationalReader(FrameReader):
    """VRNN (Chung et al. 2015), in which the prior of the latent variables depends on the earlier frames."""

    def __init__(self, layer: VariationalRecurrent) -> None:
        super().__init__()
        self.layer, self.d_latent, self.d_out = layer, layer.d_latent, layer.d_decoded

    def forward(self, x: Tensor, augmented: Tensor, noise: Tensor, mask: Tensor | None = None) -> Read:
        y, state = self.layer(torch.cat((augmented, noise), dim=-1), mask=mask)
        posterior, prior = self.layer.gaussians(y)
        z = posterior.reparameterize(noise)
        return Read(y[..., : self.d_out], posterior.divergence(prior), posterior.ratio(z, prior), state)

    def from_prior(self, x: Tensor, noise: Tensor, draws: Tensor) -> Tensor:
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


def _shift(x: Float[Tensor, "B T d"]) -> Float[Tensor, "B T d"]:
    return torch.cat((x.new_zeros(len(x), 1, x.shape[2]), x[:, :-1]), dim=1)


class FrameNats(NamedTuple):
    """The terms of the bound on each frame's surprisal in nats, for densities in the units of the file; 0 at padding.

    The bound is the sum of `nats` and `divergence`. The log-weight of importance sampling is `-(nats + ratio)`.
    """

    nats: Float[Tensor, "B T"]
    """`-log p(x_t | z_≤t, x_<t)`."""
    divergence: Float[Tensor, "B T"]
    """The KL divergence of the posterior of z_t from the prior; 0 without latent variables."""
    ratio: Float[Tensor, "B T"]
    """`log q(z_t) - log p(z_t)` for the sampled z_t."""


class FramePredictor(nn.Module):
    """A model `p(x_1 .. x_T) = Π_t p(x_t | x_<t)`, whose factors are mixtures of diagonal Gaussians.

    The mixtures are over normalized features x̂ = (x - μ) / σ. Densities are multiplied by Π 1/σ, so that losses and
    scores are in the units of the file and do not depend on the normalization. Missing features are marginalized.
    """

    def __init__(self, features: FrameFeatures, reader: FrameReader, head: MixtureHead) -> None:
        super().__init__()
        self.features, self.reader, self.head, self.d_latent = features, reader, head, reader.d_latent

    def forward(self, frames: Frames, noise: Float[Tensor, "B T d_latent"]) -> FrameNats:
        """Return the terms of the bound. `noise` from N(0, 1) determines the samples of the latent variables."""
        x = self.features.normalized(frames.values)
        read = self.reader(x, self.features.augmented(x), noise, mask=frames.mask)
        observed = frames.values.isnan().logical_not()
        nats = self.head(read.decoded).nats(x, observed) + (self.features.deviation.log() * observed).sum(-1)
        terms = FrameNats(nats, read.divergence, read.ratio)
        return terms if frames.mask is None else FrameNats(*(term.masked_fill(~frames.mask, 0.0) for term in terms))

    def loss(self, frames: Frames) -> Loss:
        """Return the bound, summed over all frames."""
        cost = self(frames, normal((*frames.shape, self.d_latent), device=frames.values.device))
        return Loss((cost.nats + cost.divergence).sum(), frames.num_real)

    def read(self, frames: Frames, noise: Float[Tensor, "B T d_latent"]) -> ReaderState:
        """Return the state of each row after its frames."""
        x = self.features.normalized(frames.values)
        return self.reader(x, x, noise, mask=frames.mask).state

    def expected(
        self, frames: Frames, noise: Float[Tensor, "1 T d_latent"], draws: Float[Tensor, "N S d_latent"]
    ) -> Mixture:
        """Return the distributions (N, S) of the first S normalized frames, each given the earlier frames.

        There is a distribution for each of N samples of the latent variables from their prior.
        """
        return self.head(self.reader.from_prior(self.features.normalized(frames.values), noise, draws))

    def next(self, noise: Float[Tensor, "B d_latent"], state: ReaderState) -> tuple[Mixture, ReaderState]:
        """Return the distribution of the next normalized frame, and the argument `opened` of `reader.close`."""
        decoded, opened = self.reader.open(noise, state)
        return self.head(decoded), opened


def _build_reader(encoder: EncoderSpecification, latent: LatentSpecification, d: int) -> FrameReader:
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
"""The largest numbers of frames and series in a batch outside of training."""


class SeriesNats(NamedTuple):
    """The surprisal of a series, in nats."""

    frames: NDArray[np.float64]
    """The bound (T,) of each frame, as a mean over samples of the latent variables."""
    divergence: float
    """The sum of the divergences of all frames."""
    importance: float
    """The surprisal of the series by importance sampling."""


@torch.inference_mode()
def compute_nats(model: FramePredictor, rows: FrameRows, *, draws: int = 1) -> list[SeriesNats]:
    """Return the surprisal of each series, with `draws` samples of the latent variables."""
    device = device_of(model)
    nats_by_row: dict[int, SeriesNats] = {}

    def score_batch(batch: NDArray[np.int64]) -> list[tuple[Any, ...]]:
        frames = pad_frames(rows, batch, device)
        sources = [SeriesNoise(rows[row], model.d_latent) for row in batch.tolist()]
        samples = [_sample_nats(model, frames, sources) for _ in range(draws if model.d_latent else 1)]
        nats, divergences, weights = zip(*samples, strict=True)
        count = len(samples)
        nats, divergence = sum(nats) / count, sum(divergences) / count
        importance = np.log(count) - np.logaddexp.reduce(weights)
        return [
            (row, nats[index, : rows.lengths[row]], float(divergence[index]), float(importance[index]))
            for index, row in enumerate(batch.tolist())
        ]

    with evaluating(model):
        batches = batch_by_length(rows.lengths, batch_size=MAX_BATCH_SERIES, batch_tokens=MAX_BATCH_FRAMES)
        for results in sharded_map(score_batch, batches):
            nats_by_row.update({row: SeriesNats(*values) for row, *values in results})
    return [nats_by_row[row] for row in range(len(rows))]


def _sample_nats(model: FramePredictor, frames: Frames, sources: list[SeriesNoise]) -> list[NDArray[np.float64]]:
    """Return the bound (B, T) of each frame, and the divergence (B,) and the log-weight (B,) of each series."""
    terms = model(frames, draw_batch_noise(sources, frames.shape[1], frames.values.device))
    nats, divergence, ratio = (term.double() for term in terms)
    return [x.cpu().numpy() for x in (nats + divergence, divergence.sum(1), -(nats + ratio).sum(1))]


@dataclass(frozen=True)
class FrameScores(Scores):
    """The surprisal of series in nats, for densities in the units of the file.

    Nats may be negative, since a density may be above 1. Only models of the same data can be compared.
    """

    total_nats: float
    """The surprisal of all frames; with latent variables an upper bound."""
    frames: int
    series: int
    divergence: float | None = None
    """The KL term of the bound; None without latent variables."""
    importance: float | None = None
    """The estimate by importance sampling; None without latent variables, and for a single sample."""

    @property
    def nats_per_frame(self) -> float:
        """The mean of `total_nats` over frames."""
        return self.total_nats / self.frames

    def as_json(self) -> dict[str, float | int | None]:
        values = {"nats_per_frame": finite(self.nats_per_frame), "frames": self.frames, "series": self.series}
        for name, total in (("divergence", self.divergence), ("importance_nats", self.importance)):
            if total is not None:
                values[f"{name}_per_frame"] = finite(total / self.frames)
        return values

    def summary(self) -> str:
        nats = f"{self.nats_per_frame:.4f} nats per frame"
        if self.divergence is None:
            return nats
        return f"at most {nats}, including a KL divergence of {self.divergence / self.frames:.4f}"


def sum_scores(nats: Iterable[SeriesNats], *, d_latent: int, draws: int = 1) -> FrameScores:
    """Return the scores of a stream of series from the surprisal of each series."""
    total, frames, series, divergence, importance = 0.0, 0, 0, 0.0, 0.0
    for item in nats:
        total, frames, series = total + float(item.frames.sum()), frames + len(item.frames), series + 1
        divergence, importance = divergence + item.divergence, importance + item.importance
    terms = divergence if d_latent else None, importance if (d_latent and draws > 1) else None
    return FrameScores(total, frames, series, *terms)


PRIOR_DRAWS = 64
"""The number of samples of latent variables for the mean and standard deviation of the next frame."""
Moments = tuple[NDArray[np.float64], NDArray[np.float64]]


@torch.inference_mode()
def sample_frames(
    model: FramePredictor, prompt: Vectors, *, frames: int, samples: int, temperature: float, seed: int | None
) -> NDArray[np.float32]:
    """Return sampled frames (samples, frames, d) that continue the series `prompt` (T, d), which may be empty."""
    device = device_of(model)
    generator = torch.Generator(device)
    generator.seed() if seed is None else generator.manual_seed(int(seed))
    series = np.empty((samples, frames, prompt.shape[1]), np.float32)
    scale, shift = (x.cpu().numpy() for x in (model.features.deviation, model.features.mean))
    with evaluating(model):
        state = model.reader.init_state(samples)
        if len(prompt):
            state = _read_frames(model, FrameRows.of([prompt]), [0])
            state = select_rows(state, torch.zeros(samples, dtype=torch.int64, device=device))
        for number in range(frames):
            noise = torch.randn(samples, model.d_latent, generator=generator, device=device)
            mixture, opened = model.next(temperature * noise, state)
            x = mixture.draw(temperature=temperature, generator=generator)
            state = model.reader.close(x, opened)
            series[:, number] = x.cpu().numpy() * scale + shift
    return series


@torch.inference_mode()
def predict_moments(model: FramePredictor, rows: FrameRows) -> Moments:
    """Return mean and standard deviation (N, d) of the next frame of each series, over samples of latent variables."""
    device, draws = device_of(model), PRIOR_DRAWS if model.d_latent else 1
    shape = len(rows), rows.values.shape[1]
    means, deviations = np.empty(shape), np.empty(shape)
    with evaluating(model):
        for batch in batch_by_length(rows.lengths, batch_size=MAX_BATCH_SERIES, batch_tokens=MAX_BATCH_FRAMES):
            state = _read_frames(model, rows, batch.tolist())
            noise = np.stack([SeriesNoise(rows[row], model.d_latent).draw(draws) for row in batch], axis=1)
            moments = [model.next(torch.from_numpy(sample).to(device), state)[0].moments() for sample in noise]
            means[batch], deviations[batch] = mixture_moments(
                model.features, *map(torch.stack, zip(*moments, strict=True))
            )
    return means, deviations


def _read_frames(model: FramePredictor, rows: FrameRows, batch: list[int]) -> ReaderState:
    frames = pad_frames(rows, batch, device_of(model))
    sources = [SeriesNoise(rows[row], model.d_latent) for row in batch]
    return model.read(frames, draw_batch_noise(sources, frames.shape[1], frames.values.device))


def mixture_moments(features: FrameFeatures, means: Tensor, deviations: Tensor) -> Moments:
    """Return mean and standard deviation of an equal mixture over the first dimension, in the units of the file."""
    means, deviations = means.double(), deviations.double()
    mean = means.mean(0)
    variance = (deviations.square() + (means - mean).square()).mean(0)
    scale, shift = (x.double().cpu().numpy() for x in (features.deviation, features.mean))
    return mean.cpu().numpy() * scale + shift, variance.sqrt().cpu().numpy() * scale


PICTURES = (".png", ".svg", ".pdf")
MAX_DRAWN_CURVES, MAX_DRAWN_SERIES = 8, 24
"""The maximum number of features that are drawn as curves, and of series in a picture."""


def draw_series(path: Path, series: Sequence[Vectors], *, prompt_frames: int, columns: Sequence[str] = ()) -> str:
    """Draw up to MAX_DRAWN_SERIES series, with a line after the prompt, and return a phrase like "24 of 30 series"."""
    shown = series[:MAX_DRAWN_SERIES]
    low, high = min(float(np.nanmin(x)) for x in shown), max(float(np.nanmax(x)) for x in shown)
    with picture(path, (7, 0.6 + 1.2 * len(shown))) as figure:
        for axes, frames in zip(figure.subplots(len(shown), sharex=True, squeeze=False)[:, 0], shown, strict=True):
            has_curves = frames.shape[1] <= MAX_DRAWN_CURVES
            if has_curves:
                axes.plot(frames, linewidth=1)
                axes.set_ylim(low, high)
            else:
                image = axes.imshow(
                    frames.T, origin="lower", aspect="auto", vmin=low, vmax=high, interpolation="nearest"
                )
                figure.colorbar(image, ax=axes, label="value")
            axes.set_ylabel("value" if has_curves else "feature")
            if prompt_frames:
                axes.axvline(prompt_frames - 0.5, color="gray" if has_curves else "white", linestyle="--")
        if columns and len(columns) <= MAX_DRAWN_CURVES:
            figure.axes[0].legend(list(columns), fontsize=9)
        figure.axes[-1].set_xlabel("frame")
    return f"{len(shown):,} of {len(series):,} series" if len(shown) < len(series) else f"{len(series):,} series"


@dataclass(frozen=True)
class FramePredictorParts(FrameParts):
    """The shape and statistics of frames, from which a frame predictor is built."""

    @classmethod
    def read(cls, run: RunDirectory) -> Self:
        return cls(read_frame_statistics(run))

    def build(self, recipe: FramePredictionRecipe) -> FramePredictor:
        features, head = self.features(recipe), recipe.head
        reader = _build_reader(recipe.encoder, recipe.latent, features.d_out)
        mixture = MixtureHead(reader.d_out, features.d_out, components=head.components, least=head.least_deviation)
        return FramePredictor(features, reader, mixture)

    def commands(self, recipe: Any, path: str) -> list[str]:
        return [
            f"ensue generate {path} --out new.npz --frames 100", f"ensue score {path} FILE",
            f"ensue predict {path} FILE --json", f"ensue evaluate {path} FILE --json",
        ]  # fmt: skip

    def python(self, recipe: Any) -> list[str]:
        return ["print(model.generate(frames=100))"]


@dataclass(frozen=True)
class FramesBatch(Batch):
    """A batch of series."""

    frames: Frames


class FramePrediction(BucketedTask[FramePredictor, FramesBatch]):
    """The training task of a frame predictor, validated by nats per frame."""

    judged_by = "nats_per_frame"
    less_is_better = True

    def __init__(self, train: FrameRows, valid: LabeledSeries | None, recipe: FramePredictionRecipe) -> None:
        self.train, self.valid = train.split_long(recipe.train.longest), valid
        super().__init__(self.train.lengths, recipe.train, num_tokens=int(train.lengths.sum()))

    def count(self, rows: NDArray[np.int64]) -> int:
        return int(self.train.lengths[rows].sum())

    def batch_of(self, rows: NDArray[np.int64], device: torch.device, row_slice: RowSlice = ALL_ROWS) -> FramesBatch:
        return FramesBatch(pad_frames(self.train, rows, device, row_slice))

    def loss(self, model: FramePredictor, batch: FramesBatch, state: State) -> tuple[Loss, State]:
        return model.loss(batch.frames), None

    def score(self, model: FramePredictor, data: LabeledSeries) -> FrameScores:
        return sum_scores(compute_nats(model, data.rows), d_latent=model.d_latent)


class FramePredictionJob(DataSetJob[FramePredictor, LabeledSeries]):
    """The training job of a frame predictor."""

    unit: ClassVar[str] = "frames"
    recipe: FramePredictionRecipe
    parts: FramePredictorParts
    task: FramePrediction

    def __init__(self, recipe: FramePredictionRecipe, run: RunDirectory | None = None) -> None:
        data = SeriesData(recipe, run, has_ends=True)
        super().__init__(recipe, data)
        self.parts = FramePredictorParts(data.statistics()) if run is None else run.parts
        self.task = FramePrediction(self.split.train.rows, self.split.valid, recipe)

    @property
    def notes(self) -> list[str]:
        longest = self.recipe.train.longest
        count = int((self.split.train.lengths > longest).sum())
        are_longer = pluralize(count, "series is", "series are") + f" longer than {longest:,} frames"
        notes = [f"{are_longer}, and split for training"] if count else []
        return [*super().notes, *notes]

    def about(self) -> str:
        return f"of {len(self.parts.statistics.mean):,} features"

    def score_lines(self, scores: dict[str, dict[str, Any]]) -> list[str]:
        names = ("nats_per_frame", "divergence_per_frame")
        known = [name for name in names if any(name in row for row in scores.values())]
        formats = {**dict.fromkeys(known, ".4f"), "frames": ","}
        return score_table(scores, {name: (name.replace("_", " "), form) for name, form in formats.items()})
