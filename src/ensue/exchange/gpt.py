"""GPT (Radford et al. 2018) and GPT-2 (2019): language models whose matrices are stored [in, out]."""

from __future__ import annotations

from collections.abc import Set
from functools import partial
from pathlib import Path
from typing import Any

from ensue.errors import EnsueError
from ensue.exchange.family import THEIRS, Configuration, Family
from ensue.exchange.layouts import TRANSPOSED, BlockNames, Part, blocks, first_block, layer
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
