"""GPT-NeoX (Black et al. 2022) with its sublayers one after another: the published shape of our rotary language models.

A head of theirs turns the pairs (i, i + d/2), one of ours the pairs (2i, 2i + 1).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ensue.exchange.family import THEIRS
from ensue.exchange.layouts import BlockNames, Form, Part, blocks, first_block, layer
from ensue.models.specification import TransformerEncoder

NAMES = BlockNames(
    attention_in=("attention.query_key_value",),
    attention_out="attention.dense",
    norm_attention="input_layernorm",
    first="mlp.dense_h_to_4h",
    second="mlp.dense_4h_to_h",
    norm_feedforward="post_attention_layernorm",
)


def layout(recipe: Any) -> list[Part]:
    """The parameters of the layers."""
    encoder = recipe.encoder
    form = Form(lambda theirs: theirs[0], lambda ours, _: [_turned(ours, encoder)])
    found = [
        part._replace(form=form) if ".attention.project_in." in part.ours else part
        for part in blocks(encoder, "gpt_neox.layers.", NAMES)
    ]
    last = f"layers.layers.{first_block(encoder) + encoder.num_layers}.module"
    return [*found, *layer(last, "gpt_neox.final_layer_norm")]


def _turned(ours: Tensor, encoder: TransformerEncoder) -> Tensor:
    """Rows of all queries, then keys, then values, as those of each head; pairs of neighbors as halves."""
    parts = ours.view(3, encoder.num_heads, -1, *ours.shape[1:])
    halves = torch.cat([parts[:2, :, 0::2], parts[:2, :, 1::2]], dim=2)
    return torch.cat([halves, parts[2:]]).transpose(0, 1).flatten(0, 2)


def config(encoder: TransformerEncoder) -> dict[str, Any]:
    """The keys of config.json for the layers."""
    return {
        "model_type": "gpt_neox",
        "architectures": ["GPTNeoXForCausalLM"],
        "hidden_size": encoder.d_model,
        "num_hidden_layers": encoder.num_layers,
        "num_attention_heads": encoder.num_heads,
        "intermediate_size": encoder.d_feedforward or 4 * encoder.d_model,
        "max_position_embeddings": encoder.context,
        "hidden_act": THEIRS[encoder.activation],
        "rotary_pct": 1.0,
        "rotary_emb_base": 10000,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0},
        "use_parallel_residual": False,
        "attention_bias": True,
        "layer_norm_eps": encoder.norm_epsilon,
        "hidden_dropout": encoder.dropout,
        "attention_dropout": encoder.dropout if encoder.dropout_attention is None else encoder.dropout_attention,
    }
