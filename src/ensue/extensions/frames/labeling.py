"""Labeling of frames: data, training, pipeline, and page."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.data.compact_texts import Ragged
from ensue.data.files import Data
from ensue.extensions.frames.data.series import FrameRows, Series
from ensue.extensions.frames.page import SeriesView, draw_curves_or_map, draw_labels, draw_map, series_section
from ensue.extensions.frames.recipe import FrameLabelingRecipe
from ensue.extensions.frames.tasks.data import LabeledSeries, LabeledSeriesData, pad_frames
from ensue.extensions.frames.tasks.model import Frames, LabeledFrameParts
from ensue.extensions.frames.tasks.pipeline import LabeledFramesPipeline, make_frames, split_into_chunks
from ensue.inspection.colors import choose_color
from ensue.inspection.drawing import WordColumns
from ensue.inspection.encoder_page import EncoderView, encoder_sections
from ensue.inspection.notebook import Answers, Shown
from ensue.inspection.page import Inspection, Section
from ensue.models.build_text import build_tag_head
from ensue.models.encoders import build_encoder
from ensue.models.modules import device_of
from ensue.models.tagger import Tagger
from ensue.nn import Posterior
from ensue.nn.draws import ALL_ROWS, RowSlice
from ensue.runs.directory import RunDirectory
from ensue.tasks.contract.description import ModelDescription, TagOutput
from ensue.tasks.labeling.data import collect_labels, make_labels
from ensue.tasks.labeling.description import tag_settings
from ensue.tasks.labeling.job import LabelingJob
from ensue.tasks.labeling.page import MAX_WORDS, TagsView, path_sections, view_tags
from ensue.tasks.labeling.tagged_sentence import Confidence
from ensue.tasks.labeling.task import LabelPair, Passages, tag_rows, tally_of
from ensue.text.labels import Labels
from ensue.text.schemes import SchemeDetector, Span, spans


class TaggedSeriesData(LabeledSeriesData):
    """The data of a tagger, in which each frame has a label."""

    advice = ""

    def __init__(self, recipe: FrameLabelingRecipe, run: RunDirectory | None = None) -> None:
        super().__init__(recipe, run, labels_of=frame_labels, has_ends=True)
        self.scheme = recipe.head.scheme
        self.detector = SchemeDetector()
        for labels in self.split.train.labels:
            self.detector.feed(labels)

    def labels(self) -> Labels:
        """Return the labels of the training data. Raises DataError for fewer than two labels."""
        counts, path = self.split.train.label_counts, self.recipe.data.train
        return make_labels(self.scheme, *collect_labels(counts, self.detector, self.unit, self.advice, path))

    def parts(self, labels: Labels) -> "FrameTaggerParts":
        """Return the parts of a new model."""
        return FrameTaggerParts(self.statistics(), labels)

    def encode(self, data: LabeledSeries, parts: "FrameTaggerParts") -> "TaggedFrames":
        """Return the series as input for the model."""
        return TaggedFrames(data.rows, data.labels)


def frame_labels(series: Series) -> tuple[str, ...]:
    """Return the label of each frame. Raises DataError if frames have no labels."""
    if series.per_frame:
        return series.labels
    advice = "expected one for each frame, in a column of a table or in an array of labels"
    raise series.error(f"{'a label of the series' if series.labels else 'no label'}; {advice}")


class TaggedFrames:
    """Labeled series as input for a tagger. A series is a passage of one sentence."""

    def __init__(self, rows: FrameRows, labels: Sequence[Sequence[str]] = ()) -> None:
        self.rows, self.labels = rows, labels
        self.misaligned: Sequence[Mapping[str, Sequence[Span]]] = ()
        self.words: Sequence[Sequence[str]] = [()] * len(labels)
        """Sentences without words, since frames are not words."""

    @cached_property
    def passages(self) -> Passages:
        """The lengths of the series, as passages without ids."""
        return Passages(Ragged(np.zeros(0, np.int64), self.rows.starts), [1] * len(self.rows))

    def batch(self, passages: NDArray[np.int64], device: torch.device, row_slice: RowSlice = ALL_ROWS) -> Frames:
        """Return the slice `row_slice` of the batch of the series `passages`."""
        return pad_frames(self.rows, passages, device, row_slice)

    def paths(self, model: Tagger) -> list[NDArray[np.int64]]:
        """Return the tags (T,) of each series."""
        return self.tagged(model)[0]

    def tagged(self, model: Tagger, with_posteriors: bool = False) -> tuple[list[NDArray[np.int64]], list[Posterior]]:
        """Return the tags (T,) of each series, and with `with_posteriors` the posterior distributions of paths."""
        device = device_of(model)

        def emissions(rows: NDArray[np.int64]) -> tuple[Tensor, Tensor | None]:
            frames = self.batch(rows, device)
            return model(frames), frames.mask

        return tag_rows(model, self.passages, emissions, with_posteriors=with_posteriors)


@dataclass(frozen=True)
class FrameTaggerParts(LabeledFrameParts):
    """The shape, statistics and labels from which a tagger is built."""

    labels: Labels
    labels_class = Labels

    def build(self, recipe: FrameLabelingRecipe) -> Tagger:
        features = self.features(recipe)
        layers = build_encoder(recipe.encoder, d_in=features.d_out, directions=recipe.directions)
        return Tagger(features, layers, build_tag_head(recipe.head, layers.d_out, self.labels))


class FrameLabelingJob(LabelingJob):
    """The training job of a tagger."""

    data_class = TaggedSeriesData


class FrameSpan(NamedTuple):
    """A span of the frames `start` to `end` - 1, with its probability."""

    label: str
    start: int
    end: int
    probability: float


@dataclass(frozen=True)
class TaggedSeries(Shown):
    """A series with the predicted labels of its frames and, if requested, probabilities and spans."""

    series: str
    labels: tuple[str, ...]
    probabilities: tuple[float, ...] = field(default=(), repr=False)
    spans: tuple[FrameSpan, ...] = field(default=(), repr=False)
    rate: float = field(default=0.0, repr=False)  # frames per second; 0 if unknown

    @property
    def line(self) -> str:
        """The name of the series and the labels."""
        return f"{self.series}\t{' '.join(self.labels)}"

    def as_json(self) -> dict[str, Any]:
        """Return the prediction as JSON values."""
        values: dict[str, Any] = {"series": self.series, "labels": self.labels}
        if self.probabilities:
            values["probabilities"] = [round(probability, 6) for probability in self.probabilities]
        if self.spans:
            values["spans"] = [span._asdict() | {"probability": round(span.probability, 6)} for span in self.spans]
        return values

    def table_rows(self) -> list[dict[str, Any]]:
        """Return a row for each frame: its number from 0, its time in seconds if the rate is known, and its label."""
        times = [{"time": round(frame / self.rate, 6)} if self.rate else {} for frame, _ in enumerate(self.labels)]
        shares = [{"probability": round(share, 6)} for share in self.probabilities] or [{}] * len(times)
        rows = enumerate(zip(times, self.labels, shares, strict=True))
        return [{"series": self.series, "frame": n, **time, "label": tag, **share} for n, (time, tag, share) in rows]


class FrameLabelingPipeline(LabeledFramesPipeline[TaggedSeries]):
    """The pipeline of a tagger of frames."""

    recipe: FrameLabelingRecipe
    tally_of = staticmethod(tally_of)

    def predict(self, texts: Iterable[Any], *, confidence: bool = False) -> Answers[TaggedSeries]:
        """Return the labels of the frames of each series.

        Args:
            texts: Arrays (T, d), series of `source(path)`, or samples (n,) at the rate of the training data.
            confidence: Whether to return probabilities and spans.

        Raises:
            EnsueError: The model cannot read a series.
        """
        return Answers(self.answers(self._to_series(texts), in_full=confidence))

    def answers(self, series: Iterable[Series], *, in_full: bool = True) -> Iterator[TaggedSeries]:
        return (answer for _, answer in self.label(series, confidence=in_full))

    def label(self, series: Iterable[Series], *, confidence: bool = False) -> Iterator[tuple[Series, TaggedSeries]]:
        """Yield a stream of series with their labels, in order and in constant memory."""
        for chunk in split_into_chunks(series):
            paths, posteriors = TaggedFrames(FrameRows.of_series(chunk)).tagged(self.model, with_posteriors=confidence)
            for number, (item, path) in enumerate(zip(chunk, paths, strict=True)):
                labels, rate = tuple(self.labels.decode(path.tolist())), self.frame_rate(item)
                if not confidence:
                    yield item, TaggedSeries(item.name, labels, rate=rate)
                    continue
                probabilities = Confidence.of(self.labels, labels, posteriors[number])
                pairs = zip(spans(labels) if self.labels.has_spans else [], probabilities.spans, strict=True)
                frame_spans = tuple(FrameSpan(*span, probability) for span, probability in pairs)
                yield item, TaggedSeries(item.name, labels, tuple(probabilities.labels), frame_spans, rate)

    def inspect(self, series: Any) -> Inspection:
        """Return the page of a series, given by the path of a file or as for `predict`."""
        view = view_series(self.model, self.series_view(self.read_single(series)), self.labels)
        sections = series_sections(view, has_spans=self.labels.has_spans)
        return self._make_inspection(view, sections, {"head": self.recipe.head.kind})

    def _predict_with_gold(self, location: Data, encoding: str) -> Iterator[LabelPair]:
        for item, answer in self.label(self._read_labeled(location, encoding)):
            yield LabelPair(self.labels.convert_scheme(frame_labels(item)), list(answer.labels))

    def describe(self) -> ModelDescription:
        settings, output = tag_settings(self.model.head, self.labels), TagOutput(self.labels)
        return self._make_description(_tag, output, "frame_tagger", settings, TaggedSeriesData)

    def __repr__(self) -> str:
        parameters = f"{self.num_parameters:,} parameters"
        return self._format_repr(self.recipe.describe(), self.recipe.head.kind, parameters, repr(self.labels))


def _tag(model: Tagger, frames: Tensor, lengths: Tensor) -> dict[str, Tensor]:
    batch = make_frames(frames, lengths)
    assert batch.mask is not None
    emissions, padding = model(batch), ~batch.mask
    tags = model.head.best(emissions, batch.mask)
    return {"tags": tags.masked_fill(padding, 0), "emissions": emissions.masked_fill(padding.unsqueeze(-1), 0.0)}


@dataclass(frozen=True)
class FrameTaggerView(SeriesView, TagsView):
    """The view of a series in a tagger."""

    said: tuple[str, ...]  # a key of the JSON of `ensue inspect`


@torch.inference_mode()
def view_series(model: Tagger, series: SeriesView, labels: Labels) -> FrameTaggerView:
    """Return the view of a series."""
    frames = Frames(torch.from_numpy(series.frames).to(device_of(model)).unsqueeze(0), None)
    x = model.features(frames)
    decisions = view_tags(model, x, model.emissions(x, frames.keys, None), labels.tags.symbols)
    return FrameTaggerView(**vars(series), **vars(decisions), said=tuple(labels.decode(decisions.path.tolist())))


def series_sections(view: FrameTaggerView, *, has_spans: bool) -> list[Section]:
    """Return the sections of the page. `has_spans` is whether the tags encode spans."""
    columns = view.columns
    numbers = WordColumns([str(number) for number in range(len(view.path))][:MAX_WORDS])
    names = [f"frame {number}" for number in range(len(view.path))]
    heading, about = "Probabilities of the tags", "The probability of each tag at each frame."
    probabilities = draw_curves_or_map(view.marginals, columns, view.tags, name="probabilities of the tags")
    emissions = draw_map(view.emissions, columns, view.tags, name="emissions", signed=True)
    return [
        series_section(view, columns),
        _label_section(view),
        Section.plain(heading, probabilities, about=about, note=columns.note),
        Section.plain("Emission scores", emissions, about="The score of each tag at each frame.", note=columns.note),
        *path_sections(view, numbers, names, has_spans=has_spans, unit="frame"),
        *encoder_sections([EncoderView(columns, view.traces, view.attention)]),
    ]


def _label_section(view: FrameTaggerView) -> Section:
    columns, rows, about = view.columns, {"model": view.said}, "Equal neighboring labels are merged."
    if view.per_frame:
        rows["file"] = view.labels
        num_right = int(np.sum(np.array(view.said) == np.array(view.labels)))
        about += f" {num_right:,} of {len(view.labels):,} predicted labels equal the labels in the file."
    colors = {label: choose_color(label) for labels in rows.values() for label in labels}
    drawing = draw_labels(rows, columns, colors=colors)
    return Section.plain("The labels", drawing, about=about, note=columns.note)
