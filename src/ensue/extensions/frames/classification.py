"""Classification of series of frames: data, training, pipeline, and page."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.data.files import Data
from ensue.errors import list_names
from ensue.extensions.frames.data.series import FrameRows, Series
from ensue.extensions.frames.page import FrameColumns, SeriesView, draw_bars, series_section
from ensue.extensions.frames.recipe import FrameClassificationRecipe
from ensue.extensions.frames.tasks.data import LabeledSeries, LabeledSeriesData, pad_frames
from ensue.extensions.frames.tasks.model import Frames, LabeledFrameParts
from ensue.extensions.frames.tasks.pipeline import LabeledFramesPipeline, make_frames, split_into_chunks
from ensue.inspection.attributions import Attribution, differentiate
from ensue.inspection.encoder import LayerAttention, LayerTrace, record_attention, trace_layers
from ensue.inspection.encoder_page import EncoderView, encoder_sections
from ensue.inspection.features import ReadFeatures
from ensue.inspection.page import Inspection, Section
from ensue.models.build_text import build_poolings, outputs_halves
from ensue.models.classifier import Classifier, PooledTexts
from ensue.models.encoders import build_encoder
from ensue.models.modules import device_of
from ensue.nn import SequenceLayer
from ensue.nn.draws import ALL_ROWS, RowSlice
from ensue.runs.directory import RunDirectory
from ensue.tasks.classification.job import ClassificationJob
from ensue.tasks.classification.page import labels_section
from ensue.tasks.classification.pipeline import Classified, ThresholdMixin
from ensue.tasks.classification.task import ScoredLabels, probabilities_of, tally_of
from ensue.tasks.classification.view import attention_weights, integrate_gradients, log_odds, max_shares
from ensue.tasks.contract.description import ClassOutput, ModelDescription
from ensue.text.labels import Classes


class ClassifiedSeriesData(LabeledSeriesData):
    """The data of a classifier: series with one label each, or with any number of labels if `data.separator` is set."""

    unit_singular: ClassVar[str] = "series"
    layout_note = ""

    def __init__(self, recipe: FrameClassificationRecipe, run: RunDirectory | None = None) -> None:
        separator = recipe.data.separator
        labels_of = partial(class_labels, separator=separator, multiple=bool(separator))
        super().__init__(recipe, run, labels_of=labels_of)
        splits = [data for data in (self.split.train, self.split.valid, self.split.test) if data is not None]
        self.multiple = any(len(labels) != 1 for data in splits for labels in data.labels)

    def parts(self, labels: Classes) -> "FrameClassifierParts":
        """Return the parts of a new model."""
        return FrameClassifierParts(self.statistics(), labels)

    def encode(self, data: LabeledSeries, parts: "FrameClassifierParts") -> "ClassifiedFrames":
        """Return the series as input for the model."""
        return ClassifiedFrames(data.rows, data.labels)


def class_labels(series: Series, *, separator: str, multiple: bool) -> tuple[str, ...]:
    """Return the labels of a series. Raises DataError for different labels of frames or an invalid number of labels."""
    names = tuple(dict.fromkeys(series.labels))
    if len(names) > 1:
        problem = f"the frames have {len(names):,} labels ({list_names(names, 3)})"
        raise series.error(f"{problem}; tag-frames learns a label for each frame")
    labels = tuple(label for name in names for label in (name.split(separator) if separator else [name]) if label)
    if len(labels) == 1 or multiple:
        return labels
    if labels:
        raise series.error(f"several labels ({list_names(labels)}); expected one label per series, as in training")
    advice = "data.pattern reads labels from file names, and names of folders may be labels"
    raise series.error(f"no label; {advice}")


class ClassifiedFrames(LabeledSeries):
    """Labeled series as input for a classifier."""

    def batch(self, rows: NDArray[np.int64], device: torch.device, row_slice: RowSlice = ALL_ROWS) -> tuple[Frames]:
        """Return the slice `row_slice` of the batch of the series `rows`."""
        return (pad_frames(self.rows, rows, device, row_slice),)

    def probabilities(self, model: Classifier) -> NDArray[np.float32]:
        """Return the probabilities (N, K) of K labels for each series."""
        return probabilities_of(model, self.lengths, lambda rows: model(self.batch(rows, device_of(model))))


@dataclass(frozen=True)
class FrameClassifierParts(LabeledFrameParts):
    """The shape, statistics and labels from which a classifier is built."""

    labels: Classes

    def build(self, recipe: FrameClassificationRecipe) -> Classifier:
        features, head = self.features(recipe), recipe.head
        layers = build_encoder(recipe.encoder, d_in=features.d_out, directions=recipe.directions)
        has_halves = outputs_halves(recipe.encoder, recipe.directions)
        pooling = build_poolings(head, layers.d_out, has_halves=has_halves, is_causal=layers.is_causal)
        if pooling is None:
            raise ValueError("head.pooling is empty; expected a pooling")
        model = Classifier(
            features, layers, pooling, len(self.labels), d_hidden=head.d_hidden, activation=head.activation,
            dropout=head.dropout, label_smoothing=head.label_smoothing, multiple=self.labels.multiple,
        )  # fmt: skip
        model.temperature = self.labels.temperature
        return model


class FrameClassificationJob(ClassificationJob):
    """The training job of a classifier."""

    data_class = ClassifiedSeriesData


class ClassifiedSeries(Classified):
    """A series with its predicted labels, and the probabilities of all labels."""

    @property
    def line(self) -> str:
        """The name of the series, the labels, and the probability of the first label, separated by tabs."""
        return f"{self.texts[0]}\t{' '.join(self.labels) or '-'}\t{self.probability:.4f}"

    def as_json(self) -> dict[str, Any]:
        values = super().as_json()
        return {"series": values.pop("texts")[0], **values}


class LabelsOfSeries(NamedTuple):
    """A series with its predicted labels, and the probabilities (K,) of all labels."""

    series: Series
    labels: tuple[str, ...]
    probabilities: NDArray[np.float32]


class FrameClassificationPipeline(ThresholdMixin, LabeledFramesPipeline[ClassifiedSeries]):
    """The pipeline of a classifier of frames."""

    recipe: FrameClassificationRecipe
    tally_of = staticmethod(tally_of)

    def answers(self, series: Iterable[Series], *, in_full: bool = True) -> Iterator[ClassifiedSeries]:
        for item, labels, probabilities in self.classify(series):
            yield ClassifiedSeries((item.name,), labels, self.labels.by_name(probabilities))

    def classify(self, series: Iterable[Series]) -> Iterator[LabelsOfSeries]:
        """Yield the labels of a stream of series, in order and in constant memory."""
        for chunk in split_into_chunks(series):
            probabilities = ClassifiedFrames(FrameRows.of_series(chunk), []).probabilities(self.model)
            for item, row in zip(chunk, probabilities, strict=True):
                yield LabelsOfSeries(item, self.labels.choose(row, at_least=self.at_least), row)

    def inspect(self, series: Any) -> Inspection:
        """Return the page of a series, given by the path of a file or as for `predict`."""
        view, labels = view_series(self.model, self.series_view(self.read_single(series))), self.labels
        return self._make_inspection(
            view, series_sections(view, labels), {"head": " + ".join(self.recipe.head.pooling)}
        )

    def _predict_with_gold(self, location: Data, encoding: str) -> Iterator[ScoredLabels]:
        for series, _, probabilities in self.classify(self._read_labeled(location, encoding)):
            labels = class_labels(series, separator=self.recipe.data.separator, multiple=self.labels.multiple)
            yield ScoredLabels(labels, probabilities, self.labels.choose(probabilities))

    def describe(self) -> ModelDescription:
        settings, output = {"classes": self.labels.to_json()}, ClassOutput(self.labels)
        return self._make_description(_classify, output, "frame_classifier", settings, ClassifiedSeriesData)


def _classify(model: Classifier, frames: Tensor, lengths: Tensor) -> dict[str, Tensor]:
    logits = model([make_frames(frames, lengths)])
    return {"probabilities": model.probabilities(logits), "logits": logits}


MAX_INTEGRATED_FRAMES = 2_000
"""The largest number of frames for integrated gradients, which take half a minute or more for longer series."""


@dataclass(frozen=True)
class FrameClassifierView(SeriesView):
    """The view of a series in a classifier, with contributions to the log-odds of the most probable `label`."""

    label: int
    probabilities: NDArray[np.float32]
    gradients: NDArray[np.float64]
    """Gradient times input (T,), summed over the normalized features of a frame; missing values contribute 0."""
    integrated: Attribution | None
    attention: NDArray[np.float64] | None
    """The weights (T,) of attention pooling; None for other poolings."""
    maxima: NDArray[np.float64] | None
    """The share (T,) of the outputs of the layers with their maximum at a frame; None without max pooling."""
    traces: list[LayerTrace]
    heads: list[LayerAttention] | None
    """The attention of the layers; None for long series."""


def view_series(model: Classifier, series: SeriesView) -> FrameClassifierView:
    """Return the view of a series."""
    frames = Frames(torch.from_numpy(series.frames).to(device_of(model)).unsqueeze(0), None)
    with torch.no_grad():
        reading = ReadFeatures(model.features(frames), frames.keys)
        pooled = model.pool(reading.x, reading.keys, None)
        probabilities = model.probabilities(model.compute_logits([pooled]))[0]
    label = int(probabilities.argmax())
    gradients = _compute_gradients(model, reading, label)
    is_long = len(series.frames) > MAX_INTEGRATED_FRAMES
    integrated = None if is_long else integrate_gradients(model, reading, [pooled], 0, label)
    with torch.inference_mode():
        return FrameClassifierView(
            **vars(series), label=label, probabilities=probabilities.cpu().numpy(), gradients=gradients,
            integrated=integrated, attention=attention_weights(model, reading), maxima=max_shares(model, reading),
            traces=trace_layers(model.layers, reading.x), heads=record_attention(model.layers, reading.x),
        )  # fmt: skip


def _compute_gradients(model: Classifier, reading: ReadFeatures, label: int) -> NDArray[np.float64]:
    pooling, layers = model.pooling, model.layers
    assert pooling is not None
    assert isinstance(layers, SequenceLayer)  # frames have no subwords

    def output(h: Tensor) -> Tensor:
        return log_odds(model, model.compute_logits([PooledTexts(pooling(h, None).float(), reading.keys)]), label)

    return (differentiate(layers, reading.x, output)[0] * reading.x[0].cpu().numpy()).sum(1)


GRADIENTS = (
    "The gradient of the log-odds of “{}” with respect to the normalized features of a frame, times these features. A "
    "normalized feature is 0 if it is missing or equal to its mean. Warm bars are evidence for the label, cool bars "
    "evidence against the label."
)
ATTENTION = "The vector of the series is a weighted mean of the outputs at its frames. The weights sum to 1."
MAXIMA = (
    "The vector of the series has the maximum of each output over all frames. A bar is the share of the outputs whose "
    "maximum is at the frame."
)


def series_sections(view: FrameClassifierView, labels: Classes) -> list[Section]:
    """Return the sections of the page."""
    columns, label, probabilities = view.columns, labels.names[view.label], view.probabilities
    by_name, threshold = labels.by_name(probabilities), labels.threshold if labels.multiple else None
    sections = [
        series_section(view, columns),
        labels_section(by_name, labels.choose(probabilities), threshold=threshold, what="series"),
    ]
    heading, about = f"Contributions of frames to “{label}”", GRADIENTS.format(label)
    sections.append(_bar_section(heading, about, view.gradients, columns, "contribution"))
    if view.integrated is None:
        note = f"Not computed for series of more than {MAX_INTEGRATED_FRAMES:,} frames."
        sections.append(Section.plain("Integrated gradients", "", note=note))
    else:
        drawing = draw_bars(view.integrated.shares, columns, name="integrated gradients", what="share")
        shown = {"label": label, "sums": view.integrated, "drawing": drawing, "note": columns.note}
        sections.append(Section("Integrated gradients", "extensions/frames/integrated.html", shown))
    if view.attention is not None:
        sections.append(_bar_section("Attention pooling", ATTENTION, view.attention, columns, "weight"))
    if view.maxima is not None:
        sections.append(_bar_section("Max pooling", MAXIMA, view.maxima, columns, "share of maxima"))
    return [*sections, *encoder_sections([EncoderView(columns, view.traces, view.heads)])]


def _bar_section(heading: str, about: str, values: NDArray[np.float64], columns: FrameColumns, what: str) -> Section:
    return Section.plain(heading, draw_bars(values, columns, name=heading, what=what), about=about, note=columns.note)
