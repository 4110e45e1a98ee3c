"""Several models as one: the mean of their probabilities."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ensue.errors import EnsueError
from ensue.types import State


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
