"""BERT and its kin: the tables of a recipe and the parameters, with or without heads for masks and sentences.

BERT and MiniLM (Devlin et al. 2019); DistilBERT (Sanh et al. 2019), without segments and without a pooler; RoBERTa (Liu
et al. 2019), whose positions are numbered from 2, with byte-level subwords, and XLM-R and CamemBERT, which are the same
with others; ELECTRA (Clark et al. 2020) and ALBERT (Lan et al. 2020), whose vectors of tokens may have a width of their
own; MPNet (Song et al. 2020), whose scores know distances; DeBERTa (He et al. 2021), whose distances have vectors; and
ModernBERT (Warner et al. 2024), with rotary positions, windows and gates.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ensue.errors import DataError
from ensue.extensions.importing.family import Configuration, EncoderKeys, Family
from ensue.extensions.importing.layouts import (
    FROM_THE_THIRD,
    TURNED,
    BlockNames,
    Form,
    Part,
    blocks,
    first_block,
    layer,
    pairs,
)
from ensue.models.specification import TransformerEncoder
from ensue.parsing import shown

NAMES = BlockNames(
    attention_in=("attention.self.query", "attention.self.key", "attention.self.value"),
    attention_out="attention.output.dense",
    norm_attention="attention.output.LayerNorm",
    first="intermediate.dense",
    second="output.dense",
    norm_feedforward="output.LayerNorm",
)
KEYS = EncoderKeys()
HEAD = "cls.predictions"
OWN_HEADS = f"{HEAD}.transform.dense", f"{HEAD}.transform.LayerNorm", f"{HEAD}.bias"
WORDS = "embeddings.word_embeddings.weight"


def tables(config: Configuration, names: Set[str]) -> dict[str, Any]:
    """The tables of the recipe."""
    config.expect("position_embedding_type", "absolute", None)
    config.expect("is_decoder", False)
    follows = "cls.seq_relationship.weight" in names
    return {
        "data": {"next_sentence": follows},
        "input": {"segments": config.whole("type_vocab_size", 2)},
        "encoder": encoder_table(config),
        "head": {"masked": f"{HEAD}.bias" in names, "pooler": "pooler.dense.weight" in names or follows},
    }


def encoder_table(
    config: Configuration, keys: EncoderKeys = KEYS, *, activation: str = "hidden_act", epsilon: float = 1e-12
) -> dict[str, Any]:
    """The table `[encoder]` of BERT and its kin."""
    return {
        **keys.read(config, epsilon=epsilon, dropout=0.1),
        "positions": "learned",
        "norm": "post",
        "norm_input": True,
        "activation": config.activation(activation, "gelu"),
    }


def from_the_third(parts: list[Part]) -> list[Part]:
    """Parts whose positions are numbered from 2."""
    return [part._replace(form=FROM_THE_THIRD) if part.ours == "layers.layers.0.weight" else part for part in parts]


def mapped(encoder: TransformerEncoder, name: str) -> list[Part]:
    """The map from vectors of tokens to the width of the layers, if there is one."""
    return layer(f"layers.layers.{first_block(encoder) - 1}.module", name) if encoder.d_input else []


def embeddings(segments: int) -> list[Part]:
    """The vectors of tokens, positions and segments, and their normalization."""
    return [
        Part("features.weight", (WORDS,)),
        *([Part("segments.weight", ("embeddings.token_type_embeddings.weight",))] if segments else []),
        Part("layers.layers.0.weight", ("embeddings.position_embeddings.weight",)),
        *layer("layers.layers.1.module", "embeddings.LayerNorm"),
    ]


def heads(recipe: Any, dense: str, norm: str, bias: str, *, pooler: str = "", has_bias: bool = True) -> list[Part]:
    """The heads of the recipe: for masks a linear layer, a normalization and the softmax's bias, and the pooler."""
    own = (("head.projection.0", dense), ("head.projection.2", norm)) if recipe.head.masked else ()
    found = [part for ours, name in own for part in layer(ours, name, has_bias=has_bias)]
    found += [Part("head.bias", (bias,))] if recipe.head.masked else []
    return found + (layer("pooler.0", pooler) if pooler and (recipe.head.pooler or recipe.data.next_sentence) else [])


def body(recipe: Any) -> list[Part]:
    """The parameters below the heads."""
    return [*embeddings(recipe.input.segments), *blocks(recipe.encoder, "encoder.layer.{}.", NAMES)]


def layout(recipe: Any) -> list[Part]:
    """The parameters."""
    follows = layer("next_sentence", "cls.seq_relationship") if recipe.data.next_sentence else []
    return [
        *body(recipe),
        *heads(recipe, *OWN_HEADS, pooler="pooler.dense"),
        *(x._replace(form=TURNED) for x in follows),
    ]


BERT = Family(
    prefix="bert.", is_masked=True, tables=tables, layout=layout,
    unused=("embeddings.position_ids", f"{HEAD}.decoder.bias"), tied=f"{HEAD}.decoder.weight",
)  # fmt: skip


def architecture(recipe: Any) -> str:
    """The class of transformers for a model of this recipe."""
    if recipe.data.next_sentence and recipe.head.masked:
        return "BertForPreTraining"
    return "BertForMaskedLM" if recipe.head.masked else "BertModel"


def config(encoder: TransformerEncoder) -> dict[str, Any]:
    """The keys of config.json for the layers."""
    return {"model_type": "bert", **KEYS.written(encoder), "position_embedding_type": "absolute"}


DISTIL_NAMES = BlockNames(
    attention_in=("attention.q_lin", "attention.k_lin", "attention.v_lin"),
    attention_out="attention.out_lin",
    norm_attention="sa_layer_norm",
    first="ffn.lin1",
    second="ffn.lin2",
    norm_feedforward="output_layer_norm",
)
DISTIL_KEYS = EncoderKeys(
    d_model="dim",
    num_layers="n_layers",
    num_heads="n_heads",
    d_feedforward="hidden_dim",
    dropout="dropout",
    dropout_attention="attention_dropout",
)


def distil_tables(config: Configuration, names: Set[str]) -> dict[str, Any]:
    """The tables of the recipe."""
    encoder = encoder_table(config, DISTIL_KEYS, activation="activation")
    return {"encoder": encoder, "head": {"masked": "vocab_projector.bias" in names}}


def distil_layout(recipe: Any) -> list[Part]:
    """The parameters."""
    found = [*embeddings(0), *blocks(recipe.encoder, "transformer.layer.{}.", DISTIL_NAMES)]
    return found + heads(recipe, "vocab_transform", "vocab_layer_norm", "vocab_projector.bias")


DISTILBERT = Family(
    prefix="distilbert.", is_masked=True, tables=distil_tables, layout=distil_layout,
    unused=("embeddings.position_ids",), tied="vocab_projector.weight",
)  # fmt: skip


FIRST_POSITION = 2


def roberta_tables(config: Configuration, names: Set[str]) -> dict[str, Any]:
    """The tables of the recipe."""
    config.expect("position_embedding_type", "absolute", None)
    config.expect("is_decoder", False)
    config.expect("pad_token_id", FIRST_POSITION - 1)  # the positions of the text come after its number
    encoder = encoder_table(config)
    has_head = "lm_head.bias" in names
    _check_gelu(config, encoder, has_head)
    return {
        "input": {"segments": config.whole("type_vocab_size", 2)},
        "encoder": encoder | {"context": encoder["context"] - FIRST_POSITION},
        "head": {"masked": has_head, "pooler": "pooler.dense.weight" in names},
    }


def _check_gelu(config: Configuration, encoder: dict[str, Any], has_head: bool) -> None:
    """Raises DataError unless the layers have the nonlinearity of a head that always has the same one."""
    if has_head and encoder["activation"] != "gelu":
        raise DataError("the head's activation is gelu, another one of the layers is not supported", config.path)


def roberta_layout(recipe: Any, names: BlockNames = NAMES) -> list[Part]:
    """The parameters."""
    found = from_the_third(embeddings(recipe.input.segments))
    found += blocks(recipe.encoder, "encoder.layer.{}.", names)
    return found + heads(recipe, "lm_head.dense", "lm_head.layer_norm", "lm_head.bias", pooler="pooler.dense")


ROBERTA = Family(
    prefix="roberta.", is_masked=True, tables=roberta_tables, layout=roberta_layout,
    unused=("embeddings.position_ids", "lm_head.decoder.bias"), tied="lm_head.decoder.weight",
)  # fmt: skip


def electra_tables(config: Configuration, names: Set[str]) -> dict[str, Any]:
    """The tables of the recipe."""
    found, has_head = tables(config, names), "generator_lm_head.bias" in names
    _check_gelu(config, found["encoder"], has_head)
    width = config.whole("embedding_size", 128)
    maps = {} if width == found["encoder"]["d_model"] else {"d_input": width}
    return found | {"encoder": found["encoder"] | maps, "head": {"masked": has_head}}


def electra_layout(recipe: Any) -> list[Part]:
    """The parameters."""
    head = "generator_predictions"
    found = [*body(recipe), *mapped(recipe.encoder, "embeddings_project")]
    return found + heads(recipe, f"{head}.dense", f"{head}.LayerNorm", "generator_lm_head.bias")


ELECTRA = Family(
    prefix="electra.", is_masked=True, tables=electra_tables, layout=electra_layout,
    unused=("embeddings.position_ids",), tied="generator_lm_head.weight",
)  # fmt: skip


ALBERT_NAMES = BlockNames(
    attention_in=("attention.query", "attention.key", "attention.value"),
    attention_out="attention.dense",
    norm_attention="attention.LayerNorm",
    first="ffn",
    second="ffn_output",
    norm_feedforward="full_layer_layer_norm",
)


def albert_tables(config: Configuration, names: Set[str]) -> dict[str, Any]:
    """The tables of the recipe. Each block gets a copy of the one that all share."""
    config.expect("num_hidden_groups", 1)
    config.expect("inner_group_num", 1)
    config = Configuration({"hidden_act": "gelu_new", **config.content}, config.path)
    return tables(config, names) | {
        "encoder": encoder_table(config) | {"d_input": config.whole("embedding_size", 128)},
        "head": {"masked": "predictions.bias" in names, "pooler": "pooler.weight" in names},
    }


def albert_layout(recipe: Any) -> list[Part]:
    """The parameters."""
    encoder = recipe.encoder
    found = [*embeddings(recipe.input.segments), *mapped(encoder, "encoder.embedding_hidden_mapping_in")]
    found += blocks(encoder, "encoder.albert_layer_groups.0.albert_layers.0.", ALBERT_NAMES)
    return found + heads(recipe, "predictions.dense", "predictions.LayerNorm", "predictions.bias", pooler="pooler")


ALBERT = Family(
    prefix="albert.", is_masked=True, tables=albert_tables, layout=albert_layout,
    unused=("embeddings.position_ids", "predictions.decoder.bias"), tied="predictions.decoder.weight",
)  # fmt: skip


MPNET_NAMES = NAMES._replace(
    attention_in=("attention.attn.q", "attention.attn.k", "attention.attn.v"),
    attention_out="attention.attn.o",
    norm_attention="attention.LayerNorm",
)


def mpnet_tables(config: Configuration, names: Set[str]) -> dict[str, Any]:
    """The tables of the recipe."""
    found = roberta_tables(config, names)
    buckets = config.whole("relative_attention_num_buckets", 32)
    return found | {"input": {}, "encoder": found["encoder"] | {"relative_buckets": buckets}}


def mpnet_layout(recipe: Any) -> list[Part]:
    """The parameters. Each block gets a copy of the numbers of distances, which all share."""
    first, shared = first_block(recipe.encoder), "encoder.relative_attention_bias.weight"
    ours = [f"layers.layers.{first + n}.attention.relative.weight" for n in range(recipe.encoder.num_layers)]
    return [*roberta_layout(recipe, MPNET_NAMES), *(Part(name, (shared,)) for name in ours)]


MPNET = replace(ROBERTA, prefix="mpnet.", tables=mpnet_tables, layout=mpnet_layout)


def deberta_tables(config: Configuration, names: Set[str]) -> dict[str, Any]:
    """The tables of the recipe."""
    given = config.content
    known = {
        "relative_attention": (False, True), "position_biased_input": (True, False), "share_att_key": (False, True),
        "norm_rel_ebd": ("none", "layer_norm"), "conv_kernel_size": (0, 0),
        "embedding_size": (given.get("hidden_size"),) * 2, "max_relative_positions": (-1, -1),
    }  # fmt: skip
    config = Configuration({name: default for name, (default, _) in known.items()} | given, config.path)
    for name, (_, expected) in known.items():
        config.expect(name, expected)
    kinds = given.get("pos_att_type")
    kinds = kinds.split("|") if isinstance(kinds, str) else kinds
    if not isinstance(kinds, list) or sorted(map(str, kinds)) != ["c2p", "p2c"]:
        raise DataError(f"pos_att_type = {shown(kinds)} is not supported; expected c2p and p2c", config.path)
    config = Configuration({"layer_norm_eps": 1e-7, **config.content}, config.path)
    relative = {"positions": "disentangled", "relative_buckets": config.whole("position_buckets")}
    return {
        "input": {"segments": config.whole("type_vocab_size") if given.get("type_vocab_size") else 0},
        "encoder": encoder_table(config) | relative,
        "head": {"masked": f"{HEAD}.bias" in names},
    }


DEBERTA_NAMES = NAMES._replace(
    attention_in=("attention.self.query_proj", "attention.self.key_proj", "attention.self.value_proj")
)


def deberta_layout(recipe: Any) -> list[Part]:
    """The parameters. Each block gets a copy of the vectors of distances, which all share."""
    encoder, first = recipe.encoder, first_block(recipe.encoder)
    shared = ("encoder.rel_embeddings.weight", "encoder.LayerNorm.weight", "encoder.LayerNorm.bias")

    def read(theirs: Sequence[Tensor]) -> Tensor:
        vectors, weight, bias = theirs
        return F.layer_norm(vectors, vectors.shape[1:], weight, bias, encoder.norm_epsilon)

    return [
        *(part for part in embeddings(recipe.input.segments) if not part.ours.startswith("layers.")),
        *layer("layers.layers.0.module", "embeddings.LayerNorm"),
        *blocks(encoder, "encoder.layer.{}.", DEBERTA_NAMES),
        *(Part(f"layers.layers.{first + n}.attention.relative.weight", shared, Form(read))
          for n in range(encoder.num_layers)),
        *heads(recipe, *OWN_HEADS),
    ]  # fmt: skip


DEBERTA = replace(
    BERT, prefix="deberta.", tables=deberta_tables, layout=deberta_layout,
    renamed=(("lm_predictions.lm_head.bias", f"{HEAD}.bias"), ("lm_predictions.lm_head.", f"{HEAD}.transform.")),
)  # fmt: skip


MODERN_NAMES = BlockNames(
    attention_in=("attn.Wqkv",),
    attention_out="attn.Wo",
    norm_attention="attn_norm",
    first="mlp.Wi",
    second="mlp.Wo",
    norm_feedforward="mlp_norm",
    factor="mlp.Wi",
)
MODERN_KEYS = EncoderKeys(norm_epsilon="norm_eps", dropout="mlp_dropout", dropout_attention="attention_dropout")
GLOBAL, LOCAL = "full_attention", "sliding_attention"


def modern_tables(config: Configuration, names: Set[str]) -> dict[str, Any]:
    """The tables of the recipe."""
    plain = {"hidden_activation": "gelu", "norm_eps": 1e-5, "mlp_dropout": 0, "attention_dropout": 0}
    config = Configuration(plain | config.content, config.path)
    for name in ("norm_bias", "attention_bias", "mlp_bias", "classifier_bias"):
        config.expect(name, False)
    config.expect("classifier_activation", config.content["hidden_activation"])
    given = config.content
    every, types = config.whole("global_attn_every_n_layers", 3), given.get("layer_types")
    if isinstance(types, list) and types:
        every = types.index(GLOBAL, 1) if types.count(GLOBAL) > 1 else len(types)
        if types != [LOCAL if number % every else GLOBAL for number in range(len(types))]:
            raise DataError(f"layer_types {shown(types)} are not supported; expected {GLOBAL} at every n-th place",
                            config.path)  # fmt: skip
    bases = given.get("rope_parameters")
    old = {GLOBAL: ("global_rope_theta", 160_000.0), LOCAL: ("local_rope_theta", 10_000.0)}
    turns = {}
    for kind, (name, default) in old.items():
        rope = bases.get(kind) if isinstance(bases, dict) else bases
        keys = {"rope_theta": given.get(name) or default, "rope_parameters": rope}
        turns[kind] = Configuration(keys, config.path).rotary(1.0)
    own = {
        "norm": "pre", "norm_first": False, "gated": True,
        "neighbors": config.whole("local_attention", 128) // 2, "global_every": every,
        "neighbors_base": turns[LOCAL]["rotary_base"],
    }  # fmt: skip
    encoder = encoder_table(config, MODERN_KEYS, activation="hidden_activation", epsilon=1e-5)
    return {"encoder": encoder | turns[GLOBAL] | own, "head": {"masked": "decoder.bias" in names}}


def modern_layout(recipe: Any) -> list[Part]:
    """The parameters. There are no biases but that of the softmax."""
    encoder = recipe.encoder

    def turned(theirs: Sequence[Tensor]) -> Tensor:
        parts = theirs[0].view(3, encoder.num_heads, -1, encoder.d_model)
        return torch.cat([parts[:2, :, pairs(encoder)], parts[2:]]).flatten(0, 2)

    found = [
        Part("features.weight", ("embeddings.tok_embeddings.weight",)),
        *layer("layers.layers.0.module", "embeddings.norm", has_bias=False),
        *blocks(encoder, "layers.{}.", MODERN_NAMES, attention=Form(turned), has_bias=False),
        *layer(f"layers.layers.{first_block(encoder) + encoder.num_layers}.module", "final_norm", has_bias=False),
    ]
    halves = {".feedforward.0.": 0, ".feedforward.factor.": 1}
    found = [next((_half(part, n) for name, n in halves.items() if name in part.ours), part) for part in found]
    return found + heads(recipe, "head.dense", "head.norm", "decoder.bias", has_bias=False)


def _half(part: Part, number: int) -> Part:
    """The part whose tensor is one half of theirs."""
    return part._replace(form=Form(lambda theirs: part.form.read(theirs).chunk(2)[number].clone()))


MODERNBERT = Family(
    prefix="model.", is_masked=True, tables=modern_tables, layout=modern_layout, tied="decoder.weight",
)  # fmt: skip
