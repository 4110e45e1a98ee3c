"""Optimizers, budgets, learning rates, layer freezing, and the running average of weights.

The average after step n is, with the recipe's decay d (Polyak & Juditsky 1992),

    θ̄_n = d_n θ̄_{n-1} + (1 - d_n) θ_n,   d_n = min(d, (1 + n) / (10 + n))

The average is about the mean over the last 1/(1 - d) steps. A running average needs one copy of the weights, whereas an
average of checkpoints (Vaswani et al. 2017) needs several copies.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from ensue.errors import RecipeError
from ensue.models.modules import copy_with_parameters, unwrap_methods
from ensue.nn import Bidirectional, LearnedPositions, MultiHeadAttention, Pointwise, SequenceLayer, Stack
from ensue.nn.attention.blocks import PostNormDecoderBlock
from ensue.ranks import is_sharded, local_shard
from ensue.recipe import TrainRecipe
from ensue.recipe.tables import TuningRecipe

MUON_SCALE = 0.8
"""The factor s of `Muon`, chosen by validation losses of Transformers and LSTMs (docs/log, 2026-11-25)."""
MUON_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""The coefficients a, b and c of `Muon`. Five iterations move singular values between 0.001 and 1 close to 1."""


Level = dict[str, nn.Parameter]
"""The parameters of a level of a model, by name."""


class Tuning:
    """Layer freezing, gradual unfreezing and per-layer learning rates, by the table `[tuning]`.

    The trained parameters depend on the used share of the budget only, so a resumed run trains the same parameters.
    `inherited` maps the names of parameters from another run to None, or, for an embedding table with new rows, to the
    mask (V,) of the inherited rows. Raises RecipeError if the table does not fit the model.
    """

    def __init__(
        self, model: nn.Module, recipe: TuningRecipe | None = None, inherited: Mapping[str, Tensor | None] | None = None
    ) -> None:
        recipe = recipe or TuningRecipe()
        self.recipe, self.levels, self._is_used = recipe, split_levels(model), recipe != TuningRecipe()
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        inherited = inherited or {}
        self.new = {p for level in self.levels for name, p in level.items() if inherited.get(name, p) is not None}
        self.inherited_rows = [
            (p, rows) for level in self.levels for name, p in level.items() if (rows := inherited.get(name)) is not None
        ]
        self._check(has_origin=bool(inherited))

    def _check(self, *, has_origin: bool) -> None:
        top = len(self.levels) - 1
        if self.recipe.freeze > top:
            raise RecipeError(
                f"tuning.freeze is {self.recipe.freeze}; expected at most {top}: the model has its input and {top - 1} "
                "layers below the head"
            )
        if self.recipe.new_first and not (has_origin and self.new):
            actual = "all parameters come" if has_origin else "no parameter comes"
            raise RecipeError(f"tuning.new_first trains new parameters first; {actual} from another run")
        if self._is_used and not any(self.levels[self._lowest_trained_level(0) :]):
            raise RecipeError("tuning: no parameter is trained; the head of this model has no parameters")

    def build_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """Return the parameter groups of an optimizer. Weight decay acts on matrices only."""
        if self.recipe.layer_decay == 1:
            return self._make_groups(self._parameters, 1.0, weight_decay)
        groups = []
        for depth, level in enumerate(reversed(self.levels)):  # the head has depth 0
            groups += self._make_groups(list(level.values()), self.recipe.layer_decay**depth, weight_decay)
        return groups

    def _make_groups(self, parameters: list[nn.Parameter], scale: float, weight_decay: float) -> list[dict[str, Any]]:
        extended = {parameter for parameter, _ in self.inherited_rows}  # tables with inherited and new rows
        groups = [
            ([p for p in parameters if p.dim() >= 2 and p not in extended], weight_decay, False),
            ([p for p in parameters if p.dim() < 2 and p not in extended], 0.0, False),
            ([p for p in parameters if p in extended], weight_decay, True),
        ]
        return [
            {"params": members, "weight_decay": decay, "decay": decay, "scale": scale, "partly": is_extended}
            for members, decay, is_extended in groups
            if members
        ]

    def begin_step(self, optimizer: torch.optim.Optimizer, learning_rate: float, share: float) -> None:
        """Set learning rates, weight decay and `requires_grad` for the next step, at this share of the budget."""
        only_new = share < self.recipe.new_first
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * group["scale"]
            group["weight_decay"] = 0.0 if only_new and group["partly"] else group["decay"]
        if not self._is_used:
            return
        lowest = self._lowest_trained_level(share)
        for number, level in enumerate(self.levels):
            for parameter in level.values():
                parameter.requires_grad_(parameter in self.new if only_new else number >= lowest)

    def freeze_inherited_rows(self, share: float) -> None:
        """Set the gradients of inherited rows to 0 while only new parameters are trained."""
        if share < self.recipe.new_first:
            for parameter, rows in self.inherited_rows:
                if parameter.grad is not None:
                    parameter.grad[rows.to(parameter.grad.device)] = 0.0

    def _lowest_trained_level(self, share: float) -> int:
        top, freeze, unfreeze = len(self.levels) - 1, self.recipe.freeze, self.recipe.unfreeze
        lowest = top if freeze < 0 else freeze
        return max(lowest, top - math.floor(share / unfreeze + 1e-9)) if unfreeze else lowest


def orthogonalize(matrices: Float[Tensor, "n R C"]) -> Float[Tensor, "n R C"]:
    """Return matrices with the singular vectors of `matrices` and singular values close to 1."""
    if matrices.shape[1] > matrices.shape[2]:
        return orthogonalize(matrices.mT).mT
    a, b, c = MUON_COEFFICIENTS
    X: Tensor = matrices / torch.linalg.matrix_norm(matrices, keepdim=True).clamp(min=1e-7)
    for _ in range(5):
        A = X @ X.mT
        X = a * X + (b * A + c * A @ A) @ X
    return X


def layer_matrices(model: nn.Module) -> dict[nn.Parameter, int]:
    """Return the weight matrices between the input and the head, with the number of gates stacked in their rows."""
    blocks: dict[Tensor, int] = {}
    for module in model.modules():
        if isinstance(module, SequenceLayer):
            for parameter in module.parameters(recurse=False):
                if parameter.dim() == 2 and parameter.shape[0] % module.d_out == 0:
                    blocks[parameter] = parameter.shape[0] // module.d_out
        if isinstance(module, MultiHeadAttention):
            weight = module.project_in.weight
            blocks[weight] = weight.shape[0] // weight.shape[1]
    parameters = (parameter for level in split_levels(model)[1:-1] for parameter in level.values())
    return {parameter: blocks.get(parameter, 1) for parameter in parameters if parameter.dim() == 2}


@unwrap_methods
class SGD(torch.optim.SGD):
    """Gradient descent with momentum."""


@unwrap_methods
class AdamW(torch.optim.AdamW):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019)."""


class Muon(AdamW):
    """Muon for the parameters of `matrices` (Jordan et al. 2024), and AdamW for all other parameters.

    Five Newton-Schulz iterations move the singular values of the momentum M close to 1. With X = M / |M|,

        A = X Xᵀ,   X ← a X + (b A + c A A) X

    A matrix with more rows than columns is transposed. If a parameter stacks the matrices of several gates (their
    number is the value in `matrices`), each matrix is orthogonalized separately. A step changes an m x n matrix by
    η s √max(m, n) X (Liu et al. 2025, where s is 0.2), so that good learning rates are close to those of AdamW.
    `torch.optim.Muon` iterates in bfloat16, which takes twenty times as long on a CPU without bfloat16 instructions.
    """

    def __init__(
        self, groups: Iterable[dict[str, Any]], matrices: Mapping[nn.Parameter, int], *, lr: float,
        betas: tuple[float, float], fused: bool,
    ) -> None:  # fmt: skip
        super().__init__(groups, lr=lr, betas=betas, fused=fused)
        self.matrices = matrices

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update the parameters that have gradients. The gradients of the matrices are set to None."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter in self.matrices and parameter.grad is not None:
                    self._update(parameter, parameter.grad, group)
                    parameter.grad = None  # AdamW skips parameters without gradients
        super().step(closure)

    def _update(self, parameter: nn.Parameter, gradient: Tensor, group: Mapping[str, Any]) -> None:
        state, momentum = self.state[parameter], group["betas"][0]
        if not state:
            state |= {"step": torch.zeros(()), "momentum_buffer": torch.zeros_like(parameter)}
        state["step"] += 1
        mean = state["momentum_buffer"].lerp_(gradient, 1 - momentum)
        ahead = gradient.lerp(mean, momentum)  # Nesterov momentum
        update = orthogonalize(ahead.reshape(self.matrices[parameter], -1, parameter.shape[1]))
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        parameter.sub_(update.reshape(parameter.shape), alpha=group["lr"] * MUON_SCALE * max(update.shape[1:]) ** 0.5)


def build_optimizer(model: nn.Module, recipe: TrainRecipe, tuning: Tuning | None = None) -> torch.optim.Optimizer:
    """Return the recipe's optimizer over the parameter groups of `tuning`."""
    groups = (tuning or Tuning(model)).build_groups(recipe.weight_decay)
    parameters = [parameter for group in groups for parameter in group["params"]]
    fused = {parameter.device.type for parameter in parameters} <= {"cpu", "cuda"}
    if recipe.optimizer == "sgd":
        fused = fused and not any(map(is_sharded, parameters))  # torch 2.13 has no fused SGD for DTensors
        return SGD(groups, lr=recipe.learning_rate, momentum=recipe.beta1, fused=fused)
    betas = (recipe.beta1, recipe.beta2)
    if recipe.optimizer == "muon":
        return Muon(groups, layer_matrices(model), lr=recipe.learning_rate, betas=betas, fused=fused)
    return AdamW(groups, lr=recipe.learning_rate, betas=betas, fused=fused)


def num_steps(recipe: TrainRecipe, *, steps_per_epoch: int, tokens_per_step: float) -> int | None:
    """Return the budget of a recipe in steps. Epochs and tokens are rounded up. None: the budget is in seconds."""
    if recipe.epochs is not None:
        return math.ceil(recipe.epochs * steps_per_epoch)
    return recipe.steps if recipe.tokens is None else math.ceil(recipe.tokens / tokens_per_step)


def learning_rate(recipe: TrainRecipe, progress: float) -> float:
    """Return the learning rate at the used share `progress` of the budget: linear warm-up, then the schedule."""
    if progress < recipe.warmup:
        return recipe.learning_rate * progress / recipe.warmup
    if recipe.schedule == "inverse-sqrt":
        return recipe.learning_rate * math.sqrt(recipe.warmup / progress)
    after = (progress - recipe.warmup) / (1 - recipe.warmup)
    decays = {"linear": 1 - after, "cosine": 0.5 * (1 + math.cos(math.pi * after)), "constant": 1.0}
    return recipe.learning_rate * decays[recipe.schedule]


class Average:
    """The running average of a model's weights. The attribute `model` has the averaged weights, in a copy of `skeleton`
    or, by default, of the trained model.
    """

    def __init__(self, model: nn.Module, decay: float, *, skeleton: nn.Module | None = None) -> None:
        self.decay = decay
        weights = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
        self.model = copy_with_parameters(skeleton or model, weights)

    def add(self, model: nn.Module, step: int) -> None:
        """Add the weights after step number `step`, counted from 1, except frozen weights, which may be -inf."""
        pairs = zip(self.model.parameters(), model.parameters(), strict=True)
        shards = ((local_shard(mean), local_shard(new.detach())) for mean, new in pairs if new.requires_grad)
        averaged, trained = zip(*shards, strict=True)
        decay = min(self.decay, (1 + step) / (10 + step))
        get_ema_multi_avg_fn(decay)(averaged, trained, step)  # type: ignore[no-untyped-call]


def split_levels(model: nn.Module) -> list[Level]:
    """Return the trained parameters of each level by name, the lowest level first.

    Level 0 has the modules before the first layer: embeddings, positions, a projection of the input. Each layer, with
    the normalization after it, is a level. The last level has the head. A parameter that several modules share belongs
    to the lowest of the modules' levels. A module with several layers, such as a grid, is one level. Modules are in the
    order of `modules_in_order`, if the model has this method, else in the order of its children.
    """
    names = {parameter: name for name, parameter in model.named_parameters()}
    levels: list[list[nn.Parameter]] = [[]]
    for module in _modules_below_head(model):
        if isinstance(module, SequenceLayer) and not isinstance(module, Pointwise | LearnedPositions):
            levels.append([])
        levels[-1].extend(module.parameters())
    levels.append(list(model.parameters()))
    named = [[(names.pop(parameter), parameter) for parameter in level if parameter in names] for level in levels]
    return [{name: parameter for name, parameter in level if parameter.requires_grad} for level in named]


def _modules_below_head(model: nn.Module) -> Iterator[nn.Module]:
    """Yield the modules of a model up to its last layer: first the modules without layers, then the layers."""
    children: Callable[[], Iterator[nn.Module]] = getattr(model, "modules_in_order", model.children)
    modules = list(children())
    has_layers = [any(isinstance(inner, SequenceLayer) for inner in module.modules()) for module in modules]
    end = len(modules) - has_layers[::-1].index(True) if any(has_layers) else 0
    yield from (module for module, is_deep in zip(modules[:end], has_layers, strict=False) if not is_deep)
    for module, is_deep in zip(modules, has_layers, strict=True):
        if is_deep:
            yield from _iterate_layers(module)


def called_layers(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the layers of stacks whose parameters only `forward` reads.

    For a block with cross-attention, whose `init_state` reads parameters, yield self-attention and feed-forward only.
    """
    if isinstance(module, Stack):
        for layer in module:
            if isinstance(layer, Stack):
                yield from called_layers(layer)
            elif isinstance(layer, PostNormDecoderBlock):
                yield from (layer.attention, layer.feedforward)
            elif layer.d_memory is None and any(parameter.dim() > 1 for parameter in layer.parameters()):
                yield layer
    elif isinstance(module, Bidirectional) or not isinstance(module, SequenceLayer):
        for child in module.children():
            yield from called_layers(child)


def _iterate_layers(module: nn.Module) -> Iterator[nn.Module]:
    if isinstance(module, Stack):
        for layer in module:
            yield from _iterate_layers(layer)
    elif isinstance(module, SequenceLayer):
        yield module
    else:
        yield from _modules_below_head(module)
