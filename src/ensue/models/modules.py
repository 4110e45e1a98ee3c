"""What holds for every model: its size, its device, whether it is learning."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


def count_parameters(model: nn.Module) -> int:
    """Numbers in a model, frozen and counted ones too, shared ones once."""
    return sum(parameter.numel() for parameter in model.parameters())


def device_of(model: nn.Module) -> torch.device:
    """Where a model's parameters are."""
    return next(model.parameters()).device


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model without dropout, for as long as the block lasts."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)
