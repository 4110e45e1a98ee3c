"""How much of its source a hypothesis has attended to, for the coverage penalty."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from ensue.errors import EnsueError
from ensue.nn import CopyingHead
from ensue.nn.attention.cross import CrossAttention, sources_in
from ensue.nn.taps import watch
from ensue.types import State

SMALLEST = 1e-38
"""The least attention of which a logarithm is taken."""


class Coverage:
    """Steps a model, and adds up the attention of each row to the positions of its source.

    The attention of a step is the mean over the heads of all `CrossAttention` in the model, in all models of an
    ensemble. Raises EnsueError for a model that has none.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.taps = attention_taps(model) if isinstance(model, nn.Module) else []
        if not self.taps:
            raise EnsueError("the coverage penalty needs a model that attends to a source")

    def step(self, ids: Tensor, state: State, so_far: Tensor | None) -> tuple[Tensor, State, Float[Tensor, "R S"]]:
        """The scores and the state after one more token, and the attention after it."""
        with watch(self.model, *self.taps) as seen:
            scores, state = self.model.step(ids, state)
        weights = torch.stack([found[-1][:, :, -1].mean(1) for found in seen.values()]).mean(0)
        return scores, state, weights if so_far is None else so_far + weights


def attention_taps(model: nn.Module) -> list[str]:
    """The names of the weights of all layers that attend to a source; a head that copies has weights of its own."""
    heads = tuple(f"{name}." for name, part in model.named_modules() if isinstance(part, CopyingHead))
    found = ((f"{name}.weights".lstrip("."), part) for name, part in model.named_modules())
    return [name for name, part in found if isinstance(part, CrossAttention) and not name.startswith(heads)]


def covered(attention: Float[Tensor, "R S"], state: State) -> NDArray[np.float64]:
    """Σ_i ln min(Σ_t a_ti, 1) of each row, over the real positions of its source (Wu et al. 2016, eq. 14)."""
    source, rows = next(sources_in(state))
    logarithms = attention.cpu().double().clamp(SMALLEST, 1).log()
    found: NDArray[np.float64] = logarithms.where(source.real[rows].cpu(), 0.0).sum(1).numpy()
    return found
