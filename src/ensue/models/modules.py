"""Functions for any model: size, device, copies, evaluation mode, precision."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from inspect import unwrap
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ensue.engine import int8_linear
from ensue.nn import MultiHeadAttention, MultiHeadCrossAttention, SoftmaxHead
from ensue.nn.attention.blocks import FeedForward
from ensue.nn.layer import Recurrent
from ensue.processor import InferencePrecision

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
    """Return the model and all submodules, including repetitions of shared ones; faster than `model.modules()`."""
    modules = [model]
    for module in modules:  # grows during the loop
        modules += [child for child in module._modules.values() if child is not None]
    return modules


def unwrap_methods(cls: type[OptimizerT]) -> type[OptimizerT]:
    """Remove torch's wrappers of an optimizer's methods, whose first call imports `torch.compile` (1 s, 55 MB)."""
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


def put_in_precision(model: nn.Module, precision: InferencePrecision) -> bool:
    """Let Transformer blocks, recurrent layers and (in int8) softmax heads use products of a precision, for inference.

    Returns whether the model has any of these.
    """
    kinds = (Recurrent, SoftmaxHead) if precision == "int8" else Recurrent
    layers = [module for module in model.modules() if isinstance(module, kinds)]
    blocks = (module for module in model.modules() if isinstance(module, TRANSFORMER_LAYERS))
    maps = [child for block in blocks for child in block.children() if type(child) is nn.Linear]
    for layer in layers:
        setattr(layer, f"in_{precision}", True)
    for linear in maps:
        if precision == "bfloat16":
            linear.to(torch.bfloat16)
        linear.__class__ = Bfloat16Linear if precision == "bfloat16" else Int8Linear
    return bool(maps or layers)


class Bfloat16Linear(nn.Linear):
    """A linear map with weights in bfloat16, which converts its input to bfloat16."""

    takes_any_type = True

    def forward(self, input: Tensor) -> Tensor:
        """Return the output in bfloat16."""
        return F.linear(input.to(self.weight.dtype), self.weight, self.bias)


class Int8Linear(nn.Linear):
    """A linear map that multiplies int8 numbers, except with gradients."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the output in float32."""
        return int8_linear(self, input, self.weight, self.bias)
