"""Functions for any model: size, device, copies, evaluation mode, bfloat16."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from inspect import unwrap
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ensue.nn import MultiHeadAttention, MultiHeadCrossAttention
from ensue.nn.attention.blocks import FeedForward
from ensue.nn.layer import Recurrent

ModelT = TypeVar("ModelT", bound=nn.Module)
OptimizerT = TypeVar("OptimizerT", bound=torch.optim.Optimizer)
TRANSFORMER_LAYERS = (MultiHeadAttention, MultiHeadCrossAttention, FeedForward)


def count_parameters(model: nn.Module) -> int:
    """Return the number of floating-point parameters, trained or frozen. Shared parameters count once."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.is_floating_point())


def device_of(model: nn.Module) -> torch.device:
    """Return the device of a model's parameters."""
    return next(model.parameters()).device


def copy_with_parameters(model: ModelT, parameters: Mapping[str, Tensor]) -> ModelT:
    """Return a copy of a model with these tensors as frozen parameters, by name. The tensors are not copied."""
    memo = {id(old): nn.Parameter(parameters[name], requires_grad=False) for name, old in model.named_parameters()}
    return deepcopy(model, memo)


def all_modules(model: nn.Module) -> list[nn.Module]:
    """Return the model and all its submodules, shared submodules repeatedly. It is faster than `model.modules()`."""
    modules = [model]
    for module in modules:  # grows during the loop
        modules += [child for child in module._modules.values() if child is not None]
    return modules


def unwrap_methods(cls: type[OptimizerT]) -> type[OptimizerT]:
    """Remove torch's wrappers of an optimizer's methods. Their first call imports `torch.compile` (1 s, 55 MB)."""
    for name in ("add_param_group", "load_state_dict", "state_dict", "zero_grad"):
        setattr(cls, name, unwrap(getattr(cls, name)))
    cls.step = torch.no_grad()(unwrap(cls.step))  # type: ignore[method-assign]
    return cls


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode during a `with` block, then restore the mode of each submodule."""
    training = [module for module in all_modules(model) if module.training]
    if training:
        model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def put_in_bfloat16(model: nn.Module) -> bool:
    """Let Transformer blocks and recurrent layers use bfloat16 products, for inference; return whether any exist."""
    layers = [module for module in model.modules() if isinstance(module, TRANSFORMER_LAYERS)]
    maps = [child for layer in layers for child in layer.children() if type(child) is nn.Linear]
    for linear in maps:
        linear.to(torch.bfloat16).__class__ = Bfloat16Linear
    recurrent = [module for module in model.modules() if isinstance(module, Recurrent)]
    for layer in recurrent:
        layer.in_bfloat16 = True
    return bool(maps or recurrent)


class Bfloat16Linear(nn.Linear):
    """A linear map with weights in bfloat16, which converts its input to bfloat16."""

    takes_any_type = True

    def forward(self, input: Tensor) -> Tensor:
        """Return the output in bfloat16."""
        return F.linear(input.to(self.weight.dtype), self.weight, self.bias)
