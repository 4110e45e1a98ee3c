"""Shared by the tasks that read series of frames in batches of similar length; here are the tables of their recipes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from ensue.extensions.frames.models.frame_specification import FrameFeatureSpecification
from ensue.models.specification import Directions, EncoderSpecification
from ensue.recipe.tables import DividedData, Recipe, Rows, TrainRecipe

if TYPE_CHECKING:
    from ensue.extensions.frames.data.series import SeriesOptions

Column = Annotated[str, Field(min_length=1)]


class FramesData(DividedData):
    """The table `[data]` of a task that reads frames."""

    series: Column = "series"
    """The column of a table with the name of the series; without it a table is one series."""
    labels: Column = "label"
    """The column of a table with the label."""
    time: Column = "time"
    """The column of a table with the time of a frame; it is no feature, and a gap in it is a mistake."""
    pattern: str = ""
    """The place of the label in the name of a file, such as `{label}_{}_{}.wav`; empty: labels are in the files, in a
    table of paths, or are the names of folders.
    """
    separator: str = ""
    """The character between several labels; empty: a series has one label."""
    missing: Literal["refuse", "mean"] = "refuse"
    """Missing values: refuse: they are a mistake; mean: they are read as the mean of the feature."""


class FramesTrain(TrainRecipe):
    """The table `[train]` of a task that reads series of frames."""

    batch_size: Rows = 32
    """At most this many series go into a batch."""
    batch_tokens: Rows = 20_000
    """At most this many frames go into a batch, unless one series alone is longer."""


class FramesRecipe(Recipe):
    """A recipe of a task that reads series of frames. The limit on their length keeps memory at about a gigabyte."""

    most_frames: ClassVar[int] = 100_000

    data: FramesData = FramesData()
    features: FrameFeatureSpecification = FrameFeatureSpecification()
    encoder: EncoderSpecification
    directions: Directions = Directions()
    train: FramesTrain

    def reading(self) -> SeriesOptions:
        """How files become series."""
        from ensue.extensions.frames.data.series import LogMel, SeriesOptions  # noqa: PLC0415  # numpy, which lists do without

        data, features = self.data, self.features
        sound = LogMel(*(getattr(features, name) for name in LogMel._fields))
        return SeriesOptions(
            sound, data.missing, data.series, data.labels, data.time, data.pattern, data.encoding, data.group
        )
