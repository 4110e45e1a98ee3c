"""Families of causal language models: GPT (Radford et al. 2018), GPT-2 (Radford et al. 2019), GPT-NeoX (Black et al.
2022) and Llama (Touvron et al. 2023).

GPT and GPT-2 store matrices as [in, out]. GPT-NeoX and Llama rotate the features i and i + d/2 of a head together, and
ensue rotates the features 2i and 2i + 1. Language models of ensue with rotary positions are exported as GPT-NeoX.
"""

from collections.abc import Sequence, Set
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ensue.errors import EnsueError
from ensue.extensions.importing.family import (
    PUBLISHED_ACTIVATIONS,
    TRANSPOSED,
    BlockNames,
    Configuration,
    Conversion,
    EncoderKeys,
    Family,
    ParameterMapping,
    first_block,
    map_blocks,
    map_layer,
    rotary_pairs,
)
from ensue.models.specification import TransformerEncoder

NAMES = BlockNames(
    attention_in=("attn.c_attn",), attention_out="attn.c_proj", norm_attention="ln_1", feedforward_in="mlp.c_fc",
    feedforward_out="mlp.c_proj", norm_feedforward="ln_2",
)  # fmt: skip
KEYS = EncoderKeys(
    "n_embd", "n_layer", "n_head", "n_inner", "n_positions", "layer_norm_epsilon", "resid_pdrop", "attn_pdrop"
)
TENSORS = {"pre": ("wte.weight", "wpe.weight"), "post": ("tokens_embed.weight", "positions_embed.weight")}
"""The names of token and position embeddings in GPT-2, which has pre-norm layers, and in GPT (post-norm)."""


def recipe_tables(norm: str, config: Configuration, names: Set[str]) -> dict[str, Any]:
    config.expect("scale_attn_weights", True)
    config.expect("scale_attn_by_inverse_layer_idx", False)
    config.expect("add_cross_attention", False)
    d_model = config.positive_int("n_embd")
    if norm == "post":
        config = Configuration({**config.content, "n_inner": None}, config.path)
    encoder = KEYS.read(config, epsilon=1e-5, dropout=0.1, d_feedforward=4 * d_model)
    if norm == "pre":
        activation = config.activation("activation_function", "gelu_new")
    elif (activation := config.activation("afn", "gelu")) == "gelu":
        activation = "gelu-tanh"  # GPT approximates gelu by tanh
    encoder |= {"positions": "learned", "norm": norm, "activation": activation}
    return {"tokens": {"d_embedding": d_model, **config.tied(True, "lm_head.weight", names)}, "encoder": encoder}


def untied_softmax(recipe: Any, name: str) -> list[ParameterMapping]:
    """Return the mapping of the softmax matrix; [] if the matrix is tied to the embedding."""
    return [] if recipe.tokens.tied else [ParameterMapping("head.weight", (name,))]


def layout(recipe: Any) -> list[ParameterMapping]:
    """Return the mappings of the embeddings and layers of GPT (post-norm) or GPT-2 (pre-norm)."""
    encoder = recipe.encoder
    words, positions = TENSORS[encoder.norm]
    mappings = [
        ParameterMapping("features.weight", (words,)),
        ParameterMapping("layers.layers.0.weight", (positions,)),
        *map_blocks(encoder, "h.{}.", NAMES, conversion=TRANSPOSED),
    ]
    if encoder.norm == "pre":
        mappings += map_layer(f"layers.layers.{first_block(encoder) + encoder.num_layers}.module", "ln_f")
    return mappings


def _make_family(norm: str) -> Family:
    return Family(
        prefix="transformer.", is_masked=False, recipe_tables=partial(recipe_tables, norm),
        layout=lambda recipe: [*layout(recipe), *untied_softmax(recipe, "lm_head.weight")],
        unused=(".attn.bias", ".attn.masked_bias", "position_ids"), tied="lm_head.weight",
    )  # fmt: skip


GPT, GPT2 = _make_family("post"), _make_family("pre")


def check_gpt(encoder: TransformerEncoder, path: Path) -> None:
    """Raise EnsueError for an activation or a feed-forward size that GPT, unlike GPT-2, cannot have."""
    if encoder.activation == "gelu" or (encoder.d_feedforward or 4 * encoder.d_model) != 4 * encoder.d_model:
        raise EnsueError(
            f"{path}: the published GPT (norm = post) has encoder.activation = gelu-tanh or relu and "
            "d_feedforward = 4 · d_model"
        )


def config(encoder: TransformerEncoder) -> dict[str, Any]:
    """Return the keys of config.json for an encoder of GPT (post-norm) or GPT-2 (pre-norm)."""
    is_gpt = encoder.norm == "post"
    return {
        "model_type": "openai-gpt" if is_gpt else "gpt2",
        "architectures": ["OpenAIGPTLMHeadModel" if is_gpt else "GPT2LMHeadModel"], **KEYS.to_config(encoder),
        "activation_function": PUBLISHED_ACTIVATIONS[encoder.activation],
        "afn": "gelu" if encoder.activation == "gelu-tanh" else encoder.activation, "embd_pdrop": encoder.dropout,
    }  # fmt: skip


NEOX_NAMES = BlockNames(
    attention_in=("attention.query_key_value",), attention_out="attention.dense", norm_attention="input_layernorm",
    norm_feedforward="post_attention_layernorm", feedforward_in="mlp.dense_h_to_4h",
    feedforward_out="mlp.dense_4h_to_h",
)  # fmt: skip
NEOX_KEYS = EncoderKeys(dropout="hidden_dropout", dropout_attention="attention_dropout")


def neox_tables(config: Configuration, names: Set[str]) -> dict[str, Any]:
    config.expect("attention_bias", True)
    return _make_rotary_tables(
        config, 0.25, config.tied(False, "embed_out.weight", names), **NEOX_KEYS.read(config, epsilon=1e-5),
        activation=config.activation("hidden_act", "gelu"), parallel=config.content.get("use_parallel_residual", True),
    )  # fmt: skip


def _make_rotary_tables(config: Configuration, fraction: float, tied: dict[str, Any], **encoder: Any) -> dict[str, Any]:
    """Return the tables of a model with rotary positions; `fraction` is the default share of rotated features."""
    return {"tokens": {"d_embedding": encoder["d_model"], **tied}, "encoder": encoder | config.rotary(fraction)}


def neox_layout(recipe: Any) -> list[ParameterMapping]:
    """Return the mappings of the embeddings and layers of GPT-NeoX."""
    encoder = recipe.encoder
    order = rotary_pairs(encoder)

    def read(published: Sequence[Tensor]) -> Tensor:
        qkv = published[0].view(encoder.num_heads, 3, -1, *published[0].shape[1:]).transpose(0, 1)
        return torch.cat([qkv[:2, :, order], qkv[2:]]).flatten(0, 2)

    def write(native: Tensor, num_tensors: int) -> list[Tensor]:
        qkv = native.view(3, encoder.num_heads, -1, *native.shape[1:])
        return [torch.cat([qkv[:2, :, order.argsort()], qkv[2:]]).transpose(0, 1).flatten(0, 2)]

    attention = Conversion(read, write)
    mappings = [
        mapping._replace(conversion=attention) if ".attention.project_in." in mapping.native else mapping
        for mapping in map_blocks(encoder, "layers.{}.", NEOX_NAMES)
    ]
    norm = f"layers.layers.{first_block(encoder) + encoder.num_layers}.module"
    return [ParameterMapping("features.weight", ("embed_in.weight",)), *mappings, *map_layer(norm, "final_layer_norm")]


NEOX = Family(
    prefix="gpt_neox.", is_masked=False, recipe_tables=neox_tables,
    layout=lambda recipe: [*neox_layout(recipe), *untied_softmax(recipe, "embed_out.weight")],
    unused=(".attention.bias", ".attention.masked_bias", ".rotary_emb.inv_freq"), tied="embed_out.weight",
)  # fmt: skip


def neox_config(encoder: TransformerEncoder) -> dict[str, Any]:
    """Return the keys of config.json for an encoder of GPT-NeoX."""
    return {
        "model_type": "gpt_neox", "architectures": ["GPTNeoXForCausalLM"], **NEOX_KEYS.to_config(encoder),
        "hidden_act": PUBLISHED_ACTIVATIONS[encoder.activation], "rotary_pct": encoder.rotary_share,
        "rotary_emb_base": encoder.rotary_base,
        "rope_parameters": {"rope_type": "default", "rope_theta": encoder.rotary_base,
                            "partial_rotary_factor": encoder.rotary_share},
        "use_parallel_residual": encoder.parallel, "attention_bias": True,
    }  # fmt: skip


LLAMA_NAMES = BlockNames(
    attention_in=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), attention_out="self_attn.o_proj",
    norm_attention="input_layernorm", feedforward_in="mlp.gate_proj", feedforward_out="mlp.down_proj",
    norm_feedforward="post_attention_layernorm", factor="mlp.up_proj",
)  # fmt: skip
LLAMA_KEYS = NEOX_KEYS._replace(norm_epsilon="rms_norm_eps")


def llama_tables(config: Configuration, names: Set[str]) -> dict[str, Any]:
    for name, *values in (("attention_bias", False), ("mlp_bias", False), ("sliding_window", None)):
        config.expect(name, *values)
    config.expect("head_dim", None, config.positive_int("hidden_size") // config.positive_int("num_attention_heads"))
    return _make_rotary_tables(
        config, 1.0, config.tied(False, "lm_head.weight", names), norm_kind="rms", gated=True,
        activation=config.activation("hidden_act", "silu"), **LLAMA_KEYS.read(config, epsilon=1e-6) | {"dropout": 0.0},
    )  # fmt: skip


def llama_layout(recipe: Any) -> list[ParameterMapping]:
    """Return the mappings. In grouped-query attention, the keys and values of a group are copied for each head."""
    encoder = recipe.encoder

    def read(published: Sequence[Tensor]) -> Tensor:
        d = encoder.d_model // encoder.num_heads
        groups = (matrix.view(-1, d, matrix.shape[1]) for matrix in published)
        heads = (group.repeat_interleave(encoder.num_heads // max(1, len(group)), 0) for group in groups)
        queries, keys, values = (head.view(encoder.num_heads, d, -1) for head in heads)
        order = rotary_pairs(encoder)
        return torch.cat([queries[:, order], keys[:, order], values]).flatten(0, 1)

    return [
        ParameterMapping("features.weight", ("embed_tokens.weight",)),
        *map_blocks(encoder, "layers.{}.", LLAMA_NAMES, attention=Conversion(read), has_bias=False),
        ParameterMapping(f"layers.layers.{first_block(encoder) + encoder.num_layers}.module.weight", ("norm.weight",)),
        *untied_softmax(recipe, "lm_head.weight"),
    ]


LLAMA = Family(
    prefix="model.", is_masked=False, recipe_tables=llama_tables, layout=llama_layout,
    unused=(".rotary_emb.inv_freq",), tied="lm_head.weight",
)  # fmt: skip
