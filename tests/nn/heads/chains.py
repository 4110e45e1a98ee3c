"""Scores of tag chains, and the enumeration of all their paths."""

import itertools
from typing import NamedTuple

import torch
from torch import Tensor

INF = torch.inf


class Problem(NamedTuple):
    """The scores of a batch of chains, in the order of the functions' arguments."""

    emissions: Tensor
    start: Tensor
    transitions: Tensor
    end: Tensor
    mask: Tensor


def problem(
    lengths: list[int], num_tags: int, *, forbidden: float = 0.0, dtype: torch.dtype = torch.float64, seed: int = 0
) -> Problem:
    """Return random scores with NaN at padding; about a share `forbidden` of the tables is -inf."""
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
    """All paths of one row and their scores, the best first."""

    paths: list[tuple[int, ...]]
    scores: list[float]


def enumerated(p: Problem, row: int) -> Row:
    length = int(p.mask[row].sum())
    e, start, A, end = (scores.double().tolist() for scores in (p.emissions[row], *p[1:4]))
    scored_paths = []
    for y in itertools.product(range(len(start)), repeat=length):
        score = sum(e[t][tag] for t, tag in enumerate(y)) + sum(A[i][j] for i, j in itertools.pairwise(y))
        scored_paths.append((score + (start[y[0]] + end[y[-1]] if y else 0.0), y))
    scored_paths.sort(reverse=True)
    return Row([y for _, y in scored_paths], [score for score, _ in scored_paths])


def padded(path: tuple[int, ...], length: int) -> list[int]:
    return [*path, *[0] * (length - len(path))]


def counted(row: Row, length: int, num_tags: int) -> Tensor:
    """Return the marginals of a row, summed over its paths."""
    weights = torch.tensor(row.scores, dtype=torch.float64).softmax(0)
    counts = torch.zeros(length, num_tags, dtype=torch.float64)
    for path, weight in zip(row.paths, weights, strict=True):
        for t, tag in enumerate(path):
            counts[t, tag] += weight
    return counts
