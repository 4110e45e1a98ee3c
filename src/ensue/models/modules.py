"""Properties of any model: its size, its device, its mode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from typing import TypeVar

import torch
from torch import Tensor, nn

ModelT = TypeVar("ModelT", bound=nn.Module)


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
