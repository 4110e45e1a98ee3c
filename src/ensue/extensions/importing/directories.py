"""Import of model directories of transformers and sentence-transformers."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ensue.errors import DataError, nearest, quote
from ensue.extensions.importing.bert import ALBERT, BERT, DEBERTA, DISTILBERT, ELECTRA, MODERNBERT, MPNET, ROBERTA
from ensue.extensions.importing.family import Configuration, Family, import_parameters
from ensue.extensions.importing.gpt import GPT, GPT2, LLAMA, NEOX
from ensue.extensions.importing.marian import import_marian
from ensue.extensions.importing.static_vectors import import_model2vec
from ensue.extensions.importing.tokenizer_files import read_tokenizer
from ensue.extensions.importing.weight_files import check_finite, read_json_object, read_weights, weight_files
from ensue.tasks import task_entry
from ensue.text.tokenizer import Tokenizer
from ensue.training.imported import Imported, build_recipe, read_json_file

POOLING_FLAGS = {
    "pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "first", "pooling_mode_max_tokens": "max",
    "pooling_mode_lasttoken": "last",
}  # fmt: skip
"""The value of `sentences.pooling` for each key of 1_Pooling/config.json whose value is true."""
POOLING_MODES = {"mean": "mean", "cls": "first", "max": "max", "lasttoken": "last"}
"""The value of `sentences.pooling` for each value of the newer key `pooling_mode`."""


def read_sentences(directory: Path) -> dict[str, Any]:
    """Read the recipe's table `[sentences]` from modules.json, or return {} without the file.

    Raises DataError for an unsupported module or pooling.
    """
    path = directory / "modules.json"
    if not path.exists():
        return {}
    modules = read_json_file(path)
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        raise DataError("expected a list of modules", path)
    table: dict[str, Any] = {}
    for module in modules:
        module_class, folder = str(module.get("type", "")).rpartition(".")[2], module.get("path", "")
        if module_class == "Normalize":
            table["unit_length"] = True
        elif module_class == "Pooling":
            if not isinstance(folder, str) or Path(folder).name != folder:
                raise DataError(f"expected the name of a folder in the same directory, found {quote(folder)}", path)
            table["pooling"] = _read_pooling(directory / folder / "config.json")
        elif module_class != "Transformer":
            problem = f"the module {quote(module_class)} is not supported"
            raise DataError(f"{problem}; expected Transformer, Pooling, Normalize", path)
    return table


def _read_pooling(path: Path) -> str:
    config = read_json_object(path)
    mode = config.get("pooling_mode")
    flags = [name for name, value in config.items() if name.startswith("pooling_mode_") and value is True]
    if isinstance(mode, str) and mode in POOLING_MODES:
        return POOLING_MODES[mode]
    if not isinstance(mode, str) and len(flags) == 1 and flags[0] in POOLING_FLAGS:
        return POOLING_FLAGS[flags[0]]
    modes = quote(mode) if mode is not None else ", ".join(flags) or "none"
    raise DataError(f"unsupported pooling {modes}; expected mean, cls, max or lasttoken", path)


FAMILIES = {
    "bert": BERT, "roberta": ROBERTA, "xlm-roberta": ROBERTA, "camembert": ROBERTA, "distilbert": DISTILBERT,
    "electra": ELECTRA, "albert": ALBERT, "mpnet": MPNET, "deberta-v2": DEBERTA, "modernbert": MODERNBERT,
    "gpt2": GPT2, "openai-gpt": GPT, "gpt_neox": NEOX, "llama": LLAMA, "mistral": LLAMA,
}  # fmt: skip
"""The families by `model_type` of config.json."""
IMPORTERS = {"marian": import_marian, "model2vec": import_model2vec}
"""The importers of model types whose directories have other files, by `model_type`."""
UNSUPPORTED = ("qwen2", "qwen3", "gemma", "gemma2", "gemma3", "phi3", "smollm3", "olmo2")
"""Model types of decoders with unsupported biases, norms or positions."""
MASKED, CAUSAL = "masked-language-modeling", "language-modeling"
MAX_PADDING_ROWS = 128
"""The maximum number of embedding rows without a token. Some models have such rows for alignment.

For small vocabularies, the maximum is an eighth of the tokens. More rows mean another model's tokenizer.
"""


def import_directory(directory: Path) -> Imported:
    """Read a directory of config.json, weights and tokenizer. Raises DataError for missing or unsupported content."""
    config = Configuration(read_json_object(directory / "config.json"), directory / "config.json")
    model_type = config.content.get("model_type", "model2vec" if "embedding_dtype" in config.content else None)
    if isinstance(model_type, str) and model_type in IMPORTERS:
        return IMPORTERS[model_type](directory, config)
    family = _find_family(config)
    files = weight_files(directory)
    tokenizer = read_tokenizer(directory, is_masked=family.is_masked)
    tensors = family.rename_tensors(read_weights(files))
    tables = {"task": MASKED if family.is_masked else CAUSAL, **family.recipe_tables(config, tensors.keys())}
    tables["tokenizer"] = {"kind": tokenizer.kind, "lowercase": tokenizer.lowercase}
    if family.is_masked:
        tables["sentences"] = read_sentences(directory)
    recipe = build_recipe(tables, directory)
    layout = family.layout(recipe)
    parameters = import_parameters(layout, tensors, files[0])
    notes = [*_remove_padding_rows(parameters, tokenizer, directory), *family.note_unused(tensors, layout)]
    softmax = tensors.get(family.tied) if "head.weight" not in parameters else None
    table = parameters["features.weight"]
    if softmax is not None and (softmax.dim() != table.dim() or not torch.equal(softmax[: len(table)], table)):
        raise DataError("the softmax weights differ from the embedding; only tied weights are supported", files[0])
    if not family.is_masked:
        parameters["head.bias"] = torch.zeros(tokenizer.vocabulary_size)
    check_finite(parameters, files[0])
    parts = task_entry(recipe.task).parts_class(tokenizer)
    keys = {"vocabulary_size": tokenizer.vocabulary_size}
    return Imported(directory, tuple(files), str(config.content["model_type"]), recipe, parts, keys, parameters, notes)


def _find_family(config: Configuration) -> Family:
    model_type = config.content.get("model_type")
    if model_type in UNSUPPORTED:
        raise DataError(f'model_type "{model_type}": this architecture is unsupported', config.path)
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        problem = f"model_type {quote(model_type)} is not known{nearest(str(model_type), FAMILIES)}"
        raise DataError(f"{problem}; known: {', '.join((*FAMILIES, *IMPORTERS))}", config.path)
    return FAMILIES[model_type]


def _remove_padding_rows(parameters: dict[str, Tensor], tokenizer: Tokenizer, directory: Path) -> list[str]:
    """Remove embedding rows without tokens, and return notes. Raises DataError for a tokenizer of another model."""
    names = [name for name in ("features.weight", "head.weight", "head.bias") if name in parameters]
    if any(parameters[name].dim() == 0 for name in names):
        raise DataError("expected a matrix for the embedding and the softmax, found a scalar", directory)
    rows, size = len(parameters["features.weight"]), tokenizer.vocabulary_size
    if not size <= rows <= size + min(MAX_PADDING_ROWS, size // 8):
        problem = f"the tokenizer has {size:,} tokens, and the embedding has {rows:,} rows"
        raise DataError(f"{problem}; expected files of one model", directory)
    if rows == size:
        return []
    for name in names:
        parameters[name] = parameters[name][:size].clone()
    return [f"{rows - size} padding rows of the embedding, without a token, were removed"]
