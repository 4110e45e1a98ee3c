"""Attention of torch with the weights of the package's attention, and a comparison of their results."""

import torch
from torch import Tensor, nn

from ensue.nn import MultiHeadAttention

D, HEADS, B, T = 8, 2, 3, 5


LENGTHS = torch.tensor([5, 2, 3])


MASK = torch.arange(T) < LENGTHS.unsqueeze(1)


FUTURE = torch.ones(T, T, dtype=torch.bool).triu(1)


def randomized(module: nn.Module) -> None:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(std=0.4)


def copy_attention(ours: MultiHeadAttention, theirs: nn.MultiheadAttention) -> None:
    ours.project_in.load_state_dict({"weight": theirs.in_proj_weight, "bias": theirs.in_proj_bias})
    ours.project_out.load_state_dict(theirs.out_proj.state_dict())


def compare(x: Tensor, ours: Tensor, theirs: Tensor, *, ragged: bool) -> None:
    """Compare values at positions that are not masked, and gradients of the input."""
    seen = MASK.unsqueeze(-1) if ragged else torch.ones(B, T, 1, dtype=torch.bool)
    ours, theirs = ours.masked_fill(~seen, 0), theirs.masked_fill(~seen, 0)
    torch.testing.assert_close(ours, theirs)
    weights = torch.randn(ours.shape, dtype=ours.dtype)
    torch.testing.assert_close(*(torch.autograd.grad((y * weights).sum(), x)[0] for y in (ours, theirs)))
