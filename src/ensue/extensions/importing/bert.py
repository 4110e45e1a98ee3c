"""Families of masked language models, with or without heads.

The families are BERT and MiniLM (Devlin et al. 2019); DistilBERT (Sanh et al. 2019), without segments and pooler;
RoBERTa (Liu et al. 2019), XLM-R and CamemBERT, whose positions start at 2; ELECTRA (Clark et al. 2020) and ALBERT (Lan
et al. 2020), whose embeddings may be narrower than the layers; MPNet (Song et al. 2020), with relative position biases;
DeBERTa (He et al. 2021), with disentangled attention; and ModernBERT (Warner et al. 2024), with rotary positions, local
attention and gates.
"""

from collections.abc import Sequence, Set
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ensue.errors import DataError, quote
from ensue.extensions.importing.family import (
    IDENTITY,
    REVERSED_ROWS,
    SKIP_TWO_POSITIONS,
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
    attention_in=("attention.self.query", "attention.self.key", "attention.self.value"),
    attention_out="attention.output.dense", norm_attention="attention.output.LayerNorm",
    feedforward_in="intermediate.dense", feedforward_out="output.dense", norm_feedforward="output.LayerNorm",
)  # fmt: skip
KEYS = EncoderKeys()
HEAD = "cls.predictions"
HEAD_NAMES = f"{HEAD}.transform.dense", f"{HEAD}.transform.LayerNorm", f"{HEAD}.bias"
WORDS = "embeddings.word_embeddings.weight"


def recipe_tables(config: Configuration, names: Set[str]) -> dict[str, Any]:
    config.expect("position_embedding_type", "absolute", None)
    config.expect("is_decoder", False)
    has_next_sentence = "cls.seq_relationship.weight" in names
    return {
        "data": {"next_sentence": has_next_sentence},
        "input": {"segments": config.positive_int("type_vocab_size", 2)},
        "encoder": encoder_table(config),
        "head": {"masked": f"{HEAD}.bias" in names, "pooler": "pooler.dense.weight" in names or has_next_sentence},
    }


def encoder_table(
    config: Configuration, keys: EncoderKeys = KEYS, *, activation: str = "hidden_act", epsilon: float = 1e-12
) -> dict[str, Any]:
    return {
        **keys.read(config, epsilon=epsilon, dropout=0.1), "positions": "learned", "norm": "post", "norm_input": True,
        "activation": config.activation(activation, "gelu"),
    }  # fmt: skip


def map_embeddings(segments: int, *, positions: Conversion = IDENTITY) -> list[ParameterMapping]:
    """Return the mappings of the embeddings of tokens, segments and positions, and of their normalization."""
    return [
        ParameterMapping("features.weight", (WORDS,)),
        *([ParameterMapping("segments.weight", ("embeddings.token_type_embeddings.weight",))] if segments else []),
        ParameterMapping("layers.layers.0.weight", ("embeddings.position_embeddings.weight",), positions),
        *map_layer("layers.layers.1.module", "embeddings.LayerNorm"),
    ]


def map_heads(
    recipe: Any, dense: str, norm: str, bias: str, *, pooler: str = "", has_bias: bool = True
) -> list[ParameterMapping]:
    """Return the mappings of the masked head and of the pooler, if the model has them.

    The masked head has a linear layer `dense`, a normalization `norm`, and the `bias` of the softmax.
    """
    mappings = []
    if recipe.head.masked:
        mappings += map_layer("head.projection.0", dense, has_bias=has_bias)
        mappings += map_layer("head.projection.2", norm, has_bias=has_bias)
        mappings.append(ParameterMapping("head.bias", (bias,)))
    if pooler and (recipe.head.pooler or recipe.data.next_sentence):
        mappings += map_layer("pooler.0", pooler)
    return mappings


def map_encoder(
    recipe: Any, *, prefix: str = "encoder.layer.{}.", names: BlockNames = NAMES, projection: str = "",
    positions: Conversion = IDENTITY,
) -> list[ParameterMapping]:  # fmt: skip
    """Return the mappings of a model without its heads.

    The blocks have the names `prefix` and `names`. `projection` maps the embeddings to the width of the blocks.
    """
    native_projection = f"layers.layers.{first_block(recipe.encoder) - 1}.module"
    return [
        *map_embeddings(recipe.input.segments, positions=positions),
        *(map_layer(native_projection, projection) if recipe.encoder.d_input else []),
        *map_blocks(recipe.encoder, prefix, names),
    ]


def map_model(recipe: Any, *, head: tuple[str, str, str], pooler: str = "", **options: Any) -> list[ParameterMapping]:
    """Return the mappings of a model with its heads, with the options of `map_encoder` and the names of `map_heads`."""
    return [*map_encoder(recipe, **options), *map_heads(recipe, *head, pooler=pooler)]


def layout(recipe: Any) -> list[ParameterMapping]:
    next_sentence = map_layer("next_sentence", "cls.seq_relationship") if recipe.data.next_sentence else []
    return [
        *map_model(recipe, head=HEAD_NAMES, pooler="pooler.dense"),
        *(mapping._replace(conversion=REVERSED_ROWS) for mapping in next_sentence),
    ]


BERT = Family(
    prefix="bert.", is_masked=True, recipe_tables=recipe_tables, layout=layout,
    unused=("embeddings.position_ids", f"{HEAD}.decoder.bias"), tied=f"{HEAD}.decoder.weight",
)  # fmt: skip


def architecture(recipe: Any) -> str:
    """Return the name of the class of transformers for a recipe."""
    if recipe.data.next_sentence and recipe.head.masked:
        return "BertForPreTraining"
    return "BertForMaskedLM" if recipe.head.masked else "BertModel"


def config(encoder: TransformerEncoder) -> dict[str, Any]:
    """Return the keys of config.json for an encoder."""
    return {"model_type": "bert", **KEYS.to_config(encoder), "position_embedding_type": "absolute"}


DISTIL_NAMES = BlockNames(
    attention_in=("attention.q_lin", "attention.k_lin", "attention.v_lin"), attention_out="attention.out_lin",
    norm_attention="sa_layer_norm", feedforward_in="ffn.lin1", feedforward_out="ffn.lin2",
    norm_feedforward="output_layer_norm",
)  # fmt: skip
DISTIL_KEYS = EncoderKeys(
    d_model="dim", num_layers="n_layers", num_heads="n_heads", d_feedforward="hidden_dim", dropout="dropout",
    dropout_attention="attention_dropout",
)  # fmt: skip


def distil_tables(config: Configuration, names: Set[str]) -> dict[str, Any]:
    encoder = encoder_table(config, DISTIL_KEYS, activation="activation")
    return {"encoder": encoder, "head": {"masked": "vocab_projector.bias" in names}}


DISTILBERT = Family(
    prefix="distilbert.", is_masked=True, recipe_tables=distil_tables,
    layout=partial(
        map_model, prefix="transformer.layer.{}.", names=DISTIL_NAMES,
        head=("vocab_transform", "vocab_layer_norm", "vocab_projector.bias"),
    ),
    unused=("embeddings.position_ids",), tied="vocab_projector.weight",
)  # fmt: skip


FIRST_POSITION = 2  # RoBERTa numbers the positions of a text from 2


def roberta_tables(config: Configuration, names: Set[str]) -> dict[str, Any]:
    config.expect("position_embedding_type", "absolute", None)
    config.expect("is_decoder", False)
    config.expect("pad_token_id", FIRST_POSITION - 1)  # transformers numbers positions from pad_token_id + 1 on
    encoder = encoder_table(config)
    has_head = "lm_head.bias" in names
    _check_gelu(config, encoder, has_head)
    return {
        "input": {"segments": config.positive_int("type_vocab_size", 2)},
        "encoder": encoder | {"context": encoder["context"] - FIRST_POSITION},
        "head": {"masked": has_head, "pooler": "pooler.dense.weight" in names},
    }


def _check_gelu(config: Configuration, encoder: dict[str, Any], has_head: bool) -> None:
    if has_head and encoder["activation"] != "gelu":
        raise DataError(f"unsupported activation {encoder['activation']}; expected gelu, as in the head", config.path)


roberta_layout = partial(
    map_model, positions=SKIP_TWO_POSITIONS, head=("lm_head.dense", "lm_head.layer_norm", "lm_head.bias"),
    pooler="pooler.dense",
)  # fmt: skip
ROBERTA = Family(
    prefix="roberta.", is_masked=True, recipe_tables=roberta_tables, layout=roberta_layout,
    unused=("embeddings.position_ids", "lm_head.decoder.bias"), tied="lm_head.decoder.weight",
)  # fmt: skip


def electra_tables(config: Configuration, names: Set[str]) -> dict[str, Any]:
    tables, has_head = recipe_tables(config, names), "generator_lm_head.bias" in names
    encoder = tables["encoder"]
    _check_gelu(config, encoder, has_head)
    width = config.positive_int("embedding_size", 128)
    projection = {} if width == encoder["d_model"] else {"d_input": width}
    return tables | {"encoder": encoder | projection, "head": {"masked": has_head}}


ELECTRA = Family(
    prefix="electra.", is_masked=True, recipe_tables=electra_tables,
    layout=partial(
        map_model, projection="embeddings_project",
        head=("generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head.bias"),
    ),
    unused=("embeddings.position_ids",), tied="generator_lm_head.weight",
)  # fmt: skip


ALBERT_NAMES = BlockNames(
    attention_in=("attention.query", "attention.key", "attention.value"), attention_out="attention.dense",
    norm_attention="attention.LayerNorm", feedforward_in="ffn", feedforward_out="ffn_output",
    norm_feedforward="full_layer_layer_norm",
)  # fmt: skip


def albert_tables(config: Configuration, names: Set[str]) -> dict[str, Any]:
    """Return the tables of the recipe. The published model has one block for all layers; each layer gets a copy."""
    config.expect("num_hidden_groups", 1)
    config.expect("inner_group_num", 1)
    config = Configuration({"hidden_act": "gelu_new", **config.content}, config.path)
    return recipe_tables(config, names) | {
        "encoder": encoder_table(config) | {"d_input": config.positive_int("embedding_size", 128)},
        "head": {"masked": "predictions.bias" in names, "pooler": "pooler.weight" in names},
    }


ALBERT = Family(
    prefix="albert.", is_masked=True, recipe_tables=albert_tables,
    layout=partial(
        map_model, prefix="encoder.albert_layer_groups.0.albert_layers.0.", names=ALBERT_NAMES, pooler="pooler",
        projection="encoder.embedding_hidden_mapping_in",
        head=("predictions.dense", "predictions.LayerNorm", "predictions.bias"),
    ),
    unused=("embeddings.position_ids", "predictions.decoder.bias"), tied="predictions.decoder.weight",
)  # fmt: skip


MPNET_NAMES = NAMES._replace(
    attention_in=("attention.attn.q", "attention.attn.k", "attention.attn.v"), attention_out="attention.attn.o",
    norm_attention="attention.LayerNorm",
)  # fmt: skip


def mpnet_tables(config: Configuration, names: Set[str]) -> dict[str, Any]:
    tables = roberta_tables(config, names)
    buckets = config.positive_int("relative_attention_num_buckets", 32)
    return tables | {"input": {}, "encoder": tables["encoder"] | {"relative_buckets": buckets}}


def mpnet_layout(recipe: Any) -> list[ParameterMapping]:
    """Return the mappings. The blocks share their relative position biases, and each block gets a copy."""
    start, shared = first_block(recipe.encoder), "encoder.relative_attention_bias.weight"
    native = [f"layers.layers.{start + n}.attention.relative.weight" for n in range(recipe.encoder.num_layers)]
    return [*roberta_layout(recipe, names=MPNET_NAMES), *(ParameterMapping(name, (shared,)) for name in native)]


MPNET = replace(ROBERTA, prefix="mpnet.", recipe_tables=mpnet_tables, layout=mpnet_layout)


def deberta_tables(config: Configuration, names: Set[str]) -> dict[str, Any]:
    content = config.content
    expected_values = {  # the default of transformers and the supported value of each key
        "relative_attention": (False, True), "position_biased_input": (True, False), "share_att_key": (False, True),
        "norm_rel_ebd": ("none", "layer_norm"), "conv_kernel_size": (0, 0),
        "embedding_size": (content.get("hidden_size"),) * 2, "max_relative_positions": (-1, -1),
    }  # fmt: skip
    defaults = {name: default for name, (default, _) in expected_values.items()}
    config = Configuration({**defaults, "layer_norm_eps": 1e-7, **content}, config.path)
    for name, (_, expected) in expected_values.items():
        config.expect(name, expected)
    kinds = content.get("pos_att_type")
    kinds = kinds.split("|") if isinstance(kinds, str) else kinds
    if not isinstance(kinds, list) or sorted(map(str, kinds)) != ["c2p", "p2c"]:
        raise DataError(f"pos_att_type = {quote(kinds)} is not supported; expected c2p and p2c", config.path)
    relative = {"positions": "disentangled", "relative_buckets": config.positive_int("position_buckets")}
    return {
        "input": {"segments": config.positive_int("type_vocab_size") if content.get("type_vocab_size") else 0},
        "encoder": encoder_table(config) | relative,
        "head": {"masked": f"{HEAD}.bias" in names},
    }


DEBERTA_NAMES = NAMES._replace(
    attention_in=("attention.self.query_proj", "attention.self.key_proj", "attention.self.value_proj")
)


def deberta_layout(recipe: Any) -> list[ParameterMapping]:
    """Return the mappings. The blocks share the vectors of relative positions, and each block gets a copy."""
    encoder, start = recipe.encoder, first_block(recipe.encoder)
    shared = ("encoder.rel_embeddings.weight", "encoder.LayerNorm.weight", "encoder.LayerNorm.bias")

    def read(published: Sequence[Tensor]) -> Tensor:
        vectors, weight, bias = published
        return F.layer_norm(vectors, vectors.shape[1:], weight, bias, encoder.norm_epsilon)

    return [
        *(mapping for mapping in map_embeddings(recipe.input.segments) if not mapping.native.startswith("layers.")),
        *map_layer("layers.layers.0.module", "embeddings.LayerNorm"),
        *map_blocks(encoder, "encoder.layer.{}.", DEBERTA_NAMES),
        *(ParameterMapping(f"layers.layers.{start + n}.attention.relative.weight", shared, Conversion(read))
          for n in range(encoder.num_layers)),
        *map_heads(recipe, *HEAD_NAMES),
    ]  # fmt: skip


DEBERTA = replace(
    BERT, prefix="deberta.", recipe_tables=deberta_tables, layout=deberta_layout,
    renamed=(("lm_predictions.lm_head.bias", f"{HEAD}.bias"), ("lm_predictions.lm_head.", f"{HEAD}.transform.")),
)  # fmt: skip


MODERN_NAMES = BlockNames(
    attention_in=("attn.Wqkv",), attention_out="attn.Wo", norm_attention="attn_norm", feedforward_in="mlp.Wi",
    feedforward_out="mlp.Wo", norm_feedforward="mlp_norm", factor="mlp.Wi",
)  # fmt: skip
MODERN_KEYS = EncoderKeys(norm_epsilon="norm_eps", dropout="mlp_dropout", dropout_attention="attention_dropout")
GLOBAL, LOCAL = "full_attention", "sliding_attention"


def modern_tables(config: Configuration, names: Set[str]) -> dict[str, Any]:
    defaults = {"hidden_activation": "gelu", "norm_eps": 1e-5, "mlp_dropout": 0, "attention_dropout": 0}
    config = Configuration(defaults | config.content, config.path)
    for name in ("norm_bias", "attention_bias", "mlp_bias", "classifier_bias"):
        config.expect(name, False)
    config.expect("classifier_activation", config.content["hidden_activation"])
    content = config.content
    interval, types = config.positive_int("global_attn_every_n_layers", 3), content.get("layer_types")
    if isinstance(types, list) and types:
        interval = types.index(GLOBAL, 1) if types.count(GLOBAL) > 1 else len(types)
        if types != [LOCAL if number % interval else GLOBAL for number in range(len(types))]:
            problem = f"layer_types {quote(types)} are not supported"
            raise DataError(f"{problem}; expected {GLOBAL} at every n-th layer", config.path)
    parameters = content.get("rope_parameters")
    older_keys = {GLOBAL: ("global_rope_theta", 160_000.0), LOCAL: ("local_rope_theta", 10_000.0)}
    rotary = {}
    for kind, (name, default) in older_keys.items():
        rope = parameters.get(kind) if isinstance(parameters, dict) else parameters
        keys = {"rope_theta": content.get(name) or default, "rope_parameters": rope}
        rotary[kind] = Configuration(keys, config.path).rotary(1.0)
    encoder = encoder_table(config, MODERN_KEYS, activation="hidden_activation", epsilon=1e-5) | rotary[GLOBAL]
    encoder |= {
        "norm": "pre", "norm_first": False, "gated": True,
        "neighbors": config.positive_int("local_attention", 128) // 2, "global_every": interval,
        "neighbors_base": rotary[LOCAL]["rotary_base"],
    }  # fmt: skip
    return {"encoder": encoder, "head": {"masked": "decoder.bias" in names}}


def modern_layout(recipe: Any) -> list[ParameterMapping]:
    """Return the mappings. The only bias is the bias of the softmax."""
    encoder = recipe.encoder

    def read_attention(published: Sequence[Tensor]) -> Tensor:
        projections = published[0].view(3, encoder.num_heads, -1, encoder.d_model)
        return torch.cat([projections[:2, :, rotary_pairs(encoder)], projections[2:]]).flatten(0, 2)

    mappings = [
        ParameterMapping("features.weight", ("embeddings.tok_embeddings.weight",)),
        *map_layer("layers.layers.0.module", "embeddings.norm", has_bias=False),
        *map_blocks(encoder, "layers.{}.", MODERN_NAMES, attention=Conversion(read_attention), has_bias=False),
        *map_layer(f"layers.layers.{first_block(encoder) + encoder.num_layers}.module", "final_norm", has_bias=False),
    ]
    for index, mapping in enumerate(mappings):
        for half, name in enumerate((".feedforward.0.", ".feedforward.factor.")):
            if name in mapping.native:
                mappings[index] = mapping._replace(conversion=_take_half(mapping.conversion, half))
    return mappings + map_heads(recipe, "head.dense", "head.norm", "decoder.bias", has_bias=False)


def _take_half(conversion: Conversion, half: int) -> Conversion:
    return Conversion(lambda published: conversion.read(published).chunk(2)[half].clone())


MODERNBERT = Family(
    prefix="model.", is_masked=True, recipe_tables=modern_tables, layout=modern_layout, tied="decoder.weight",
)  # fmt: skip
