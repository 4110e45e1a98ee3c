"""Budgets and learning rates over them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from ensue.recipe import TrainRecipe


@dataclass(frozen=True)
class Budget:
    """How long a run trains: a number of `steps`, or of `seconds` of training steps."""

    steps: int | None = None
    seconds: float | None = None

    @classmethod
    def of(cls, recipe: TrainRecipe, *, steps_per_epoch: int, tokens_per_step: float) -> Budget:
        """The budget of a recipe. Epochs and tokens are converted to steps, rounded up."""
        if recipe.seconds is not None:
            return cls(seconds=recipe.seconds)
        if recipe.steps is not None:
            return cls(steps=recipe.steps)
        if recipe.epochs is not None:
            return cls(steps=math.ceil(recipe.epochs * steps_per_epoch))
        assert recipe.tokens is not None
        return cls(steps=math.ceil(recipe.tokens / tokens_per_step))

    def progress(self, step: int, seconds: float) -> float:
        """The share of the budget that is used, from 0 to 1, after `step` steps in `seconds` seconds."""
        if self.steps is not None:
            return min(1.0, step / self.steps)
        assert self.seconds is not None
        return min(1.0, seconds / self.seconds)


def learning_rate(recipe: TrainRecipe, progress: float) -> float:
    """The learning rate at `progress`: a linear warm-up over the share `warmup` of the budget, then the schedule's
    fall.
    """
    if progress < recipe.warmup:
        return recipe.learning_rate * progress / recipe.warmup
    if recipe.schedule == "inverse-sqrt":
        return recipe.learning_rate * math.sqrt(recipe.warmup / progress)
    return recipe.learning_rate * _decay(recipe.schedule, (progress - recipe.warmup) / (1 - recipe.warmup))


def _decay(schedule: Literal["linear", "cosine", "constant"], progress: float) -> float:
    match schedule:
        case "linear":
            return 1 - progress
        case "cosine":
            return 0.5 * (1 + math.cos(math.pi * progress))
    return 1.0
