"""Reads prompts, and steps a model through texts of any length.

A recurrent or window model carries its state. Attention reads up to `model.context` tokens: when a row has filled its
context, the last half of it, with the newest token, is read again as a new beginning. So every token depends on at
least half a context. A memory, which the state has from its beginning, is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from ensue.models.modules import count_parameters, device_of
from ensue.models.prompts import padded, read_prefixes
from ensue.types import State

KERNEL_ROWS, KERNEL_PARAMETERS = 32, 1 << 20
"""From this many rows on, and up to this many parameters, `forward` for one token is faster than `step`. Measured for
LSTMs on a CPU (benchmarks/generation.py); for other layers it makes no difference.
"""


class WindowState(NamedTuple):
    """The state of a model with a context, and what it was computed from."""

    inner: State
    begun: State
    """The state before the first token."""
    window: Int[Tensor, "B W"]
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
        if self.context is None:
            return read_prefixes(self.model, read, state), last
        window = torch.zeros(len(rows), self.context + 1, dtype=torch.long, device=device)
        return WindowState(read_prefixes(self.model, read, state), state, *_filled(window, read)), last

    def step(self, ids_t: Int[Tensor, " B"], state: State) -> tuple[Float[Tensor, "B V"], State]:
        """The scores of the next token after one more in each row, and the state after it."""
        if self.context is None:
            return self._stepped(ids_t, state)
        window = state.window.scatter(1, state.lengths.unsqueeze(1), ids_t.unsqueeze(1))
        inner, lengths = state.inner, state.lengths + 1
        if lengths.max() > self.context:
            half = max(1, self.context // 2)
            # rows that are not full are read again too, completely, since a state holds all rows
            starts = [0 if length <= self.context else length - half for length in lengths.tolist()]
            ends = zip(window.cpu().numpy(), starts, lengths.tolist(), strict=True)
            rows = [row[start:end] for row, start, end in ends]
            inner = read_prefixes(self.model, [row[:-1] for row in rows], state.begun)
            window, lengths = _filled(window, rows)
        scores, inner = self._stepped(ids_t, inner)
        return scores, WindowState(inner, state.begun, window, lengths)

    def _stepped(self, ids: Tensor, state: State) -> tuple[Tensor, State]:
        if self.takes_kernels and len(ids) >= KERNEL_ROWS:
            columns, state = self.model(ids.unsqueeze(1), state)
            return columns.squeeze(1), state
        scores, state = self.model.step(ids, state)
        return scores, state


def _filled(window: Tensor, rows: Sequence[NDArray[np.int64]]) -> tuple[Tensor, Tensor]:
    """A window of the same size with `rows`, and their lengths."""
    ids, mask = padded(rows)
    window = torch.zeros_like(window)
    window[:, : ids.shape[1]] = torch.from_numpy(ids).to(window.device)
    return window, torch.from_numpy(mask.sum(1)).to(window.device)
