"""RoBERTa (Liu et al. 2019): BERT whose positions are numbered from 2, with byte-level subwords."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from ensue.errors import DataError
from ensue.exchange.bert import NAMES, embeddings, encoder_table, mask_head
from ensue.exchange.family import Configuration, Family
from ensue.exchange.layouts import FROM_THE_THIRD, Part, blocks, layer

FIRST_POSITION = 2


def tables(config: Configuration, names: Set[str]) -> dict[str, Any]:
    """The tables of the recipe."""
    config.expect("position_embedding_type", "absolute", None)
    config.expect("is_decoder", False)
    config.expect("pad_token_id", FIRST_POSITION - 1)  # the positions of the text come after its number
    encoder = encoder_table(config)
    has_head = "lm_head.bias" in names
    if has_head and encoder["activation"] != "gelu":
        raise DataError("the head's activation is gelu, another one of the layers is not supported", config.path)
    return {
        "input": {"segments": config.whole("type_vocab_size", 2)},
        "encoder": encoder | {"context": encoder["context"] - FIRST_POSITION},
        "head": {"masked": has_head, "pooler": "pooler.dense.weight" in names},
    }


def layout(recipe: Any) -> list[Part]:
    """The parameters."""
    found = [
        part._replace(form=FROM_THE_THIRD) if part.ours == "layers.layers.0.weight" else part
        for part in embeddings(recipe.input.segments)
    ]
    found += blocks(recipe.encoder, "encoder.layer.", NAMES)
    if recipe.head.masked:
        found += mask_head("lm_head.dense", "lm_head.layer_norm", "lm_head.bias")
    if recipe.head.pooler:
        found += layer("pooler.0", "pooler.dense")
    return found


FAMILY = Family(
    prefix="roberta.",
    is_masked=True,
    tables=tables,
    layout=layout,
    unused=("embeddings.position_ids", "lm_head.decoder.bias"),
    tied="lm_head.decoder.weight",
)
