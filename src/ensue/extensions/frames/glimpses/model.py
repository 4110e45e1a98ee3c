"""Reading in glimpses: the network, its parts, its data and its training."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from ensue.extensions.frames.data.series import FrameRows, Series
from ensue.extensions.frames.glimpses.symbols import JudgedSymbols, SymbolScores, score_symbols
from ensue.extensions.frames.recipe import GlimpseSpecification, GlimpsesRecipe
from ensue.extensions.frames.tasks.data import LabeledSeries, LabeledSeriesData, SeriesNoise, check_image, frames_of
from ensue.extensions.frames.tasks.model import FrameFeatures, Frames, LabeledFrameParts, read_frames_seen
from ensue.metrics.scores import card_columns
from ensue.models.encoders import build_encoder
from ensue.models.modules import device_of, evaluating
from ensue.models.specification import Encoder, EncoderSpecification
from ensue.nn import SequenceLayer
from ensue.nn.draws import ALL_ROWS, RowSlice, normal
from ensue.nn.gaussian import Gaussian
from ensue.nn.images import Glimpses, GlimpseVector, ImageVector
from ensue.ranks import spread
from ensue.runs.directory import RunDirectory
from ensue.runs.reporter import score_table
from ensue.runs.schema import Config, Size
from ensue.tasks.contract.labels_job import LabelsJob
from ensue.tasks.contract.task import BucketedTask, TensorBatch, on_device
from ensue.text.labels import Classes
from ensue.types import Loss, State, select_rows

PLACE_SCALE = 0.02
"""A factor of E(r²), so that places change slowly while the symbols are learned."""


class GlimpseState(NamedTuple):
    """The state of R = B · M readings between two glimpses: M paths of glimpses through each of B images."""

    seen: Float[Tensor, "R d"]
    """r¹, the state of the layer that reads glimpses."""
    plan: Float[Tensor, "R d"]
    """r², from which the next place follows."""
    means: Float[Tensor, "R 2"]
    """Where the last glimpse was on average."""
    reader: State
    planner: State


class SymbolRead(NamedTuple):
    """A symbol in R readings: the logits of the symbols and last of the stop; and the N glimpses before the symbol."""

    logits: Float[Tensor, "R K"]
    places: Float[Tensor, "R N 2"]
    means: Float[Tensor, "R N 2"]
    baselines: Float[Tensor, "R N"]


class ReadSymbols(NamedTuple):
    """The readings of B images on M paths, S symbols; zeros after the last symbol of an image."""

    logits: Float[Tensor, "B M S K"]
    places: Float[Tensor, "B M S N 2"]
    means: Float[Tensor, "B M S N 2"]
    baselines: Float[Tensor, "B M S N"]


class GlimpseReader(nn.Module):
    """Reads images symbol by symbol, each in N glimpses:

        l_n ~ N(E(r²_{n-1}), σ²)    g_n = G_image(x_n) ⊙ G_place(l_n)    r¹_n = RNN¹(g_n)    r²_n = RNN²(r¹_n)

    After every N-th glimpse r¹ gives the logits of a symbol. `reader` is RNN¹; `planner` is RNN², whose first input,
    before any glimpse, is a coarse view of the whole image. If places are relative, E(r²) is a step from the mean of
    the place before.
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

    def images(self, frames: Frames) -> Float[Tensor, "B C H W"]:
        """Return the images of a batch of series, whose frames are rows of pixels."""
        x: Tensor = self.features(frames)
        return x.view(*x.shape[:2], -1, self.table.colors).permute(0, 3, 1, 2)

    def begin(self, images: Float[Tensor, "B C H W"], ways: int) -> GlimpseState:
        """Return the state before the first glimpse, in so many ways through each image."""
        seen = self.view(F.avg_pool2d(images, self.table.view, ceil_mode=True)).repeat_interleave(ways, 0)
        plan, planner = self.planner.step(seen)
        return GlimpseState(seen, plan, self.start.expand(len(seen), 2), self.reader.init_state(len(seen)), planner)

    def symbol(
        self, images: Float[Tensor, "B C H W"], looking: GlimpseState, noise: Float[Tensor, "R N 2"] | None = None
    ) -> tuple[SymbolRead, GlimpseState]:
        """Return the next symbol. Places are the means, or with `noise` from N(0, 1) they are drawn."""
        glimpses = []
        for n in range(self.table.each):
            means = self.mean_place(looking)
            places = means if noise is None else means + self.table.deviation * noise[:, n]
            glimpses.append((places.detach(), means, self.baseline(looking.plan.detach()).squeeze(1)))
            looking = self.look(images, places.detach(), looking._replace(means=means))
        return SymbolRead(
            self.head(looking.seen), *(torch.stack(part, 1) for part in zip(*glimpses, strict=True))
        ), looking

    def mean_place(self, looking: GlimpseState) -> Float[Tensor, "R 2"]:
        """Return where the next glimpse is on average, (down, right)."""
        before = looking.means + self.move if self.table.relative else self.start
        mean: Tensor = before + PLACE_SCALE * self.place(looking.plan)
        return mean

    def look(
        self, images: Float[Tensor, "B C H W"], places: Float[Tensor, "R 2"], looking: GlimpseState
    ) -> GlimpseState:
        """Return the state after the glimpse at these places."""
        patches = self.glimpses(images, places.view(len(images), -1, 2)).flatten(0, 1)
        seen, reader = self.reader.step(self.vector(patches, places), looking.reader)
        plan, planner = self.planner.step(seen, looking.planner)
        return looking._replace(seen=seen, plan=plan, reader=reader, planner=planner)

    def forward(
        self, images: Float[Tensor, "B C H W"], lengths: list[int], noise: Float[Tensor, "B M S N 2"]
    ) -> ReadSymbols:
        """Return readings of images of so many symbols, the stop included. The longest come first."""
        ways, symbols = noise.shape[1], []
        looking = self.begin(images, ways)
        for number in range(lengths[0]):
            rows = sum(length > number for length in lengths)
            if rows < len(images):
                images, looking = images[:rows], select_rows(looking, torch.arange(rows * ways, device=images.device))
            symbol, looking = self.symbol(images, looking, noise[:rows, :, number].flatten(0, 1))
            symbols.append(
                F.pad(part, (0, 0) * (part.dim() - 1) + (0, len(noise) * ways - len(part))) for part in symbol
            )
        stacked = (torch.stack(part, 1) for part in zip(*symbols, strict=True))
        parts = (part.view(-1, ways, *part.shape[1:]) for part in stacked)
        return ReadSymbols(*(part.float() if part.dtype is torch.bfloat16 else part for part in parts))

    def loss(self, frames: Frames, targets: Int[Tensor, "B S"]) -> Loss:
        """Return the bound of the surprisal of symbols and stop in nats, summed over the images, and the number of
        images.

        `targets` have -1 behind the stop.
        """
        table, images = self.table, self.images(frames)
        shape = (len(images), table.samples, targets.shape[1], table.each, 2)
        noise = normal(shape, dtype=images.dtype, device=images.device)
        lengths, order = (targets >= 0).sum(1).sort(descending=True, stable=True)
        read = self(images[order], lengths.tolist(), noise[order])
        nats = bound(read, targets[order, : int(lengths[0])], table.deviation, policy=table.policy)
        return Loss(nats.sum(), len(images))

    def read(
        self, frames: Frames, *, least: int, most: int, ways: int = 1, noise: Callable[[], Tensor] | None = None
    ) -> tuple[Float[Tensor, "B S K"], Float[Tensor, "B S N 2"]]:
        """Return the log-probabilities of symbols and stop, and the places of glimpses, until all images have ended.

        Args:
            frames: The images.
            least: At least this many symbols are read.
            most: At most this many symbols are read.
            ways: Paths of glimpses through each image. Probabilities are means over them; places are those of the
                first.
            noise: The draws (B · ways, N, 2) of places for each next symbol; None: places are the means.
        """
        images = self.images(frames)
        steps: list[tuple[Tensor, Tensor]] = []
        looking, ended = self.begin(images, ways), torch.zeros(len(images), dtype=torch.bool, device=images.device)
        while len(steps) < least or (len(steps) <= most and not ended.all()):
            symbol, looking = self.symbol(images, looking, noise and noise())
            logp = symbol.logits.log_softmax(-1).view(len(images), ways, -1)
            mean = logp.logsumexp(1) - math.log(ways)
            steps.append((mean, symbol.places[::ways]))
            ended |= mean.argmax(-1) == self.stop
        logp, places = (torch.stack(part, 1) for part in zip(*steps, strict=True))
        return logp, places


def bound(
    read: ReadSymbols, targets: Int[Tensor, "B S"], deviation: float, *, policy: float = 1.0
) -> Float[Tensor, " B"]:
    """`-1/M Σ_m log p(y | l^m)` of each image, which on average bounds `-log p(y)`; with the gradient of that average.

    The gradient of the places is `-1/M Σ_m Σ_n (R_n - b_n) ∇ log p(l_n)`, times `policy`. R_n is the log-probability of
    the symbols that come after l_n. b_n is their number times what the baseline expects of one; with several ways, plus
    what R - b is in the others on average. The baseline learns from the squares of R - b, divided by that number.
    """
    is_real = (targets >= 0).unsqueeze(1)
    ids = targets.clamp(min=0)[:, None, :, None].expand(*read.logits.shape[:3], 1)
    nats = -read.logits.log_softmax(-1).gather(-1, ids).squeeze(-1) * is_real
    coming, count = (part.flip(-1).cumsum(-1).flip(-1).unsqueeze(-1) for part in (-nats.detach(), is_real))
    error = (coming / count.clamp(min=1) - read.baselines) * is_real.unsqueeze(-1)
    weight = count * error.detach()
    if (ways := weight.shape[1]) > 1:
        weight = (weight - weight.mean(1, keepdim=True)) * ways / (ways - 1)
    density = -Gaussian(read.means, torch.full_like(read.means, math.log(deviation))).nats(read.places)
    surrogate = (0.5 * error.square() - policy * weight * density).sum((1, 2, 3)) / ways
    return nats.sum((1, 2)) / ways + surrogate - surrogate.detach()


def build_glimpse_reader(
    features: FrameFeatures, encoder: EncoderSpecification, table: GlimpseSpecification, *, rows: int, num_symbols: int
) -> GlimpseReader:
    """Return the model from its tables, for images of so many rows. Both recurrent layers are of the same kind."""
    assert isinstance(encoder, Encoder)
    reader = build_encoder(encoder, d_in=encoder.d_model)
    planner = build_encoder(encoder, d_in=reader.d_out)
    glimpses = Glimpses(table.size, table.scales)
    vector = GlimpseVector(table.scales * table.colors, table.size, tuple(table.convolutions), reader.d_in)
    height, width = (-(-side // table.view) for side in (rows, features.d_out // table.colors))
    view = ImageVector(table.colors, height, width, tuple(table.view_convolutions), planner.d_in)
    return GlimpseReader(features, glimpses, vector, view, reader, planner, num_symbols, table=table)


class GlimpsesConfig(Config):
    """`config.json`."""

    rows: Size


@dataclass(frozen=True)
class GlimpseParts(LabeledFrameParts):
    """The parts of a model that reads images of `rows` rows; its labels are the symbols."""

    config: ClassVar[type[Config]] = GlimpsesConfig
    labels: Classes
    rows: int

    @classmethod
    def read(cls, run: RunDirectory) -> Self:
        labels = run.read_json("labels.json", Classes.from_json)
        return cls(read_frames_seen(run), labels, run.config["rows"])

    def build(self, recipe: GlimpsesRecipe) -> GlimpseReader:
        return build_glimpse_reader(
            self.features(recipe), recipe.encoder, recipe.glimpses, rows=self.rows, num_symbols=len(self.labels)
        )


MAX_BATCH_IMAGES = 256
"""Images that are read together outside of training."""


class ReadImage(NamedTuple):
    """The symbols of an image, their probabilities with that of the stop, and the places (S, N, 2) of the glimpses."""

    symbols: tuple[str, ...]
    probabilities: NDArray[np.float32]
    places: NDArray[np.float32]


@dataclass(frozen=True)
class PlaceDraws:
    """How places are drawn: in so many ways through each image, over which probabilities are averaged and of which the
    first has the places. With none they are the means.
    """

    count: int = 0
    seed: int = 0


MEANS = PlaceDraws()


def caption_of(series: Series, recipe: GlimpsesRecipe) -> tuple[str, ...]:
    """Return the symbols of an image. Raises DataError for no caption, for several, and for one that is too long."""
    captions = tuple(dict.fromkeys(series.labels))
    symbols = tuple(captions[0].split(recipe.data.separator or None)) if len(captions) == 1 else ()
    if not symbols:
        problem = "several captions" if len(captions) > 1 else "no caption"
        raise series.error(f"{series.name}: {problem}; expected one for the image, symbols with blanks between them")
    if len(symbols) > (most := recipe.glimpses.most_symbols):
        raise series.error(f"{series.name}: {len(symbols):,} symbols; glimpses.most_symbols is {most:,}")
    return symbols


def check_glimpsed(series: Series, rows: int, recipe: GlimpsesRecipe) -> None:
    """Raise DataError unless an image is a grid of `rows` rows that suits the glimpses."""
    (height, width), table = series.frames.shape, recipe.glimpses
    check_image(series, colors=table.colors, key="glimpses.colors", rows=rows)
    width //= table.colors
    image = f"{series.name}: an image of {height:,} × {width:,} pixels"
    if table.size > min(height, width):
        raise series.error(f"{image} is smaller than a glimpse; glimpses.size is {table.size:,}")
    if table.view > min(height, width):
        raise series.error(f"{image} is too small for a view {table.view:,} times smaller; glimpses.view sets it")
    if (widest := table.size << (table.scales - 1)) > 2 * max(height, width):
        raise series.error(f"{image} is much smaller than the widest patch, {widest:,}; glimpses.scales sets it")


def targets_of(labels: Classes, captions: Sequence[tuple[str, ...]]) -> NDArray[np.int64]:
    """Return the ids (N, S) of symbols, then the stop, then -1; an unknown symbol is -1, too."""
    targets = np.full((len(captions), max(map(len, captions), default=0) + 1), -1)
    for row, caption in zip(targets, captions, strict=True):
        row[: len(caption) + 1] = [*(labels.ids.get(symbol, -1) for symbol in caption), len(labels)]
    return targets


def read_images(
    model: GlimpseReader, labels: Classes, rows: FrameRows, captions: Sequence[tuple[str, ...]], *, most: int,
    ways: PlaceDraws = MEANS,
) -> Iterator[tuple[ReadImage, float]]:  # fmt: skip
    """Yield the symbols that are read in images, at most so many, and the surprisal of their captions with the stop."""
    targets = targets_of(labels, captions)
    batches = np.split(np.arange(len(rows)), range(MAX_BATCH_IMAGES, len(rows), MAX_BATCH_IMAGES))
    for batch_results in spread(
        lambda batch: list(_read(model, labels, rows, batch, targets[batch], most, ways)), batches
    ):
        for symbols, probabilities, places, nats in batch_results:
            yield ReadImage(symbols, probabilities, places), nats


@torch.inference_mode()
def _read(
    model: GlimpseReader,
    labels: Classes,
    rows: FrameRows,
    batch: NDArray[np.int64],
    targets: NDArray[np.int64],
    most: int,
    ways: PlaceDraws,
) -> Iterator[tuple[tuple[str, ...], NDArray[np.float32], NDArray[np.float32], float]]:
    """Yield the three parts of a `ReadImage`, and the surprisal."""
    frames, count = frames_of(rows, batch, device_of(model)), ways.count or 1
    sources = [SeriesNoise(rows[row], 2, seed=ways.seed) for row in batch.tolist()]

    def noise() -> Tensor:
        each = [source.draw(count * model.table.each) for source in sources]
        return torch.from_numpy(np.stack(each)).to(frames.values.device).view(-1, model.table.each, 2)

    results = model.read(frames, least=targets.shape[1], most=most, ways=count, noise=noise if ways.count else None)
    logp, places = (part.cpu().numpy() for part in results)
    ids = logp.argmax(-1)
    nats = -np.where(
        targets < 0, 0, np.take_along_axis(logp[:, : targets.shape[1]], targets.clip(0)[..., None], 2)[..., 0]
    )
    for row, predicted in enumerate(ids.tolist()):
        length = [*predicted, model.stop].index(model.stop)
        symbols = tuple(labels.names[number] for number in predicted[:length])
        probabilities = np.exp(logp[row, : length + 1].max(-1))
        yield symbols, probabilities, places[row, : length + 1], float(nats[row].sum())


class ReadingInGlimpses(BucketedTask[GlimpseReader, TensorBatch]):
    """Images in batches with their symbols, judged by the share that is read without a mistake."""

    judged_by = "exact_match"

    def __init__(
        self, train: LabeledSeries, valid: LabeledSeries | None, labels: Classes, recipe: GlimpsesRecipe
    ) -> None:
        self.train, self.valid, self.labels, self.most = train, valid, labels, recipe.glimpses.most_symbols
        self.targets = targets_of(labels, train.labels)
        super().__init__(train.lengths, recipe.train)

    def batch_of(self, rows: NDArray[np.int64], device: torch.device, row_slice: RowSlice = ALL_ROWS) -> TensorBatch:
        targets = self.targets[rows]
        longest = int((targets >= 0).sum(1).max())
        frames = frames_of(self.train.rows, rows, device, row_slice).values
        return TensorBatch((frames, on_device(row_slice.of(targets)[:, :longest], device)))

    def loss(self, model: GlimpseReader, batch: TensorBatch, state: State) -> tuple[Loss, State]:
        frames, targets = batch.tensors
        return model.loss(Frames(frames, None), targets), None

    def validate(self, model: GlimpseReader) -> SymbolScores | None:
        return None if self.valid is None else score_reader(model, self.labels, self.valid, self.most)


def score_reader(model: GlimpseReader, labels: Classes, data: LabeledSeries, most: int) -> SymbolScores:
    """Return the scores of a model on images with captions."""
    with evaluating(model):
        answers = zip(data.labels, read_images(model, labels, data.rows, data.labels, most=most), strict=True)
        return score_symbols(JudgedSymbols(right, image.symbols, nats) for right, (image, nats) in answers)


class ImageData(LabeledSeriesData):
    """Images with their captions."""

    unit: ClassVar[str] = "images"


class GlimpsesJob(LabelsJob[GlimpseReader, LabeledSeries]):
    """Trains a model that reads images in glimpses."""

    counted_by: ClassVar[str] = "examples"
    recipe: GlimpsesRecipe
    parts: GlimpseParts
    task: ReadingInGlimpses

    def __init__(self, recipe: GlimpsesRecipe, run: RunDirectory | None = None) -> None:
        check = partial(check_glimpsed, recipe=recipe)
        data = ImageData(recipe, run, labels_of=partial(caption_of, recipe=recipe), check=check)
        super().__init__(recipe, data)
        labels = Classes(sorted(self.split.train.label_counts))
        self.parts = GlimpseParts(data.seen(), labels, data.rows) if run is None else run.parts
        self.task = ReadingInGlimpses(self.split.train, self.split.valid, self.parts.labels, recipe)

    def config(self) -> dict[str, Any]:
        return {"rows": self.parts.rows, **super().config()}

    def test(self, model: GlimpseReader) -> SymbolScores | None:
        most = self.recipe.glimpses.most_symbols
        return None if self.split.test is None else score_reader(model, self.parts.labels, self.split.test, most)

    @property
    def score_columns(self) -> dict[str, tuple[str, str]]:
        return card_columns(".4g", "exact_match", "edit_rate", "nats_per_symbol")

    def score_lines(self, scores: dict[str, dict[str, Any]]) -> list[str]:
        return score_table(scores, {**self.score_columns, "examples": ("images", ",")})
