"""A recipe of a masked language model that trains in a fraction of a second."""

from pathlib import Path
from typing import Any

from ensue.recipe import validate_recipe
from ensue.tasks.masked_language_modeling.recipe import MaskedLanguageModelingRecipe

ENCODER: dict[str, Any] = {
    "kind": "transformer", "d_model": 16, "num_layers": 2, "num_heads": 2, "context": 18, "positions": "learned",
    "norm": "post", "norm_input": True, "norm_epsilon": 1e-12,
}  # fmt: skip
TRAIN: dict[str, Any] = {
    "steps": 12, "batch_size": 8, "learning_rate": 0.01, "validations": 2, "precision": "float32",
}  # fmt: skip
PAIRS: dict[str, Any] = {"data": {"next_sentence": True}, "input": {"segments": 2}}


def masked_recipe(path: Path, *, train: dict[str, Any] | None = None, **tables: Any) -> MaskedLanguageModelingRecipe:
    """A recipe for the text in `path`; the keywords change tables."""
    document: dict[str, Any] = {
        "task": "masked-language-modeling", "tokenizer": {"max_size": 300} | tables.pop("tokenizer", {}),
        "encoder": ENCODER | tables.pop("encoder", {}), "train": TRAIN | (train or {}),
        "data": {"train": str(path)} | tables.pop("data", {}), **tables,
    }  # fmt: skip
    recipe = validate_recipe(document, where="tiny")
    assert isinstance(recipe, MaskedLanguageModelingRecipe)
    return recipe


def paragraphs(count: int) -> str:
    """Documents of four lines about one animal, so that what is hidden is in the words around it."""
    names = ["cat", "dog", "bird", "fish", "horse", "mouse"]
    lines = [f"the {name} is a {name}, {name} {name} and {name} {name} .\n" for name in names]
    return "".join(lines[n % 6] * 4 + "\n" for n in range(count))
