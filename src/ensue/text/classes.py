"""The labels of a classifier, and how probabilities become labels."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

FORMAT_VERSION = 1


class Classes:
    """`names` in the order of the model's outputs. With `multiple`, a text has all those whose probability is at least
    `threshold`; without, the most probable one.
    """

    def __init__(self, names: Sequence[str], *, multiple: bool = False, threshold: float = 0.5) -> None:
        self.names, self.multiple, self.threshold = tuple(names), multiple, threshold
        self.ids = {name: id for id, name in enumerate(self.names)}

    def chosen(self, probabilities: NDArray[np.floating[Any]]) -> tuple[str, ...]:
        """The labels of a text with these probabilities (K,), the most probable first."""
        if not self.multiple:
            return (self.names[int(probabilities.argmax())],)
        order = np.argsort(-probabilities, kind="stable")
        return tuple(self.names[id] for id in order if probabilities[id] >= self.threshold)

    def matrix(self, labels: Sequence[Collection[str]]) -> NDArray[np.bool_]:
        """Which text has which label, (N, K); labels that are not known are left out."""
        matrix = np.zeros((len(labels), len(self.names)), bool)
        for row, names in zip(matrix, labels, strict=True):
            row[[self.ids[name] for name in names if name in self.ids]] = True
        return matrix

    def targets(self, labels: Sequence[Collection[str]]) -> NDArray[Any]:
        """What is learned: ids (N,), or 0 and 1 (N, K)."""
        matrix = self.matrix(labels)
        return matrix.astype(np.float32) if self.multiple else matrix.argmax(1)

    def shares(self, labels: Sequence[Collection[str]]) -> NDArray[np.float64]:
        """The share of the texts that has each label, (K,), as if there were one more of each label."""
        counts = self.matrix(labels).sum(0) + 1.0
        shares: NDArray[np.float64] = counts / (len(labels) + (2 if self.multiple else len(self.names)))
        return shares

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": "classes",
            "format_version": FORMAT_VERSION,
            "names": list(self.names),
            "multiple": self.multiple,
            "threshold": self.threshold,
        }

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Classes:
        """The inverse of `to_json`; KeyError, TypeError or ValueError for content that cannot come from there."""
        names = content["names"]
        check_names(names)
        return cls(names, multiple=bool(content["multiple"]), threshold=float(content["threshold"]))

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"Classes({', '.join(self.names)}{', multiple=True' if self.multiple else ''})"


def check_names(names: Any) -> None:
    """ValueError unless `names`, read from JSON, can be those of labels."""
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("names must be a list of strings")
    if not names or len(set(names)) < len(names):
        raise ValueError("names must be distinct, and there must be one")
