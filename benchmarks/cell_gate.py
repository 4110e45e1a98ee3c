"""What stands before every measurement of a layer: its `forward` has to say what the fold of its `step` says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import torch
from torch import Tensor

from ensue.nn import Recurrent, SequenceLayer, Zoneout
from ensue.types import leaves

Context = Callable[[], AbstractContextManager[object]]


def discrepancies(
    layer: SequenceLayer, lengths: Tensor | None, shape: tuple[int, int], *, context: Context, tolerance: float
) -> Iterator[str]:
    """Values, final state and gradients that differ by more than `tolerance` of the largest, each as a line.

    `shape` is (T, B), `context` that of `forward`; the fold runs in float32.
    """
    for subject, x in subjects(layer, shape):
        mask = None if lengths is None else torch.arange(shape[0], device=x.device) < lengths.to(x.device).unsqueeze(1)
        torch.manual_seed(1)
        with context():
            ours = subject(x, mask=mask)
        theirs = Recurrent.fold(subject, x, mask=mask)
        found = zip(findings(subject, x, mask, *ours), findings(subject, x, mask, *theirs), strict=True)
        for (name, a), (_, b) in found:
            difference = ((a.float() - b).abs().max() / b.abs().max().clamp(min=1e-30)).item()
            if not difference <= tolerance:
                yield f"{name} of {subject!r} at T, B = {shape} differs by {difference:.1e} of its largest"


def subjects(layer: SequenceLayer, shape: tuple[int, int]) -> Iterator[tuple[SequenceLayer, Tensor]]:
    """The layer as it is used, and what of it draws nothing as it is trained, each with an input."""
    T, B = shape
    device = next(layer.parameters()).device
    yield layer.eval(), torch.randn(B, T, layer.d_in, device=device, requires_grad=True)
    if isinstance(layer, Zoneout):
        with_masks = layer.train().with_masks
        x = torch.randn(B, T, with_masks.d_in, device=device)
        x[..., layer.d_in :].bernoulli_(0.3)
        yield with_masks, x.requires_grad_()


def findings(
    layer: SequenceLayer, x: Tensor, mask: Tensor | None, y: Tensor, state: object
) -> Iterator[tuple[str, Tensor]]:
    """Outputs, leaves of the final state, and the gradients of a sum of them all, weighted at random."""
    generator = torch.Generator().manual_seed(2)
    y = y if mask is None else y.masked_fill(~mask.unsqueeze(-1), 0.0)
    final = list(leaves(state))
    values = [y, *(leaf for leaf in final if leaf.is_floating_point())]
    total = sum((torch.randn(v.shape, generator=generator).to(v.device) * v.float()).sum() for v in values)
    names, parameters = zip(*layer.named_parameters(), strict=True)
    gradients = torch.autograd.grad(total, [x, *parameters], materialize_grads=True)
    yield "the output", y
    for number, leaf in enumerate(final):
        yield f"leaf {number} of the final state", leaf.float()
    for name, gradient in zip(("x", *names), gradients, strict=True):
        yield f"the gradient by {name}", gradient
