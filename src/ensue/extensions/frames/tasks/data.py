"""Labeled series, batches of series, reproducible noise, and the data set of a recipe that reads series."""

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ensue.errors import DataError, pluralize
from ensue.extensions.frames.data.series import FrameRows, Series, Vectors
from ensue.extensions.frames.data.source import FrameSource
from ensue.extensions.frames.recipe import FramesRecipe
from ensue.extensions.frames.tasks.model import FrameParts, Frames, FrameStatistics, LabeledFrameParts
from ensue.nn.draws import ALL_ROWS, RowSlice
from ensue.runs.directory import RunDirectory, origins_for
from ensue.tasks.contract.chunks import check_num_units, max_positions
from ensue.tasks.contract.data_set import DataSet, Split
from ensue.tasks.contract.job import check_same_shape, copy_rows, paired_parameters
from ensue.tasks.contract.task import on_device


class HashedData(ABC):
    """The base of data whose examples are arrays. Duplicates are found by digests of the arrays."""

    groups: Sequence[str]
    """The group of each example; empty for data without groups."""

    @property
    @abstractmethod
    def arrays(self) -> Iterable[Vectors]:
        """The array of each example."""

    @property
    def digests(self) -> list[bytes]:
        """The digest of each example."""
        return [hashlib.sha256(array.tobytes()).digest() for array in self.arrays]

    @property
    def group_keys(self) -> Sequence[Hashable]:
        """The group of each example, or for data without groups the digest of each example."""
        return self.groups or self.digests

    def num_shared(self, other: "HashedData") -> int:
        """Return the number of examples that `other` shares with these data."""
        return sum(map({*self.digests}.__contains__, other.digests))


@dataclass
class LabeledSeries(HashedData):
    """Series with labels, either of the complete series or of each frame."""

    rows: FrameRows
    labels: list[tuple[str, ...]]
    groups: Sequence[str] = ()

    @property
    def arrays(self) -> Iterable[Vectors]:
        return map(self.rows.__getitem__, range(len(self)))

    @property
    def label_counts(self) -> Counter[str]:
        """The count of each label."""
        return Counter(label for labels in self.labels for label in labels)

    @property
    def classes(self) -> NDArray[np.int64]:
        """The frequency rank of the rarest label of each series; 0 without labels."""
        ranks = {label: rank for rank, (label, _) in enumerate(self.label_counts.most_common(), 1)}
        return np.array([max((ranks[label] for label in labels), default=0) for labels in self.labels], np.int64)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The number of frames of each series."""
        return self.rows.lengths

    def select(self, rows: NDArray[np.int64]) -> "LabeledSeries":
        """Return the series `rows`."""
        labels = [self.labels[row] for row in rows.tolist()]
        groups = [self.groups[row] for row in rows.tolist()] if self.groups else []
        return LabeledSeries(self.rows.select(rows), labels, groups)

    def ends(self, fraction: float) -> "tuple[LabeledSeries, LabeledSeries] | None":
        """Return the beginnings and ends of all series with labels; None if all beginnings or all ends are empty."""
        starts = self.lengths - np.rint(self.lengths * fraction).astype(np.int64)
        splits = [np.split(self.rows[row], [start]) for row, start in enumerate(starts.tolist())]
        labels = [(names[:start], names[start:]) for names, start in zip(self.labels, starts.tolist(), strict=True)]
        nonempty = [[row for row in range(len(self)) if len(splits[row][side])] for side in (0, 1)]
        if not all(nonempty):
            return None
        train, valid = (
            LabeledSeries(FrameRows.of([splits[row][side] for row in rows]), [labels[row][side] for row in rows])
            for side, rows in enumerate(nonempty)
        )
        return train, valid

    def __len__(self) -> int:
        return len(self.labels)

    def __str__(self) -> str:
        return f"{len(self):,} series, {self.lengths.sum():,} frames"


def pad_frames(
    rows: FrameRows, batch: NDArray[np.int64] | Sequence[int], device: torch.device, row_slice: RowSlice = ALL_ROWS
) -> Frames:
    """Return the slice `row_slice` of a batch of series, padded to the longest series of the complete batch."""
    batch = np.asarray(batch, np.int64)
    numbers = row_slice.select(batch)
    values, mask = rows.padded(numbers, among=batch), rows.mask(numbers, among=batch)
    return Frames(on_device(values, device), None if mask is None else on_device(mask, device))


def check_frames(series: Series, recipe: FramesRecipe) -> None:
    """Raise DataError if a series has more frames than a model of this recipe reads."""
    path, line = series.place
    check_num_units(
        "a series of frames", len(series.frames), max_positions(recipe.encoder, recipe.most_frames), recipe.encoder,
        table="encoder", advice="shorten the series, or lower its frame rate", path=path, line=line or 0,
    )  # fmt: skip


def check_image(series: Series, *, colors: int, key: str, rows: int = 0) -> None:
    """Raise DataError unless the frames are `rows` rows (0: any number) of pixels with `colors` values (key `key`)."""
    count, width = series.frames.shape
    if width % colors:
        raise series.error(f"rows of {width:,} numbers are not pixels of {colors:,} numbers each ({key})")
    if rows and count != rows:
        raise series.error(f"an image of {count:,} rows; expected {rows:,}, since all images have one size")


class SeriesData(DataSet[LabeledSeries]):
    """The series of a recipe. Their shape must match the resumed `run`, or the run whose layers initialize the model.

    `labels_of` returns the labels of a series, and raises DataError for missing labels. `check` raises DataError for a
    series that the model cannot read; its second argument is the number of rows of the first image (0 for the first
    image). With `has_ends`, the ends of series are for validation, if there are too few series to hold one out.
    """

    unit: ClassVar[str] = "series"
    has_classes: ClassVar[bool] = False

    def __init__(
        self, recipe: FramesRecipe, run: RunDirectory | None = None, *,
        labels_of: Callable[[Series], tuple[str, ...]] = lambda series: (),
        check: Callable[[Series, int], None] = lambda series, rows: None, has_ends: bool = False,
    ) -> None:  # fmt: skip
        self.recipe, self.labels_of, self.check = recipe, labels_of, check
        data = recipe.data
        if not data.train:
            raise DataError("no training data: --train PATH names a file or a folder of series")
        self.fingerprint = FrameSource(data.train, recipe.reading()).fingerprint()
        self.origins = origins_for(recipe.origins, run)
        for origin in self.origins:
            check_same_shape(recipe, origin, ("encoder", "directions"))
        known = [origin.run.parts.statistics.shape._replace(first=origin.path) for origin in self.origins]
        self.rows = 0 if run is None else getattr(run.parts, "rows", 0)
        self.num_mixed, self.shape = 0, run.parts.statistics.shape if run else next(iter(known), None)
        series = self.read(data.train, group=data.group)
        classes = series.classes if self.has_classes else None
        has_ends &= (len(series) * data.valid_fraction < 1) and data.division == "classes" and not data.group
        ends = series.ends(data.valid_fraction) if has_ends else None
        self.split = Split.of(series, data, self.read, examples="series", classes=classes, parts=ends)

    def labels_in_names(self, location: str) -> list[str]:
        source = FrameSource(location, self.recipe.reading())
        return source.labels_in_names() if source.path_table is not None or any(self.split.train.labels) else []

    def read(self, location: str, *, group: str = "") -> LabeledSeries:
        """Return the series of a location. Raises DataError if their shape differs from that of earlier series."""
        source = FrameSource(location, self.recipe.reading(), shape=self.shape)
        frames, labels, groups = [], [], []
        for series in source:
            check_frames(series, self.recipe)
            self.check(series, self.rows)
            self.rows = self.rows or len(series.frames)
            self.num_mixed += series.channels > 1
            frames.append(series.frames)
            labels.append(self.labels_of(series))
            if group:
                groups.append(series.named_group(group))
        if not frames:
            raise DataError("no series found", location)
        self.shape = source.shape
        return LabeledSeries(FrameRows.of(frames), labels, groups)

    def statistics(self) -> FrameStatistics:
        """Return the shape and the statistics of the training data."""
        assert self.shape is not None
        normalize = self.recipe.features.normalize == "training"
        return FrameStatistics.of(self.shape, self.split.train.rows, normalize=normalize)

    def amount(self, parts: FrameParts) -> str:
        train, valid = self.split.train, self.split.valid
        size = f"{len(train):,} series, {train.lengths.sum():,} frames of {len(parts.statistics.mean):,} features"
        return f"{size}, {len(valid):,} for validation" if valid else f"{size}, no validation series"

    @property
    def notes(self) -> list[str]:
        have = pluralize(self.num_mixed, "recording has", "recordings have")
        mixed = [f"{have} several channels, which are mixed"] if self.num_mixed else []
        return [*(f"initialized from the layers of {origin.path}" for origin in self.origins), *mixed]

    @torch.no_grad()
    def inherit(self, model: nn.Module, parts: FrameParts) -> dict[str, Tensor | None]:
        """Copy the layers, without the head, of the run in `encoder.from` to the model."""
        return {
            name: copy_rows(parameter, source)
            for origin in self.origins
            for name, parameter, source in paired_parameters(model, origin.run.model(torch.device("cpu")))
            if name.startswith("layers.")
        }


class LabeledSeriesData(SeriesData):
    """The labeled series of a recipe."""

    has_classes = True
    teacher: ClassVar[None] = None
    """None, since models of series have no teachers."""
    extended: ClassVar[None] = None
    """None, since a training run of series never extends the labels of an earlier run."""

    def soft_targets(self, labels: Any) -> None:
        """Return None, since series have no soft targets."""

    def resumed_parts(self, run: RunDirectory) -> Any:
        """Return the parts of a resumed run."""
        return run.parts

    def amount(self, parts: FrameParts) -> str:
        assert isinstance(parts, LabeledFrameParts)
        return f"{super().amount(parts)}; {len(parts.labels.names)} labels"


class SeriesNoise:
    """A generator of vectors (size,) from N(0, 1), seeded by `seed` and a digest of the frames of a series.

    With this noise, the scores and predictions of a series are reproducible and do not depend on its batch.
    """

    def __init__(self, frames: Vectors, size: int, *, seed: int = 0) -> None:
        self.length, self.size = len(frames), size
        self._generator = np.random.default_rng(crc32(np.ascontiguousarray(frames).tobytes(), seed))

    def draw(self, length: int | None = None) -> Vectors:
        """Return the next vectors (length, size); by default one for each frame."""
        return self._generator.standard_normal((self.length if length is None else length, self.size), np.float32)


def draw_batch_noise(sources: list[SeriesNoise], length: int, device: torch.device) -> Tensor:
    """Return the next vectors (B, length, size) of each generator, one for each frame; zeros at padding."""
    noise = np.zeros((len(sources), length, sources[0].size), np.float32)
    for row, source in zip(noise, sources, strict=True):
        row[: source.length] = source.draw()
    return torch.from_numpy(noise).to(device)
