"""The confusion matrix of a classifier or a tagger as a picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ensue.errors import distinct_names
from ensue.runs.pictures import picture

CONFUSION = "confusion.png"
MOST_LABELS = 40
"""The most labels that are drawn: the most frequent ones."""
MOST_NUMBERS = 15
MOST_CHARACTERS = 20


def draw_confusion(labels: list[str], counts: list[list[int]], path: Path, *, title: str) -> None:
    """Draws the matrix. Rows are the right labels, columns the predicted ones; the color is the share of the row."""
    matrix = np.array(counts)
    shown = np.sort(np.argsort(-matrix.sum(1), kind="stable")[:MOST_LABELS])
    matrix, names = matrix[np.ix_(shown, shown)], distinct_names([labels[row] for row in shown], MOST_CHARACTERS)
    size = 2.4 + 0.42 * len(names)
    shares = matrix / np.maximum(matrix.sum(1, keepdims=True), 1)
    with picture(path, (size + 1.2, size)) as figure:
        axes = figure.add_subplot()
        axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        axes.set_xticks(range(len(names)), names, rotation=45, ha="right")
        axes.set_yticks(range(len(names)), names)
        axes.set(xlabel="predicted", ylabel="right", title=title)
        if len(names) <= MOST_NUMBERS:
            for row, column in np.ndindex(*matrix.shape):
                color = "white" if shares[row, column] > 0.5 else "#1f4e79"
                axes.text(column, row, f"{matrix[row, column]:,}", ha="center", va="center", color=color, fontsize=8)
