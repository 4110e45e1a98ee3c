"""Directories of the transformers library, and of sentence-transformers, as runs."""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ensue.errors import DataError, nearest
from ensue.extensions.importing.bert import ALBERT, BERT, DEBERTA, DISTILBERT, ELECTRA, MODERNBERT, MPNET, ROBERTA
from ensue.extensions.importing.family import Configuration, Family
from ensue.extensions.importing.gpt import GPT, GPT2, LLAMA, NEOX
from ensue.extensions.importing.layouts import to_ours
from ensue.extensions.importing.marian import import_marian
from ensue.extensions.importing.static_vectors import import_model2vec
from ensue.extensions.importing.tokenizer_files import read_tokenizer
from ensue.extensions.importing.weight_files import (
    check_finite,
    read_json_object,
    read_weights,
    weight_files,
)
from ensue.parsing import shown
from ensue.recipe import Recipe
from ensue.tasks import task_entry
from ensue.text.tokenizer import Tokenizer
from ensue.training.imported import Imported, read_json_file, recipe_of

POOLINGS = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "first",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_lasttoken": "last",
}
"""Our pooling for each key that is true."""
NAMES = {"mean": "mean", "cls": "first", "max": "max", "lasttoken": "last"}
"""Our pooling for each value of the newer key."""


def read_sentences(directory: Path) -> dict[str, Any]:
    """The table `[sentences]`; the mean of tokens for a directory that says nothing.

    Raises DataError for a module that ensue has not, and for another pooling.
    """
    path = directory / "modules.json"
    if not path.exists():
        return {}
    modules = read_json_file(path)
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        raise DataError("expected a list of modules", path)
    found: dict[str, Any] = {}
    for module in modules:
        kind, name = str(module.get("type", "")).rpartition(".")[2], module.get("path", "")
        if kind == "Normalize":
            found["unit_length"] = True
        elif kind == "Pooling":
            found["pooling"] = _pooling(directory / _folder(name, path) / "config.json")
        elif kind != "Transformer":
            raise DataError(
                f"the module {shown(kind)} is not supported; expected Transformer, Pooling, Normalize", path
            )
    return found


def _folder(name: object, path: Path) -> str:
    if not isinstance(name, str) or Path(name).name != name:
        raise DataError(f"expected a folder beside it, found {shown(name)}", path)
    return name


def _pooling(path: Path) -> str:
    config = read_json_object(path)
    chosen = config.get("pooling_mode")
    modes = [name for name, on in config.items() if name.startswith("pooling_mode_") and on is True]
    found = NAMES.get(chosen) if isinstance(chosen, str) else POOLINGS.get(modes[0]) if len(modes) == 1 else None
    if found is None:
        said = shown(chosen) if chosen is not None else ", ".join(modes) or "none"
        raise DataError(f"a pooling by {said} is not supported; expected mean, cls, max or lasttoken", path)
    return found


FAMILIES = {
    "bert": BERT, "roberta": ROBERTA, "xlm-roberta": ROBERTA, "camembert": ROBERTA, "distilbert": DISTILBERT,
    "electra": ELECTRA, "albert": ALBERT, "mpnet": MPNET, "deberta-v2": DEBERTA, "modernbert": MODERNBERT,
    "gpt2": GPT2, "openai-gpt": GPT, "gpt_neox": NEOX, "llama": LLAMA, "mistral": LLAMA,
}  # fmt: skip
"""The families by `model_type`."""
OWN = {"marian": import_marian, "model2vec": import_model2vec}
"""The readers by `model_type`, for directories with other files."""
OTHERS = ("qwen2", "qwen3", "gemma", "gemma2", "gemma3", "phi3", "smollm3", "olmo2")
"""Decoders with biases, norms or positions of their own, which are not read."""
MASKED, CAUSAL = "masked-language-modeling", "language-modeling"
PADDED_TO = 128
"""Tables of tokens are published with up to so many rows more than there are tokens, for the sake of products. More
than an eighth is another model's tokenizer.
"""


def import_directory(directory: Path) -> Imported:
    """A directory with config.json, weights and a tokenizer. Raises DataError for what is missing or not known."""
    config = Configuration(read_json_object(directory / "config.json"), directory / "config.json")
    kind = config.content.get("model_type", "model2vec" if "embedding_dtype" in config.content else None)
    if isinstance(kind, str) and kind in OWN:
        return OWN[kind](directory, config)
    family = _family(config)
    files = weight_files(directory)
    tokenizer = read_tokenizer(directory, is_masked=family.is_masked)
    tensors = family.plain(read_weights(files))
    recipe = _recipe(config, family, tokenizer, tensors.keys(), directory)
    layout = family.layout(recipe)
    ours = to_ours(layout, tensors, files[0])
    notes = [*_fitted(ours, tokenizer, directory), *family.left_out(tensors, layout)]
    if "head.weight" not in ours:
        _check_tied(ours["features.weight"], tensors.get(family.tied), files[0])
    if not family.is_masked:
        ours["head.bias"] = torch.zeros(tokenizer.vocabulary_size)
    check_finite(ours, files[0])
    parts = task_entry(recipe.task).parts_class(tokenizer)
    vocabulary = {"vocabulary_size": tokenizer.vocabulary_size}
    return Imported(directory, tuple(files), str(config.content["model_type"]), recipe, parts, vocabulary, ours, notes)


def _recipe(config: Configuration, family: Family, tokenizer: Tokenizer, names: Set[str], directory: Path) -> Recipe:
    document = {"task": MASKED if family.is_masked else CAUSAL, **family.tables(config, names)}
    document["tokenizer"] = {"kind": tokenizer.kind, "lowercase": tokenizer.lowercase}
    if family.is_masked:
        document["sentences"] = read_sentences(directory)
    return recipe_of(document, directory)


def _family(config: Configuration) -> Family:
    kind = config.content.get("model_type")
    if kind in OTHERS:
        raise DataError(f'model_type "{kind}": ensue has no blocks of this shape', config.path)
    if not isinstance(kind, str) or kind not in FAMILIES:
        known = ", ".join((*FAMILIES, *OWN))
        raise DataError(
            f"model_type {shown(kind)} is not known{nearest(str(kind), FAMILIES)}; known: {known}", config.path
        )
    return FAMILIES[kind]


def _fitted(ours: dict[str, Tensor], tokenizer: Tokenizer, directory: Path) -> list[str]:
    """Cuts rows for which there are no tokens off, and says so. Raises DataError for a tokenizer of another model."""
    if any(ours[name].dim() == 0 for name in ("features.weight", "head.weight", "head.bias") if name in ours):
        raise DataError("an embedding or a softmax is one number", directory)
    rows, size = len(ours["features.weight"]), tokenizer.vocabulary_size
    if not size <= rows < size + min(PADDED_TO, size // 8):
        raise DataError(
            f"the tokenizer has {size:,} tokens and the embedding {rows:,} rows: not of one model", directory
        )
    if rows == size:
        return []
    for name in ("features.weight", "head.weight", "head.bias"):
        if name in ours:
            ours[name] = ours[name][:size].clone()
    return [f"the embedding has {rows - size} rows more than the tokenizer has tokens: they were cut off"]


def _check_tied(ours: Tensor, copy: Tensor | None, place: Path) -> None:
    if copy is not None and (copy.dim() != ours.dim() or not torch.equal(copy[: len(ours)], ours)):
        raise DataError(
            "the softmax has vectors of its own, which is not supported; expected those of the tokens", place
        )
