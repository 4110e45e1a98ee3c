"""Torch's transforms of a computation, which hand-written passes cannot see: traces, `torch.func`, second derivatives.

This is the one place that asks for them. Where something records or transforms operations, layers run in torch
operations alone. A backward pass of our own that has to have a history gives way to a reference under autograd.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _get_current_dispatch_mode


def is_transformed() -> bool:
    """Whether torch records or transforms operations: `torch.compile`, `torch.export`, `torch.jit.trace`, `make_fx` and
    other dispatch modes, `torch.func`, forward-mode differentiation.
    """
    return (
        torch.compiler.is_compiling()
        or torch._C._get_tracing_state() is not None
        or _get_current_dispatch_mode() is not None
        or torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
    )


def needs_history(errors: Sequence[Tensor | None]) -> bool:
    """In a backward pass from `errors`: whether its results are differentiated (`create_graph=True`) or transformed.

    The batched gradients of `torch.autograd.grad` are no transform of `torch.func`: they are tensors without storage.
    """
    batched = any(error is not None and not torch._C._has_storage(error) for error in errors)
    return batched or torch.is_grad_enabled() or is_transformed()


def gradients_of(
    reference: Callable[..., Any], tensors: Sequence[Tensor], errors: Sequence[Any]
) -> list[Tensor | None]:
    """The gradients of `reference(*tensors)` for the errors at its results, which may be differentiated again.

    None for a tensor that needs none.
    """
    device = tensors[0].device.type
    with torch.enable_grad(), torch.autocast(device, enabled=False):
        # Views, since one tensor may depend on another.
        views = [tensor.view_as(tensor) if tensor.requires_grad else tensor for tensor in tensors]
        results = reference(*views)
        results = results if isinstance(results, tuple) else (results,)
        pairs = [(y, error) for y, error in zip(results, errors, strict=True) if y.requires_grad and error is not None]
        wanted = [view for view in views if view.requires_grad]
        found = (
            torch.autograd.grad(
                [y for y, _ in pairs], wanted, [error for _, error in pairs], create_graph=True, allow_unused=True
            )
            if pairs
            else [None] * len(wanted)
        )
    gradients = iter(found)
    return [next(gradients) if view.requires_grad else None for view in views]
