"""Initial weights of recurrent layers. A parameter has blocks for all gates; each block is initialized separately."""

import torch
from torch import nn


def input_weight(blocks: int, d_out: int, d_in: int) -> nn.Parameter:
    """Return W, (blocks · d_out, d_in), with uniform blocks (Glorot & Bengio 2010)."""
    weight = nn.Parameter(torch.empty(blocks * d_out, d_in))
    for block in weight.chunk(blocks):
        nn.init.xavier_uniform_(block)
    return weight


def hidden_weight(blocks: int, d_out: int, d_in: int | None = None) -> nn.Parameter:
    """Return U, (blocks · d_out, d_in), with random orthogonal blocks (Saxe et al. 2014). Default of d_in: d_out."""
    weight = nn.Parameter(torch.empty(blocks * d_out, d_out if d_in is None else d_in))
    for block in weight.chunk(blocks):
        nn.init.orthogonal_(block)
    return weight


def gate_bias(blocks: int, d_out: int, *, forget: int | None = None) -> nn.Parameter:
    """Return b, (blocks · d_out): 1 in the block `forget` (Jozefowicz et al. 2015), 0 in all other blocks."""
    bias = torch.zeros(blocks, d_out)
    if forget is not None:
        bias[forget] = 1.0
    return nn.Parameter(bias.flatten())


def features_per_head(d_out: int, num_heads: int) -> int:
    """Return the number of features of each head. Raises ValueError unless `num_heads` divides `d_out`."""
    if num_heads < 1 or d_out % num_heads:
        raise ValueError(f"{d_out} features cannot be divided among {num_heads} heads")
    return d_out // num_heads
