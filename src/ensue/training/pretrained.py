"""Pretrained vectors of the words in use, as the table of a model."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import torch
from torch import Tensor

from ensue.data.vectors import read_vectors
from ensue.errors import DataError, RunError
from ensue.text.tokenizer import UNKNOWN
from ensue.training.checkpoint import complete_checkpoints
from ensue.training.run_directory import RunDirectory


def pretrained_vectors(path: str, forms: Collection[str]) -> tuple[Sequence[str], Tensor]:
    """The words of `forms` (or their lowered forms) that the file has, and (1 + their number, d): row 0, all zero, is
    for what it has not.
    """
    wanted = {*forms, *(form.lower() for form in forms)} - {UNKNOWN}
    words, matrix = read_vectors(path, wanted)
    if not words:
        raise DataError(f"has none of the {len(forms):,} words of the data", path)
    zero = np.zeros((1, matrix.shape[1]), np.float32)
    return words, torch.from_numpy(np.concatenate((zero, matrix)))


def vectors_of_run(run: RunDirectory, path: str) -> Tensor | None:
    """The table of a run that is taken up again: room for that of its checkpoint, or, before there is one, the file's.

    RunError where the file has other vectors than the run began with.
    """
    table, known = run.empty_vectors(), run.lexicon().vectors
    if table is None or known is None or complete_checkpoints(run.checkpoints):
        return table
    words, vectors = pretrained_vectors(path, known.symbols)
    if (UNKNOWN, *words) != known.symbols or vectors.shape != table.shape:
        raise RunError(f"{run.path}: {path} has changed since this run began; choose another --out")
    return vectors
