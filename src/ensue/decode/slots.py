"""The hypotheses that go on, and the continuations that were chosen, as arrays.

B inputs that are not done, S slots of each, t tokens, C required phrases, K continuations.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]


class Live(NamedTuple):
    """The hypotheses that go on."""

    inputs: Ids
    """The numbers (B,) of the inputs that are not done."""
    totals: NDArray[np.float64]
    """Log-probabilities (B, S); -∞ in a slot that is free."""
    history: Ids
    """All tokens so far (B, S, t)."""
    progress: Ids
    """The states (B, S, C) of the required phrases."""


class Chosen(NamedTuple):
    """The best continuations of each input (B, K), the best first."""

    parents: Ids
    """The slots of the hypotheses that they continue."""
    ids: Ids
    totals: NDArray[np.float64]
    """Log-probabilities; -∞ where there was nothing more to choose."""
    progress: Ids
    """The states (B, K, C) of the required phrases."""
