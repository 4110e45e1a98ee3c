"""Language models that read left to right: GPT (Radford et al. 2018), GPT-2 (2019), GPT-NeoX (Black et al. 2022) and
Llama's shape (Touvron et al. 2023).

The matrices of the first two are stored [in, out]. GPT-NeoX is the published shape of our rotary language models. A
head of the last two turns the pairs (i, i + d/2), one of ours the pairs (2i, 2i + 1).
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ensue.errors import EnsueError
from ensue.extensions.importing.family import THEIRS, Configuration, EncoderKeys, Family
from ensue.extensions.importing.layouts import TRANSPOSED, BlockNames, Form, Part, blocks, first_block, layer, pairs
from ensue.models.specification import TransformerEncoder

NAMES = BlockNames(
    attention_in=("attn.c_attn",),
    attention_out="attn.c_proj",
    norm_attention="ln_1",
    first="mlp.c_fc",
    second="mlp.c_proj",
    norm_feedforward="ln_2",
)
KEYS = EncoderKeys(
    "n_embd", "n_layer", "n_head", "n_inner", "n_positions", "layer_norm_epsilon", "resid_pdrop", "attn_pdrop"
)
TENSORS = {"pre": ("wte.weight", "wpe.weight"), "post": ("tokens_embed.weight", "positions_embed.weight")}
"""The names of the vectors of tokens and positions; GPT normalizes behind each layer, GPT-2 before it."""


def tables(norm: str, config: Configuration, names: Set[str]) -> dict[str, Any]:
    """The tables of the recipe."""
    config.expect("scale_attn_weights", True)
    config.expect("scale_attn_by_inverse_layer_idx", False)
    config.expect("add_cross_attention", False)
    d_model = config.whole("n_embd")
    if norm == "post":
        config = Configuration({**config.content, "n_inner": None}, config.path)
    return {
        "tokens": {"d_embedding": d_model, **config.tied(True, "lm_head.weight", names)},
        "encoder": {
            **KEYS.read(config, epsilon=1e-5, dropout=0.1, d_feedforward=4 * d_model),
            "positions": "learned",
            "norm": norm,
            "activation": _activation(config, norm),
        },
    }


def _activation(config: Configuration, norm: str) -> str:
    """GPT's "gelu" is the one by a tanh."""
    if norm == "pre":
        return config.activation("activation_function", "gelu_new")
    found = config.activation("afn", "gelu")
    return "gelu-tanh" if found == "gelu" else found


def own_head(recipe: Any, name: str) -> list[Part]:
    """The matrix of a softmax that has one of its own."""
    return [] if recipe.tokens.tied else [Part("head.weight", (name,))]


def layout(recipe: Any) -> list[Part]:
    """The parameters, but for the head, of which these models have no bias."""
    encoder = recipe.encoder
    words, positions = TENSORS[encoder.norm]
    found = [
        Part("features.weight", (words,)),
        Part("layers.layers.0.weight", (positions,)),
        *blocks(encoder, "h.{}.", NAMES, form=TRANSPOSED),
    ]
    if encoder.norm == "pre":
        found += layer(f"layers.layers.{first_block(encoder) + encoder.num_layers}.module", "ln_f")
    return found


def _family(norm: str) -> Family:
    return Family(
        prefix="transformer.",
        is_masked=False,
        tables=partial(tables, norm),
        layout=lambda recipe: [*layout(recipe), *own_head(recipe, "lm_head.weight")],
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
    return {
        "model_type": "openai-gpt" if is_first else "gpt2",
        "architectures": ["OpenAIGPTLMHeadModel" if is_first else "GPT2LMHeadModel"],
        **KEYS.written(encoder),
        "activation_function": THEIRS[encoder.activation],
        "afn": "gelu" if encoder.activation == "gelu-tanh" else encoder.activation,
        "embd_pdrop": encoder.dropout,
    }


NEOX_NAMES = BlockNames(
    attention_in=("attention.query_key_value",),
    attention_out="attention.dense",
    norm_attention="input_layernorm",
    first="mlp.dense_h_to_4h",
    second="mlp.dense_4h_to_h",
    norm_feedforward="post_attention_layernorm",
)
NEOX_KEYS = EncoderKeys(dropout="hidden_dropout", dropout_attention="attention_dropout")


def neox_tables(config: Configuration, names: Set[str]) -> dict[str, Any]:
    """The tables of the recipe."""
    config.expect("attention_bias", True)
    return _rotary_tables(
        config, 0.25, config.tied(False, "embed_out.weight", names), **NEOX_KEYS.read(config, epsilon=1e-5),
        activation=config.activation("hidden_act", "gelu"), parallel=config.content.get("use_parallel_residual", True),
    )  # fmt: skip


def _rotary_tables(config: Configuration, share: float, tied: dict[str, Any], **encoder: Any) -> dict[str, Any]:
    """The tables of a model with rotary positions, of which it turns a `share` if it says nothing."""
    tokens = {"d_embedding": encoder["d_model"], **tied}
    return {"tokens": tokens, "encoder": encoder | config.rotary(share)}


def neox_layout(recipe: Any) -> list[Part]:
    """The parameters, but for the head."""
    encoder = recipe.encoder
    form = Form(lambda theirs: _as_pairs(theirs[0], encoder), lambda ours, _: [_as_halves(ours, encoder)])
    found = [
        part._replace(form=form) if ".attention.project_in." in part.ours else part
        for part in blocks(encoder, "layers.{}.", NEOX_NAMES)
    ]
    last = f"layers.layers.{first_block(encoder) + encoder.num_layers}.module"
    return [Part("features.weight", ("embed_in.weight",)), *found, *layer(last, "final_layer_norm")]


def _as_pairs(theirs: Tensor, encoder: TransformerEncoder) -> Tensor:
    """The rows of each head as those of all queries, then keys, then values; halves as pairs of neighbors."""
    parts = theirs.view(encoder.num_heads, 3, -1, *theirs.shape[1:]).transpose(0, 1)
    return torch.cat([parts[:2, :, pairs(encoder)], parts[2:]]).flatten(0, 2)


def _as_halves(ours: Tensor, encoder: TransformerEncoder) -> Tensor:
    """The rows of all queries, then keys, then values, as those of each head; pairs of neighbors as halves."""
    parts = ours.view(3, encoder.num_heads, -1, *ours.shape[1:])
    return torch.cat([parts[:2, :, pairs(encoder).argsort()], parts[2:]]).transpose(0, 1).flatten(0, 2)


NEOX = Family(
    prefix="gpt_neox.",
    is_masked=False,
    tables=neox_tables,
    layout=lambda recipe: [*neox_layout(recipe), *own_head(recipe, "embed_out.weight")],
    unused=(".attention.bias", ".attention.masked_bias", ".rotary_emb.inv_freq"),
    tied="embed_out.weight",
)


def neox_config(encoder: TransformerEncoder) -> dict[str, Any]:
    """The keys of config.json for the layers."""
    return {
        "model_type": "gpt_neox",
        "architectures": ["GPTNeoXForCausalLM"],
        **NEOX_KEYS.written(encoder),
        "hidden_act": THEIRS[encoder.activation],
        "rotary_pct": encoder.rotary_share,
        "rotary_emb_base": encoder.rotary_base,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": encoder.rotary_base,
            "partial_rotary_factor": encoder.rotary_share,
        },
        "use_parallel_residual": encoder.parallel,
        "attention_bias": True,
    }


LLAMA_NAMES = BlockNames(
    attention_in=("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    attention_out="self_attn.o_proj",
    norm_attention="input_layernorm",
    first="mlp.gate_proj",
    second="mlp.down_proj",
    norm_feedforward="post_attention_layernorm",
    factor="mlp.up_proj",
)
LLAMA_KEYS = NEOX_KEYS._replace(norm_epsilon="rms_norm_eps")


def llama_tables(config: Configuration, names: Set[str]) -> dict[str, Any]:
    """The tables of the recipe."""
    for name, *values in (("attention_bias", False), ("mlp_bias", False), ("sliding_window", None)):
        config.expect(name, *values)
    config.expect("head_dim", None, config.whole("hidden_size") // config.whole("num_attention_heads"))
    return _rotary_tables(
        config, 1.0, config.tied(False, "lm_head.weight", names), norm_kind="rms", gated=True,
        activation=config.activation("hidden_act", "silu"), **LLAMA_KEYS.read(config, epsilon=1e-6) | {"dropout": 0.0},
    )  # fmt: skip


def llama_layout(recipe: Any) -> list[Part]:
    """The parameters, but for the bias of the head. Keys and values of a group of heads become those of each head."""
    encoder = recipe.encoder

    def read(theirs: Sequence[Tensor]) -> Tensor:
        d = encoder.d_model // encoder.num_heads
        heads = (part.view(-1, d, part.shape[1]) for part in theirs)
        groups = (part.repeat_interleave(encoder.num_heads // max(1, len(part)), 0) for part in heads)
        queries, keys, values = (part.view(encoder.num_heads, d, -1) for part in groups)
        order = pairs(encoder)
        return torch.cat([queries[:, order], keys[:, order], values]).flatten(0, 1)

    return [
        Part("features.weight", ("embed_tokens.weight",)),
        *blocks(encoder, "layers.{}.", LLAMA_NAMES, attention=Form(read), has_bias=False),
        Part(f"layers.layers.{first_block(encoder) + encoder.num_layers}.module.weight", ("norm.weight",)),
        *own_head(recipe, "lm_head.weight"),
    ]


LLAMA = Family(
    prefix="model.",
    is_masked=False,
    tables=llama_tables,
    layout=llama_layout,
    unused=(".rotary_emb.inv_freq",),
    tied="lm_head.weight",
)
