"""The job of training a tagger of frames."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from ensue.data.compact_texts import Ragged
from ensue.data.frames.series import Series
from ensue.data.frames.stored import FrameRows
from ensue.models.frame_features import Frames
from ensue.models.modules import device_of
from ensue.models.tagger import Tagger
from ensue.tasks.contract.task import WHOLE, Cut
from ensue.tasks.frame_labeling.model import FrameTaggerParts
from ensue.tasks.frame_labeling.recipe import FrameLabelingRecipe
from ensue.tasks.frames.data import LabeledSeries, frames_of
from ensue.tasks.frames.job import LabeledFramesJob
from ensue.tasks.labeling.contexts import Contexts
from ensue.tasks.labeling.tags_job import TagsJob
from ensue.tasks.labeling.task import Emissions, tag_rows
from ensue.text.scheme_detection import SchemeDetector


class TaggedFrames:
    """Series as a tagger reads them, with the labels of their file. Each is a context of one sentence."""

    def __init__(self, rows: FrameRows, labels: Sequence[Sequence[str]] = ()) -> None:
        self.rows, self.labels = rows, labels

    @cached_property
    def contexts(self) -> Contexts:
        """Where each series begins; its frames have no numbers."""
        return Contexts(Ragged(np.zeros(0, np.int64), self.rows.starts), [1] * len(self.rows))

    def batch(self, contexts: NDArray[np.int64], device: torch.device, cut: Cut = WHOLE) -> Frames:
        """The batch of these series, cut."""
        return frames_of(self.rows, contexts, device, cut)

    def paths(self, model: Tagger) -> list[NDArray[np.int64]]:
        """The tags (T,) of each series, in order."""
        return self.tagged(model)[0]

    def tagged(
        self, model: Tagger, *, with_marginals: bool = False
    ) -> tuple[list[NDArray[np.int64]], list[NDArray[np.float32]]]:
        """The tags (T,) of each series, and if asked for the probabilities of all tags (T, K)."""
        device = device_of(model)

        def emissions(rows: NDArray[np.int64]) -> Emissions:
            frames = self.batch(rows, device)
            return Emissions(model(frames), frames.mask)

        return tag_rows(model, self.contexts, emissions, with_marginals=with_marginals)


class FrameLabelingJob(TagsJob[LabeledSeries], LabeledFramesJob[Tagger]):
    """Trains a tagger of frames."""

    recipe: FrameLabelingRecipe
    parts: FrameTaggerParts

    def labels_of(self, series: Series) -> tuple[str, ...]:
        return frame_labels(series)

    def made_parts(self) -> FrameTaggerParts:
        detector = SchemeDetector()
        for labels in self.train.labels:
            detector.feed(labels)
        return FrameTaggerParts(self.seen(), self.tags(detector))

    def encoded(self, data: LabeledSeries) -> TaggedFrames:
        return TaggedFrames(data.rows, data.labels)


def frame_labels(series: Series) -> tuple[str, ...]:
    """The label of each frame. Raises DataError if there is none."""
    if series.per_frame:
        return series.labels
    advice = "expected one for each frame, in a column of a table or in an array of labels"
    raise series.error(f"{series.name}: {'a label of the whole series' if series.labels else 'no label'}; {advice}")
