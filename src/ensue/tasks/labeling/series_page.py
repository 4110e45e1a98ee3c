"""A series in a tagger, in numbers and as the sections of a page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from ensue.inspection.colors import color_of
from ensue.inspection.drawing import WordColumns
from ensue.inspection.encoder_page import Seen, encoder_sections
from ensue.inspection.frame_drawing import feature_map, labels_over_time
from ensue.inspection.markup import clipped
from ensue.inspection.page import TITLE, Inspection, Section
from ensue.inspection.series import SeriesView, curves_or_map, series_section
from ensue.models.frame_features import Frames
from ensue.models.modules import device_of
from ensue.models.tagger import Tagger
from ensue.tasks.labeling.page import MOST_WORDS, path_sections
from ensue.tasks.labeling.view import TagsView, view_tags
from ensue.text.labels import Labels


def inspect_series(model: Tagger, series: SeriesView, labels: Labels, facts: Mapping[str, str]) -> Inspection:
    """A series in a tagger; `facts` are those of the model."""
    view = view_series(model, series, labels)
    sections = series_sections(view, has_spans=labels.has_spans)
    return Inspection(clipped(view.series, TITLE), view, {**facts, "frames": f"{len(view.frames):,}"}, sections)


@dataclass(frozen=True)
class FrameTaggerView(SeriesView, TagsView):
    """A series in a tagger. `said` are the labels of its frames in the model."""

    said: tuple[str, ...]


@torch.inference_mode()
def view_series(model: Tagger, series: SeriesView, labels: Labels) -> FrameTaggerView:
    """The view of a series."""
    frames = Frames(torch.from_numpy(series.frames).to(device_of(model)).unsqueeze(0), None)
    x = model.features(frames)
    found = view_tags(model, x, model.emissions(x, frames.keys, None), labels.tags.symbols)
    return FrameTaggerView(**vars(series), **vars(found), said=tuple(labels.decode(found.path.tolist())))


def series_sections(view: FrameTaggerView, *, has_spans: bool) -> list[Section]:
    """All sections; `has_spans` tells whether the tags write spans."""
    columns = view.columns
    places = WordColumns([str(number) for number in range(len(view.path))][:MOST_WORDS])
    names = [f"frame {number}" for number in range(len(view.path))]
    probabilities = curves_or_map(view.marginals, columns, view.tags, name="probabilities of the tags")
    emissions = feature_map(view.emissions, columns, view.tags, name="emissions", signed=True)
    return [
        series_section(view, columns),
        _labels(view),
        _plain("Probabilities of the tags", "The probability of each tag at each frame.", probabilities, columns.note),
        _plain("Emission scores", "The scores that the network gives each tag at each frame.", emissions, columns.note),
        *path_sections(view, places, names, has_spans=has_spans, unit="frame"),
        *encoder_sections([Seen(columns, view.traces, view.attention)]),
    ]


def _plain(heading: str, about: str, drawing: str, note: str) -> Section:
    return Section(heading, "inspection/plain.html", {"about": about, "note": note, "shown": drawing})


def _labels(view: FrameTaggerView) -> Section:
    """The labels of the model over time, beside those of the file if it has some."""
    columns, rows, about = view.columns, {"model": view.said}, "Equal labels of neighbors are one piece."
    if view.per_frame:
        rows["file"] = view.labels
        right = int(np.sum(np.array(view.said) == np.array(view.labels)))
        about += f" The model has the label of the file at {right:,} of {len(view.said):,} frames."
    colors = {label: color_of(label) for labels in rows.values() for label in labels}
    return _plain("The labels", about, labels_over_time(rows, columns, colors=colors, name="labels"), columns.note)
