"""Recipes of masked language models that train in a fraction of a second, and of origins of other runs."""

from pathlib import Path
from typing import Any

from ensue.recipe import Recipe, validate_recipe
from ensue.tasks.masked_language_modeling.recipe import MaskedLanguageModelingRecipe
from training.tiny import tiny_recipe

ENCODER: dict[str, Any] = {
    "kind": "transformer", "d_model": 16, "num_layers": 2, "num_heads": 2, "context": 18, "positions": "learned",
    "norm": "post", "norm_input": True, "norm_epsilon": 1e-12,
}  # fmt: skip
TRAIN: dict[str, Any] = {
    "steps": 12, "batch_size": 8, "learning_rate": 0.01, "validations": 2, "precision": "float32",
}  # fmt: skip
FEW: dict[str, Any] = {"steps": 2, "validations": 1}
PAIRS: dict[str, Any] = {"data": {"next_sentence": True}, "input": {"segments": 2}}


def masked_recipe(path: Path, *, train: dict[str, Any] | None = None, **tables: Any) -> MaskedLanguageModelingRecipe:
    """Return a recipe for the text in `path`; the keywords change tables."""
    document: dict[str, Any] = {
        "task": "masked-language-modeling", "tokenizer": {"max_size": 300} | tables.pop("tokenizer", {}),
        "encoder": ENCODER | tables.pop("encoder", {}), "train": TRAIN | (train or {}),
        "data": {"train": str(path)} | tables.pop("data", {}), **tables,
    }  # fmt: skip
    recipe = validate_recipe(document, where="tiny")
    assert isinstance(recipe, MaskedLanguageModelingRecipe)
    return recipe


def small_origins(text: Path) -> dict[str, Recipe]:
    """Return recipes of masked models, and of language models of words, characters and subwords."""
    lstm = {"kind": "lstm", "d_embedding": 6, "d_model": 8, "num_layers": 2}
    transformer = {"kind": "transformer", "d_embedding": 8, "d_model": 8, "num_heads": 2, "context": 24}
    bpe = {"kind": "bpe", "max_size": 280}
    return {
        "masked": masked_recipe(text, train=FEW),
        "segments": masked_recipe(text, train=FEW, input={"segments": 2}, encoder={"context": 64}),
        "words": tiny_recipe(text, model=lstm, tokenizer={"kind": "words"}, **FEW),
        "characters": tiny_recipe(text, model=lstm, tokenizer={"kind": "characters"}, **FEW),
        "bpe": tiny_recipe(text, model=transformer | {"positions": "learned"}, tokenizer=bpe, **FEW),
    }


def paragraphs(count: int) -> str:
    """Return documents of four lines about one animal, so that masked words can be inferred from the others."""
    names = ["cat", "dog", "bird", "fish", "horse", "mouse"]
    lines = [f"the {name} is a {name}, {name} {name} and {name} {name} .\n" for name in names]
    return "".join(lines[n % 6] * 4 + "\n" for n in range(count))
