"""A classifier of frames in use: predicts labels, evaluates, and shows a series in numbers and as a page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.data.files import Location
from ensue.extensions.frames.data.series import Series
from ensue.extensions.frames.data.stored import FrameRows
from ensue.extensions.frames.models.frame_features import Frames
from ensue.extensions.frames.page import SeriesView, bars, series_section
from ensue.extensions.frames.tasks.pipeline import LabeledFramesPipeline, chunked, frames_from
from ensue.inspection.attributions import Integrated, gradients_of
from ensue.inspection.colors import color_of
from ensue.inspection.drawing import FrameColumns
from ensue.inspection.encoder import Attention, Trace, attention_of, traces_of
from ensue.inspection.encoder_page import Seen, encoder_sections
from ensue.inspection.features import ReadFeatures
from ensue.inspection.markup import clipped
from ensue.inspection.notebook import Answers
from ensue.inspection.page import TITLE, Inspection, Section
from ensue.metrics.classification import ClassificationScores
from ensue.metrics.scores import ScoredItems
from ensue.models.classifier import Classifier, Pooled
from ensue.models.modules import device_of
from ensue.nn import SequenceLayer
from ensue.tasks.classification.data import class_labels
from ensue.tasks.classification.page import labels_section
from ensue.tasks.classification.pipeline import Choosing, Classified
from ensue.tasks.classification.recipe import FrameClassificationRecipe
from ensue.tasks.classification.task import ClassifiedFrames, Judged, tally_of
from ensue.tasks.classification.view import attention_weights, integrated_of, log_odds, maxima_of
from ensue.tasks.contract.portable import Portable
from ensue.text.labels import Classes


class ClassifiedSeries(Classified):
    """A series, by its name, with its labels and the probability of every label."""

    @property
    def line(self) -> str:
        """The series, its labels, and the probability of the first."""
        return f"{self.texts[0]}\t{' '.join(self.labels) or '-'}\t{self.probability:.4f}"

    def as_json(self) -> dict[str, Any]:
        found = super().as_json()
        return {"series": found.pop("texts")[0], **found}


class LabelsOfSeries(NamedTuple):
    """A series, its labels, and the probabilities of all labels (K,)."""

    series: Series
    labels: tuple[str, ...]
    probabilities: NDArray[np.float32]


class FrameClassificationPipeline(Choosing, LabeledFramesPipeline[ClassifiedSeries]):
    """A classifier of frames: predicts and evaluates."""

    recipe: FrameClassificationRecipe

    def predict(self, texts: Iterable[Any]) -> list[ClassifiedSeries]:
        """The labels of each series: an array (T, d), one of `source`, or samples (n,) at the training data's rate."""
        return Answers(self.answers(self._given(texts)))

    def answers(self, series: Iterable[Series], *, in_full: bool = True) -> Iterator[ClassifiedSeries]:
        for one, labels, probabilities in self.classify(series):
            shares = dict(zip(self.labels.names, probabilities.tolist(), strict=True))
            yield ClassifiedSeries((one.name,), labels, shares)

    def classify(self, series: Iterable[Series]) -> Iterator[LabelsOfSeries]:
        """The labels of a stream of series of any length, in order, in constant memory."""
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
        """The scores on labeled series. Raises DataError for one without a label."""
        return tally_of(self.labels).scores_of(self._judged(location, encoding))

    def scored_items(self, location: Location, *, encoding: str = "utf-8") -> ScoredItems:
        return tally_of(self.labels).items_of(self._judged(location, encoding), "series")

    def _judged(self, location: Location, encoding: str) -> Iterator[Judged]:
        for answer in self.classify(self._whole(location, encoding)):
            right = class_labels(answer.series, separator=self.recipe.data.separator, multiple=self.labels.multiple)
            yield Judged(right, answer.probabilities, self.labels.chosen(answer.probabilities))

    def portable(self) -> Portable:
        return self._portable(_classified, "frame_classifier", {"classes": self.labels.to_json()})


def _classified(model: Classifier, frames: Tensor, lengths: Tensor) -> dict[str, Tensor]:
    """The probabilities of the labels, and the logits."""
    logits = model([frames_from(frames, lengths)])
    return {"probabilities": model.probabilities(logits), "logits": logits}


MOST_INTEGRATED = 2_000
"""The most frames of a series whose integrated gradients are computed; of more it takes half a minute and longer."""


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
    """The view of a series."""
    frames = Frames(torch.from_numpy(series.frames).to(device_of(model)).unsqueeze(0), None)
    with torch.no_grad():
        reading = ReadFeatures(model.features(frames), frames.keys)
        pooled = model.pooled(reading.x, reading.keys, None)
        probabilities = model.probabilities(model.logits_of([pooled]))[0]
    label = int(probabilities.argmax())
    gradients = _gradients(model, reading, label)
    is_long = len(series.frames) > MOST_INTEGRATED
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

    found = gradients_of(layers, reading.x, output)
    contributions: NDArray[np.float64] = (found.inputs * reading.x[0].cpu().numpy()).sum(1)
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
    """A series in a classifier; `facts` are those of the model."""
    view = view_series(model, series)
    colors = {name: color_of(name) for name in labels.names}
    threshold = labels.threshold if labels.multiple else None
    sections = series_sections(view, labels.names, colors=colors, threshold=threshold)
    return Inspection(clipped(view.series, TITLE), view, {**facts, "frames": f"{len(view.frames):,}"}, sections)


def series_sections(
    view: FrameClassifierView, names: Sequence[str], *, colors: Mapping[str, str], threshold: float | None
) -> list[Section]:
    """All sections. `threshold` is that of several labels; None if a series has one label."""
    columns, label = view.columns, names[view.label]
    sections = [
        series_section(view, columns),
        labels_section(view.probabilities, view.label, names, colors=colors, threshold=threshold, what="series"),
        _bars(f"What each frame does for “{label}”", GRADIENTS.format(label), view.gradients, columns, "contribution"),
    ]
    if view.integrated is None:
        note = f"Those of series of more than {MOST_INTEGRATED:,} frames are not computed."
        sections.append(Section.plain("Integrated gradients", "", note=note))
    else:
        drawing = bars(view.integrated.shares, columns, name="integrated gradients", what="share")
        shown = {"label": label, "sums": view.integrated, "drawing": drawing, "note": columns.note}
        sections.append(Section("Integrated gradients", "tasks/classification/frames_integrated.html", shown))
    if view.attention is not None:
        sections.append(_bars("Attention pooling", ATTENTION, view.attention, columns, "weight"))
    if view.maxima is not None:
        sections.append(_bars("Max pooling", MAXIMA, view.maxima, columns, "share of maxima"))
    return [*sections, *encoder_sections([Seen(columns, view.traces, view.heads)])]


def _bars(heading: str, about: str, values: NDArray[np.float64], columns: FrameColumns, what: str) -> Section:
    drawing = bars(values, columns, name=heading, what=what)
    return Section.plain(heading, drawing, about=about, note=columns.note)
