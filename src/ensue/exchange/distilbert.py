"""DistilBERT (Sanh et al. 2019): BERT without segments and without a pooler."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from ensue.exchange.bert import EncoderKeys, embeddings, encoder_table, mask_head
from ensue.exchange.family import Configuration, Family
from ensue.exchange.layouts import BlockNames, Part, blocks

NAMES = BlockNames(
    attention_in=("attention.q_lin", "attention.k_lin", "attention.v_lin"),
    attention_out="attention.out_lin",
    norm_attention="sa_layer_norm",
    first="ffn.lin1",
    second="ffn.lin2",
    norm_feedforward="output_layer_norm",
)
KEYS = EncoderKeys(
    d_model="dim",
    num_layers="n_layers",
    num_heads="n_heads",
    d_feedforward="hidden_dim",
    activation="activation",
    dropout="dropout",
    dropout_attention="attention_dropout",
)


def tables(config: Configuration, names: Set[str]) -> dict[str, Any]:
    """The tables of the recipe."""
    return {"encoder": encoder_table(config, KEYS), "head": {"masked": "vocab_projector.bias" in names}}


def layout(recipe: Any) -> list[Part]:
    """The parameters."""
    found = [*embeddings(0), *blocks(recipe.encoder, "transformer.layer.", NAMES)]
    if recipe.head.masked:
        found += mask_head("vocab_transform", "vocab_layer_norm", "vocab_projector.bias")
    return found


FAMILY = Family(
    prefix="distilbert.",
    is_masked=True,
    tables=tables,
    layout=layout,
    unused=("embeddings.position_ids",),
    tied="vocab_projector.weight",
)
