"""The vectors of tokens and the softmax of a language model without what published ones have not: a scale of the
vectors, projections, and a bias.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ensue.exchange.layouts import first_block

WRAPPED, PLAIN = "layers.layers.1.layers", "layers.layers"
"""Where the layers of a Transformer are, behind a projection of the input and without one."""


class PublishedSoftmax(NamedTuple):
    """The vectors of tokens (V, d), the matrix of the softmax (None: the same), and the tensors of the layers."""

    words: Tensor
    matrix: Tensor | None
    tensors: dict[str, Tensor]


def published_softmax(recipe: Any, tensors: dict[str, Tensor]) -> PublishedSoftmax:
    """One matrix without a bias that gives these logits.

    A scale and projections are multiplied into the tables. For the bias b: the last layer is a normalization
    h = g·n + β, in which the numbers n have the sum 0. So uᵀh = uᵀβ =: s with u = 1/g, and (W + b uᵀ/s) h = W h + b. If
    |s| is below 1, β is changed first, by δ = ±2g/d; then h is h + δ, and W δ is taken off.
    """
    words, layers = published_vectors(recipe, tensors)
    matrix = tensors["features.weight" if recipe.tokens.tied else "head.weight"].double()
    if "head.projection.weight" in tensors:
        matrix = matrix @ tensors["head.projection.weight"].double()
    matrix = without_bias(matrix, tensors["head.bias"].double(), layers, recipe)
    same = matrix.shape == words.shape and torch.equal(matrix, words)
    return PublishedSoftmax(words.float(), None if same else matrix.float().contiguous(), layers)


def published_vectors(recipe: Any, tensors: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    """The vectors of tokens (V, d) in float64, without a scale and a projection, and the tensors of the layers."""
    tokens, layers = recipe.tokens, dict(tensors)
    words = tensors["features.weight"].double() * (tokens.d_embedding**0.5 if tokens.tied and tokens.scaled else 1)
    if tokens.d_embedding != recipe.encoder.d_model:
        words = words @ tensors[f"{PLAIN}.0.module.weight"].double().T + tensors[f"{PLAIN}.0.module.bias"].double()
        layers = {name.replace(WRAPPED, PLAIN, 1): tensor for name, tensor in tensors.items()}
    return words, layers


def _last_norm(recipe: Any) -> str:
    """The name of the last normalization."""
    encoder = recipe.encoder
    last = first_block(encoder) + encoder.num_layers
    return f"{PLAIN}.{last}.module" if encoder.norm == "pre" else f"{PLAIN}.{last - 1}.norm_feedforward"


def without_bias(matrix: Tensor, bias: Tensor, layers: dict[str, Tensor], recipe: Any) -> Tensor:
    """The matrix that adds the bias too; β in `layers` may change."""
    if not bias.any():
        return matrix
    norm = _last_norm(recipe)
    g, beta = layers[f"{norm}.weight"].double(), layers[f"{norm}.bias"].double()
    g = torch.where(g.abs() < 1e-6, 1e-6, g)
    u = 1 / g
    delta = torch.zeros_like(g)
    if (u @ beta).abs() < 1:
        delta = g * (2 / len(g)) * (1 if u @ beta >= 0 else -1)
        layers[f"{norm}.bias"] = (beta + delta).float()
        delta = layers[f"{norm}.bias"].double() - beta
    return matrix + torch.outer(bias - matrix @ delta, u / (u @ (beta + delta)))
