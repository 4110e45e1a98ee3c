"""Which parameters of a model are trained in a step, and how fast: by their level, and by whether they are new."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ensue.errors import RecipeError
from ensue.models.levels import levels_of
from ensue.recipe.tables import TuningRecipe


class Tuning:
    """The table `[tuning]` at work on a model.

    `inherited` are the parameters that come from another run, by name; for a table of which some rows are new, True at
    those (V,) that are not. What is trained follows from the share of the budget that is used, so a run that was
    stopped goes on with the same bits. Raises RecipeError for a table that does not fit the model.
    """

    def __init__(
        self, model: nn.Module, recipe: TuningRecipe | None = None, inherited: Mapping[str, Tensor | None] | None = None
    ) -> None:
        recipe = recipe or TuningRecipe()
        self.recipe, self.levels, self._is_used = recipe, levels_of(model), recipe != TuningRecipe()
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        kept = inherited or {}
        self.new = {p for level in self.levels for name, p in level.items() if kept.get(name, p) is not None}
        self.old_rows = [
            (p, rows) for level in self.levels for name, p in level.items() if (rows := kept.get(name)) is not None
        ]
        self._check(has_origin=bool(kept))

    def _check(self, *, has_origin: bool) -> None:
        top = len(self.levels) - 1
        if self.recipe.freeze > top:
            raise RecipeError(
                f"tuning.freeze is {self.recipe.freeze}; this model has {top} levels below its head: its input, and "
                f"{top - 1} layers"
            )
        if self.recipe.new_first and not (has_origin and self.new):
            found = "all of it comes from another run" if has_origin else "nothing comes from another run"
            raise RecipeError(f"tuning.new_first trains what is new first; {found}")
        if self._is_used and not any(self.levels[self._lowest(0) :]):
            raise RecipeError("tuning: nothing is left to train; the head of this model has no parameters of its own")

    def groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """The groups of an optimizer. Weight decay acts on matrices only. Levels that learn equally fast are one."""
        if self.recipe.layer_decay == 1:
            return self._of(self._parameters, 1.0, weight_decay)
        found = []
        for below, level in enumerate(reversed(self.levels)):  # the head first, which has the whole learning rate
            found += self._of(list(level.values()), self.recipe.layer_decay**below, weight_decay)
        return found

    def _of(self, parameters: list[nn.Parameter], scale: float, weight_decay: float) -> list[dict[str, Any]]:
        partly = {parameter for parameter, _ in self.old_rows}
        parts = [
            ([p for p in parameters if p.dim() >= 2 and p not in partly], weight_decay, False),
            ([p for p in parameters if p.dim() < 2 and p not in partly], 0.0, False),
            ([p for p in parameters if p in partly], weight_decay, True),
        ]
        return [
            {"params": some, "weight_decay": decay, "decay": decay, "scale": scale, "partly": is_partly}
            for some, decay, is_partly in parts
            if some
        ]

    def begin_step(self, optimizer: torch.optim.Optimizer, learning_rate: float, share: float) -> None:
        """Prepares a step that begins when this share of the budget is used."""
        only_new = share < self.recipe.new_first
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * group["scale"]
            group["weight_decay"] = 0.0 if only_new and group["partly"] else group["decay"]
        if not self._is_used:
            return
        lowest = self._lowest(share)
        for number, level in enumerate(self.levels):
            for parameter in level.values():
                parameter.requires_grad_(parameter in self.new if only_new else number >= lowest)

    def hold_old_rows(self, share: float) -> None:
        """Takes the gradients from rows that are not new, as long as only what is new is trained."""
        if share < self.recipe.new_first:
            for parameter, rows in self.old_rows:
                if parameter.grad is not None:
                    parameter.grad[rows.to(parameter.grad.device)] = 0.0

    def _lowest(self, share: float) -> int:
        """The lowest level that is trained."""
        top, freeze, unfreeze = len(self.levels) - 1, self.recipe.freeze, self.recipe.unfreeze
        lowest = top if freeze < 0 else freeze
        return max(lowest, top - math.floor(share / unfreeze + 1e-9)) if unfreeze else lowest
