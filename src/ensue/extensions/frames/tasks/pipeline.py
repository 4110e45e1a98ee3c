"""Reads series for a trained model: from files, from arrays of numbers, and in its export."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from ensue.arguments import check_texts
from ensue.data.files import Location, one_location
from ensue.data.sources import is_stream
from ensue.errors import DataError, EnsueError
from ensue.extensions.frames.data.series import LogMel, Series, as_vectors
from ensue.extensions.frames.data.sounds import framing, hann, log_mel, mel_triangles
from ensue.extensions.frames.data.source import FrameSource
from ensue.extensions.frames.page import SeriesView
from ensue.extensions.frames.recipe import FramesRecipe
from ensue.extensions.frames.tasks.data import check_frames
from ensue.extensions.frames.tasks.model import FrameParts, Frames, LabeledFrameParts
from ensue.runs.directory import RunDirectory
from ensue.tasks.contract.chunks import WHOLE, Shard, chunks
from ensue.tasks.contract.description import (
    ModelDescription,
    Output,
    SeriesInput,
    SoundFeatures,
    TensorForm,
    TensorFunction,
    mask_of,
    sample_lengths,
)
from ensue.tasks.contract.pipeline import Predictor

MAX_CHUNK_FRAMES, MAX_CHUNK_SERIES = 262_144, 4_096
"""The most frames and series that are held and sorted by length."""
PROGRAMS = "ensue.extensions.frames.programs"
"""The package of the programs that read exported graphs."""
NO_STREAM = "frames are read from a file, a folder, a glob or a table of paths, not from a stream"
EXPECTED_INPUT = "arrays of numbers (T, d), or of the samples (n,) of sounds"


def chunked(series: Iterable[Series]) -> Iterator[list[Series]]:
    """Yield lists of series, so that a file of any length is read in constant memory."""
    return chunks(series, lambda one: len(one.frames), most_words=MAX_CHUNK_FRAMES, most_items=MAX_CHUNK_SERIES)


class FramesPipeline(Predictor):
    """The base of the pipelines of models that read frames."""

    recipe: FramesRecipe
    parts: FrameParts
    reads_vectors: ClassVar[bool] = True

    def __init__(self, model: Any, parts: FrameParts, *, recipe: FramesRecipe, run: str | Path | None = None) -> None:
        super().__init__(model.eval())
        self.recipe, self.run, self.parts, self.seen = recipe, run, parts, parts.seen

    @classmethod
    def of(cls, directory: RunDirectory, device: torch.device) -> Self:
        """Return the trained model in a run directory."""
        recipe: Any = directory.recipe
        return cls(directory.model(device), directory.parts, recipe=recipe, run=directory.path)

    def source(self, location: Location, *, encoding: str = "utf-8") -> FrameSource:
        """Return the series of a file, folder, glob or table of paths, which have the shape of the training data."""
        location = one_location(location, "the data")
        return FrameSource(location, self.recipe.reading()._replace(encoding=encoding), shape=self.seen.shape)

    def _series_of(self, series: Iterable[Any]) -> Iterator[Series]:
        """Yield the series of a caller.

        Raises:
            EnsueError: A series has numbers that the model does not read.
        """
        check_texts(series, EXPECTED_INPUT)
        for number, one in enumerate(series):
            if isinstance(one, Series):
                self._as_series(one.frames, one.name)
            yield self._checked(one if isinstance(one, Series) else self._as_series(one, str(number)))

    def only(self, series: Any) -> Series:
        """Return the only series of a location, or a series in memory.

        Raises:
            EnsueError: There is another number of series.
        """
        if not isinstance(series, str | Path):
            (one,) = self._series_of([series])
            return one
        if is_stream(str(series)):
            raise EnsueError(NO_STREAM)
        some = list(islice(map(self._checked, self.source(series)), 2))
        if not some:
            raise DataError("no series in it", series)
        if len(some) > 1 and some[0].name != some[1].name:
            example = f"{series}[0]" if Path(series).is_file() else some[0].place[0]
            raise DataError(f"several series in it; expected one, such as {example}", series)
        return some[0]

    def series_view(self, series: Series) -> SeriesView:
        """Return a series as a page shows it. Raises EnsueError for one that is too long."""
        shape = self.seen.shape
        rate = 1 / self.recipe.features.step if shape.is_sound else series.rate or shape.rate
        names = tuple(f"band {band}" for band in range(shape.width)) if shape.is_sound else shape.columns
        return SeriesView.of(series, features=names, seconds=1 / rate if rate else 0.0)

    def each_json(self, texts: Sequence[Any]) -> Iterator[Any]:
        for series in self._series_of(texts):  # which have their numbers as names
            yield from self.predict_json([series])

    def inspect_texts(self, *texts: Any, **options: Any) -> Any:
        """`inspect` of a location, perhaps followed by a target; or of frames, as the server has them."""
        inspected: Any = self
        is_place = any(isinstance(text, str) for text in texts)
        return inspected.inspect(*texts, **options) if is_place else inspected.inspect(list(texts), **options)

    def _checked(self, series: Series) -> Series:
        """Return the series after a check of its length."""
        check_frames(series, self.recipe)
        return series

    def _as_series(self, numbers: Any, name: str) -> Series:
        try:
            values = as_vectors(np.asarray(numbers), "")
        except (ValueError, TypeError, DataError):
            raise EnsueError(f"series {name}: expected {EXPECTED_INPUT}") from None
        shape = self.seen.shape
        if shape.is_sound and values.ndim == 1 and len(values):
            values = log_mel(self.recipe.reading().sound, values, round(shape.rate))
        if values.ndim != 2 or values.shape[1] != shape.width or not len(values):
            raise EnsueError(f"series {name}: numbers of the shape {values.shape}; expected (T, {shape.width})")
        wrong = np.isinf(values) if self.recipe.data.missing == "mean" else ~np.isfinite(values)
        if wrong.any():
            raise EnsueError(f"series {name}: frame {int(np.argwhere(wrong)[0][0])} has a number that is not finite")
        return Series(name, values)

    def _scored_series(self, location: Location, encoding: str) -> Iterator[Series]:
        """Yield the series of a location, to be scored. Raises DataError for none."""
        location, one = one_location(location), None
        for one in self.source(location, encoding=encoding):
            yield self._checked(one)
        if one is None:
            raise DataError("no series in it", location)

    def _read(self, location: str, encoding: str, shard: Shard) -> Iterator[Series]:
        """Return the series of a shard of a location for `ensue predict`, in chunks.

        Raises:
            EnsueError: The location is stdin, which names no format.
        """
        if is_stream(location):
            raise EnsueError(NO_STREAM)
        source = self.source(location, encoding=encoding)
        return chain.from_iterable(shard.items(lambda: chunked(map(self._checked, source))))

    def _description(
        self, function: Callable[..., dict[str, Tensor]], output: Output, program: str, settings: Mapping[str, Any],
        data_set: Callable[[Any, Any], Any],
    ) -> ModelDescription:  # fmt: skip
        """Return a description with one function of whole series: frames, NaN where a value is missing, and lengths."""
        inputs = {"frames": self._frames_form, "lengths": TensorForm(("batch",), torch.int64)}

        def sample(batch: int, length: int) -> dict[str, Tensor]:
            return {"frames": self._sample_frames(batch, length), "lengths": sample_lengths(batch, length)}

        return ModelDescription(
            self._described_input(), output, self.model, (TensorFunction("model", function, inputs, sample),),
            self.model, (f"{PROGRAMS}.{program}", f"{PROGRAMS}.frames"), {**self._file_settings(), **settings},
            data_set=data_set,
        )  # fmt: skip

    def _described_input(self) -> SeriesInput:
        """Return what the model reads, for exporters."""
        seen, reading = self.seen, self.recipe.reading()
        columns = reading.series, reading.labels, reading.time, reading.group
        sound = sound_features(reading.sound, round(seen.shape.rate)) if seen.shape.is_sound else None
        return SeriesInput(
            seen.mean, seen.deviation, seen.shape.columns, *columns, max_length=self.recipe.most_frames,
            has_missing=reading.missing == "mean", sound=sound,
        )  # fmt: skip

    @property
    def _frames_form(self) -> TensorForm:
        return TensorForm(("batch", "time", self.seen.shape.width))

    def _sample_frames(self, batch: int, length: int) -> Tensor:
        """Return random frames (B, T, d) with the moments of the training data, some missing if the recipe allows."""
        mean, deviation = (torch.tensor(part) for part in (self.seen.mean, self.seen.deviation))
        values = torch.randn(batch, length, len(mean)) * deviation + mean
        if self.recipe.data.missing == "mean":
            values[torch.rand(values.shape) < 0.1] = torch.nan
        return values

    def _file_settings(self) -> dict[str, Any]:
        """Return the settings with which the program of an export reads files."""
        reading = self.recipe.reading()
        sound = reading.sound._asdict()
        return {"shape": self.seen.shape._asdict(), "reading": {**reading._asdict(), "sound": sound}}


class Answer(Protocol):
    """The answer of a model to a series."""

    @property
    def line(self) -> str:
        """The answer as a line, with tabs between its parts."""

    def as_json(self) -> dict[str, Any]:
        """Return the answer as JSON values."""


AnswerT = TypeVar("AnswerT", bound=Answer)


class AnsweringFramesPipeline(FramesPipeline, Generic[AnswerT]):
    """The base of the pipelines with one answer for each series."""

    @abstractmethod
    def answers(self, series: Iterable[Series], *, in_full: bool = True) -> Iterator[AnswerT]:
        """Return the answers to a stream of series of any length, in order, in constant memory.

        Without `in_full` the answers may lack what is in JSON alone.
        """

    def predict_json(self, texts: Iterable[Any]) -> list[Any]:
        return [answer.as_json() for answer in self.answers(self._series_of(texts))]

    def prediction_lines(
        self, location: str, *, format: str | None = None, encoding: str = "utf-8", as_json: bool = False,
        color: bool = False, shard: Shard = WHOLE,
    ) -> Iterator[str]:  # fmt: skip
        for answer in self.answers(self._read(location, encoding, shard), in_full=as_json):
            yield (json.dumps(answer.as_json(), ensure_ascii=False) if as_json else answer.line) + "\n"


class LabeledFramesPipeline(AnsweringFramesPipeline[AnswerT]):
    """The base of the pipelines of models that give labels to frames."""

    parts: LabeledFrameParts

    @property
    def labels(self) -> Any:
        """The labels of the model."""
        return self.parts.labels

    def __repr__(self) -> str:
        return self._described(self.recipe.describe(), f"{self.num_parameters:,} parameters", repr(self.labels))


def frames_from(frames: Tensor, lengths: Tensor) -> Frames:
    """Return a batch as the model reads it."""
    return Frames(frames, mask_of(frames, lengths))


def sound_features(sound: LogMel, rate: int) -> SoundFeatures:
    """Return the log-mel features of sounds with this many samples per second, for exporters."""
    size, step, points = framing(sound, rate)
    bands = mel_triangles(sound.bands, points, rate, sound.lowest, sound.highest or rate / 2)
    return SoundFeatures(rate, size, step, points, sound.floor, sound.reach, hann(size), bands)
