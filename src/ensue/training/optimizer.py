"""Optimizers, and which parameters they train; budgets, learning rates, and a running average of weights in training:

    θ̄_n = d_n θ̄_{n-1} + (1 - d_n) θ_n,   d_n = min(d, (1 + n) / (10 + n))

The average is the mean of about the last 1/(1 - d) steps (Polyak & Juditsky 1992). In place of the mean of the last
checkpoints, which is usual in translation (Vaswani et al. 2017), one copy of the weights is kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from inspect import unwrap
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from ensue.errors import RecipeError
from ensue.models.levels import levels_of
from ensue.models.modules import copied
from ensue.nn import MultiHeadAttention, SequenceLayer
from ensue.ranks import is_in_parts, local_part
from ensue.recipe import TrainRecipe
from ensue.recipe.tables import TuningRecipe

SCALE = 0.8
"""The number s of `Muon`, by validation losses of Transformers and LSTMs (docs/log, 2026-11-25)."""
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""The numbers a, b and c of `Muon`, by which five steps bring singular values between 0.001 and 1 near to 1."""


class Tuning:
    """Layer freezing, gradual unfreezing and per-layer learning rates, by the table `[tuning]`.

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


def orthogonalized(matrices: Float[Tensor, "n R C"]) -> Float[Tensor, "n R C"]:
    """Matrices with the singular vectors of `matrices`, and singular values of about 1."""
    if matrices.shape[1] > matrices.shape[2]:
        return orthogonalized(matrices.mT).mT
    a, b, c = COEFFICIENTS
    X: Tensor = matrices / torch.linalg.matrix_norm(matrices, keepdim=True).clamp(min=1e-7)
    for _ in range(5):
        A = X @ X.mT
        X = a * X + (b * A + c * A @ A) @ X
    return X


def layer_matrices(model: nn.Module) -> dict[nn.Parameter, int]:
    """The matrices of the layers between the input and the head; for each the number of matrices that its rows are."""
    blocks: dict[Tensor, int] = {}
    for module in model.modules():
        if isinstance(module, SequenceLayer):
            own = [p for p in module.parameters(recurse=False) if p.dim() == 2 and p.shape[0] % module.d_out == 0]
            blocks |= {parameter: parameter.shape[0] // module.d_out for parameter in own}
        if isinstance(module, MultiHeadAttention):
            parameter = module.project_in.weight
            blocks[parameter] = parameter.shape[0] // parameter.shape[1]
    parameters = (parameter for level in levels_of(model)[1:-1] for parameter in level.values())
    return {parameter: blocks.get(parameter, 1) for parameter in parameters if parameter.dim() == 2}


OptimizerT = TypeVar("OptimizerT", bound=torch.optim.Optimizer)


def eager(kind: type[OptimizerT]) -> type[OptimizerT]:
    """An optimizer without torch's wrappers for `torch.compile`, whose first call imports the compiler: 1 s, 55 MB."""
    for name in ("add_param_group", "load_state_dict", "state_dict", "zero_grad"):
        setattr(kind, name, unwrap(getattr(kind, name)))
    kind.step = torch.no_grad()(unwrap(kind.step))  # type: ignore[method-assign]
    return kind


@eager
class SGD(torch.optim.SGD):
    """Gradient descent with momentum."""


@eager
class AdamW(torch.optim.AdamW):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019)."""


class Muon(AdamW):
    """AdamW, and for the parameters of `matrices` momentum that is orthogonalized (Jordan et al. 2024).

    Five steps of Newton and Schulz bring the singular values of the momentum M near to 1. With X = M / |M|,

        A = X Xᵀ,   X ← a X + (b A + c A A) X

    A matrix that has more rows than columns is transposed. Gates are matrices of their own. A step moves a matrix of
    m x n by η s √max(m, n) X (Liu et al. 2025, where s is 0.2), so that the learning rates are of the size of AdamW's.
    `torch.optim.Muon` computes the same in bfloat16, which takes twenty times as long on a CPU without such products.
    """

    def __init__(
        self, groups: Iterable[dict[str, Any]], matrices: Mapping[nn.Parameter, int], *, lr: float,
        betas: tuple[float, float], fused: bool,
    ) -> None:  # fmt: skip
        super().__init__(groups, lr=lr, betas=betas, fused=fused)
        self.matrices = matrices

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Moves the parameters that have gradients. Those of the matrices are taken away."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter in self.matrices and parameter.grad is not None:
                    self._move(parameter, parameter.grad, group)
                    parameter.grad = None  # so that AdamW leaves it as it is
        super().step(closure)

    def _move(self, parameter: nn.Parameter, gradient: Tensor, group: Mapping[str, Any]) -> None:
        state, momentum = self.state[parameter], group["betas"][0]
        if not state:
            state |= {"step": torch.zeros(()), "momentum_buffer": torch.zeros_like(parameter)}
        state["step"] += 1
        mean = state["momentum_buffer"].lerp_(gradient, 1 - momentum)
        ahead = gradient.lerp(mean, momentum)  # as Nesterov has it
        moved = orthogonalized(ahead.reshape(self.matrices[parameter], -1, parameter.shape[1]))
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        parameter.sub_(moved.reshape(parameter.shape), alpha=group["lr"] * SCALE * max(moved.shape[1:]) ** 0.5)


def build_optimizer(model: nn.Module, recipe: TrainRecipe, tuning: Tuning | None = None) -> torch.optim.Optimizer:
    """AdamW (Loshchilov & Hutter 2019), SGD with momentum, or Muon, over the groups of `tuning`."""
    groups = (tuning or Tuning(model)).groups(recipe.weight_decay)
    parameters = [parameter for group in groups for parameter in group["params"]]
    fused = {parameter.device.type for parameter in parameters} <= {"cpu", "cuda"}
    if recipe.optimizer == "sgd":
        fused = fused and not any(map(is_in_parts, parameters))  # which torch 2.13 does not have
        return SGD(groups, lr=recipe.learning_rate, momentum=recipe.beta1, fused=fused)
    betas = (recipe.beta1, recipe.beta2)
    if recipe.optimizer == "muon":
        return Muon(groups, layer_matrices(model), lr=recipe.learning_rate, betas=betas, fused=fused)
    return AdamW(groups, lr=recipe.learning_rate, betas=betas, fused=fused)


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
    """The learning rate at `progress`: a linear warm-up over the share `warmup`, then the schedule's fall."""
    if progress < recipe.warmup:
        return recipe.learning_rate * progress / recipe.warmup
    if recipe.schedule == "inverse-sqrt":
        return recipe.learning_rate * math.sqrt(recipe.warmup / progress)
    after = (progress - recipe.warmup) / (1 - recipe.warmup)
    decays = {"linear": 1 - after, "cosine": 0.5 * (1 + math.cos(math.pi * after)), "constant": 1.0}
    return recipe.learning_rate * decays[recipe.schedule]


class Average:
    """The average of a model's weights: `model` is a copy, of `form` if it is given, with the averaged weights."""

    def __init__(self, model: nn.Module, decay: float, *, form: nn.Module | None = None) -> None:
        self.decay = decay
        weights = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
        self.model = copied(form or model, weights)

    def add(self, model: nn.Module, step: int) -> None:
        """Adds the weights after step number `step`, counted from 1.

        Weights that are not trained stay as they are. Some are -inf, of which there is no mean.
        """
        pairs = zip(self.model.parameters(), model.parameters(), strict=True)
        ours_and_theirs = (
            (local_part(ours), local_part(theirs.detach())) for ours, theirs in pairs if theirs.requires_grad
        )
        averaged, trained = zip(*ours_and_theirs, strict=True)
        decay = min(self.decay, (1 + step) / (10 + step))
        get_ema_multi_avg_fn(decay)(averaged, trained, step)  # type: ignore[no-untyped-call]
