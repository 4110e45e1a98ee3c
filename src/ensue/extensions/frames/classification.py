"""Classification of series of frames: data, training, prediction, and a series in numbers and as a page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.data.files import Location
from ensue.errors import listed
from ensue.extensions.frames.data.series import FrameRows, Series
from ensue.extensions.frames.page import FrameColumns, SeriesView, bars, series_section
from ensue.extensions.frames.recipe import FrameClassificationRecipe
from ensue.extensions.frames.tasks.data import LabeledSeries, LabeledSeriesData, frames_of
from ensue.extensions.frames.tasks.model import FrameFeatures, Frames, LabeledFrameParts
from ensue.extensions.frames.tasks.pipeline import LabeledFramesPipeline, chunked, frames_from
from ensue.inspection.attributions import Integrated, gradients_of
from ensue.inspection.colors import color_of
from ensue.inspection.encoder import Attention, Trace, attention_of, traces_of
from ensue.inspection.encoder_page import Seen, encoder_sections
from ensue.inspection.features import ReadFeatures
from ensue.inspection.markup import clipped
from ensue.inspection.notebook import Answers
from ensue.inspection.page import TITLE, Inspection, Section
from ensue.metrics.classification import ClassificationScores
from ensue.metrics.scores import ScoredItems
from ensue.models.build_text import build_poolings, in_two_halves
from ensue.models.classifier import Classifier, Pooled
from ensue.models.encoders import build_encoder
from ensue.models.modules import device_of
from ensue.models.specification import Directions, EncoderSpecification
from ensue.models.word_specification import PoolingHeadSpecification
from ensue.nn import SequenceLayer
from ensue.nn.draws import ALL_ROWS, RowSlice
from ensue.runs.directory import RunDirectory
from ensue.tasks.classification.job import ClassificationJob
from ensue.tasks.classification.page import labels_section
from ensue.tasks.classification.pipeline import Choosing, Classified
from ensue.tasks.classification.task import Judged, probabilities_of, tally_of
from ensue.tasks.classification.view import attention_weights, integrated_of, log_odds, maxima_of
from ensue.tasks.contract.description import ClassOutput, ModelDescription
from ensue.text.labels import Classes


class ClassifiedSeriesData(LabeledSeriesData):
    """The series of a recipe, with labels of the whole series."""

    one: ClassVar[str] = "series"
    read_as = ""

    def __init__(self, recipe: FrameClassificationRecipe, run: RunDirectory | None = None) -> None:
        separator = recipe.data.separator
        labels_of = partial(class_labels, separator=separator, multiple=bool(separator))
        super().__init__(recipe, run, labels_of=labels_of)
        parts = [part for part in (self.split.train, self.split.valid, self.split.test) if part is not None]
        self.multiple = any(len(labels) != 1 for part in parts for labels in part.labels)

    def parts(self, labels: Classes) -> FrameClassifierParts:
        """Return the parts of a new model."""
        return FrameClassifierParts(self.seen(), labels)

    def encoded(self, data: LabeledSeries, parts: FrameClassifierParts) -> ClassifiedFrames:
        """Return the series as the model reads them."""
        return ClassifiedFrames(data.rows, data.labels)


def class_labels(series: Series, *, separator: str, multiple: bool) -> tuple[str, ...]:
    """Return the labels of a series.

    Raises:
        DataError: The series has a wrong number of labels, or its frames have different ones.
    """
    names = tuple(dict.fromkeys(series.labels))
    if len(names) > 1:
        problem = f"{series.name}: its frames have {len(names):,} labels ({listed(names, 3)})"
        raise series.error(f"{problem}; tag-frames learns a label for each frame")
    labels = tuple(part for name in names for part in (name.split(separator) if separator else [name]) if part)
    if len(labels) == 1 or multiple:
        return labels
    if labels:
        raise series.error(f"{series.name}: several labels ({listed(labels)}); a series of the training data has one")
    advice = "data.pattern finds it in names of files, and the names of folders can be labels"
    raise series.error(f"{series.name}: no label; {advice}")


class ClassifiedFrames(NamedTuple):
    """Series as a classifier reads them, with the labels of their file."""

    rows: FrameRows
    labels: list[tuple[str, ...]]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The number of frames of each series."""
        return self.rows.lengths

    def batch(
        self, rows: NDArray[np.int64], device: torch.device, row_slice: RowSlice = ALL_ROWS
    ) -> tuple[Frames, ...]:
        """Return the batch of these rows, of which `row_slice` is read."""
        return (frames_of(self.rows, rows, device, row_slice),)

    def probabilities(self, model: Classifier) -> NDArray[np.float32]:
        """Return the probability of each label (N, K), in order."""
        device = device_of(model)
        return probabilities_of(model, self.lengths, lambda rows: model(self.batch(rows, device)))


def build_frame_classifier(
    features: FrameFeatures,
    encoder: EncoderSpecification,
    head: PoolingHeadSpecification,
    *,
    directions: Directions,
    num_labels: int,
    multiple: bool,
) -> Classifier:
    """Return a classifier from its tables. Raises ValueError for tables that do not fit together."""
    layers = build_encoder(encoder, d_in=features.d_out, directions=directions)
    both_ways = in_two_halves(encoder, directions)
    poolings = build_poolings(head, layers.d_out, both_ways=both_ways, is_causal=layers.is_causal)
    if poolings is None:
        raise ValueError("head.pooling names none; nothing is left to decide by")
    return Classifier(
        features,
        layers,
        poolings,
        num_labels,
        d_hidden=head.d_hidden,
        activation=head.activation,
        dropout=head.dropout,
        label_smoothing=head.label_smoothing,
        multiple=multiple,
    )


@dataclass(frozen=True)
class FrameClassifierParts(LabeledFrameParts):
    """The parts of a classifier of frames."""

    labels: Classes

    def build(self, recipe: FrameClassificationRecipe) -> Classifier:
        model = build_frame_classifier(
            self.features(recipe), recipe.encoder, recipe.head, directions=recipe.directions,
            num_labels=len(self.labels), multiple=self.labels.multiple,
        )  # fmt: skip
        model.temperature = self.labels.temperature
        return model


class FrameClassificationJob(ClassificationJob):
    """Trains a classifier of frames."""

    data_class = ClassifiedSeriesData


class ClassifiedSeries(Classified):
    """A series, by its name, with its labels and the probability of every label."""

    @property
    def line(self) -> str:
        """The series, its labels, and the probability of the first."""
        return f"{self.texts[0]}\t{' '.join(self.labels) or '-'}\t{self.probability:.4f}"

    def as_json(self) -> dict[str, Any]:
        values = super().as_json()
        return {"series": values.pop("texts")[0], **values}


class LabelsOfSeries(NamedTuple):
    """A series, its labels, and the probabilities of all labels (K,)."""

    series: Series
    labels: tuple[str, ...]
    probabilities: NDArray[np.float32]


class FrameClassificationPipeline(Choosing, LabeledFramesPipeline[ClassifiedSeries]):
    """A classifier of frames: predicts and evaluates."""

    recipe: FrameClassificationRecipe

    def predict(self, texts: Iterable[Any]) -> list[ClassifiedSeries]:
        """Return the labels of each series: an array (T, d), one of `source`, or samples (n,) at the training data's
        rate.
        """
        return Answers(self.answers(self._series_of(texts)))

    def answers(self, series: Iterable[Series], *, in_full: bool = True) -> Iterator[ClassifiedSeries]:
        for one, labels, probabilities in self.classify(series):
            shares = dict(zip(self.labels.names, probabilities.tolist(), strict=True))
            yield ClassifiedSeries((one.name,), labels, shares)

    def classify(self, series: Iterable[Series]) -> Iterator[LabelsOfSeries]:
        """Yield the labels of a stream of series of any length, in order, in constant memory."""
        for chunk in chunked(series):
            rows = FrameRows.of([one.frames for one in chunk])
            probabilities = ClassifiedFrames(rows, []).probabilities(self.model)
            for one, shares in zip(chunk, probabilities, strict=True):
                yield LabelsOfSeries(one, self.labels.chosen(shares, at_least=self.at_least), shares)

    def inspect(self, series: Any) -> Inspection:
        """Look into the model with a series, as numbers and as a page: the path of its file, or as for `predict`."""
        shown, facts = self.series_view(self.only(series)), self.facts(self.recipe.describe())
        head = " + ".join(self.recipe.head.pooling)
        return inspect_series(self.model, shown, self.labels, facts | {"head": head})

    def evaluate(self, location: Location, *, encoding: str = "utf-8") -> ClassificationScores:
        """Return the scores on labeled series. Raises DataError for one without a label."""
        return tally_of(self.labels).scores_of(self._judged(location, encoding))

    def scored_items(self, location: Location, *, encoding: str = "utf-8") -> ScoredItems:
        return tally_of(self.labels).items_of(self._judged(location, encoding), "series")

    def _judged(self, location: Location, encoding: str) -> Iterator[Judged]:
        for answer in self.classify(self._scored_series(location, encoding)):
            right = class_labels(answer.series, separator=self.recipe.data.separator, multiple=self.labels.multiple)
            yield Judged(right, answer.probabilities, self.labels.chosen(answer.probabilities))

    def describe(self) -> ModelDescription:
        settings, output = {"classes": self.labels.to_json()}, ClassOutput(self.labels)
        return self._description(_classified, output, "frame_classifier", settings, ClassifiedSeriesData)


def _classified(model: Classifier, frames: Tensor, lengths: Tensor) -> dict[str, Tensor]:
    """Return the probabilities of the labels, and the logits."""
    logits = model([frames_from(frames, lengths)])
    return {"probabilities": model.probabilities(logits), "logits": logits}


MAX_INTEGRATED_FRAMES = 2_000
"""The most frames of a series whose integrated gradients are computed; more take half a minute."""


@dataclass(frozen=True)
class FrameClassifierView(SeriesView):
    """A series in a classifier. `label` is the most probable one; contributions are to its log-odds.

    `gradients` (T,) are gradient times features, summed over the normalized features of a frame, whose zeros are the
    means of the training data; so a missing value contributes nothing. `attention` are the weights of attention
    pooling, and `maxima` the share of the outputs whose maximum is at a frame, (T,); None without such a pooling.
    """

    label: int
    probabilities: NDArray[np.float32]
    gradients: NDArray[np.float64]
    integrated: Integrated | None
    attention: NDArray[np.float64] | None
    maxima: NDArray[np.float64] | None
    traces: list[Trace]
    heads: list[Attention] | None
    """The attention of the layers; None for a series that is too long."""


def view_series(model: Classifier, series: SeriesView) -> FrameClassifierView:
    """Return the view of a series."""
    frames = Frames(torch.from_numpy(series.frames).to(device_of(model)).unsqueeze(0), None)
    with torch.no_grad():
        reading = ReadFeatures(model.features(frames), frames.keys)
        pooled = model.pooled(reading.x, reading.keys, None)
        probabilities = model.probabilities(model.logits_of([pooled]))[0]
    label = int(probabilities.argmax())
    gradients = _gradients(model, reading, label)
    is_long = len(series.frames) > MAX_INTEGRATED_FRAMES
    integrated = None if is_long else integrated_of(model, reading, [pooled], 0, label)
    with torch.inference_mode():
        return FrameClassifierView(
            **vars(series),
            label=label,
            probabilities=probabilities.cpu().numpy(),
            gradients=gradients,
            integrated=integrated,
            attention=attention_weights(model, reading),
            maxima=maxima_of(model, reading),
            traces=traces_of(model.layers, reading.x),
            heads=attention_of(model.layers, reading.x),
        )


def _gradients(model: Classifier, reading: ReadFeatures, label: int) -> NDArray[np.float64]:
    """Gradient times features of each frame (T,)."""
    pooling, layers = model.pooling, model.layers
    assert pooling is not None
    assert isinstance(layers, SequenceLayer)  # frames have no subwords

    def output(h: Tensor) -> Tensor:
        return log_odds(model, model.logits_of([Pooled(pooling(h, None).float(), reading.keys)]), label)

    gradients = gradients_of(layers, reading.x, output)
    contributions: NDArray[np.float64] = (gradients.inputs * reading.x[0].cpu().numpy()).sum(1)
    return contributions


GRADIENTS = (
    "The gradient of the log-odds of “{}” by the features of a frame, times the features (as they are normalized: 0 is "
    "the mean of the training data, and what is missing). What is warm speaks for the label, what is cool against it."
)
ATTENTION = "The series is a weighted mean of the outputs at its frames. The weights sum to 1."
MAXIMA = (
    "The series has the maximum of each output over all frames. A bar is the share of the outputs that a frame gave."
)


def inspect_series(model: Classifier, series: SeriesView, labels: Classes, facts: Mapping[str, str]) -> Inspection:
    """Return a series in a classifier; `facts` are those of the model."""
    view = view_series(model, series)
    colors = {name: color_of(name) for name in labels.names}
    threshold = labels.threshold if labels.multiple else None
    sections = series_sections(view, labels.names, colors=colors, threshold=threshold)
    return Inspection(clipped(view.series, TITLE), view, {**facts, "frames": f"{len(view.frames):,}"}, sections)


def series_sections(
    view: FrameClassifierView, names: Sequence[str], *, colors: Mapping[str, str], threshold: float | None
) -> list[Section]:
    """Return all sections. `threshold` is that of several labels; None if a series has one label."""
    columns, label = view.columns, names[view.label]
    sections = [
        series_section(view, columns),
        labels_section(view.probabilities, view.label, names, colors=colors, threshold=threshold, what="series"),
        _bars(f"What each frame does for “{label}”", GRADIENTS.format(label), view.gradients, columns, "contribution"),
    ]
    if view.integrated is None:
        note = f"Those of series of more than {MAX_INTEGRATED_FRAMES:,} frames are not computed."
        sections.append(Section.plain("Integrated gradients", "", note=note))
    else:
        drawing = bars(view.integrated.shares, columns, name="integrated gradients", what="share")
        shown = {"label": label, "sums": view.integrated, "drawing": drawing, "note": columns.note}
        sections.append(Section("Integrated gradients", "extensions/frames/integrated.html", shown))
    if view.attention is not None:
        sections.append(_bars("Attention pooling", ATTENTION, view.attention, columns, "weight"))
    if view.maxima is not None:
        sections.append(_bars("Max pooling", MAXIMA, view.maxima, columns, "share of maxima"))
    return [*sections, *encoder_sections([Seen(columns, view.traces, view.heads)])]


def _bars(heading: str, about: str, values: NDArray[np.float64], columns: FrameColumns, what: str) -> Section:
    drawing = bars(values, columns, name=heading, what=what)
    return Section.plain(heading, drawing, about=about, note=columns.note)
