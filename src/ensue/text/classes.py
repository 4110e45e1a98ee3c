"""The labels of a classifier, and how probabilities become labels."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from ensue.stored import Bounds, Stored


def check_names(names: Collection[str]) -> None:
    """Raises ValueError unless there is a name, and they are distinct."""
    if not names or len(set(names)) < len(names):
        raise ValueError("names must be distinct, and there must be one")


Names = Annotated[Sequence[str], check_names]


class Classes(Stored):
    """The labels `names` of a classifier, in the order of the model's outputs.

    With `multiple`, a text has all labels whose probability is at least `threshold`; without, the most probable one.
    """

    kind = "classes"

    def __init__(
        self, names: Names, *, multiple: bool = False, threshold: Annotated[float, Bounds(0, 1)] = 0.5
    ) -> None:
        self.names, self.multiple, self.threshold = tuple(names), multiple, threshold
        self.ids = {name: id for id, name in enumerate(self.names)}

    def chosen(self, probabilities: NDArray[np.floating[Any]]) -> tuple[str, ...]:
        """The labels of a text with these probabilities (K,), the most probable first."""
        if not self.multiple:
            return (self.names[int(probabilities.argmax())],)
        order = np.argsort(-probabilities, kind="stable")
        return tuple(self.names[id] for id in order if probabilities[id] >= self.threshold)

    def matrix(self, labels: Sequence[Collection[str]]) -> NDArray[np.bool_]:
        """Which text has which label, (N, K). Unknown labels are left out."""
        matrix = np.zeros((len(labels), len(self.names)), bool)
        for row, names in zip(matrix, labels, strict=True):
            row[[self.ids[name] for name in names if name in self.ids]] = True
        return matrix

    def targets(self, labels: Sequence[Collection[str]]) -> NDArray[Any]:
        """The targets of training: ids (N,), or with `multiple` 0 and 1 (N, K)."""
        matrix = self.matrix(labels)
        return matrix.astype(np.float32) if self.multiple else matrix.argmax(1)

    def shares(self, labels: Sequence[Collection[str]]) -> NDArray[np.float64]:
        """The share of the texts that have each label, (K,), with 1 added to each count."""
        counts = self.matrix(labels).sum(0) + 1.0
        shares: NDArray[np.float64] = counts / (len(labels) + (2 if self.multiple else len(self.names)))
        return shares

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"Classes({', '.join(self.names)}{', multiple=True' if self.multiple else ''})"
