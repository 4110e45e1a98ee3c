"""DistilBERT (Sanh et al. 2019): BERT without segments and without a pooler."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from ensue.exchange.bert import embeddings
from ensue.exchange.configuration import Configuration
from ensue.exchange.family import Family
from ensue.exchange.layouts import BlockNames, Part, blocks, layer

NAMES = BlockNames(
    attention_in=("attention.q_lin", "attention.k_lin", "attention.v_lin"),
    attention_out="attention.out_lin",
    norm_attention="sa_layer_norm",
    first="ffn.lin1",
    second="ffn.lin2",
    norm_feedforward="output_layer_norm",
)


def tables(config: Configuration, names: Set[str]) -> dict[str, Any]:
    """The tables of the recipe."""
    return {
        "encoder": {
            "kind": "transformer",
            "d_model": config.whole("dim"),
            "num_layers": config.whole("n_layers"),
            "num_heads": config.whole("n_heads"),
            "d_feedforward": config.whole("hidden_dim"),
            "context": config.whole("max_position_embeddings"),
            "positions": "learned",
            "norm": "post",
            "norm_input": True,
            "norm_epsilon": 1e-12,
            "activation": config.activation("activation", "gelu"),
            "dropout": config.share("dropout", 0.1),
            "dropout_attention": config.share("attention_dropout", 0.1),
        },
        "head": {"masked": "vocab_projector.bias" in names},
    }


def layout(recipe: Any) -> list[Part]:
    """The parameters."""
    found = [*embeddings(0), *blocks(recipe.encoder, "transformer.layer.", NAMES)]
    if recipe.head.masked:
        found += [
            *layer("head.projection.0", "vocab_transform"),
            *layer("head.projection.2", "vocab_layer_norm"),
            Part("head.bias", ("vocab_projector.bias",)),
        ]
    return found


FAMILY = Family(
    prefix="distilbert.",
    is_masked=True,
    tables=tables,
    layout=layout,
    unused=("embeddings.position_ids",),
    tied="vocab_projector.weight",
)
