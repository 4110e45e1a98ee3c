"""Chains of tags to solve, and all their paths written out."""

import itertools
from typing import NamedTuple

import torch
from torch import Tensor

INF = torch.inf


class Problem(NamedTuple):
    """Scores of a chain, as all functions take them."""

    emissions: Tensor
    start: Tensor
    transitions: Tensor
    end: Tensor
    mask: Tensor


def problem(
    lengths: list[int], num_tags: int, *, forbidden: float = 0.0, dtype: torch.dtype = torch.float64, seed: int = 0
) -> Problem:
    """Random scores with NaN at padding; about that share of the tables is forbidden."""
    random = torch.Generator().manual_seed(seed)
    K, T = num_tags, max(lengths, default=0)
    mask = torch.arange(T) < torch.tensor(lengths, dtype=torch.int64).unsqueeze(1)
    emissions = torch.randn(len(lengths), T, K, generator=random, dtype=dtype).masked_fill(
        ~mask.unsqueeze(2), torch.nan
    )
    tables = [torch.randn(shape, generator=random, dtype=dtype) for shape in ((K,), (K, K), (K,))]
    start, transitions, end = (
        table.masked_fill(torch.rand(table.shape, generator=random) < forbidden, -INF) for table in tables
    )
    return Problem(emissions, start, transitions, end, mask)


class Row(NamedTuple):
    """Every path of one row and its score, the best first."""

    paths: list[tuple[int, ...]]
    scores: list[float]


def enumerated(p: Problem, row: int) -> Row:
    length = int(p.mask[row].sum())
    e, start, A, end = (scores.double().tolist() for scores in (p.emissions[row], *p[1:4]))
    found = []
    for y in itertools.product(range(len(start)), repeat=length):
        score = sum(e[t][tag] for t, tag in enumerate(y)) + sum(A[i][j] for i, j in itertools.pairwise(y))
        found.append((score + (start[y[0]] + end[y[-1]] if y else 0.0), y))
    found.sort(reverse=True)
    return Row([y for _, y in found], [score for score, _ in found])


def padded(path: tuple[int, ...], length: int) -> list[int]:
    return [*path, *[0] * (length - len(path))]


def counted(row: Row, length: int, num_tags: int) -> Tensor:
    """The marginals of a row, counted over its paths."""
    weights = torch.tensor(row.scores, dtype=torch.float64).softmax(0)
    counts = torch.zeros(length, num_tags, dtype=torch.float64)
    for path, weight in zip(row.paths, weights, strict=True):
        for t, tag in enumerate(path):
            counts[t, tag] += weight
    return counts
