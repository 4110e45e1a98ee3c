"""The check before each measurement of a layer: `forward` must agree with the fold of `step`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from ensue.nn import Recurrent, Zoneout
from ensue.types import leaves

Context = Callable[[], AbstractContextManager[object]]


def discrepancies(
    layer: Any, lengths: Tensor | None, shape: tuple[int, int], *, context: Context, tolerance: float
) -> Iterator[str]:
    """Yield a line for each output, final state or gradient that differs.

    Args:
        shape: (T, B).
        context: A function that returns the context of `forward`; the fold runs in float32.
        tolerance: The maximum difference, as a share of the largest value.
    """
    for variant, x in variants(layer, shape):
        mask = None if lengths is None else torch.arange(shape[0], device=x.device) < lengths.to(x.device).unsqueeze(1)
        torch.manual_seed(1)
        with context():
            result = variant(x, mask=mask)
        expected = Recurrent.fold(variant, x, mask=mask)
        pairs = zip(tensors(variant, x, mask, *result), tensors(variant, x, mask, *expected), strict=True)
        for (name, a), (_, b) in pairs:
            difference = ((a.float() - b).abs().max() / b.abs().max().clamp(min=1e-30)).item()
            if not difference <= tolerance:
                yield f"{name} of {variant!r} at T, B = {shape} differs by {difference:.1e} of its largest value"


def variants(layer: Any, shape: tuple[int, int]) -> Iterator[tuple[Any, Tensor]]:
    """Yield the layer in inference mode, and for zoneout the layer in training mode with fixed masks, with inputs."""
    T, B = shape
    device = next(layer.parameters()).device
    yield layer.eval(), torch.randn(B, T, layer.d_in, device=device, requires_grad=True)
    if isinstance(layer, Zoneout):
        with_masks = layer.train().with_masks
        x = torch.randn(B, T, with_masks.d_in, device=device)
        x[..., layer.d_in :].bernoulli_(0.3)
        yield with_masks, x.requires_grad_()


def tensors(layer: Any, x: Tensor, mask: Tensor | None, y: Tensor, state: object) -> Iterator[tuple[str, Tensor]]:
    """Yield the output, the leaves of the final state, and the gradients of a randomly weighted sum of all of them."""
    generator = torch.Generator().manual_seed(2)
    y = y if mask is None else y.masked_fill(~mask.unsqueeze(-1), 0.0)
    final = list(leaves(state))
    values = [y, *(leaf for leaf in final if leaf.is_floating_point())]
    weighted = [(torch.randn(v.shape, generator=generator).to(v.device) * v.float()).sum() for v in values]
    names, parameters = zip(*layer.named_parameters(), strict=True)
    gradients = torch.autograd.grad(sum(weighted), [x, *parameters], materialize_grads=True)
    yield "the output", y
    for number, leaf in enumerate(final):
        yield f"leaf {number} of the final state", leaf.float()
    for name, gradient in zip(("x", *names), gradients, strict=True):
        yield f"the gradient with respect to {name}", gradient
