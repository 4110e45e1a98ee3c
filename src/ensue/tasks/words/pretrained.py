"""Pretrained vectors of the words in use, as the table of a model."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from ensue.data.vectors import read_vectors
from ensue.errors import DataError, RunError
from ensue.runs.checkpoint import complete_checkpoints
from ensue.runs.directory import RunDirectory
from ensue.tasks.words.model import WordParts
from ensue.text.tokenizer import UNKNOWN

Parts = TypeVar("Parts", bound=WordParts)


def pretrained_vectors(path: str, forms: Collection[str]) -> tuple[Sequence[str], Tensor]:
    """The words of `forms`, or their lowercased forms, that the file has, and their vectors (1 + number, d). Row 0 is
    zero, for words that the file does not have.
    """
    wanted = {*forms, *(form.lower() for form in forms)} - {UNKNOWN}
    words, matrix = read_vectors(path, wanted)
    if not words:
        raise DataError(f"has none of the {len(forms):,} words of the data", path)
    zero = np.zeros((1, matrix.shape[1]), np.float32)
    return words, torch.from_numpy(np.concatenate((zero, matrix)))


def d_vectors(pretrained: Tensor | None) -> int:
    """The size of pretrained vectors; 0 if there are none."""
    return 0 if pretrained is None else pretrained.shape[1]


def with_vectors(parts: Parts, run: RunDirectory, path: str) -> Parts:
    """The parts of a run that is resumed. Before its first checkpoint the vectors are read from the file again.

    Raises RunError if the file has other vectors than at the start of the run.
    """
    table, known = parts.pretrained, parts.lexicon.vectors
    if table is None or known is None or complete_checkpoints(run.checkpoints):
        return parts
    words, vectors = pretrained_vectors(path, known.symbols)
    if (UNKNOWN, *words) != known.symbols or vectors.shape != table.shape:
        raise RunError(f"{run.path}: {path} has changed since this run began; choose another --out")
    return replace(parts, pretrained=vectors)
