"""Recipes: TOML documents that determine what a run computes.

Every key has a type and a default. An unknown key is an error that names the nearest key. A run directory contains its
recipe with all defaults. `tables` has the tables of all tasks; other tables are in the folders of the tasks. This
package does not import torch.
"""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.resources import files
from itertools import accumulate
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

from pydantic import Field, ValidationError, create_model

from ensue.data.files import Data, as_location
from ensue.errors import DataError, EnsueError, RecipeError, nearest, quote
from ensue.extension import all_requirements, entries, find_entry, loadable_entries
from ensue.models.specification import ENCODER_KINDS, GuestEncoder, Table
from ensue.notices import warn_once
from ensue.parsing import MAX_TOML_CHARACTERS, ParseError, parse_setting, parse_toml, read_bounded
from ensue.recipe.tables import BUDGETS, DataRecipe, Recipe, TrainRecipe, drop_none
from ensue.tasks import DEFAULT_TASK, TASKS, has_task, task_entry
from ensue.version import package_file, package_text

__all__ = [
    "BUDGETS", "DataRecipe", "Recipe", "Table", "TrainRecipe", "propose", "read_recipe",
    "recipe_names", "resumed_recipe", "translate_former_values", "validate_recipe",
]  # fmt: skip

FORMER_MEANINGS = {"division": ("sources", "rows"), "splitter": ("treebank", "treebank-1")}
"""For keys of `[data]`: a value whose meaning has changed, and the value that now has the earlier meaning."""
FORMER_DEFAULTS = [
    *((key, *values) for key, values in FORMER_MEANINGS.items()),
    *(("division", "classes", old) for old in ("sources", "rows")),
    *(("division", "labels", old) for old in ("classes", "sources", "rows")),
]
"""Keys of `[data]` with their default and a default of an earlier version. Resumed runs keep the earlier default."""
AUTO = "auto"
"""The name that stands for the recipe that is proposed for the training data."""
LAYER_TABLES = ("encoder", "decoder")
"""Tables whose `kind` may be a layer of another package."""


def recipe_names() -> list[str]:
    """Return the names of the recipes of ensue, followed by the recipes of other packages."""
    packages = {name: entry.package for name, entry in entries("recipe").items()} | dict.fromkeys(_packaged_names(), "")
    return sorted(packages, key=lambda name: (packages[name] != "", name))


def _packaged_names() -> list[str]:
    names = (file.name for file in package_file("recipes").iterdir())
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))


def read_recipe(
    recipe: str | Path | Recipe, settings: Sequence[str] | Mapping[str, Any] = (), **paths: Data | None
) -> Recipe:
    """Read a recipe, and apply settings and paths of data. Raises RecipeError and DataError.

    A setting is "a.b=c" with a TOML value or a bare word, or an item of a mapping. Setting a budget removes the budget
    of the recipe. Setting the kind of a table removes keys that the new kind lacks, with a notice. `AUTO` is the recipe
    that is proposed for the training data.
    """
    changes = list(settings.items() if isinstance(settings, Mapping) else map(parse_setting, settings))
    locations = {f"data.{name}": as_location("" if x is None else x, name, is_cached=True) for name, x in paths.items()}
    changes += [(key, location) for key, location in locations.items() if location]
    if recipe == AUTO:
        train = as_location(dict(changes).get("data.train", ""))
        recipe, needed, _ = propose(train, [f"{key}={value}" for key, value in changes])
        changes = [*map(parse_setting, needed), *changes]
    if isinstance(recipe, Recipe):
        document, where = drop_none(recipe.model_dump(exclude_unset=True)), "the recipe"
    else:
        document, where = _read_document(str(recipe)), str(recipe)
    keys: set[str] = set()
    for key in sorted(key for key, _ in changes):  # a key may be a table in a mapping only
        parents = {key} if isinstance(settings, Mapping) else {*accumulate(key.split("."), "{}.{}".format)}
        if keys & parents:
            raise RecipeError(f'"{key}" is set twice; expected one value')
        keys.add(key)
    kinds = {table: _read_kind(document, table) for table in document}
    for key, value in changes:
        _apply(document, *_translate_words(document, key, value), keys)
    for table, kind in kinds.items():
        if f"{table}.kind" in keys and kind != _read_kind(document, table):
            _drop_keys_of_another_kind(document, table, keys)
    return validate_recipe(document, where=where)


def propose(location: str, settings: Sequence[str] = ()) -> tuple[str, list[str], str]:
    """Return a recipe for data, further settings and a description, or raise EnsueError: see `Extension.proposals`."""
    for proposal in loadable_entries("proposal", Callable).values():  # type: ignore[arg-type]  # isinstance accepts it
        if location:
            return proposal(location, settings)  # type: ignore[no-any-return]
    raise RecipeError("expected a recipe (see `ensue recipes`), or training data, for which one is proposed")


def validate_recipe(document: Mapping[str, Any], *, where: str, is_trained: bool = False) -> Recipe:
    """Return the recipe of a document, or raise RecipeError with `where`. With `is_trained`, unused keys may be set."""
    try:
        document = _add_needs(document)
        schema = _recipe_class(document)
        recipe = schema.model_validate(document, strict=True)
    except EnsueError as error:
        raise RecipeError(f"{where}: {error}") from None
    except ValidationError as error:
        raise RecipeError(f"{where}: {_explain(error, schema)}") from None
    if not is_trained and (problem := next(recipe.training_problems(), "")):
        raise RecipeError(f"{where}: {problem}")
    return recipe


def translate_former_values(document: dict[str, Any]) -> dict[str, Any]:
    """Translate the recipe of a run to values of this version; recipes of earlier versions lack `data.division`."""
    data = document.get("data", {})
    if not has_task(document.get("task", DEFAULT_TASK)) or not isinstance(data, dict):
        return document  # validation raises the error
    data_class: Any = _recipe_class(document).model_fields["data"].annotation
    if "division" in data or "division" not in data_class.model_fields:
        return document
    former = {"division": "sources"} | data
    translated = {key: new for key, (old, new) in FORMER_MEANINGS.items() if former.get(key) == old}
    return document | {"data": data | translated}


def resumed_recipe(recipe: Recipe, stored: Recipe) -> Recipe:
    """Return the recipe for resuming a run, with the former defaults that the run's stored recipe has."""
    values, stored_values = recipe.values(), stored.values()
    former = {
        f"data.{key}": old
        for key, new, old in FORMER_DEFAULTS
        if (stored_values.get(f"data.{key}"), values.get(f"data.{key}")) == (old, new)
    }
    return read_recipe(recipe, former) if former else recipe


def _recipe_class(document: Mapping[str, Any]) -> type[Recipe]:
    """Return the class of the task's recipe, extended by layers of other packages that the document names."""
    recipe = task_entry(document.get("task", DEFAULT_TASK)).recipe
    for table, kind in _guest_layers(document).items():
        if table in recipe.model_fields:
            recipe = _add_layer(recipe, table, find_entry("layer", kind, GuestEncoder))
    return recipe


@cache
def _add_layer(recipe: type[Recipe], table: str, encoder: type[GuestEncoder]) -> type[Recipe]:
    field = recipe.model_fields[table]
    union: Any = Annotated[field.annotation | encoder, Field(discriminator="kind")]  # type: ignore[operator]
    fields: dict[str, Any] = {table: (union, ... if field.is_required() else field.default)}
    return create_model(recipe.__name__, __base__=recipe, __module__=recipe.__module__, **fields)


def _guest_layers(document: Mapping[str, Any]) -> dict[str, str]:
    """Return the kinds of layers of other packages, by table."""
    kinds = {table: kind for table in LAYER_TABLES if (kind := _read_kind(document, table)) is not None}
    return {table: kind for table, kind in kinds.items() if kind not in ENCODER_KINDS and kind in entries("layer")}


def _add_needs(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Add the packages of task and layers to `needs`. Raises RecipeError if a package is not installed."""
    task, needs = document.get("task", DEFAULT_TASK), document.get("needs", [])
    used = [entries("layer")[kind] for kind in _guest_layers(document).values()]
    if has_task(task) and task not in TASKS:
        used.append(entries("task")[task])
    if not isinstance(needs, list) or not (needs or used):
        return document
    return {**document, "needs": all_requirements(needs, used)}


def _read_document(name: str) -> dict[str, Any]:
    path = Path(name)
    if name in _packaged_names():
        text = package_text(f"recipes/{name}.toml")
    elif os.path.isfile(path):  # `Path.is_file` raises if the name is too long for a path
        try:
            text = read_bounded(path, MAX_TOML_CHARACTERS * 4).decode()
        except (OSError, ValueError) as error:
            raise DataError(f"not a readable UTF-8 file: {error}", path) from None
    elif (package := find_entry("recipe", name, ModuleType)) is not None:
        try:
            text = (files(package) / f"{name}.toml").read_text(encoding="utf-8")
        except (OSError, ValueError, TypeError) as error:
            source = f"{package.__name__} of {entries('recipe')[name].package}"
            raise RecipeError(f"{name}: no readable {name}.toml in {source}: {error}") from None
    elif path.suffix == ".toml":
        raise DataError("no such recipe file", path)
    else:
        raise RecipeError(
            f'no recipe named "{quote(name, 100)[1:-1]}"{nearest(name, recipe_names())}; `ensue recipes` lists them'
        )
    try:
        return parse_toml(text)
    except ParseError as error:
        raise RecipeError(f"{name}: {error}") from None


def _apply(document: dict[str, Any], key: str, value: Any, keys: Collection[str]) -> None:
    """Set a value in a document. A budget removes the budgets that are not among `keys`."""
    *tables, last = key.split(".")
    table = document
    for name in tables:
        table = table.setdefault(name, {})
        if not isinstance(table, dict):
            raise RecipeError(f'"{name}" in "{key}" is a value, not a table')
    if tables == ["train"] and last in BUDGETS:
        for name in BUDGETS:
            if f"train.{name}" not in keys:
                table.pop(name, None)
    table[last] = value


def _translate_words(document: Mapping[str, Any], key: str, value: Any) -> tuple[str, Any]:
    """Return key and value of a setting. For a model of texts without words, `data.words` means `data.texts`."""
    if key == "data.words" and isinstance(value, str) and has_task(task := document.get("task", DEFAULT_TASK)):
        data: Any = task_entry(task).recipe.model_fields["data"].annotation
        if "words" not in data.model_fields and "texts" in data.model_fields:
            return "data.texts", value.split(",")
    return key, value


def _read_kind(document: Mapping[str, Any], table: str) -> str | None:
    """Return the kind of a table such as "encoder"; None unless the kind is a string."""
    content = document.get(table)
    kind = content.get("kind") if isinstance(content, dict) else None
    return kind if isinstance(kind, str) else None


def _drop_keys_of_another_kind(document: dict[str, Any], table: str, keys: Collection[str]) -> None:
    """Remove the keys of a table that its kind lacks, except for `keys`, which settings have set."""
    with suppress(EnsueError):  # for an unknown task or kind validation raises the error
        valid = _find_schemas(_recipe_class(document), [table, _read_kind(document, table)])[-1].get("properties", {})
        dropped = [key for key in document[table] if valid and key not in valid and f"{table}.{key}" not in keys]
        for key in dropped:
            del document[table][key]
        if dropped:
            kind, names = f"{table}.kind={_read_kind(document, table)}", " and ".join(dropped)
            warn_once(f"dropped {kind}", f"{kind} has no {names}; these keys of the recipe are dropped")


def _explain(error: ValidationError, recipe: type[Recipe]) -> str:
    """Return a message of one line for the first validation error, with the key, the expected and the found value."""
    first = error.errors()[0]
    path, tag = _split_tag(recipe, first["loc"])
    schema = (path[0] if len(path) > 1 else "the recipe") + (f" ({tag})" if tag else "")
    key = quote(".".join(path), 100)[1:-1]
    match first["type"]:
        case "extra_forbidden":
            names = list(_find_schemas(recipe, first["loc"][:-1])[-1].get("properties", {}))
            return f'unknown key "{key}" in {schema}{nearest(path[-1], names)}'
        case "missing":
            return f'"{key}" is missing'
        case "value_error":
            return f"{key} {first['ctx']['error']}".lstrip()
        case "union_tag_invalid":
            names = [tag.strip(" '") for tag in first["ctx"]["expected_tags"].split(",")]
            names += entries("layer") if path[-1] in LAYER_TABLES else []
            return f'no {key} "{first["ctx"]["tag"]}"{nearest(first["ctx"]["tag"], names)}; known: {", ".join(names)}'
        case "union_tag_not_found":
            return f"{key}.{first['ctx']['discriminator'].strip(chr(39))} is missing"
    return f"{key}: {first['msg'][0].lower()}{first['msg'][1:]}, found {quote(first.get('input'))}"


@cache
def _schema(recipe: type[Recipe]) -> dict[str, Any]:
    return recipe.model_json_schema()


def _find_schemas(recipe: type[Recipe], path: Sequence[int | str | None]) -> list[dict[str, Any]]:
    """Return the schemas of the recipe and of each table on a path of keys."""
    schema: Any = _schema(recipe)
    definitions, schemas = schema["$defs"], [schema]
    for key in path:
        properties = schema.get("properties", {})
        schema = properties.get(key) or {"$ref": schema.get("discriminator", {}).get("mapping", {}).get(key, "")}
        schema = next((member for member in schema.get("anyOf", []) if member.get("type") != "null"), schema)
        if schema.get("$ref"):
            schema = definitions[schema["$ref"].rpartition("/")[2]]
        schemas.append(schema)
    return schemas


def _split_tag(recipe: type[Recipe], path: Sequence[int | str]) -> tuple[list[str], str]:
    """Return the keys of a path, and the tag in it that selects a table's schema, such as "lstm"; "" without a tag."""
    keys, tag = [], ""
    for schema, key in zip(_find_schemas(recipe, path), path, strict=False):
        if "discriminator" in schema and key in schema["discriminator"]["mapping"]:
            tag = str(key)
        elif "[" not in str(key):  # pydantic writes types with brackets
            keys.append(str(key))
    return keys, tag
