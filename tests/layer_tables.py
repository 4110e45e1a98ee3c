"""The tables of a recipe that describe layers, from one flat dict of their keys."""

from typing import Any

from pydantic import TypeAdapter

from ensue.models.specification import EncoderSpecification, Tokens

TOKENS = {"d_embedding", "tied", "dropout_words"}
DIRECTIONS = {"bidirectional", "merge"}
HEAD = {"sampled", "sampled_power"}


def layer_tables(keys: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return `[encoder]`, and each of `[tokens]`, `[directions]` and `[head]` that has keys."""
    tables: dict[str, dict[str, Any]] = {"encoder": {}}
    keys_of_tables = {"tokens": TOKENS, "directions": DIRECTIONS, "head": HEAD}
    tables_of_keys = {key: name for name, table_keys in keys_of_tables.items() for key in table_keys}
    for key, value in keys.items():
        tables.setdefault(tables_of_keys.get(key, "encoder"), {})[key] = value
    return tables


def layers(**keys: Any) -> dict[str, Any]:
    """Return the arguments `tokens` and `encoder` of `build_language_model`."""
    tables = layer_tables(keys)
    encoder = TypeAdapter(EncoderSpecification).validate_python(tables["encoder"])
    return {"tokens": Tokens(**tables.get("tokens", {})), "encoder": encoder}
