"""The tables of a recipe that describe its layers, from one flat dict of their keys: the tests write them shortly."""

from typing import Any

from pydantic import TypeAdapter

from ensue.models.specification import EncoderSpecification, Tokens

TOKENS = {"d_embedding", "tied", "dropout_words"}
DIRECTIONS = {"bidirectional", "merge"}
HEAD = {"sampled", "sampled_power"}


def layer_tables(keys: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """`[encoder]`, and `[tokens]`, `[directions]` and `[head]` where they have keys."""
    tables: dict[str, dict[str, Any]] = {"encoder": {}}
    places = {
        key: name for name, some in (("tokens", TOKENS), ("directions", DIRECTIONS), ("head", HEAD)) for key in some
    }
    for key, value in keys.items():
        tables.setdefault(places.get(key, "encoder"), {})[key] = value
    return tables


def layers(**keys: Any) -> dict[str, Any]:
    """The `tokens` and `encoder` that a language model is built from."""
    tables = layer_tables(keys)
    encoder = TypeAdapter(EncoderSpecification).validate_python(tables["encoder"])
    return {"tokens": Tokens(**tables.get("tokens", {})), "encoder": encoder}
