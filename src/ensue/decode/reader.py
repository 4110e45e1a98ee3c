"""Reads prompts, and steps a model through texts of any length.

A recurrent or window model carries its state. Attention reads up to `model.context` tokens: when a row has filled its
context, the last half of it, with the newest token, is read again as a new beginning. So every token depends on at
least half a context. A memory, which the state has from its beginning, is kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from ensue.errors import EnsueError
from ensue.models.language_model import padded, read_prefixes
from ensue.models.modules import count_parameters, device_of
from ensue.types import State, select_rows

KERNEL_ROWS, KERNEL_PARAMETERS = 32, 1 << 20
"""From this many rows on, and up to this many parameters, `forward` for one token is faster than `step`. Measured for
LSTMs on a CPU (benchmarks/generation.py); for other layers it makes no difference.
"""


class ReadState(NamedTuple):
    """The state of a model with a context, and what it was computed from."""

    inner: State
    begun: State
    """The state before the first token."""
    ids: Int[Tensor, "B W"]
    """The tokens that were read, from the left; then anything."""
    lengths: Int[Tensor, " B"]


class Reader:
    """Steps `model`: a language model, or another with `step`, and for prompts `read`."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.context: int | None = getattr(model, "context", None)
        self.takes_kernels = hasattr(model, "read") and count_parameters(model) <= KERNEL_PARAMETERS

    def begin(self, rows: Sequence[NDArray[np.int64]], state: State = None) -> tuple[State, Int[Tensor, " B"]]:
        """The state after all tokens of each row but the last, and the last, which `step` reads next.

        `state` is that before the first token. Each row has a token, and at most as many as the context.
        """
        device = device_of(self.model)
        read, last = [row[:-1] for row in rows], torch.tensor([int(row[-1]) for row in rows], device=device)
        if self.context is None and getattr(self.model, "reads_alone", False):
            rows_of = (
                [0] * len(rows)
                if all(map(rows[0].tolist().__eq__, (row.tolist() for row in rows)))
                else range(len(rows))
            )
            begun = read_prefixes(self.model, read[: max(rows_of) + 1], state)
            begun = self.model.settled(begun, last[: max(rows_of) + 1])
            return select_rows(begun, torch.tensor(rows_of, device=device)), last
        if self.context is None:
            return read_prefixes(self.model, read, state), last
        ids = torch.zeros(len(rows), self.context + 1, dtype=torch.long, device=device)
        return ReadState(read_prefixes(self.model, read, state), state, *_filled(ids, read)), last

    def step(self, ids_t: Int[Tensor, " B"], state: State) -> tuple[Float[Tensor, "B V"], State]:
        """The scores of the next token after one more in each row, and the state after it."""
        if self.context is None:
            return self._stepped(ids_t, state)
        ids = state.ids.scatter(1, state.lengths.unsqueeze(1), ids_t.unsqueeze(1))
        inner, lengths = state.inner, state.lengths + 1
        if lengths.max() > self.context:
            half = max(1, self.context // 2)
            # rows that are not full are read again too, completely, since a state holds all rows
            starts = [0 if length <= self.context else length - half for length in lengths.tolist()]
            ends = zip(ids.cpu().numpy(), starts, lengths.tolist(), strict=True)
            rows = [row[start:end] for row, start, end in ends]
            inner = read_prefixes(self.model, [row[:-1] for row in rows], state.begun)
            ids, lengths = _filled(ids, rows)
        scores, inner = self._stepped(ids_t, inner)
        return scores, ReadState(inner, state.begun, ids, lengths)

    def _stepped(self, ids: Tensor, state: State) -> tuple[Tensor, State]:
        if self.takes_kernels and len(ids) >= KERNEL_ROWS:
            columns, state = self.model(ids.unsqueeze(1), state)
            return columns.squeeze(1), state
        scores, state = self.model.step(ids, state)
        return scores, state


def _filled(like: Tensor, rows: Sequence[NDArray[np.int64]]) -> tuple[Tensor, Tensor]:
    """The tokens of `rows` in a tensor of the size of `like`, and their lengths."""
    read, mask = padded(rows)
    ids = torch.zeros_like(like)
    ids[:, : read.shape[1]] = torch.from_numpy(read).to(like.device)
    return ids, torch.from_numpy(mask.sum(1)).to(like.device)


class Ensemble(nn.Module):
    """`P(w) = 1/M Σ_m P_m(w)` at every step. Its state is a tuple of those of the M models.

    Each model has a `step`. If all are modules, they can be watched as its parts. They must have the same vocabulary,
    id for id; the caller knows whether they have. Raises EnsueError if the numbers of their symbols differ.
    """

    def __init__(self, models: Sequence[Any]) -> None:
        super().__init__()
        assert models, "no model"
        are_modules = all(isinstance(model, nn.Module) for model in models)
        self.models: Any = nn.ModuleList(models) if are_modules else tuple(models)  # a compiled one is none
        sizes = {size for model in models if (size := getattr(model, "vocabulary_size", None)) is not None}
        if len(sizes) > 1:
            raise EnsueError(f"the models have vocabularies of {' and '.join(map(str, sorted(sizes)))} symbols")

    def step(self, ids_t: Int[Tensor, " R"], state: State = None) -> tuple[Float[Tensor, "R V"], State]:
        """The log-probabilities of the next token, and the states."""
        states = [None] * len(self.models) if state is None else state
        steps = [model.step(ids_t, part) for model, part in zip(self.models, states, strict=True)]
        return _mean([scores for scores, _ in steps]), tuple(after for _, after in steps)


def _mean(scores: list[Tensor]) -> Tensor:
    """The logarithm of the mean of probabilities, of which `scores` are logits or logarithms."""
    return torch.stack([of_model.log_softmax(-1) for of_model in scores]).logsumexp(0) - math.log(len(scores))
