"""Pretrained vectors of the words in use, as the table of a model."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from ensue.data.vectors import read_vectors
from ensue.errors import DataError, RunError
from ensue.runs.checkpoint import complete_checkpoints
from ensue.runs.directory import RunDirectory
from ensue.tasks.words.model import WordParts
from ensue.tasks.words.recipe import WordsRecipe
from ensue.text.tokenizer import UNKNOWN

Parts = TypeVar("Parts", bound=WordParts)


class Pretrained(NamedTuple):
    """Words that have a pretrained vector, and their vectors (1 + words, d), of which row 0 is zero, for other words.
    The last `kept` of them are not of the data.
    """

    words: Sequence[str]
    vectors: Tensor
    kept: int


def pretrained_vectors(path: str, forms: Collection[str], kept: int) -> Pretrained:
    """The words of `forms`, or their lowercased forms, that the file has, and those of its first `kept` words that are
    not among them. Raises DataError if it has none of `forms`.
    """
    wanted = {*forms, *(form.lower() for form in forms)} - {UNKNOWN}
    words, matrix = read_vectors(path, wanted, first=kept)
    of_data = np.array([word in wanted for word in words], np.bool_)
    if not of_data.any():
        raise DataError(f"has none of the {len(forms):,} words of the data", path)
    order = np.argsort(~of_data, kind="stable")
    rows = np.concatenate((np.zeros((1, matrix.shape[1]), np.float32), matrix[order]))
    return Pretrained([words[place] for place in order], torch.from_numpy(rows), int((~of_data).sum()))


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
    recipe, kept = cast("WordsRecipe", run.recipe), parts.lexicon.kept_vectors
    of_data = known.symbols[: len(known) - kept]
    found = pretrained_vectors(path, of_data, recipe.features.kept_vectors if kept else 0)
    if (UNKNOWN, *found.words) != known.symbols or found.vectors.shape != table.shape:
        raise RunError(f"{run.path}: {path} has changed since this run began; choose another --out")
    return replace(parts, pretrained=found.vectors)
