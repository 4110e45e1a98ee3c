"""Series in memory, with their labels."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from ensue.data.frames.stored import FrameRows
from ensue.models.frame_features import Frames
from ensue.tasks.contract.task import WHOLE, Cut, on_device


@dataclass
class LabeledSeries:
    """Series with the labels of each: of the whole, or one for each frame."""

    rows: FrameRows
    labels: list[tuple[str, ...]]
    groups: list[str] = field(default_factory=list)
    """The group of each series that the data name; empty if they name none."""

    @property
    def sources(self) -> Sequence[Hashable]:
        """The group of each series; without groups its frames."""
        return self.groups or self.digests

    @property
    def digests(self) -> list[bytes]:
        """Digests of the frames of each series."""
        return [hashlib.sha256(self.rows[row].tobytes()).digest() for row in range(len(self))]

    @property
    def label_counts(self) -> Counter[str]:
        """How often each label occurs."""
        return Counter(label for labels in self.labels for label in labels)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """The number of frames of each series."""
        return self.rows.lengths

    def select(self, rows: NDArray[np.int64]) -> LabeledSeries:
        """The series in these rows."""
        labels = [self.labels[row] for row in rows.tolist()]
        groups = [self.groups[row] for row in rows.tolist()] if self.groups else []
        return LabeledSeries(self.rows.select(rows), labels, groups)

    def __len__(self) -> int:
        return len(self.labels)


def frames_of(
    rows: FrameRows, chosen: NDArray[np.int64] | Sequence[int], device: torch.device, cut: Cut = WHOLE
) -> Frames:
    """A batch of series, cut."""
    among = np.asarray(chosen, np.int64)
    numbers = cut.of(among)
    values, mask = rows.padded(numbers, among=among), rows.mask(numbers, among=among)
    return Frames(on_device(values, device), None if mask is None else on_device(mask, device))
