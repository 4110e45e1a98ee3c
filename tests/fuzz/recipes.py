"""Cases of recipes: TOML with odd values, damaged TOML, and settings."""

import tomllib
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import tomli_w

from ensue.recipe import read_recipe, recipe_names
from fuzz import odd
from fuzz.case import Case
from fuzz.damage import damaged
from fuzz.material import CLASSIFIERS, SEQUENCES, TAGGERS, TINY, Material
from fuzz.values import altered

SMALL = dict.fromkeys(("d_model", "d_embedding", "d_words", "d_characters"), 4)
SMALL |= {"ngram_buckets": 64, "context": 8, "num_heads": 2}

TOML = [
    "[]", "{}", '["a"]', "[1, 2]", "{a=1}", '"""\n"""', "2020-01-01", "12:00:00", "[" * 400, "[" * 100_000, "{a=" * 400,
    "9" * 5000, "0xffffffffffffffffffff", "true", '"max"', '["max", "max"]', "[1, 1, 2]", "'\\'", "1\n[x]", "1 # x",
]  # fmt: skip


def arrange(choose: Random, case: Case, material: Material) -> None:
    choose.choice([arrange_round_trip, arrange_round_trip, _shown, _trained])(choose, case, material)


def arrange_round_trip(choose: Random, case: Case, material: Material) -> None:
    """Arrange a round trip by the library: a written recipe equals the one that was read."""
    case.action = partial(_read_and_back, *_given(choose, case)[:2])


def _shown(choose: Random, case: Case, material: Material) -> None:
    case.arguments = ["recipes", _given(choose, case)[0]]


def _given(choose: Random, case: Case) -> tuple[str, list[str], dict[str, Any]]:
    """Return the name of a recipe or of a file of one, settings, and the recipe."""
    settings = [setting(choose) for _ in range(choose.choice([0, 0, 1, 1, 2]))]
    name = choose.choice(recipe_names())
    document = tomllib.loads(read_recipe(name).to_toml())
    if choose.random() < 0.7 or not settings:
        (case.folder / "recipe.toml").write_bytes(_written(choose, altered(choose, document)))
        name = choose.choice(["recipe.toml", "recipe.toml", "./recipe.toml", str(case.folder / "recipe.toml")])
    if choose.random() < 0.1:
        name = choose.choice([odd.string(choose), name + "x", name.upper(), ".", "recipe.toml/"])
    return name, settings, document


def _read_and_back(name: str, settings: list[str]) -> None:
    """Assert that a written recipe equals the one that was read."""
    recipe = read_recipe(name, settings)
    Path("again.toml").write_text(recipe.to_toml(), encoding="utf-8")
    assert read_recipe("again.toml").to_toml() == recipe.to_toml(), "a recipe is not written as it was read"


def _trained(choose: Random, case: Case, material: Material) -> None:
    """Arrange a training that is small before the settings, and short after them."""
    name, settings, document = _given(choose, case)
    data = {TAGGERS: "names.txt", CLASSIFIERS: "topics.tsv", SEQUENCES: "translated.tsv"}.get(
        document["task"], "text.txt"
    )
    known = [
        f"{table}.{key}={value}"
        for key, value in SMALL.items()
        for table in ("encoder", "decoder", "tokens", "directions", "features", "head")
        if key in document.get(table, {})
    ]
    case.arguments = ["train", name, "--train", str(material.folder / data), "--out", choose.choice(["out", "o/p"])]
    for setting in [*known, *settings]:
        case.arguments += ["--set", setting]
    case.arguments += TINY
    case.writes_progress = True


def setting(choose: Random) -> str:
    """Return a key of a recipe, or an unknown key, and a value."""
    document = tomllib.loads(read_recipe(choose.choice(recipe_names())).to_toml())
    table = choose.choice([key for key in document if isinstance(document[key], dict)])
    key = f"{table}.{choose.choice(list(document[table]) or ['x'])}"
    if choose.random() < 0.15:
        key = choose.choice(
            [table, key + "x", key + ".y", "." + key, "", "a.b.c.d", ".".join("a" * 2000), odd.string(choose)]
        )
    value = choose.choice([odd.numeral(choose), odd.numeral(choose), odd.string(choose), choose.choice(TOML)])
    return choose.choice([f"{key}={value}"] * 8 + [key, f"{key} = {value}", f"{key}=={value}", f"={value}"])


def _written(choose: Random, document: Any) -> bytes:
    try:
        text = tomli_w.dumps(document).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError, AttributeError, RecursionError):
        text = repr(document).encode("utf-8", "surrogatepass")  # TOML has no such values
    if choose.random() < 0.03:
        text += choose.choice([b"x = " + b"[" * 3000, b"\n[a" + b".a" * 3000 + b"]\n", b"x = " + b"9" * 5000])
    return damaged(choose, text, max_changes=2) if choose.random() < 0.4 else text
