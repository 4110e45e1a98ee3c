"""Muon (Jordan et al. 2024): momentum whose matrices are orthogonalized, so that a matrix learns in all directions.

Five steps of Newton and Schulz bring the singular values of the momentum M near to 1. With X = M / |M|,

    A = X Xᵀ,   X ← a X + (b A + c A A) X

A matrix that has more rows than columns is transposed. Gates are matrices of their own. A step moves a matrix of m x n
by η s √max(m, n) X (Liu et al. 2025, where s is 0.2), so that the learning rates are of the size of AdamW's.

`torch.optim.Muon` computes the same in bfloat16, which takes twenty times as long on a CPU that has no such products.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from inspect import unwrap
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ensue.models.levels import levels_of
from ensue.nn import MultiHeadAttention, SequenceLayer

SCALE = 0.8
"""The number s, by validation losses of Transformers and LSTMs (docs/log, 2026-11-25)."""


COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""The numbers a, b and c, by which five steps bring singular values between 0.001 and 1 near to 1."""


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
    """AdamW, and for the parameters of `matrices` momentum that is orthogonalized."""

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
