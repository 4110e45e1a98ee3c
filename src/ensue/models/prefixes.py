"""Reading beginnings of different lengths side by side, in constant memory, to go on from the states they leave.

It neither scores nor samples: `tasks` and `decode` do, from here on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from ensue.models.language_model import LanguageModel
from ensue.types import State

PIECE_TOKENS = 4096
"""Tokens of all rows together that are read at a time."""


def read_prefixes(model: LanguageModel, rows: Sequence[NDArray[np.int64]]) -> tuple[Float[Tensor, "B d"], State]:
    """What the head sees after each row's last token (zeros for an empty row), and the state there.

    At least one row must have a token. Memory does not grow with the rows' length unless the model is attention.
    """
    longest = max(len(row) for row in rows)
    assert longest > 0, "nothing to read"
    device, dtype = device_of(model), next(model.parameters()).dtype
    last = torch.zeros(len(rows), model.layers.d_out, device=device, dtype=dtype)
    state: State = None
    columns = max(1, PIECE_TOKENS // len(rows))
    for start in range(0, longest, columns):
        ids, mask = padded([row[start : start + columns] for row in rows])
        counts = torch.from_numpy(mask.sum(1)).to(device)
        piece_mask = None if mask.all() else torch.from_numpy(mask).to(device)
        h, state = model.layers(model.features(torch.from_numpy(ids).to(device)), state, mask=piece_mask)
        ends = h[torch.arange(len(rows), device=device), (counts - 1).clamp(min=0)]
        last = torch.where((counts > 0).unsqueeze(1), ends, last)
    return last, state


def padded(rows: Sequence[NDArray[np.int64]]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """`rows` as one array (B, T), filled up with zeros on the right, and which of its places are real."""
    lengths = np.array([len(row) for row in rows])
    mask = np.arange(lengths.max(initial=0)) < lengths[:, None]
    ids = np.zeros(mask.shape, np.int64)
    ids[mask] = np.concatenate(rows)
    return ids, mask


def device_of(model: nn.Module) -> torch.device:
    """Where a model's parameters are."""
    return next(model.parameters()).device


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model without dropout, for as long as the block lasts."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)
