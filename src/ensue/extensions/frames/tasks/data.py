"""Series in memory, with their labels and their noise, and the data set of a recipe that reads series."""

from __future__ import annotations

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

from ensue.errors import DataError
from ensue.extensions.frames.data.series import FrameRows, Series, Vectors
from ensue.extensions.frames.data.source import FrameSource
from ensue.extensions.frames.recipe import FramesRecipe
from ensue.extensions.frames.tasks.model import FrameParts, Frames, FramesSeen, LabeledFrameParts
from ensue.nn.draws import ALL_ROWS, RowSlice
from ensue.runs.directory import RunDirectory
from ensue.runs.origin import origins_for
from ensue.tasks.contract.chunks import check_read, most_read
from ensue.tasks.contract.data_set import DataSet, Split
from ensue.tasks.contract.model import check_same_shape, fill, pairs_of
from ensue.tasks.contract.task import on_device


class Hashed(ABC):
    """Examples of numbers, which are divided and compared by the digests of these."""

    groups: Sequence[str]
    """The group of each example; empty if the data have no groups."""

    @property
    @abstractmethod
    def arrays(self) -> Iterable[Vectors]:
        """The numbers of each example."""

    @property
    def digests(self) -> list[bytes]:
        """The digest of each example."""
        return [hashlib.sha256(numbers.tobytes()).digest() for numbers in self.arrays]

    @property
    def sources(self) -> Sequence[Hashable]:
        """The group of each example; without groups its digest."""
        return self.groups or self.digests

    def num_shared(self, other: Hashed) -> int:
        """Return how many examples of `other` are in these data, too."""
        return sum(map({*self.digests}.__contains__, other.digests))


@dataclass
class LabeledSeries(Hashed):
    """Series with their labels: of the series, or one for each frame."""

    rows: FrameRows
    labels: list[tuple[str, ...]]
    groups: Sequence[str] = ()

    @property
    def arrays(self) -> Iterable[Vectors]:
        """The frames of each series."""
        return map(self.rows.__getitem__, range(len(self)))

    @property
    def label_counts(self) -> Counter[str]:
        """How often each label occurs."""
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

    def select(self, rows: NDArray[np.int64]) -> LabeledSeries:
        """Return the series in these rows."""
        labels = [self.labels[row] for row in rows.tolist()]
        groups = [self.groups[row] for row in rows.tolist()] if self.groups else []
        return LabeledSeries(self.rows.select(rows), labels, groups)

    def __len__(self) -> int:
        return len(self.labels)

    def __str__(self) -> str:
        return f"{len(self):,} series, {self.lengths.sum():,} frames"


def frames_of(
    rows: FrameRows, chosen: NDArray[np.int64] | Sequence[int], device: torch.device, row_slice: RowSlice = ALL_ROWS
) -> Frames:
    """Return a batch of series, cut."""
    among = np.asarray(chosen, np.int64)
    numbers = row_slice.of(among)
    values, mask = rows.padded(numbers, among=among), rows.mask(numbers, among=among)
    return Frames(on_device(values, device), None if mask is None else on_device(mask, device))


def check_frames(series: Series, recipe: FramesRecipe) -> None:
    """Raise DataError, with its file, if a series has more frames than a model of this recipe reads."""
    path, line = series.place
    check_read(
        "a series of frames", len(series.frames), most_read(recipe.encoder, recipe.most_frames), recipe.encoder,
        table="encoder", advice="cut it, or take longer steps", path=path, line=line or 0,
    )  # fmt: skip


def check_image(series: Series, *, colors: int, key: str, rows: int = 0) -> None:
    """Raise DataError unless frames are rows of pixels with so many `colors`, which `key` of the recipe sets, and as
    many as `rows` (0: any).
    """
    count, width = series.frames.shape
    if width % colors:
        raise series.error(f"{series.name}: rows of {width:,} numbers are no pixels of {colors:,} numbers each ({key})")
    if rows and count != rows:
        raise series.error(
            f"{series.name}: an image of {count:,} rows; expected {rows:,}, since all images have one size"
        )


class SeriesData(DataSet[LabeledSeries]):
    """The series of a recipe, checked against the shape of the run that is resumed or from which training begins.

    Args:
        recipe: The recipe.
        run: The run that is resumed.
        labels_of: Returns the labels of a series that are learned; raises DataError for a series without labels.
        check: Raises DataError for a series that the model cannot read, given the rows of the first image (0: none
            yet).
    """

    unit: ClassVar[str] = "series"
    has_classes: ClassVar[bool] = False

    def __init__(
        self,
        recipe: FramesRecipe,
        run: RunDirectory | None = None,
        *,
        labels_of: Callable[[Series], tuple[str, ...]] = lambda series: (),
        check: Callable[[Series, int], None] = lambda series, rows: None,
    ) -> None:
        self.recipe, self.labels_of, self.check = recipe, labels_of, check
        data = recipe.data
        if not data.train:
            raise DataError("no training data: --train PATH names a file or a folder of series")
        self.fingerprint = FrameSource(data.train, recipe.reading()).fingerprint()
        self.origins = origins_for(recipe.origins, run)
        for origin in self.origins:
            check_same_shape(recipe, origin, ("encoder", "directions"))
        known = [origin.run.parts.seen.shape._replace(first=origin.path) for origin in self.origins]
        self.rows = 0 if run is None else getattr(run.parts, "rows", 0)
        self.num_mixed, self.shape = 0, run.parts.seen.shape if run else next(iter(known), None)
        series = self.read(data.train, group=data.group)
        classes = series.classes if self.has_classes else None
        self.split = Split.of(series, data, self.read, examples="series", classes=classes)

    def labels_in_names(self, location: str) -> list[str]:
        source = FrameSource(location, self.recipe.reading())
        return source.labels_in_names() if source.manifest is not None or any(self.split.train.labels) else []

    def read(self, location: str, *, group: str = "") -> LabeledSeries:
        """Return the series of a location, checked against the shape of the series before."""
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
            raise DataError("no series in it", location)
        self.shape = source.shape
        return LabeledSeries(FrameRows.of(frames), labels, groups)

    def seen(self) -> FramesSeen:
        """Return the shape and the statistics of the training data."""
        assert self.shape is not None
        return FramesSeen.of(self.shape, self.split.train.rows, normalize=self.recipe.features.normalize == "training")

    def amount(self, parts: FrameParts) -> str:
        train, valid = self.split.train, self.split.valid
        held_out = f"{len(valid):,} for validation" if valid else "none for validation"
        return f"{len(train):,} series, {train.lengths.sum():,} frames of {len(parts.seen.mean):,} features, {held_out}"

    @property
    def notes(self) -> list[str]:
        mixed = [f"{self.num_mixed:,} recordings have several channels, which are mixed"] if self.num_mixed else []
        return [*(f"begins from the layers of {origin.path}" for origin in self.origins), *mixed]

    @torch.no_grad()
    def inherit(self, model: nn.Module, parts: FrameParts) -> dict[str, Tensor | None]:
        """Copy the layers of the run that `encoder.from` names. The head is new."""
        return {
            name: fill(parameter, source)
            for origin in self.origins
            for name, parameter, source in pairs_of(model, origin.run.model(torch.device("cpu")))
            if name.startswith("layers.")
        }

    def lines(self) -> list[str]:
        data, split = self.recipe.data, self.split
        valid = f"- validation: {split.valid_from}" + (f", {split.valid}" if split.valid else "")
        test = [f"- test: `{data.test}`, {split.test}"] if split.test else []
        return [f"- training: `{data.train}`, {split.train}", valid, *test]


class LabeledSeriesData(SeriesData):
    """The labeled series of a recipe."""

    has_classes = True
    answers: ClassVar[None] = None
    """No teacher labels series."""
    kept: ClassVar[None] = None
    """No labels of another run are kept."""

    def soft_targets(self, labels: Any) -> None:
        """No probabilities are learned in place of labels."""

    def parts_of(self, run: RunDirectory) -> Any:
        """Return the parts of a run that is resumed."""
        return run.parts

    def amount(self, parts: FrameParts) -> str:
        assert isinstance(parts, LabeledFrameParts)
        return f"{super().amount(parts)}; {len(parts.labels.names)} labels"


class SeriesNoise:
    """Numbers from N(0, 1) for a series, `size` at each place: as many draws as are asked, the same ones whenever the
    series is read with that seed.
    """

    def __init__(self, frames: Vectors, size: int, *, seed: int = 0) -> None:
        self.length, self.size = len(frames), size
        self._generator = np.random.default_rng(crc32(np.ascontiguousarray(frames).tobytes(), seed))

    def draw(self, length: int | None = None) -> Vectors:
        """Return draws (length, size); by default for each frame."""
        return self._generator.standard_normal((self.length if length is None else length, self.size), np.float32)


def noise_for(sources: list[SeriesNoise], length: int, device: torch.device) -> Tensor:
    """Return a draw for the frames of each series (B, length, size), zeros at padding."""
    noise = np.zeros((len(sources), length, sources[0].size), np.float32)
    for row, source in zip(noise, sources, strict=True):
        row[: source.length] = source.draw()
    return torch.from_numpy(noise).to(device)
