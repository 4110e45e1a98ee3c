"""Labeling of frames: data, training, prediction, and a series in numbers and as a page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.data.compact_texts import Ragged
from ensue.data.files import Location
from ensue.extensions.frames.data.series import FrameRows, Series
from ensue.extensions.frames.page import SeriesView, curves_or_map, feature_map, labels_over_time, series_section
from ensue.extensions.frames.recipe import FrameLabelingRecipe
from ensue.extensions.frames.tasks.data import LabeledSeries, LabeledSeriesData, frames_of
from ensue.extensions.frames.tasks.model import Frames, LabeledFrameParts
from ensue.extensions.frames.tasks.pipeline import LabeledFramesPipeline, chunked, frames_from
from ensue.inspection.colors import color_of
from ensue.inspection.drawing import WordColumns
from ensue.inspection.encoder_page import Seen, encoder_sections
from ensue.inspection.markup import clipped
from ensue.inspection.notebook import Answers, Shown
from ensue.inspection.page import TITLE, Inspection, Section
from ensue.metrics.labeling import LabelingScores
from ensue.metrics.scores import ScoredItems
from ensue.models.build_text import build_tag_head
from ensue.models.encoders import build_encoder
from ensue.models.modules import device_of
from ensue.models.tagger import Tagger
from ensue.nn import Posterior
from ensue.nn.draws import ALL_ROWS, RowSlice
from ensue.runs.directory import RunDirectory
from ensue.tasks.contract.description import ModelDescription, TagOutput
from ensue.tasks.labeling.data import labels_in, trained_labels
from ensue.tasks.labeling.decoding import Emissions, Passages, tag_rows
from ensue.tasks.labeling.description import tag_settings
from ensue.tasks.labeling.job import LabelingJob
from ensue.tasks.labeling.page import MOST_WORDS, path_sections
from ensue.tasks.labeling.tagged_sentence import Confidence
from ensue.tasks.labeling.task import Judged, tally_of
from ensue.tasks.labeling.view import TagsView, view_tags
from ensue.text.labels import Labels
from ensue.text.scheme_detection import SchemeDetector
from ensue.text.schemes import Span, spans


class TaggedSeriesData(LabeledSeriesData):
    """The series of a recipe, with a label for each frame."""

    advice = ""

    def __init__(self, recipe: FrameLabelingRecipe, run: RunDirectory | None = None) -> None:
        super().__init__(recipe, run, labels_of=frame_labels)
        self.scheme = recipe.head.scheme
        self.detector = SchemeDetector()
        for labels in self.split.train.labels:
            self.detector.feed(labels)

    def labels(self) -> Labels:
        """Return the labels of the training data. Raises DataError if there are no two."""
        counts, path = self.split.train.label_counts, self.recipe.data.train
        return labels_in(self.scheme, *trained_labels(counts, self.detector, self.unit, self.advice, path))

    def parts(self, labels: Labels) -> FrameTaggerParts:
        """Return the parts of a new model."""
        return FrameTaggerParts(self.seen(), labels)

    def encoded(self, data: LabeledSeries, parts: FrameTaggerParts) -> TaggedFrames:
        """Return the series as the model reads them."""
        return TaggedFrames(data.rows, data.labels)


def frame_labels(series: Series) -> tuple[str, ...]:
    """Return the label of each frame. Raises DataError if there is none."""
    if series.per_frame:
        return series.labels
    advice = "expected one for each frame, in a column of a table or in an array of labels"
    raise series.error(f"{series.name}: {'a label of the whole series' if series.labels else 'no label'}; {advice}")


class TaggedFrames:
    """Series as a tagger reads them, with the labels of their file. Each is a passage of one sentence."""

    def __init__(self, rows: FrameRows, labels: Sequence[Sequence[str]] = ()) -> None:
        self.rows, self.labels = rows, labels
        self.misaligned: Sequence[Mapping[str, Sequence[Span]]] = ()
        self.words: Sequence[Sequence[str]] = [()] * len(labels)
        """Empty: frames are no words."""

    @cached_property
    def passages(self) -> Passages:
        """Where each series begins; its frames have no numbers."""
        return Passages(Ragged(np.zeros(0, np.int64), self.rows.starts), [1] * len(self.rows))

    def batch(self, passages: NDArray[np.int64], device: torch.device, row_slice: RowSlice = ALL_ROWS) -> Frames:
        """Return the batch of these series, cut."""
        return frames_of(self.rows, passages, device, row_slice)

    def paths(self, model: Tagger) -> list[NDArray[np.int64]]:
        """Return the tags (T,) of each series, in order."""
        return self.tagged(model)[0]

    def tagged(
        self, model: Tagger, *, with_posteriors: bool = False
    ) -> tuple[list[NDArray[np.int64]], list[Posterior]]:
        """Return the tags (T,) of each series, and if asked for the probabilities of all paths."""
        device = device_of(model)

        def emissions(rows: NDArray[np.int64]) -> Emissions:
            frames = self.batch(rows, device)
            return Emissions(model(frames), frames.mask)

        return tag_rows(model, self.passages, emissions, with_posteriors=with_posteriors)


@dataclass(frozen=True)
class FrameTaggerParts(LabeledFrameParts):
    """The parts of a tagger of frames."""

    labels: Labels
    labels_class = Labels

    def build(self, recipe: FrameLabelingRecipe) -> Tagger:
        features = self.features(recipe)
        layers = build_encoder(recipe.encoder, d_in=features.d_out, directions=recipe.directions)
        return Tagger(features, layers, build_tag_head(recipe.head, layers.d_out, self.labels))


class FrameLabelingJob(LabelingJob):
    """Trains a tagger of frames."""

    data_class = TaggedSeriesData


class FrameSpan(NamedTuple):
    """A span of the class `label`: frames from `start` to before `end`, and the probability of this span."""

    label: str
    start: int
    end: int
    probability: float


@dataclass(frozen=True)
class TaggedSeries(Shown):
    """A series, by its name, with the label of each frame; if asked for, their probabilities, and the spans."""

    series: str
    labels: tuple[str, ...]
    probabilities: tuple[float, ...] = field(default=(), repr=False)
    spans: tuple[FrameSpan, ...] = field(default=(), repr=False)

    @property
    def line(self) -> str:
        """The series and its labels."""
        return f"{self.series}\t{' '.join(self.labels)}"

    def as_json(self) -> dict[str, Any]:
        """Return the prediction as JSON values."""
        shares = [round(share, 6) for share in self.probabilities]
        spans_json = [span._asdict() | {"probability": round(span.probability, 6)} for span in self.spans]
        others = {"probabilities": shares, "spans": spans_json}
        return {"series": self.series, "labels": self.labels, **{name: part for name, part in others.items() if part}}


class FrameLabelingPipeline(LabeledFramesPipeline[TaggedSeries]):
    """A tagger of frames: predicts and evaluates."""

    recipe: FrameLabelingRecipe

    def predict(self, texts: Iterable[Any], *, confidence: bool = False) -> list[TaggedSeries]:
        """Return the labels of the frames of each series: an array of numbers (T, d), one of `source`, or the samples
        (n,) of a sound at the rate of the training data. With `confidence` each has the probability of its label.
        """
        return Answers(self.answers(self._series_of(texts), in_full=confidence))

    def answers(self, series: Iterable[Series], *, in_full: bool = True) -> Iterator[TaggedSeries]:
        return (answer for _, answer in self.label(series, confidence=in_full))

    def label(self, series: Iterable[Series], *, confidence: bool = False) -> Iterator[tuple[Series, TaggedSeries]]:
        """Yield a stream of series of any length with their labels, in order, in constant memory."""
        for chunk in chunked(series):
            rows = FrameRows.of([one.frames for one in chunk])
            paths, posteriors = TaggedFrames(rows).tagged(self.model, with_posteriors=confidence)
            for number, (one, path) in enumerate(zip(chunk, paths, strict=True)):
                labels = self.labels.decode(path.tolist())
                if not confidence:
                    yield one, TaggedSeries(one.name, tuple(labels))
                    continue
                sure = Confidence.of(self.labels, labels, posteriors[number])
                labeled = spans(labels) if self.labels.has_spans else []
                span_answers = [FrameSpan(*span, share) for span, share in zip(labeled, sure.spans, strict=True)]
                yield one, TaggedSeries(one.name, tuple(labels), tuple(sure.labels), tuple(span_answers))

    def inspect(self, series: Any) -> Inspection:
        """Look into the model with a series (a file's path, or as for `predict`), as numbers and as a page."""
        shown, facts = self.series_view(self.only(series)), self.facts(self.recipe.describe())
        return inspect_series(self.model, shown, self.labels, facts | {"head": self.recipe.head.kind})

    def evaluate(self, location: Location, *, encoding: str = "utf-8") -> LabelingScores:
        """Return the scores on series with a label for each frame. Raises DataError for one without."""
        return tally_of(self.labels).scores_of(self._judged(location, encoding))

    def scored_items(self, location: Location, *, encoding: str = "utf-8") -> ScoredItems:
        return tally_of(self.labels).items_of(self._judged(location, encoding), "series")

    def _judged(self, location: Location, encoding: str) -> Iterator[Judged]:
        for one, answer in self.label(self._scored_series(location, encoding)):
            yield Judged.of(self.labels, frame_labels(one), list(answer.labels))

    def describe(self) -> ModelDescription:
        settings, output = tag_settings(self.model.head, self.labels), TagOutput(self.labels)
        return self._description(_tagged, output, "frame_tagger", settings, TaggedSeriesData)

    def __repr__(self) -> str:
        parameters = f"{self.num_parameters:,} parameters"
        return self._described(self.recipe.describe(), self.recipe.head.kind, parameters, repr(self.labels))


def _tagged(model: Tagger, frames: Tensor, lengths: Tensor) -> dict[str, Tensor]:
    """Return the best path, and the scores from which it follows."""
    read = frames_from(frames, lengths)
    assert read.mask is not None
    emissions = model(read)
    tags = model.head.best(emissions, read.mask)
    return {"tags": tags.masked_fill(~read.mask, 0), "emissions": emissions.masked_fill(~read.mask.unsqueeze(-1), 0.0)}


def inspect_series(model: Tagger, series: SeriesView, labels: Labels, facts: Mapping[str, str]) -> Inspection:
    """Return a series in a tagger; `facts` are those of the model."""
    view = view_series(model, series, labels)
    sections = series_sections(view, has_spans=labels.has_spans)
    return Inspection(clipped(view.series, TITLE), view, {**facts, "frames": f"{len(view.frames):,}"}, sections)


@dataclass(frozen=True)
class FrameTaggerView(SeriesView, TagsView):
    """A series in a tagger. `said` are the labels of its frames that the model predicts."""

    said: tuple[str, ...]


@torch.inference_mode()
def view_series(model: Tagger, series: SeriesView, labels: Labels) -> FrameTaggerView:
    """Return the view of a series."""
    frames = Frames(torch.from_numpy(series.frames).to(device_of(model)).unsqueeze(0), None)
    x = model.features(frames)
    decisions = view_tags(model, x, model.emissions(x, frames.keys, None), labels.tags.symbols)
    return FrameTaggerView(**vars(series), **vars(decisions), said=tuple(labels.decode(decisions.path.tolist())))


PROBABILITIES = "The probability of each tag at each frame."
EMISSIONS = "The scores that the network gives each tag at each frame."


def series_sections(view: FrameTaggerView, *, has_spans: bool) -> list[Section]:
    """Return all sections; `has_spans` tells whether the tags write spans."""
    columns = view.columns
    places = WordColumns([str(number) for number in range(len(view.path))][:MOST_WORDS])
    names = [f"frame {number}" for number in range(len(view.path))]
    probabilities = curves_or_map(view.marginals, columns, view.tags, name="probabilities of the tags")
    emissions = feature_map(view.emissions, columns, view.tags, name="emissions", signed=True)
    return [
        series_section(view, columns),
        _labels(view),
        Section.plain("Probabilities of the tags", probabilities, about=PROBABILITIES, note=columns.note),
        Section.plain("Emission scores", emissions, about=EMISSIONS, note=columns.note),
        *path_sections(view, places, names, has_spans=has_spans, unit="frame"),
        *encoder_sections([Seen(columns, view.traces, view.attention)]),
    ]


def _labels(view: FrameTaggerView) -> Section:
    """Return the labels of the model over time, beside those of the file if it has some."""
    columns, rows, about = view.columns, {"model": view.said}, "Equal labels of neighbors are one piece."
    if view.per_frame:
        rows["file"] = view.labels
        right = int(np.sum(np.array(view.said) == np.array(view.labels)))
        about += f" The model has the label of the file at {right:,} of {len(view.said):,} frames."
    colors = {label: color_of(label) for labels in rows.values() for label in labels}
    drawing = labels_over_time(rows, columns, colors=colors, name="labels")
    return Section.plain("The labels", drawing, about=about, note=columns.note)
