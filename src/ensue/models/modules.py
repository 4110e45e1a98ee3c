"""Properties of any model: its size, its device, its mode, its precision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ensue.nn import MultiHeadAttention, MultiHeadCrossAttention
from ensue.nn.attention.blocks import FeedForward
from ensue.nn.layer import Recurrent

ModelT = TypeVar("ModelT", bound=nn.Module)
OF_TRANSFORMERS = (MultiHeadAttention, MultiHeadCrossAttention, FeedForward)


def count_parameters(model: nn.Module) -> int:
    """The number of all parameters, also of frozen ones; shared ones are counted once, whole numbers are none."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.is_floating_point())


def device_of(model: nn.Module) -> torch.device:
    """The device of a model's parameters."""
    return next(model.parameters()).device


def copied(model: ModelT, parameters: Mapping[str, Tensor]) -> ModelT:
    """A copy of a model with these parameters, by name; they are not copied, and not trained."""
    memo = {id(old): nn.Parameter(parameters[name], requires_grad=False) for name, old in model.named_parameters()}
    return deepcopy(model, memo)


def parts_of(model: nn.Module) -> list[nn.Module]:
    """The model and all its parts, a part that is shared as often as it occurs; faster than `model.modules()`."""
    parts = [model]
    for part in parts:  # which grows meanwhile
        parts += [child for child in part._modules.values() if child is not None]
    return parts


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Puts the model into evaluation mode for the duration of a `with` block; then each part has its own mode again."""
    training = [part for part in parts_of(model) if part.training]
    if training:
        model.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True


def put_in_bfloat16(model: nn.Module) -> bool:
    """Puts products into bfloat16, for a model in use: those of a Transformer's attention and feed-forward layers, and
    those of recurrent layers that read a sequence. Returns whether there are such layers.
    """
    layers = [part for part in model.modules() if isinstance(part, OF_TRANSFORMERS)]
    maps = [child for layer in layers for child in layer.children() if type(child) is nn.Linear]
    for each in maps:
        each.to(torch.bfloat16).__class__ = Bfloat16Linear
    recurrent = [part for part in model.modules() if isinstance(part, Recurrent)]
    for layer in recurrent:
        layer.in_bfloat16 = True
    return bool(maps or recurrent)


class Bfloat16Linear(nn.Linear):
    """A linear map whose weights are in bfloat16. Its inputs become that, and its outputs are."""

    takes_any_type = True

    def forward(self, input: Tensor) -> Tensor:
        """The map of any numbers."""
        return F.linear(input.to(self.weight.dtype), self.weight, self.bias)
