"""Pairs whose targets follow from their sources by a simple rule, and recipes for them."""

import random
from pathlib import Path
from typing import Any

from ensue.recipe import validate_recipe
from ensue.tasks.sequence_to_sequence.recipe import SequenceToSequenceRecipe

TRANSLATED = {
    "the": "die", "a": "eine", "cat": "Katze", "dog": "Hundin", "sees": "sieht", "hears": "hört", "red": "rote",
    "big": "große", "bird": "Amsel", "door": "Tür",
}  # fmt: skip
SMALL: dict[str, Any] = {
    "encoder": {"kind": "transformer", "d_model": 32, "num_layers": 1, "num_heads": 2},
    "decoder": {"kind": "transformer", "d_model": 32, "num_layers": 1, "num_heads": 2},
    "tokens": {"d_embedding": 32},
    "tokenizer": {"kind": "words"},
}
TRAIN: dict[str, Any] = {
    "steps": 12, "batch_tokens": 120, "validations": 2, "learning_rate": 0.01, "precision": "float32", "samples": 1,
}  # fmt: skip


LEARNED: dict[str, Any] = {
    "steps": 150, "batch_tokens": 500, "learning_rate": 0.01, "warmup": 0.1, "samples": 0,
}  # fmt: skip
"""Settings with which a model learns the rule."""


LSTM = {"kind": "lstm", "d_model": 16}
DECODERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "attention": ({"kind": "bilinear"}, {}),
    "additive": ({"kind": "additive"}, {}),
    "heads": ({"kind": "scaled-dot", "num_heads": 2, "dropout": 0.1}, {}),
    "dot": ({"kind": "dot"}, {}),
    "feeding": ({"kind": "bilinear", "feeding": True}, {}),
    "plain": ({"kind": "none"}, {}),
    "copying": ({"kind": "bilinear"}, {"copying": True, "coverage": 0.1}),
    "decoder only": ({}, {"label_smoothing": 0.1}),
}
"""The tables `[attention]` and `[head]` of recurrent decoders."""


def sentence(choose: random.Random) -> str:
    """Return a sentence of five to seven words."""
    words = [choose.choice(["the", "a"]), *choose.choices(["red", "big"], k=choose.randrange(3))]
    words += [choose.choice(["cat", "dog"]), choose.choice(["sees", "hears"])]
    return " ".join([*words, choose.choice(["the", "a"]), choose.choice(["bird", "door"])])


def translated(text: str) -> str:
    """Return the target of a source, translated word by word."""
    return " ".join(TRANSLATED[word] for word in text.split())


def pairs(count: int, *, seed: int = 0) -> str:
    """Return lines of a source, a tab and its target."""
    choose = random.Random(seed)
    sources = [sentence(choose) for _ in range(count)]
    return "".join(f"{source}\t{translated(source)}\n" for source in sources)


def sources_of(lines: str) -> list[str]:
    """Return the sources of lines from `pairs`."""
    return [line.split("\t")[0] for line in lines.splitlines()]


def pair_recipe(path: Path, *, train: dict[str, Any] | None = None, **tables: Any) -> SequenceToSequenceRecipe:
    """Return a recipe for the pairs in `path`; keywords replace tables, but update `data` and `train`."""
    data = {"train": str(path), **tables.pop("data", {})}
    document = {"task": "sequence-to-sequence", **SMALL, **tables, "data": data, "train": TRAIN | (train or {})}
    recipe = validate_recipe(document, where="tiny")
    assert isinstance(recipe, SequenceToSequenceRecipe)
    return recipe
