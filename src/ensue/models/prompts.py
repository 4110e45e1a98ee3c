"""Reads prefixes of different lengths together, in constant memory, and returns their final states.

`tasks` scores and `decode` samples from these states.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from ensue.models.language_model import LanguageModel
from ensue.models.modules import device_of
from ensue.types import State

PIECE_TOKENS = 4096
"""The number of tokens, over all rows, that are read at a time."""


def read_prefixes(model: LanguageModel, rows: Sequence[NDArray[np.int64]]) -> tuple[Float[Tensor, "B d"], State]:
    """The features after each row's last token (zeros for an empty row), which the head reads, and the final state.

    At least one row must have a token. Memory does not grow with the length of the rows, except for attention.
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
    """`rows` as one array (B, T), padded with zeros on the right, and the mask (B, T) of its real places."""
    lengths = np.array([len(row) for row in rows])
    mask = np.arange(lengths.max(initial=0)) < lengths[:, None]
    ids = np.zeros(mask.shape, np.int64)
    ids[mask] = np.concatenate(rows)
    return ids, mask
