"""Training a reader of images in glimpses: the model's parts, captions as symbols, batches, scores, the job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.extensions.frames.data.series import Series
from ensue.extensions.frames.data.stored import FrameRows
from ensue.extensions.frames.glimpses import GlimpsesRecipe
from ensue.extensions.frames.models.frame_features import Frames
from ensue.extensions.frames.models.glimpse_reader import GlimpseReader, build_glimpse_reader
from ensue.extensions.frames.tasks.data import LabeledSeries, LabeledSeriesData, SeriesNoise, check_image, frames_of
from ensue.extensions.frames.tasks.model import LabeledFrameParts, read_frames_seen
from ensue.metrics.symbols import JudgedSymbols, SymbolScores, score_symbols
from ensue.models.modules import device_of, evaluating
from ensue.ranks import spread
from ensue.runs.directory import RunDirectory
from ensue.runs.reporter import score_table
from ensue.runs.schema import Config, Size
from ensue.tasks.contract.labels_job import LabelsJob
from ensue.tasks.contract.task import WHOLE, BucketedTask, Cut, TensorBatch, on_device
from ensue.text.labels import Classes
from ensue.types import Loss, State


class GlimpsesConfig(Config):
    """`config.json`."""

    rows: Size


@dataclass(frozen=True)
class GlimpseParts(LabeledFrameParts):
    """The parts of a model that reads images of so many `rows`; its labels are the symbols."""

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


READ_ROWS = 256
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
    """The symbols of an image. Raises DataError for no caption, for several, and for one that is too long."""
    captions = tuple(dict.fromkeys(series.labels))
    symbols = tuple(captions[0].split(recipe.data.separator or None)) if len(captions) == 1 else ()
    if not symbols:
        found = "several captions" if len(captions) > 1 else "no caption"
        raise series.error(f"{series.name}: {found}; expected one for the image, symbols with blanks between them")
    if len(symbols) > (most := recipe.glimpses.most_symbols):
        raise series.error(f"{series.name}: {len(symbols):,} symbols; glimpses.most_symbols is {most:,}")
    return symbols


def check_glimpsed(series: Series, rows: int, recipe: GlimpsesRecipe) -> None:
    """Raises DataError for an image that is no grid, has not so many `rows`, or does not suit the glimpses."""
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
    """The ids (N, S) of the symbols, then the stop, then -1; also -1 for a symbol that the model does not have."""
    found = np.full((len(captions), max(map(len, captions), default=0) + 1), -1)
    for row, caption in zip(found, captions, strict=True):
        row[: len(caption) + 1] = [*(labels.ids.get(symbol, -1) for symbol in caption), len(labels)]
    return found


def read_images(
    model: GlimpseReader, labels: Classes, rows: FrameRows, captions: Sequence[tuple[str, ...]], *, most: int,
    ways: PlaceDraws = MEANS,
) -> Iterator[tuple[ReadImage, float]]:  # fmt: skip
    """The symbols that are read in images, at most so many, and the surprisal of their captions with the stop."""
    targets = targets_of(labels, captions)
    batches = np.split(np.arange(len(rows)), range(READ_ROWS, len(rows), READ_ROWS))
    for found in spread(lambda batch: list(_read(model, labels, rows, batch, targets[batch], most, ways)), batches):
        for symbols, probabilities, places, nats in found:
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
    """The three parts of a `ReadImage`, and the surprisal."""
    frames, count = frames_of(rows, batch, device_of(model)), ways.count or 1
    sources = [SeriesNoise(rows[row], 2, seed=ways.seed) for row in batch.tolist()]

    def noise() -> Tensor:
        each = [source.draw(count * model.table.each) for source in sources]
        return torch.from_numpy(np.stack(each)).to(frames.values.device).view(-1, model.table.each, 2)

    found = model.read(frames, least=targets.shape[1], most=most, ways=count, noise=noise if ways.count else None)
    logp, places = (part.cpu().numpy() for part in found)
    ids = logp.argmax(-1)
    nats = -np.where(
        targets < 0, 0, np.take_along_axis(logp[:, : targets.shape[1]], targets.clip(0)[..., None], 2)[..., 0]
    )
    for row, said in enumerate(ids.tolist()):
        length = [*said, model.stop].index(model.stop)
        symbols = tuple(labels.names[number] for number in said[:length])
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

    def batch_of(self, rows: NDArray[np.int64], device: torch.device, cut: Cut = WHOLE) -> TensorBatch:
        targets = self.targets[rows]
        longest = int((targets >= 0).sum(1).max())
        frames = frames_of(self.train.rows, rows, device, cut).values
        return TensorBatch((frames, on_device(cut.of(targets)[:, :longest], device)))

    def loss(self, model: GlimpseReader, batch: TensorBatch, state: State) -> tuple[Loss, State]:
        frames, targets = batch.tensors
        return model.loss(Frames(frames, None), targets), None

    def validate(self, model: GlimpseReader) -> SymbolScores | None:
        return None if self.valid is None else score_reader(model, self.labels, self.valid, self.most)


def score_reader(model: GlimpseReader, labels: Classes, data: LabeledSeries, most: int) -> SymbolScores:
    """The scores of a model on images with captions."""
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
    def score_columns(self) -> dict[str, str]:
        return {"exact_match": "exact match", "edit_rate": "edit rate", "nats_per_symbol": "nats per symbol"}

    def score_lines(self, scores: dict[str, dict[str, Any]]) -> list[str]:
        shares = {key: (title, ".4g") for key, title in self.score_columns.items()}
        return score_table(scores, {**shares, "examples": ("images", ",")})
