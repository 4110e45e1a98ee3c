"""The bases of the pipelines of frames, which read files and arrays, and describe models for exporters."""

import json
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from ensue.data.files import Data, as_location
from ensue.data.sources import is_stream
from ensue.errors import DataError, EnsueError, check_texts
from ensue.extensions.frames.data.series import Series, as_vectors
from ensue.extensions.frames.data.sounds import framing, hann, log_mel, mel_triangles
from ensue.extensions.frames.data.source import FrameSource
from ensue.extensions.frames.page import MAX_PAGE_FRAMES, SeriesView
from ensue.extensions.frames.recipe import FramesRecipe
from ensue.extensions.frames.tasks.data import check_frames
from ensue.extensions.frames.tasks.model import FrameParts, Frames, LabeledFrameParts
from ensue.inspection.notebook import Answers
from ensue.inspection.page import MAX_TITLE_CHARACTERS, Inspection, Section, clip
from ensue.metrics.scores import ScoredItems
from ensue.runs.directory import RunDirectory
from ensue.tasks.contract import description
from ensue.tasks.contract.chunks import UNSHARDED, Shard, chunks
from ensue.tasks.contract.pipeline import Predictor

MAX_CHUNK_FRAMES, MAX_CHUNK_SERIES = 262_144, 4_096
"""The largest numbers of frames and series in a chunk, within which batches have series of similar length."""
PROGRAMS = "ensue.extensions.frames.programs"
"""The package of the programs for exported models."""
NO_STREAM = "frames are read from a file, a folder, a glob or a table of paths, not from a stream"
EXPECTED_INPUT = "arrays of numbers (T, d), or of the samples (n,) of sounds"


def split_into_chunks(series: Iterable[Series]) -> Iterator[list[Series]]:
    """Yield chunks of a stream of series, so that memory does not grow with the stream."""
    return chunks(series, lambda item: len(item.frames), chunk_words=MAX_CHUNK_FRAMES, chunk_items=MAX_CHUNK_SERIES)


class FramesPipeline(Predictor):
    """The base of the pipelines of models that read frames."""

    recipe: FramesRecipe
    parts: FrameParts
    reads_vectors: ClassVar[bool] = True
    column_options: ClassVar[tuple[str, ...]] = ("labels",)

    def __init__(self, model: Any, parts: FrameParts, *, recipe: FramesRecipe, run: str | Path | None = None) -> None:
        super().__init__(model.eval())
        self.recipe, self.run, self.parts, self.statistics = recipe, run, parts, parts.statistics

    @classmethod
    def of(cls, directory: RunDirectory, device: torch.device) -> Self:
        recipe: Any = directory.recipe
        return cls(directory.model(device), directory.parts, recipe=recipe, run=directory.path)

    def source(self, location: Data, *, encoding: str | None = None) -> FrameSource:
        """Return the series of a location. Iteration raises DataError for a series of another shape than in training.

        Args:
            location: A file, a folder, a glob or a table of paths.
            encoding: The encoding of tables; by default that of the training data.
        """
        location = as_location(location, "the data")
        encoding = self.reading(location, encoding)["encoding"]
        columns: Any = self.chosen_columns
        options = self.recipe.reading()._replace(encoding=encoding, may_lack_labels=True, **columns)
        return FrameSource(location, options, shape=self.statistics.shape)

    def _to_series(self, series: Iterable[Any]) -> Iterator[Series]:
        """Convert arrays to series; series are unchanged. Raises EnsueError for values that the model cannot read."""
        check_texts(series, EXPECTED_INPUT)
        for number, item in enumerate(series):
            if isinstance(item, Series):
                self._array_to_series(item.frames, item.name)  # checks the values
            yield self._check_series(item if isinstance(item, Series) else self._array_to_series(item, str(number)))

    def read_single(self, series: Any) -> Series:
        """Return an array or a location as a series. Raises EnsueError unless a location has exactly one series."""
        if not isinstance(series, str | Path | FrameSource):
            return next(self._to_series([series]))
        if is_stream(str(series)):
            raise EnsueError(NO_STREAM)
        source = series if isinstance(series, FrameSource) else self.source(series)
        first, location = list(islice(map(self._check_series, source), 2)), source.location
        if not first:
            raise DataError("no series found", location)
        if len(first) > 1 and first[0].name != first[1].name:
            example = f"{location}[0]" if Path(location).is_file() else first[0].place[0]
            raise DataError(f"several series; expected one, such as {example}", location)
        return first[0]

    def series_view(self, series: Series) -> SeriesView:
        """Return the view of a series for a page. Raises EnsueError for a series that is too long."""
        shape, rate, length = self.statistics.shape, self.frame_rate(series), len(series.frames)
        if length > MAX_PAGE_FRAMES:
            raise EnsueError(f"{series.name} has {length:,} frames; up to {MAX_PAGE_FRAMES:,} can be inspected")
        bands = tuple(f"band {band}" for band in range(shape.width)) if shape.is_sound else shape.columns
        names, seconds = series.columns or bands, 1 / rate if rate else 0.0
        return SeriesView(series.name, series.frames, names, series.labels, series.per_frame, seconds, series.colors)

    def frame_rate(self, series: Series) -> float:
        """Return the number of frames per second; 0 if it is unknown."""
        is_sound = self.statistics.shape.is_sound
        return 1 / self.recipe.features.step if is_sound else series.rate or self.statistics.shape.rate

    def _make_inspection(self, view: SeriesView, sections: list[Section], facts: dict[str, str]) -> Inspection:
        facts = {**self.facts(self.recipe.describe()), **facts, "frames": f"{len(view.frames):,}"}
        return Inspection(clip(view.series, MAX_TITLE_CHARACTERS), view, facts, sections)

    def each_json(self, texts: Sequence[Any]) -> Iterator[Any]:
        for series in self._to_series(texts):  # converted in a single call, which numbers the series from 0
            yield from self.predict_json([series])

    def inspect_texts(self, *texts: Any, encoding: str | None = None, **options: Any) -> Any:
        """Return the page of the location `texts[0]`, with the target `texts[1]` if given; or of the frames `texts`."""
        pipeline: Any = self
        if not any(isinstance(text, str) for text in texts):
            return pipeline.inspect(list(texts), **options)
        source = self.source(texts[0], encoding=encoding) if encoding else texts[0]
        return pipeline.inspect(source, *texts[1:], **options)

    def _check_series(self, series: Series) -> Series:
        check_frames(series, self.recipe)
        return series

    def _array_to_series(self, numbers: Any, name: str) -> Series:
        try:
            values = as_vectors(np.asarray(numbers), "")
        except (ValueError, TypeError, DataError):
            raise EnsueError(f"series {name}: expected {EXPECTED_INPUT}") from None
        shape = self.statistics.shape
        if shape.is_sound and values.ndim == 1 and len(values):
            values = log_mel(self.recipe.reading().sound, values, round(shape.rate))
        if values.ndim != 2 or values.shape[1] != shape.width or not len(values):
            raise EnsueError(f"series {name}: numbers of the shape {values.shape}; expected (T, {shape.width})")
        is_invalid = np.isinf(values) if self.recipe.data.missing == "mean" else ~np.isfinite(values)
        if is_invalid.any():
            frame = int(np.argwhere(is_invalid)[0][0])
            raise EnsueError(f"series {name}: frame {frame} has a number that is not finite")
        return Series(name, values)

    def _read_labeled(self, location: Data, encoding: str) -> Iterator[Series]:
        """Yield the series of a location. Raises DataError for a location without series."""
        location, series = as_location(location), None
        for series in self.source(location, encoding=encoding):
            yield self._check_series(series)
        if series is None:
            raise DataError("no series found", location)

    def _read(self, location: str, encoding: str, shard: Shard) -> Iterator[Series]:
        """Return the series of a shard of a location. Raises EnsueError for stdin."""
        if is_stream(location):
            raise EnsueError(NO_STREAM)
        source = self.source(location, encoding=encoding)
        return chain.from_iterable(shard.items(lambda: split_into_chunks(map(self._check_series, source))))

    def _make_description(
        self, function: Callable[..., dict[str, Tensor]], output: description.Output, program: str,
        settings: Mapping[str, Any], data_set: Callable[[Any, Any], Any],
    ) -> description.ModelDescription:  # fmt: skip
        """Return a description whose single function takes frames, with NaN for missing values, and lengths."""
        inputs = {
            "frames": description.TensorSpec(("batch", "time", self.statistics.shape.width)),
            "lengths": description.TensorSpec(("batch",), torch.int64),
        }  # fmt: skip

        def sample(batch: int, length: int) -> dict[str, Tensor]:
            return {"frames": self._sample_frames(batch, length), "lengths": description.sample_lengths(batch, length)}

        return description.ModelDescription(
            self._describe_input(), output, self.model,
            (description.TensorFunction("model", function, inputs, sample),), self.model,
            (f"{PROGRAMS}.{program}", f"{PROGRAMS}.frames"), {**self._make_file_settings(), **settings},
            data_set=data_set,
        )  # fmt: skip

    def _describe_input(self) -> description.SeriesInput:
        statistics, reading = self.statistics, self.recipe.reading()
        columns = reading.series, reading.labels, reading.time, reading.group
        sound, rate, features = reading.sound, round(statistics.shape.rate), None
        if statistics.shape.is_sound:
            size, step, points = framing(sound, rate)
            bands = mel_triangles(sound.bands, points, rate, sound.lowest, sound.highest or rate / 2)
            features = description.SoundFeatures(
                rate, size, step, points, sound.floor, sound.dynamic_range, hann(size), bands
            )
        return description.SeriesInput(
            statistics.mean, statistics.deviation, statistics.shape.columns, *columns,
            max_length=self.recipe.most_frames, has_missing=reading.missing == "mean", sound=features,
        )  # fmt: skip

    def _sample_frames(self, batch: int, length: int) -> Tensor:
        """Return random frames (B, T, d) with the moments of the training data, and with missing values."""
        mean, deviation = torch.tensor(self.statistics.mean), torch.tensor(self.statistics.deviation)
        values = torch.randn(batch, length, len(mean)) * deviation + mean
        if self.recipe.data.missing == "mean":
            values[torch.rand(values.shape) < 0.1] = torch.nan
        return values

    def _make_file_settings(self) -> dict[str, Any]:
        reading = self.recipe.reading()
        sound = reading.sound._asdict()
        return {"shape": self.statistics.shape._asdict(), "reading": {**reading._asdict(), "sound": sound}}


AnswerT = TypeVar("AnswerT", bound=Any)
"""The type of an answer, with the property `line` (a line of text) and the method `as_json`."""


class AnsweringFramesPipeline(FramesPipeline, Generic[AnswerT]):
    """The base of the pipelines with one answer for each series."""

    @abstractmethod
    def answers(self, series: Iterable[Series], *, in_full: bool = True) -> Iterator[AnswerT]:
        """Yield the answers to a stream of series, in order and in constant memory.

        If `in_full` is false, answers may lack fields that only the JSON output has.
        """

    def predict(self, texts: Iterable[Any]) -> Answers[AnswerT]:
        """Return the answer to each series: its labels, or its next frame.

        A series is an array (T, d), a series of `source(path)`, or the samples (n,) of a sound at the rate of training.
        """
        return Answers(self.answers(self._to_series(texts)))

    def predict_json(self, texts: Iterable[Any]) -> list[Any]:
        return [answer.as_json() for answer in self.answers(self._to_series(texts))]

    def answer_rows(self, location: str, encoding: str) -> Iterator[Mapping[str, Any]]:
        """Yield the rows of `predict --to csv` and `--to jsonl`."""
        return (row for each in self.answers(self._read(location, encoding, UNSHARDED)) for row in each.table_rows())

    def prediction_lines(
        self, location: str, *, format: str | None = None, encoding: str = "utf-8", as_json: bool = False,
        color: bool = False, shard: Shard = UNSHARDED,
    ) -> Iterator[str]:  # fmt: skip
        for answer in self.answers(self._read(location, encoding, shard), in_full=as_json):
            yield (json.dumps(answer.as_json(), ensure_ascii=False) if as_json else answer.line) + "\n"


class LabeledFramesPipeline(AnsweringFramesPipeline[AnswerT]):
    """The base of the pipelines of models with labels."""

    parts: LabeledFrameParts
    tally_of: ClassVar[Callable[..., Any]]  # from the labels of the model to a tally of `_predict_with_gold`
    _predict_with_gold: Callable[[Data, str], Iterator[Any]]  # the labels of series in files, and predicted labels

    @property
    def labels(self) -> Any:
        """The labels of the model."""
        return self.parts.labels

    def evaluate(self, location: Data, *, encoding: str = "utf-8") -> Any:
        """Return the scores on labeled series. Raises DataError for a series with missing or unsuitable labels."""
        return self.tally_of(self.labels).scores_of(self._predict_with_gold(location, encoding))

    def scored_items(self, location: Data, *, encoding: str = "utf-8") -> ScoredItems:
        return self.tally_of(self.labels).items_of(self._predict_with_gold(location, encoding), "series")

    def __repr__(self) -> str:
        return self._format_repr(self.recipe.describe(), f"{self.num_parameters:,} parameters", repr(self.labels))


def make_frames(frames: Tensor, lengths: Tensor) -> Frames:
    """Return a batch with the mask of these lengths."""
    return Frames(frames, description.mask_of(frames, lengths))
