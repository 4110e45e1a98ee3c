"""GPT (Radford et al. 2018), GPT-2 (2019) and GPT-NeoX (Black et al. 2022): language models that read left to right.

The matrices of the first two are stored [in, out]. GPT-NeoX with its sublayers one after another is the published shape
of our rotary language models. A head of theirs turns the pairs (i, i + d/2), one of ours the pairs (2i, 2i + 1).
"""

from __future__ import annotations

from collections.abc import Set
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ensue.errors import EnsueError
from ensue.exchange.family import THEIRS, Configuration, Family
from ensue.exchange.layouts import TRANSPOSED, BlockNames, Form, Part, blocks, first_block, layer
from ensue.models.specification import TransformerEncoder

NAMES = BlockNames(
    attention_in=("attn.c_attn",),
    attention_out="attn.c_proj",
    norm_attention="ln_1",
    first="mlp.c_fc",
    second="mlp.c_proj",
    norm_feedforward="ln_2",
)
TENSORS = {"pre": ("wte.weight", "wpe.weight"), "post": ("tokens_embed.weight", "positions_embed.weight")}
"""The names of the vectors of tokens and positions; GPT normalizes behind each layer, GPT-2 before it."""


def tables(norm: str, config: Configuration, names: Set[str]) -> dict[str, Any]:
    """The tables of the recipe."""
    config.expect("scale_attn_weights", True)
    config.expect("scale_attn_by_inverse_layer_idx", False)
    config.expect("add_cross_attention", False)
    config.expect("tie_word_embeddings", True)
    d_model = config.whole("n_embd")
    return {
        "tokens": {"d_embedding": d_model, "tied": True, "scaled": False},
        "encoder": {
            "kind": "transformer",
            "d_model": d_model,
            "num_layers": config.whole("n_layer"),
            "num_heads": config.whole("n_head"),
            "d_feedforward": config.whole("n_inner", 4 * d_model) if norm == "pre" else 4 * d_model,
            "context": config.whole("n_positions"),
            "positions": "learned",
            "norm": norm,
            "norm_epsilon": config.epsilon("layer_norm_epsilon", 1e-5),
            "activation": _activation(config, norm),
            "dropout": config.share("resid_pdrop", 0.1),
            "dropout_attention": config.share("attn_pdrop", 0.1),
        },
    }


def _activation(config: Configuration, norm: str) -> str:
    """GPT's "gelu" is the one by a tanh."""
    if norm == "pre":
        return config.activation("activation_function", "gelu_new")
    found = config.activation("afn", "gelu")
    return "gelu-tanh" if found == "gelu" else found


def layout(recipe: Any) -> list[Part]:
    """The parameters, but for the bias of the head, which these models have not."""
    encoder = recipe.encoder
    words, positions = TENSORS[encoder.norm]
    found = [
        Part("features.weight", (words,)),
        Part("layers.layers.0.weight", (positions,)),
        *blocks(encoder, "h.", NAMES, form=TRANSPOSED),
    ]
    if encoder.norm == "pre":
        found += layer(f"layers.layers.{first_block(encoder) + encoder.num_layers}.module", "ln_f")
    return found


def _family(norm: str) -> Family:
    return Family(
        prefix="transformer.",
        is_masked=False,
        tables=partial(tables, norm),
        layout=layout,
        unused=(".attn.bias", ".attn.masked_bias", "position_ids"),
        tied="lm_head.weight",
    )


GPT, GPT2 = _family("post"), _family("pre")


def check_first(encoder: TransformerEncoder, place: Path) -> None:
    """Raises EnsueError for layers that the first GPT cannot have."""
    if encoder.activation == "gelu" or (encoder.d_feedforward or 4 * encoder.d_model) != 4 * encoder.d_model:
        raise EnsueError(
            f"{place}: GPT, the published shape with norm = post, has encoder.activation = gelu-tanh or relu and "
            "d_feedforward = 4 · d_model"
        )


def config(encoder: TransformerEncoder) -> dict[str, Any]:
    """The keys of config.json for the layers."""
    is_first = encoder.norm == "post"
    dropout = encoder.dropout
    return {
        "model_type": "openai-gpt" if is_first else "gpt2",
        "architectures": ["OpenAIGPTLMHeadModel" if is_first else "GPT2LMHeadModel"],
        "n_embd": encoder.d_model,
        "n_layer": encoder.num_layers,
        "n_head": encoder.num_heads,
        "n_positions": encoder.context,
        "n_inner": encoder.d_feedforward or 4 * encoder.d_model,
        "activation_function": THEIRS[encoder.activation],
        "afn": "gelu" if encoder.activation == "gelu-tanh" else encoder.activation,
        "layer_norm_epsilon": encoder.norm_epsilon,
        "embd_pdrop": dropout,
        "resid_pdrop": dropout,
        "attn_pdrop": dropout if encoder.dropout_attention is None else encoder.dropout_attention,
    }


NEOX_NAMES = BlockNames(
    attention_in=("attention.query_key_value",),
    attention_out="attention.dense",
    norm_attention="input_layernorm",
    first="mlp.dense_h_to_4h",
    second="mlp.dense_4h_to_h",
    norm_feedforward="post_attention_layernorm",
)


def neox_layout(recipe: Any) -> list[Part]:
    """The parameters of the layers."""
    encoder = recipe.encoder
    form = Form(lambda theirs: theirs[0], lambda ours, _: [_as_halves(ours, encoder)])
    found = [
        part._replace(form=form) if ".attention.project_in." in part.ours else part
        for part in blocks(encoder, "gpt_neox.layers.", NEOX_NAMES)
    ]
    last = f"layers.layers.{first_block(encoder) + encoder.num_layers}.module"
    return [*found, *layer(last, "gpt_neox.final_layer_norm")]


def _as_halves(ours: Tensor, encoder: TransformerEncoder) -> Tensor:
    """Rows of all queries, then keys, then values, as those of each head; pairs of neighbors as halves."""
    parts = ours.view(3, encoder.num_heads, -1, *ours.shape[1:])
    halves = torch.cat([parts[:2, :, 0::2], parts[:2, :, 1::2]], dim=2)
    return torch.cat([halves, parts[2:]]).transpose(0, 1).flatten(0, 2)


def neox_config(encoder: TransformerEncoder) -> dict[str, Any]:
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
