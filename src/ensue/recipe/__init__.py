"""A recipe: everything that decides what a run computes, as one strict document.

Recipes are TOML. Every key has a type and a default, an unknown key is an error that names the nearest one, and a run
directory holds its recipe with every default written out. The tables that all tasks share are here; a task's own are in
its folder. This package needs no torch.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.resources import files
from itertools import accumulate
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

from pydantic import Field, ValidationError, create_model

from ensue.data.files import Location, one_location
from ensue.errors import DataError, EnsueError, RecipeError, nearest
from ensue.extension import entries, find_entry, with_needs
from ensue.models.specification import ENCODER_KINDS, GuestEncoder, Table
from ensue.notices import say_once
from ensue.parsing import MAX_TOML, ParseError, parse_toml, read_bounded, shown
from ensue.recipe.tables import BUDGETS, DataRecipe, Recipe, TrainRecipe, without_none
from ensue.tasks import DEFAULT_TASK, TASKS, has_task, task_entry
from ensue.version import package_file, package_text

__all__ = [
    "BUDGETS",
    "DataRecipe",
    "Recipe",
    "Table",
    "TrainRecipe",
    "as_trained",
    "going_on",
    "read_recipe",
    "recipe_names",
    "validate_recipe",
]


EARLIER = {"division": ("sources", "rows"), "splitter": ("treebank", "treebank-1")}
"""Values of keys of `[data]` that meant something else in an earlier ensue, and the values that mean that now."""
DEFAULTS = [
    *((key, *values) for key, values in EARLIER.items()),
    *(("division", "classes", old) for old in ("sources", "rows")),
]
"""A default of now, and one of an earlier ensue, which a run keeps."""
LAYERED = ("encoder", "decoder")
"""Tables whose `kind` may be a layer of another package."""


def recipe_names() -> list[str]:
    """Return the recipes that come with ensue, then those of other packages."""
    packages = {name: entry.package for name, entry in entries("recipe").items()} | dict.fromkeys(_packaged_names(), "")
    return sorted(packages, key=lambda name: (packages[name] != "", name))


def _packaged_names() -> list[str]:
    names = (file.name for file in package_file("recipes").iterdir())
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))


def read_recipe(
    recipe: str | Path | Recipe, settings: Sequence[str] | Mapping[str, Any] = (), **paths: Location
) -> Recipe:
    """The recipe of a name, a TOML file or an object, with `settings` and `paths` (train, valid, test) applied.

    A setting is `"a.b=c"` as on the command line, with a TOML value or a bare word, or an item of a mapping. Setting
    one budget removes the recipe's own. Setting the kind of a table removes the recipe's keys that the kind does not
    have, with a notice. Raises `RecipeError` or `DataError`.
    """
    document = (
        without_none(recipe.model_dump(exclude_unset=True))
        if isinstance(recipe, Recipe)
        else _read_document(str(recipe))
    )
    given = list(settings.items() if isinstance(settings, Mapping) else map(_parse_setting, settings))
    given += [(f"data.{name}", found) for name, path in paths.items() if (found := one_location(path, name))]
    written = _distinct((key for key, _ in given), has_tables=isinstance(settings, Mapping))
    kinds = {table: _kind(document, table) for table in document}
    for key, value in given:
        _apply(document, key, value, written)
    for table, kind in kinds.items():
        if f"{table}.kind" in written and kind != _kind(document, table):
            _drop_keys_of_another_kind(document, table, kept=written)
    return validate_recipe(document, where="the recipe" if isinstance(recipe, Recipe) else str(recipe))


def validate_recipe(document: Mapping[str, Any], *, where: str) -> Recipe:
    """The checked recipe of a document; the first mistake is a `RecipeError`."""
    try:
        document = _with_needs(document)
        schema = _recipe_class(document)
    except EnsueError as error:
        raise RecipeError(f"{where}: {error}") from None
    try:
        return schema.model_validate(document, strict=True)
    except ValidationError as error:
        raise RecipeError(f"{where}: {_explain(error, schema)}") from None


def as_trained(document: dict[str, Any]) -> dict[str, Any]:
    """The recipe of a run; one of an earlier ensue, without `data.division`, gets what its values meant then."""
    data = document.get("data", {})
    if not has_task(document.get("task", DEFAULT_TASK)) or not isinstance(data, dict):
        return document  # which cannot be read
    known: Any = _recipe_class(document).model_fields["data"].annotation
    if "division" in data or "division" not in known.model_fields:
        return document
    written = {"division": "sources"} | data
    earlier = {key: old for key, (new, old) in EARLIER.items() if written.get(key) == new}
    return document | {"data": data | earlier}


def going_on(recipe: Recipe, own: Recipe) -> Recipe:
    """The recipe with which a run goes on whose own one may be of an earlier ensue."""
    ours, theirs = own.values(), recipe.values()
    kept = {
        f"data.{key}": old
        for key, new, old in DEFAULTS
        if (ours.get(f"data.{key}"), theirs.get(f"data.{key}")) == (old, new)
    }
    return read_recipe(recipe, kept) if kept else recipe


def _recipe_class(document: Mapping[str, Any]) -> type[Recipe]:
    """The recipe of the task, in whose tables of layers those of other packages are known that the document names."""
    recipe = task_entry(document.get("task", DEFAULT_TASK)).recipe
    for table, kind in _guest_layers(document).items():
        if table in recipe.model_fields:
            recipe = _with_layer(recipe, table, find_entry("layer", kind, GuestEncoder))
    return recipe


@cache
def _with_layer(recipe: type[Recipe], table: str, encoder: type[GuestEncoder]) -> type[Recipe]:
    field = recipe.model_fields[table]
    known: Any = Annotated[field.annotation | encoder, Field(discriminator="kind")]  # type: ignore[operator]
    fields: dict[str, Any] = {table: (known, ... if field.is_required() else field.default)}
    return create_model(recipe.__name__, __base__=recipe, __module__=recipe.__module__, **fields)


def _guest_layers(document: Mapping[str, Any]) -> dict[str, str]:
    """The tables whose layers are of another package, with the names of these layers."""
    kinds = {table: _kind(document, table) for table in LAYERED}
    return {
        table: kind
        for table, kind in kinds.items()
        if isinstance(kind, str) and kind not in ENCODER_KINDS and kind in entries("layer")
    }


def _with_needs(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The document with the packages of its task and layers in `needs`. Raises RecipeError if one is not installed."""
    task, needs = document.get("task", DEFAULT_TASK), document.get("needs", [])
    used = [entries("layer")[kind] for kind in _guest_layers(document).values()]
    if has_task(task) and task not in TASKS:
        used.append(entries("task")[task])
    if not isinstance(needs, list) or not (needs or used):
        return document
    return {**document, "needs": with_needs(needs, used)}


def _read_document(name: str) -> dict[str, Any]:
    path = Path(name)
    if name in _packaged_names():
        text = package_text(f"recipes/{name}.toml")
    elif os.path.isfile(path):  # False for a name that is too long for a path, where `Path.is_file` raises
        try:
            text = read_bounded(path, MAX_TOML * 4).decode()
        except (OSError, ValueError) as error:
            raise DataError(f"not a readable UTF-8 file: {error}", path) from None
    elif (package := find_entry("recipe", name, ModuleType)) is not None:
        text = _text_of_guest(name, package)
    elif path.suffix == ".toml":
        raise DataError("no such recipe file", path)
    else:
        raise RecipeError(
            f'no recipe named "{shown(name, 100)[1:-1]}"{nearest(name, recipe_names())}; `ensue recipes` lists them'
        )
    try:
        return parse_toml(text)
    except ParseError as error:
        raise RecipeError(f"{name}: {error}") from None


def _text_of_guest(name: str, package: ModuleType) -> str:
    """The file NAME.toml in a package."""
    try:
        return (files(package) / f"{name}.toml").read_text(encoding="utf-8")
    except (OSError, ValueError, TypeError) as error:
        where = entries("recipe")[name].package
        raise RecipeError(f"{name}: no readable {name}.toml in {package.__name__} of {where}: {error}") from None


def _parse_setting(setting: str) -> tuple[str, Any]:
    key, equals, value = setting.partition("=")
    if not equals or not key.strip():
        raise RecipeError(f'--set takes key=value, for example train.steps=500; found "{setting}"')
    try:
        return key.strip(), parse_toml(f"value = {value}")["value"]
    except ParseError:
        return key.strip(), value


def _distinct(keys: Iterable[str], *, has_tables: bool) -> set[str]:
    """The keys. Raises RecipeError for a key that stands there twice, or, unless `has_tables`, beside its table."""
    known: set[str] = set()
    for key in sorted(keys):
        if known & ({key} if has_tables else {*accumulate(key.split("."), "{}.{}".format)}):
            raise RecipeError(f'"{key}" is set twice; expected one value')
        known.add(key)
    return known


def _apply(document: dict[str, Any], key: str, value: Any, written: Collection[str]) -> None:
    *tables, last = key.split(".")
    table = document
    for name in tables:
        table = table.setdefault(name, {})
        if not isinstance(table, dict):
            raise RecipeError(f'"{name}" in "{key}" is a value, not a table')
    if tables == ["train"] and last in BUDGETS:
        for name in BUDGETS:
            if f"train.{name}" not in written:
                table.pop(name, None)
    table[last] = value


def _kind(document: Mapping[str, Any], table: str) -> str | None:
    """The kind of a table such as "encoder"; None if there is none, or if it is no string."""
    found = document.get(table)
    kind = found.get("kind") if isinstance(found, dict) else None
    return kind if isinstance(kind, str) else None


def _drop_keys_of_another_kind(document: dict[str, Any], table: str, *, kept: Collection[str]) -> None:
    """Removes the keys of a table that its kind does not have, except those `kept`, which a person has written."""
    with suppress(EnsueError):  # of an unknown task or kind: validation will raise it
        known = _tables(_recipe_class(document), [table, _kind(document, table)])[-1].get("properties", {})
        dropped = [key for key in document[table] if key not in known and f"{table}.{key}" not in kept] if known else []
        for key in dropped:
            del document[table][key]
        if dropped:
            kind, names = f"{table}.kind={_kind(document, table)}", " and ".join(dropped)
            say_once(f"dropped {kind}", f"{kind} has no {names}; those of the recipe are dropped")


def _explain(error: ValidationError, recipe: type[Recipe]) -> str:
    """One line for the first mistake: where, what was expected, what was found."""
    first = error.errors()[0]
    place, tag = _without_tags(recipe, first["loc"])
    schema = (place[0] if len(place) > 1 else "the recipe") + (f" ({tag})" if tag else "")
    key = shown(".".join(place), 100)[1:-1]
    found = first.get("input")
    match first["type"]:
        case "extra_forbidden":
            known = list(_tables(recipe, first["loc"][:-1])[-1].get("properties", {}))
            return f'unknown key "{key}" in {schema}{nearest(place[-1], known)}'
        case "missing":
            return f'"{key}" is missing'
        case "value_error":
            return f"{key} {first['ctx']['error']}".lstrip()
        case "union_tag_invalid":
            known = [tag.strip(" '") for tag in first["ctx"]["expected_tags"].split(",")]
            known += entries("layer") if place[-1] in LAYERED else []
            return f'no {key} "{first["ctx"]["tag"]}"{nearest(first["ctx"]["tag"], known)}; known: {", ".join(known)}'
        case "union_tag_not_found":
            return f"{key}.{first['ctx']['discriminator'].strip(chr(39))} is missing"
    return f"{key}: {first['msg'][0].lower()}{first['msg'][1:]}, found {shown(found)}"


@cache
def _schema(recipe: type[Recipe]) -> dict[str, Any]:
    return recipe.model_json_schema()


def _tables(recipe: type[Recipe], place: Sequence[int | str | None]) -> list[dict[str, Any]]:
    """The schemas of the tables on the path to `place`, that of the recipe first."""
    schema: Any = _schema(recipe)
    definitions, found = schema["$defs"], [schema]
    for part in place:
        properties = schema.get("properties", {})
        schema = properties.get(part) or {"$ref": schema.get("discriminator", {}).get("mapping", {}).get(part, "")}
        schema = next((other for other in schema.get("anyOf", []) if other.get("type") != "null"), schema)  # or none
        if schema.get("$ref"):
            schema = definitions[schema["$ref"].rpartition("/")[2]]
        found.append(schema)
    return found


def _without_tags(recipe: type[Recipe], place: Sequence[int | str]) -> tuple[list[str], str]:
    """The keys of `place` without types, and the tag that chose a table's schema, such as "lstm"; or ""."""
    keys, tag = [], ""
    for schema, part in zip(_tables(recipe, place), place, strict=False):
        if "discriminator" in schema and part in schema["discriminator"]["mapping"]:
            tag = str(part)
        elif "[" not in str(part):  # a type, as pydantic writes it
            keys.append(str(part))
    return keys, tag
