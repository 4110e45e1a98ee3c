"""Minimal pairs: is the better of two texts more probable to a language model? `data.pairs` reads the files."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ensue.data.corpus.pairs import MinimalPair, pair_files, read_pairs, stem
from ensue.errors import DataError
from ensue.models.language_model import LanguageModel
from ensue.models.modules import device_of, evaluating
from ensue.models.prompts import padded
from ensue.tasks.language_modeling.reading import TextScorer
from ensue.text.tokenizer import Tokenizer
from ensue.types import exact

PAIRS_AT_A_TIME = 256
BATCH_TOKENS = 4096
LONGEST_IN_BATCH = 512
"""The most tokens of a sentence that is read in a batch. A longer one is read by itself, in pieces."""


class PairScore(NamedTuple):
    """The score of `pairs` pairs; `better` counts those whose better text is the more probable one. Ties count half."""

    name: str
    pairs: int
    better: float

    @property
    def accuracy(self) -> float:
        """The share of pairs whose better text is the more probable one."""
        return self.better / self.pairs

    def as_json(self) -> dict[str, Any]:
        """The keys of a row in `evaluate --json`."""
        return {"name": self.name, "pairs": self.pairs, "accuracy": self.accuracy}


class MinimalPairScores(NamedTuple):
    """The scores of each file, and of all files together."""

    rows: tuple[PairScore, ...]

    @property
    def total(self) -> PairScore:
        """The score of all files together."""
        return PairScore("total", sum(row.pairs for row in self.rows), sum(row.better for row in self.rows))

    def as_json(self) -> dict[str, Any]:
        """The keys of `evaluate --json`."""
        total = self.total
        return {"accuracy": total.accuracy, "pairs": total.pairs, "files": [row.as_json() for row in self.rows]}


def score_minimal_pairs(
    model: LanguageModel,
    tokenizer: Tokenizer,
    location: str | Path,
    *,
    encoding: str = "utf-8",
    progress: Callable[[PairScore], None] | None = None,
) -> MinimalPairScores:
    """Scores the pairs of a file, of the files of a folder or of a glob; `progress` is called with each file's score.

    A text's score is the sum of the nats of its tokens, read after the start symbol. Raises DataError (file:line) for a
    line that is no pair, a file without pairs, and a folder without a file in a known format.
    """
    rows = []
    for path in pair_files(location, encoding=encoding):
        row = _score_file(model, tokenizer, path, encoding)
        rows.append(row)
        if progress is not None:
            progress(row)
    return MinimalPairScores(tuple(rows))


def _score_file(model: LanguageModel, tokenizer: Tokenizer, path: Path, encoding: str) -> PairScore:
    pairs, better = 0, 0.0
    reader = read_pairs(path, encoding=encoding)
    while some := list(islice(reader, PAIRS_AT_A_TIME)):
        pairs += len(some)
        better += _better(model, tokenizer, some)
    if not pairs:
        raise DataError("no pair in this file", path)
    return PairScore(Path(stem(path)).name, pairs, better)


def _better(model: LanguageModel, tokenizer: Tokenizer, pairs: list[MinimalPair]) -> float:
    """The number of pairs in which the better text is more probable. Two texts with the same ids are a tie."""
    ids = [tokenizer.encode(text).astype(np.int64) for pair in pairs for text in pair]
    nats = total_nats(model, ids, start_id=tokenizer.start_id).reshape(-1, 2)
    tied = np.array([np.array_equal(good, bad) for good, bad in zip(ids[::2], ids[1::2], strict=True)])
    good, bad = nats.T
    return float(np.where(tied | (good == bad), 0.5, good < bad).sum())


@torch.inference_mode()
def total_nats(model: LanguageModel, texts: list[NDArray[np.int64]], *, start_id: int) -> NDArray[np.float64]:
    """The summed nats of each of `texts` (arrays of ids), each read by itself after `start_id`."""
    totals = np.zeros(len(texts))
    order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
    longest = min(LONGEST_IN_BATCH, model.context or LONGEST_IN_BATCH)
    with evaluating(model):
        while order:
            length = len(texts[order[-1]])
            rows = max(1, BATCH_TOKENS // max(1, length)) if length <= longest else 1
            chosen, order = order[-rows:], order[:-rows]
            some = [texts[number] for number in chosen]
            if length <= longest:
                totals[chosen] = _batch_nats(model, some, start_id)
            else:
                totals[chosen] = TextScorer(model, start_id=start_id).feed(some[0]).sum()
    return totals


def _batch_nats(model: LanguageModel, texts: list[NDArray[np.int64]], start_id: int) -> NDArray[np.float64]:
    """`total_nats` of texts in one batch. Padding comes after all tokens that count, so it needs no mask."""
    targets, mask = padded(texts)
    inputs = np.column_stack((np.full(len(texts), start_id), targets))[:, :-1]
    device = device_of(model)
    nats, _ = model.nats(
        torch.from_numpy(np.ascontiguousarray(inputs)).to(device), torch.from_numpy(targets).to(device)
    )
    totals: NDArray[np.float64] = np.where(mask, exact(nats).cpu().numpy(), 0.0).sum(1)
    return totals
