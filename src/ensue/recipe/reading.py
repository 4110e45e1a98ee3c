"""A recipe: everything that decides what a run computes, as one strict document.

Recipes are TOML. Every key has a type and a default, an unknown key is an error that names the nearest one, and a run
directory holds its recipe with every default written out. This module needs no torch.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ensue.errors import DataError, RecipeError, nearest
from ensue.models.specification import ModelSpecification

Share = Annotated[float, Field(ge=0, lt=1)]
Count = Annotated[int, Field(ge=1)]
Amount = Annotated[float, Field(gt=0, allow_inf_nan=False)]

BUDGETS = ("steps", "epochs", "tokens", "seconds")


class Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DataRecipe(Table):
    train: str = ""
    """A text file, a folder or a glob; .xz and .gz are read as they are."""
    valid: str = ""
    """A text for validation; empty: the last part of the training text."""
    test: str = ""
    """A text that is scored once, at the end."""
    encoding: str = "utf-8"
    """How the files' bytes are read as text."""
    valid_fraction: Share = 0.1
    """Share of the text, from its end, that is kept for validation where `valid` is empty."""
    valid_characters: Count = 2_000_000
    """At most this many characters of the validation text are scored, from its beginning."""


class TokenizerRecipe(Table):
    kind: Literal["characters", "bytes", "words", "bpe"] = "characters"
    """What a token is."""
    min_count: Count = 1
    """Rarer characters or words are unknown."""
    max_size: Count | None = None
    """At most this many symbols; without it: no limit (bpe: 2,048)."""
    splitter: Literal["whitespace", "simple"] = "whitespace"
    """How words are found."""
    lowercase: bool = False
    """Whether all text is lowered first."""


class TrainRecipe(Table):
    steps: Count | None = None
    """Budget: optimizer steps."""
    epochs: Amount | None = None
    """Budget: times through the training text."""
    tokens: Count | None = None
    """Budget: tokens predicted in training."""
    seconds: Amount | None = None
    """Exactly one of these four is the budget. Seconds of training proper; such a run cannot be repeated exactly."""

    batch_size: Count = 32
    """Rows that are read side by side."""
    segment_length: Count = 64
    """Tokens in a segment of truncated back-propagation, or in a block where attention's `context` does not say."""
    accumulate: Count = 1
    """The batch goes through in this many parts, with the same result and less memory."""
    reset_state: Share = 0.0
    """Chance that a row's carried state is dropped before a segment, so that a model also knows beginnings."""

    optimizer: Literal["adamw", "sgd"] = "adamw"
    """AdamW, or SGD with momentum."""
    learning_rate: Amount = 3e-3
    """The largest one, at the end of the warm-up."""
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    """How the learning rate falls to zero over the budget, or that it does not."""
    warmup: Share = 0.02
    """Share of the budget over which the learning rate rises from zero."""
    weight_decay: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """On matrices; biases and norms are left alone."""
    beta1: Share = 0.9
    """AdamW's first moment, or SGD's momentum."""
    beta2: Share = 0.99
    """AdamW's second moment; SGD has none."""
    clip: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0
    """Largest global norm of the gradient; 0 clips nothing."""

    validations: Count = 10
    """How often the validation text is scored, evenly over the budget."""
    patience: Annotated[int, Field(ge=0)] = 0
    """Stop after this many validations without a better score; 0: never."""
    checkpoint_every: Count = 1000
    """Steps between checkpoints; there is also one at each validation."""
    sample_tokens: Annotated[int, Field(ge=0)] = 160
    """Length of the sample at each validation."""
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] = 0
    """Of weights, batches, dropout and samples."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Type of the matrix products; auto: bfloat16 where the processor is faster with it."""

    @model_validator(mode="after")
    def _one_budget(self) -> Self:
        given = [name for name in BUDGETS if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"needs exactly one of {', '.join(BUDGETS)}; found {' and '.join(given) or 'none'}")
        if self.batch_size % self.accumulate:
            raise ValueError(f"batch_size {self.batch_size} cannot be split in {self.accumulate} equal parts")
        return self


class Recipe(Table):
    """The whole document. `about`, `source` and `measured` are for people."""

    about: str = ""
    """What it is, for people."""
    source: str = ""
    """Where it comes from, for people."""
    measured: str = ""
    """What it reached, for people."""
    task: Literal["language-modeling"] = "language-modeling"
    """What is learned."""
    data: DataRecipe = DataRecipe()
    tokenizer: TokenizerRecipe = TokenizerRecipe()
    model: ModelSpecification
    train: TrainRecipe

    def to_toml(self) -> str:
        return tomli_w.dumps(_without_none(self.model_dump()), multiline_strings=True)


def recipe_names() -> list[str]:
    """The recipes that come with the package."""
    return sorted(entry.name.removesuffix(".toml") for entry in _packaged().iterdir() if entry.name.endswith(".toml"))


def read_recipe(recipe: str | Path | Recipe, settings: Sequence[str] | Mapping[str, Any] = ()) -> Recipe:
    """The recipe of that name, or in that TOML file, or given as such, with `settings` applied.

    A setting is `"a.b=c"` as on the command line, with a TOML value or a bare word, or an item of a mapping. Setting
    one budget removes the recipe's own. Raises `RecipeError` or `DataError`.
    """
    document = _without_none(recipe.model_dump()) if isinstance(recipe, Recipe) else _read_document(str(recipe))
    for key, value in settings.items() if isinstance(settings, Mapping) else map(_parse_setting, settings):
        _apply(document, key, value)
    return validate_recipe(document, where="the recipe" if isinstance(recipe, Recipe) else str(recipe))


def validate_recipe(document: Mapping[str, Any], *, where: str) -> Recipe:
    """The checked recipe; the first thing that is wrong is a `RecipeError`."""
    try:
        return Recipe.model_validate(document, strict=True)
    except ValidationError as error:
        raise RecipeError(f"{where}: {_explain(error)}") from None


def _packaged() -> Any:
    return files("ensue") / "recipes"


def _read_document(name: str) -> dict[str, Any]:
    path = Path(name)
    if name in recipe_names():
        text = (_packaged() / f"{name}.toml").read_text(encoding="utf-8")
    elif path.is_file():
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"not a readable UTF-8 file: {error}", path) from None
    elif path.suffix == ".toml":
        raise DataError("no such recipe file", path)
    else:
        raise RecipeError(f'no recipe named "{name}"{nearest(name, recipe_names())}; `ensue recipes` lists them')
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"{name}: not TOML: {error}") from None


def _parse_setting(setting: str) -> tuple[str, Any]:
    key, equals, value = setting.partition("=")
    if not equals or not key.strip():
        raise RecipeError(f'--set takes key=value, for example train.steps=500; found "{setting}"')
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value


def _apply(document: dict[str, Any], key: str, value: Any) -> None:
    *tables, last = key.split(".")
    table = document
    for name in tables:
        table = table.setdefault(name, {})
        if not isinstance(table, dict):
            raise RecipeError(f'"{name}" in "{key}" is a value, not a table')
    if tables == ["train"] and last in BUDGETS:
        for name in BUDGETS:
            table.pop(name, None)
    table[last] = value


def _explain(error: ValidationError) -> str:
    """One line for the first problem: where, what was expected, what was found."""
    first = error.errors()[0]
    place = [str(part) for part in first["loc"]]
    if place[:1] == ["model"] and len(place) > 1:
        encoder = place.pop(1)
        schema = f"model (encoder {encoder})"
    else:
        schema = place[0] if len(place) > 1 else "the recipe"
    key = ".".join(place)
    found = first.get("input")
    match first["type"]:
        case "extra_forbidden":
            return f'unknown key "{key}" in {schema}{nearest(place[-1], _known_keys(error, first["loc"]))}'
        case "missing":
            return f'"{key}" is missing'
        case "value_error":
            return f"{key} {first['ctx']['error']}"
        case "union_tag_invalid":
            known = [tag.strip(" '") for tag in first["ctx"]["expected_tags"].split(",")]
            return f'no encoder "{first["ctx"]["tag"]}"{nearest(first["ctx"]["tag"], known)}; known: {", ".join(known)}'
        case "union_tag_not_found":
            return "model.encoder is missing"
    return f"{key}: {first['msg'][0].lower()}{first['msg'][1:]}, found {found!r}"


def _known_keys(error: ValidationError, place: tuple[int | str, ...]) -> list[str]:
    """The keys that the table at `place` has, for "did you mean"."""
    schema: Any = Recipe.model_json_schema()
    definitions = schema["$defs"]
    for part in place[:-1]:
        properties = schema.get("properties", {})
        # what is no property is the tag of a union
        schema = properties.get(part) or {"$ref": schema["discriminator"]["mapping"][part]}
        if "$ref" in schema:
            schema = definitions[schema["$ref"].rpartition("/")[2]]
    return list(schema.get("properties", {}))


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(part) for key, part in value.items() if part is not None}
    return value
