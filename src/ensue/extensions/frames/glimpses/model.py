"""Recognition of symbol sequences in images by glimpses (Ba et al. 2015): model, data, training and scores."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from ensue.errors import EnsueError
from ensue.extensions.frames.data.series import FrameRows, Series
from ensue.extensions.frames.recipe import GlimpseSpecification, GlimpsesRecipe
from ensue.extensions.frames.tasks.data import LabeledSeries, LabeledSeriesData, SeriesNoise, check_image, pad_frames
from ensue.extensions.frames.tasks.model import FrameFeatures, Frames, LabeledFrameParts, read_frame_statistics
from ensue.metrics.generation import edit_distance
from ensue.metrics.scores import ItemRows, ScoredItems, Scores, card_columns, of_sums, quotient
from ensue.models.encoders import build_encoder
from ensue.models.modules import device_of, evaluating
from ensue.models.specification import Encoder
from ensue.nn import SequenceLayer
from ensue.nn.draws import ALL_ROWS, RowSlice, normal
from ensue.nn.gaussian import Gaussian
from ensue.nn.images import Glimpses, GlimpseVector, ImageVector
from ensue.ranks import sharded_map
from ensue.runs.directory import RunDirectory
from ensue.runs.reporter import score_table
from ensue.runs.schema import Config, Size
from ensue.tasks.contract.data_set import DataSetJob, LabelsJob
from ensue.tasks.contract.task import BucketedTask, TensorBatch, on_device
from ensue.text.labels import Classes
from ensue.types import Loss, State, select_rows

PLACE_SCALE = 0.02
"""The factor of E(r²). With this small factor, places change slowly in early training, while symbols are learned."""


class GlimpseState(NamedTuple):
    """The state of R = B · M paths between two glimpses, with M paths of glimpses through each of B images."""

    features: Float[Tensor, "R d"]
    """r¹, the output of the layer that reads glimpses."""
    plan: Float[Tensor, "R d"]
    """r², the output of the layer that determines the next place."""
    means: Float[Tensor, "R 2"]
    """The mean of each path's last place."""
    reader: State
    planner: State


class ReadSymbols(NamedTuple):
    """The outputs for symbols, each of which is read after N glimpses. The last logit is the logit of the stop symbol.

    `symbols` is B, M, S for the S symbols of B images on M paths, padded with zeros, or R for a symbol on each path.
    """

    logits: Float[Tensor, "*symbols K"]
    places: Float[Tensor, "*symbols N 2"]
    means: Float[Tensor, "*symbols N 2"]
    baselines: Float[Tensor, "*symbols N"]


class GlimpseReader(nn.Module):
    """A model that reads images symbol by symbol, with N glimpses for each symbol:

        l_n ~ N(E(r²_{n-1}), σ²)    g_n = G_image(x_n) ⊙ G_place(l_n)    r¹_n = RNN¹(g_n)    r²_n = RNN²(r¹_n)

    After N glimpses, r¹ gives the logits of a symbol. `reader` is RNN¹. `planner` is RNN², which first reads a coarse
    view of the image. E(r²) is relative to `start`, or if places are relative, to the previous mean plus `move`.
    """

    start: Tensor
    move: Tensor

    def __init__(
        self, features: FrameFeatures, glimpses: Glimpses, vector: GlimpseVector, view: ImageVector,
        reader: SequenceLayer, planner: SequenceLayer, num_symbols: int, *, table: GlimpseSpecification,
    ) -> None:  # fmt: skip
        super().__init__()
        self.features, self.glimpses, self.vector, self.view = features, glimpses, vector, view
        self.reader, self.planner, self.table, self.stop = reader, planner, table, num_symbols
        self.place, self.baseline = nn.Linear(planner.d_out, 2), nn.Linear(planner.d_out, 1)
        self.head = nn.Linear(reader.d_out, num_symbols + 1)
        for parameter in (*self.place.parameters(), self.baseline.weight):
            nn.init.zeros_(parameter)
        nn.init.constant_(self.baseline.bias, -math.log(num_symbols + 1))
        self.register_buffer("start", torch.tensor(table.start), persistent=False)
        self.register_buffer("move", torch.tensor(table.move), persistent=False)

    def to_images(self, frames: Frames) -> Float[Tensor, "B C H W"]:
        """Return images from series, whose frames are rows of pixels."""
        x: Tensor = self.features(frames)
        return x.view(*x.shape[:2], -1, self.table.colors).permute(0, 3, 1, 2)

    def begin(self, images: Float[Tensor, "B C H W"], paths: int) -> GlimpseState:
        """Return the state before the first glimpse of `paths` paths through each image."""
        features = self.view(F.avg_pool2d(images, self.table.view, ceil_mode=True)).repeat_interleave(paths, 0)
        plan, planner = self.planner.step(features)
        return GlimpseState(features, plan, self.start.expand(len(plan), 2), self.reader.init_state(len(plan)), planner)

    def read_symbol(
        self, images: Float[Tensor, "B C H W"], state: GlimpseState, noise: Float[Tensor, "R N 2"] | None = None
    ) -> tuple[ReadSymbols, GlimpseState]:
        """Return the next symbol and state. Places are means plus σ times `noise` from N(0, 1); None: no noise."""
        glimpses = []
        for n in range(self.table.each):
            origin = state.means + self.move if self.table.relative else self.start
            means = origin + PLACE_SCALE * self.place(state.plan)
            places = means if noise is None else means + self.table.deviation * noise[:, n]
            glimpses.append((places.detach(), means, self.baseline(state.plan.detach()).squeeze(1)))
            state = self.take_glimpse(images, places.detach(), state._replace(means=means))
        columns = (torch.stack(column, 1) for column in zip(*glimpses, strict=True))
        return ReadSymbols(self.head(state.features), *columns), state

    def take_glimpse(
        self, images: Float[Tensor, "B C H W"], places: Float[Tensor, "R 2"], state: GlimpseState
    ) -> GlimpseState:
        """Return the state after a glimpse at these places."""
        patches = self.glimpses(images, places.view(len(images), -1, 2)).flatten(0, 1)
        features, reader = self.reader.step(self.vector(patches, places), state.reader)
        plan, planner = self.planner.step(features, state.planner)
        return state._replace(features=features, plan=plan, reader=reader, planner=planner)

    def forward(
        self, images: Float[Tensor, "B C H W"], lengths: list[int], noise: Float[Tensor, "B M S N 2"]
    ) -> ReadSymbols:
        """Return the symbols of images. `lengths` are the numbers of symbols with the stop, in descending order."""
        paths, symbols = noise.shape[1], []
        state = self.begin(images, paths)
        for number in range(lengths[0]):
            rows = sum(length > number for length in lengths)
            if rows < len(images):
                images, state = images[:rows], select_rows(state, torch.arange(rows * paths, device=images.device))
            symbol, state = self.read_symbol(images, state, noise[:rows, :, number].flatten(0, 1))
            symbols.append(F.pad(x, (0, 0) * (x.dim() - 1) + (0, len(noise) * paths - len(x))) for x in symbol)
        stacked = (torch.stack(column, 1) for column in zip(*symbols, strict=True))
        tensors = (x.view(-1, paths, *x.shape[1:]) for x in stacked)
        return ReadSymbols(*(x.float() if x.dtype is torch.bfloat16 else x for x in tensors))

    def loss(self, frames: Frames, targets: Int[Tensor, "B S"]) -> Loss:
        """Return the bound on the surprisal of symbols and stop, summed over images. The padding of `targets` is -1."""
        table, images = self.table, self.to_images(frames)
        shape = (len(images), table.samples, targets.shape[1], table.each, 2)
        noise = normal(shape, dtype=images.dtype, device=images.device)
        lengths, order = (targets >= 0).sum(1).sort(descending=True, stable=True)
        read = self(images[order], lengths.tolist(), noise[order])
        nats = compute_bound(read, targets[order, : int(lengths[0])], table.deviation, policy=table.policy)
        return Loss(nats.sum(), len(images))

    def read(
        self, frames: Frames, *, min_symbols: int, max_symbols: int, paths: int = 1,
        noise: Callable[[], Tensor] | None = None,
    ) -> tuple[Float[Tensor, "B S K"], Float[Tensor, "B S N 2"]]:  # fmt: skip
        """Read `min_symbols` to `max_symbols` symbols (without the stop), until the stop has been read in all images.

        `paths` is the number of paths of glimpses through each image. `noise` returns the noise (B · paths, N, 2) of
        the next symbol; None for places at means. Returns the logarithms of mean probabilities of symbols and stop over
        paths, and the places of the first path.
        """
        images = self.to_images(frames)
        steps: list[tuple[Tensor, Tensor]] = []
        state, has_ended = self.begin(images, paths), torch.zeros(len(images), dtype=torch.bool, device=images.device)
        while len(steps) < min_symbols or (len(steps) <= max_symbols and not has_ended.all()):
            symbol, state = self.read_symbol(images, state, noise and noise())
            logp = symbol.logits.log_softmax(-1).view(len(images), paths, -1)
            mean = logp.logsumexp(1) - math.log(paths)
            steps.append((mean, symbol.places[::paths]))
            has_ended |= mean.argmax(-1) == self.stop
        logp, places = (torch.stack(column, 1) for column in zip(*steps, strict=True))
        return logp, places


def compute_bound(
    read: ReadSymbols, targets: Int[Tensor, "B S"], deviation: float, *, policy: float = 1.0
) -> Float[Tensor, " B"]:
    """Return `-1/M Σ_m log p(y | l^m)` of each image. The expectation of this value is a bound on `-log p(y)`.

    The gradient estimates the gradient of the expectation. The gradient with respect to places is `policy` times
    `-1/M Σ_m Σ_n (R_n - b_n) ∇ log p(l_n)`, where R_n is the log-probability of the c_n symbols after l_n. The baseline
    b_n is c_n times the output v_n of the baseline network, plus the mean of R_n - c_n v_n over other paths. The
    network minimizes the square of R_n / c_n - v_n.
    """
    mask = (targets >= 0).unsqueeze(1)
    ids = targets.clamp(min=0)[:, None, :, None].expand(*read.logits.shape[:3], 1)
    nats = -read.logits.log_softmax(-1).gather(-1, ids).squeeze(-1) * mask
    future, count = (x.flip(-1).cumsum(-1).flip(-1).unsqueeze(-1) for x in (-nats.detach(), mask))
    error = (future / count.clamp(min=1) - read.baselines) * mask.unsqueeze(-1)
    weight = count * error.detach()
    if (paths := weight.shape[1]) > 1:
        weight = (weight - weight.mean(1, keepdim=True)) * paths / (paths - 1)
    log_density = -Gaussian(read.means, torch.full_like(read.means, math.log(deviation))).nats(read.places)
    surrogate = (0.5 * error.square() - policy * weight * log_density).sum((1, 2, 3)) / paths
    return nats.sum((1, 2)) / paths + surrogate - surrogate.detach()


class GlimpsesConfig(Config):
    """`config.json`."""

    rows: Size


@dataclass(frozen=True)
class GlimpseParts(LabeledFrameParts):
    """The shape, statistics and symbols from which a model for images of `rows` rows is built."""

    config: ClassVar[type[Config]] = GlimpsesConfig
    labels: Classes
    rows: int

    @classmethod
    def read(cls, run: RunDirectory) -> Self:
        return cls(read_frame_statistics(run), run.read_json("labels.json", Classes.from_json), run.config["rows"])

    def build(self, recipe: GlimpsesRecipe) -> GlimpseReader:
        features, table, encoder = self.features(recipe), recipe.glimpses, recipe.encoder
        assert isinstance(encoder, Encoder)
        reader = build_encoder(encoder, d_in=encoder.d_model)
        planner = build_encoder(encoder, d_in=reader.d_out)
        glimpses = Glimpses(table.size, table.scales)
        vector = GlimpseVector(table.scales * table.colors, table.size, tuple(table.convolutions), reader.d_in)
        height, width = (-(-side // table.view) for side in (self.rows, features.d_out // table.colors))
        view = ImageVector(table.colors, height, width, tuple(table.view_convolutions), planner.d_in)
        return GlimpseReader(features, glimpses, vector, view, reader, planner, len(self.labels), table=table)


MAX_BATCH_IMAGES = 256
"""The largest number of images in a batch outside of training."""
ReadImage = tuple[tuple[str, ...], NDArray[np.float32], NDArray[np.float32], float]
"""The symbols, the probabilities (S,) of symbols and stop, the places (S, N, 2) of glimpses, and the surprisal."""


def parse_caption(series: Series, recipe: GlimpsesRecipe) -> tuple[str, ...]:
    """Return the symbols of an image. Raises DataError for no or several captions, and for too many symbols."""
    captions = tuple(dict.fromkeys(series.labels))
    symbols = tuple(captions[0].split(recipe.data.separator or None)) if len(captions) == 1 else ()
    if not symbols:
        problem = "several captions" if len(captions) > 1 else "no caption"
        raise series.error(f"{problem}; expected one for the image, with blanks or data.separator between symbols")
    if len(symbols) > (maximum := recipe.glimpses.most_symbols):
        raise series.error(f"{len(symbols):,} symbols; glimpses.most_symbols is {maximum:,}")
    return symbols


def check_glimpse_sizes(series: Series, rows: int, recipe: GlimpsesRecipe) -> None:
    """Raise DataError unless an image has `rows` rows (0: any number) and is large enough for the glimpses."""
    (height, width), table = series.frames.shape, recipe.glimpses
    check_image(series, colors=table.colors, key="glimpses.colors", rows=rows)
    width //= table.colors
    image = f"an image of {height:,} × {width:,} pixels"
    if table.size > min(height, width):
        raise series.error(f"{image} is smaller than a glimpse; glimpses.size is {table.size:,}")
    if table.view > min(height, width):
        raise series.error(f"{image} is too small for a view {table.view:,} times smaller; reduce glimpses.view")
    if (widest := table.size << (table.scales - 1)) > 2 * max(height, width):
        raise series.error(f"{image} is much smaller than the widest patch, {widest:,}; reduce glimpses.scales")


def encode_targets(labels: Classes, captions: Sequence[tuple[str, ...]]) -> NDArray[np.int64]:
    """Return the ids (N, S) of symbols and stop; -1 for padding and unknown symbols."""
    targets = np.full((len(captions), max(map(len, captions), default=0) + 1), -1)
    for row, caption in zip(targets, captions, strict=True):
        row[: len(caption) + 1] = [*(labels.ids.get(symbol, -1) for symbol in caption), len(labels)]
    return targets


def read_images(
    model: GlimpseReader, labels: Classes, rows: FrameRows, captions: Sequence[tuple[str, ...]], *, max_symbols: int,
    samples: int = 0, seed: int = 0,
) -> Iterator[ReadImage]:  # fmt: skip
    """Yield the result of each image. Its last element is the surprisal of the caption with the stop.

    Probabilities are means over `samples` sampled sequences of places. With 0 samples, places are the means.
    """
    targets = encode_targets(labels, captions)
    batches = np.split(np.arange(len(rows)), range(MAX_BATCH_IMAGES, len(rows), MAX_BATCH_IMAGES))
    for results in sharded_map(
        lambda batch: list(_read_batch(model, labels, rows, batch, targets[batch], max_symbols, samples, seed)), batches
    ):
        yield from results


@torch.inference_mode()
def _read_batch(
    model: GlimpseReader, labels: Classes, rows: FrameRows, batch: NDArray[np.int64], targets: NDArray[np.int64],
    max_symbols: int, samples: int, seed: int,
) -> Iterator[ReadImage]:  # fmt: skip
    frames, paths, length = pad_frames(rows, batch, device_of(model)), samples or 1, targets.shape[1]
    sources = [SeriesNoise(rows[row], 2, seed=seed) for row in batch.tolist()]

    def draw_noise() -> Tensor:
        noise = np.stack([source.draw(paths * model.table.each) for source in sources])
        return torch.from_numpy(noise).to(frames.values.device).view(-1, model.table.each, 2)

    noise = draw_noise if samples else None
    results = model.read(frames, min_symbols=length, max_symbols=max_symbols, paths=paths, noise=noise)
    logp, places = (x.cpu().numpy() for x in results)
    target_logp = np.take_along_axis(logp[:, :length], targets.clip(0)[..., None], 2)[..., 0]
    nats = -np.where(targets < 0, 0, target_logp)
    for row, predicted in enumerate(logp.argmax(-1).tolist()):
        end = [*predicted, model.stop].index(model.stop)
        symbols = tuple(labels.names[number] for number in predicted[:end])
        yield symbols, np.exp(logp[row, : end + 1].max(-1)), places[row, : end + 1], float(nats[row].sum())


class JudgedSymbols(NamedTuple):
    """The gold symbols, the predicted symbols, and the surprisal of the gold symbols with the stop."""

    gold: tuple[str, ...]
    predicted: tuple[str, ...]
    nats: float


@dataclass(frozen=True)
class SymbolScores(Scores):
    """The scores of sequences of symbols."""

    exact_match: float
    """The share of sequences without an error, in percent."""
    edit_rate: float
    """The number of insertions, deletions and substitutions per gold symbol, in percent."""
    nats_per_symbol: float
    """The mean surprisal of gold symbols and stops; unknown symbols count 0."""
    symbols: int
    examples: int

    def summary(self) -> str:
        errors = f"exact match {self.exact_match:.2f} %, edit rate {self.edit_rate:.2f} %"
        return f"{errors}, {self.nats_per_symbol:.4f} nats"


class SymbolTally:
    """The computation of scores from the `JudgedSymbols` of images."""

    def items_of(self, answers: Iterable[JudgedSymbols], unit: str) -> ScoredItems:
        """Return the items of the scores, one for each sequence."""
        rows = ItemRows()
        for gold, predicted, nats in answers:
            rows.append((gold == predicted, 1, edit_distance(predicted, gold), len(gold), nats, len(gold) + 1))
        return rows.build_items(unit, {
            "exact_match": of_sums(lambda sums: 100 * sums[:, 0] / sums[:, 1]),
            "edit_rate": of_sums(lambda sums: 100 * sums[:, 2] / sums[:, 3].clip(1)), "nats_per_symbol": quotient(4, 5),
        })  # fmt: skip

    def scores_of(self, answers: Iterable[JudgedSymbols]) -> SymbolScores:
        """Return the scores of all sequences. Raises EnsueError without sequences."""
        items = self.items_of(answers, "series")
        if not items.size:
            raise EnsueError("no labeled series to score")
        return SymbolScores(**items.compute(), symbols=int(items.rows[:, 3].sum()), examples=items.size)


class ReadingInGlimpses(BucketedTask[GlimpseReader, TensorBatch]):
    """The training task of a model that reads images by glimpses, validated by exact match."""

    judged_by = "exact_match"

    def __init__(
        self, train: LabeledSeries, valid: LabeledSeries | None, labels: Classes, recipe: GlimpsesRecipe
    ) -> None:
        self.train, self.valid, self.labels, self.max_symbols = train, valid, labels, recipe.glimpses.most_symbols
        self.targets = encode_targets(labels, train.labels)
        super().__init__(train.lengths, recipe.train)

    def batch_of(self, rows: NDArray[np.int64], device: torch.device, row_slice: RowSlice = ALL_ROWS) -> TensorBatch:
        targets = self.targets[rows]
        longest = int((targets >= 0).sum(1).max())
        frames = pad_frames(self.train.rows, rows, device, row_slice).values
        return TensorBatch((frames, on_device(row_slice.select(targets)[:, :longest], device)))

    def loss(self, model: GlimpseReader, batch: TensorBatch, state: State) -> tuple[Loss, State]:
        frames, targets = batch.tensors
        return model.loss(Frames(frames, None), targets), None

    def score(self, model: GlimpseReader, data: LabeledSeries) -> SymbolScores:
        with evaluating(model):
            answers = read_images(model, self.labels, data.rows, data.labels, max_symbols=self.max_symbols)
            pairs = zip(data.labels, answers, strict=True)
            return SymbolTally().scores_of(JudgedSymbols(gold, symbols, nats) for gold, (symbols, _, _, nats) in pairs)


class GlimpsesJob(LabelsJob[GlimpseReader]):
    """The training job of a model that reads images by glimpses."""

    unit = "images"
    support_name: ClassVar[str] = "examples"
    score_columns = card_columns(".4g", "exact_match", "edit_rate", "nats_per_symbol")
    recipe: GlimpsesRecipe
    parts: GlimpseParts
    task: ReadingInGlimpses
    encode = DataSetJob.encode

    def __init__(self, recipe: GlimpsesRecipe, run: RunDirectory | None = None) -> None:
        check = partial(check_glimpse_sizes, recipe=recipe)
        labels_of = partial(parse_caption, recipe=recipe)
        super().__init__(recipe, data := LabeledSeriesData(recipe, run, labels_of=labels_of, check=check))
        labels = Classes(sorted(self.split.train.label_counts))
        self.parts = GlimpseParts(data.statistics(), labels, data.rows) if run is None else run.parts
        self.task = ReadingInGlimpses(self.split.train, self.split.valid, self.parts.labels, recipe)

    def config(self) -> dict[str, Any]:
        return {"rows": self.parts.rows, **super().config()}

    def score_lines(self, scores: dict[str, dict[str, Any]]) -> list[str]:
        return score_table(scores, {**self.score_columns, "examples": ("images", ",")})
