"""Reads prefixes of different lengths together, in constant memory, and returns their final states.

`tasks` scores and `decode` samples from these states.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from ensue.models.language_model import LanguageModel
from ensue.models.modules import device_of
from ensue.types import State

PIECE_TOKENS = 4096
"""The number of tokens, over all rows, that are read at a time."""


def read_prefixes(model: LanguageModel, rows: Sequence[NDArray[np.int64]], state: State = None) -> State:
    """The state after each row's last token, from `state`; that of an empty row is as it was.

    Memory does not grow with the length of the rows, except for attention.
    """
    device = device_of(model)
    columns = max(1, PIECE_TOKENS // len(rows))
    for start in range(0, max(len(row) for row in rows), columns):
        ids, mask = padded([row[start : start + columns] for row in rows])
        piece_mask = None if mask.all() else torch.from_numpy(mask).to(device)
        _, state = model.read(torch.from_numpy(ids).to(device), state, mask=piece_mask)
    return state


def padded(rows: Sequence[NDArray[np.int64]], value: int = 0) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """`rows` as one array (B, T), padded with a value on the right, and the mask (B, T) of its real places."""
    lengths = np.array([len(row) for row in rows])
    mask = np.arange(lengths.max(initial=0)) < lengths[:, None]
    ids = np.full(mask.shape, value, np.int64)
    ids[mask] = np.concatenate(rows)
    return ids, mask
