"""Runs as directories of transformers and of sentence-transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ensue.errors import EnsueError
from ensue.extensions.exporting.exported import write_directory
from ensue.extensions.exporting.huggingface.models import CAN, Exported, causal, classifier, masked, tagger
from ensue.extensions.importing.directories import POOLINGS
from ensue.runs.directory import RunDirectory
from ensue.runs.weights import write_tensors
from ensue.tasks.contract.description import (
    ClassOutput,
    MaskedOutput,
    ModelDescription,
    TagOutput,
    TokenInput,
    TokenOutput,
    WordInput,
)

MODELS = {
    (TokenInput, MaskedOutput): masked,
    (TokenInput, TokenOutput): causal,
    (WordInput, ClassOutput): classifier,
    (WordInput, TagOutput): tagger,
}
"""The models of transformers by the kinds of input and output of a description."""


def export_huggingface(
    run: RunDirectory, description: ModelDescription, out: Path, *, overwrite: bool = False
) -> list[str]:
    """Write a model as a directory of transformers. Raises EnsueError for a model that transformers does not have."""
    return _write(_exported(run, description), {}, out, overwrite=overwrite)


def export_sentences(
    run: RunDirectory, description: ModelDescription, out: Path, *, overwrite: bool = False
) -> list[str]:
    """Write a model as a directory of sentence-transformers. Raises EnsueError as `export_huggingface`."""
    return _write(_exported(run, description), sentence_files(run), out, overwrite=overwrite)


def sentence_files(run: RunDirectory) -> dict[str, Any]:
    """Return the files about the pooling of token vectors. Raises EnsueError for a model without one."""
    recipe: Any = run.recipe
    if not hasattr(recipe, "sentences"):
        raise EnsueError(f"{run.path}: a {run.entry.what} gives no vectors of texts; expected a masked language model")
    kinds = {"": "Transformer", "1_Pooling": "Pooling"}
    kinds |= {"2_Normalize": "Normalize"} if recipe.sentences.unit_length else {}
    modes = {key: mode == recipe.sentences.pooling for key, mode in POOLINGS.items()}
    return {
        "modules.json": [
            {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for n, (path, kind) in enumerate(kinds.items())
        ],
        "sentence_bert_config.json": {"max_seq_length": recipe.encoder.context, "do_lower_case": False},
        "1_Pooling/config.json": {"word_embedding_dimension": recipe.encoder.d_model, **modes},
    }


def _exported(run: RunDirectory, description: ModelDescription) -> Exported:
    model = MODELS.get(description.kinds)
    if model is None:
        raise EnsueError(f"{run.path}: a {run.entry.what} is none of transformers' models; {CAN}")
    return model(run, {name: parameter.detach() for name, parameter in description.model.named_parameters()})


def _write(exported: Exported, more: dict[str, Any], out: Path, *, overwrite: bool) -> list[str]:
    files = {**exported.files, **more}
    contents: dict[str, Any] = {
        name: (json.dumps(content, ensure_ascii=False, indent=2) + "\n").encode() for name, content in files.items()
    }
    contents["model.safetensors"] = lambda path: write_tensors(path, exported.tensors, {"format": "pt"})
    write_directory(out, contents, overwrite=overwrite)
    return []
