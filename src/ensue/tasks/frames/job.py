"""The base of the jobs that train on series of frames, labeled or not."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import ClassVar, Generic, TypeVar

from torch import nn

from ensue.data.frames.series import Series
from ensue.data.frames.source import FrameSource
from ensue.data.frames.stored import FrameRows
from ensue.errors import DataError
from ensue.runs.directory import RunDirectory
from ensue.tasks.frames.data import LabeledSeries
from ensue.tasks.frames.length import check_frames
from ensue.tasks.frames.model import FrameParts, FramesSeen, LabeledFrameParts
from ensue.tasks.frames.recipe import FramesRecipe
from ensue.tasks.labels_job import LabelsJob
from ensue.tasks.split_job import SplitJob

ModelT = TypeVar("ModelT", bound=nn.Module)


class FramesJob(SplitJob[ModelT, LabeledSeries], Generic[ModelT]):
    """Trains a model on series of frames: reads and checks them, and writes its part of the card."""

    unit: ClassVar[str] = "series"
    examples: ClassVar[str] = "series"
    recipe: FramesRecipe
    parts: FrameParts

    def __init__(self, recipe: FramesRecipe, run: RunDirectory | None = None) -> None:
        self.recipe = recipe
        data = recipe.data
        if not data.train:
            raise DataError("no training data: --train PATH names a file or a folder of series")
        self.fingerprint = FrameSource(data.train, recipe.reading()).fingerprint()
        self.num_mixed, self.shape = 0, None if run is None else run.parts.seen.shape
        self.train, self.valid, self.valid_from = self.split(self.read(data.train, group=data.group))
        self.test_data = self.read(data.test) if data.test else None
        self.parts = self.made_parts() if run is None else run.parts
        self.begin_task()

    def check(self, series: Series) -> None:
        """Raises DataError for a series that the model cannot read."""
        check_frames(series, self.recipe)

    def labels_of(self, series: Series) -> tuple[str, ...]:
        """The labels from which is learned; by default none. Raises DataError if the series has none of that kind."""
        return ()

    @abstractmethod
    def made_parts(self) -> FrameParts:
        """The parts, from the training data."""

    @abstractmethod
    def begin_task(self) -> None:
        """Makes the task, once data and parts are there."""

    def read(self, location: str, *, group: str = "") -> LabeledSeries:
        source = FrameSource(location, self.recipe.reading(), shape=self.shape)
        frames, labels, groups = [], [], []
        for series in source:
            self.check(series)
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
        """What the training data have alike."""
        assert self.shape is not None
        return FramesSeen.of(self.shape, self.train.rows, normalize=self.recipe.features.normalize == "training")

    @property
    def data(self) -> str:
        valid = f"{len(self.valid):,} for validation" if self.valid else "none for validation"
        width = len(self.parts.seen.mean)
        frames = f"{self.train.lengths.sum():,} frames of {width:,} features"
        return f"{len(self.train):,} series, {frames}, {valid}"

    @property
    def notes(self) -> list[str]:
        mixed = [f"{self.num_mixed:,} recordings have several channels, which are mixed"] if self.num_mixed else []
        return [*mixed, *self.notes_on_targets()]

    def notes_on_targets(self) -> Iterable[str]:
        """Remarks on what is learned."""
        return self.notes_on_validation()

    def data_lines(self) -> list[str]:
        data = self.recipe.data
        lines = [f"- training: `{data.train}`, {_amount(self.train)}", f"- validation: {self.valid_from}"]
        if self.valid:
            lines[-1] += f", {_amount(self.valid)}"
        return [*lines, *([f"- test: `{data.test}`, {_amount(self.test_data)}"] if self.test_data else [])]


class LabeledFramesJob(LabelsJob[ModelT, LabeledSeries], FramesJob[ModelT], Generic[ModelT]):
    """Trains a model on labeled series of frames."""

    parts: LabeledFrameParts

    @abstractmethod
    def labels_of(self, series: Series) -> tuple[str, ...]: ...

    @property
    def data(self) -> str:
        return f"{super().data}; {len(self.parts.labels.names)} labels"

    def notes_on_targets(self) -> Iterable[str]:
        return self.notes_on_labels()


def _amount(data: LabeledSeries) -> str:
    return f"{len(data):,} series, {data.lengths.sum():,} frames"
