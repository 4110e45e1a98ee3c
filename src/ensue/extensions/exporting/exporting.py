"""Runs as directories for other programs: of transformers, of ONNX, and of C."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ensue.arguments import check_path
from ensue.errors import EnsueError, nearest
from ensue.extensions.exporting.c.precision import F32, PRECISIONS
from ensue.extensions.exporting.exported import CAN, Exported, write_directory
from ensue.extensions.exporting.huggingface import bert_export, gpt_export
from ensue.extensions.importing.directories import CAUSAL, MASKED, POOLINGS
from ensue.outputs import check_outputs
from ensue.runs.directory import RunDirectory
from ensue.runs.weights import write_tensors
from ensue.training.device import process_restored

HUGGINGFACE, SENTENCES, ONNX, C, WEB = FORMATS = ("huggingface", "sentence-transformers", "onnx", "c", "web")


@process_restored()
def export_run(
    run: str | Path,
    out: str | Path,
    format: str = HUGGINGFACE,
    *,
    int8: bool = False,
    embed: bool = False,
    precision: str = F32,
    overwrite: bool = False,
) -> list[str]:
    """Writes a run as a directory for other programs.

    "huggingface" is what transformers loads: config.json, model.safetensors, and the tokenizer's files.
    "sentence-transformers" has its files beside them, for a model that gives vectors of texts. "onnx" are
    graphs, settings and a program that uses them; with `int8`, their matrices have eight bits. "c" is a file of C with
    its weights, which are inside of it with `embed`. "web" is this file in WebAssembly, as a page and as a module of
    JavaScript. The `precision` of the matrices of both is "f32", "f16" or "int8". Returns what is worth saying of the
    files. Raises EnsueError for a run that the format cannot express, and for files that ensue did not write, unless
    `overwrite`; and DataError for a directory with other files.
    """
    check_path("the run", run)
    check_path("out", out)
    if format not in FORMATS:
        raise EnsueError(f'no format "{format}"{nearest(format, FORMATS)}; known for this model: {", ".join(FORMATS)}')
    if int8 and format != ONNX:
        raise EnsueError(f"int8 is for the format {ONNX}")
    if embed and format != C:
        raise EnsueError(f"embed is for the format {C}")
    if precision != F32 and format not in (C, WEB):
        raise EnsueError(f"precision is for the formats {C} and {WEB}")
    if precision not in PRECISIONS:
        raise EnsueError(f'no precision "{precision}"; expected one of {", ".join(PRECISIONS)}')
    directory, place = RunDirectory(run), Path(out)
    check_outputs([directory.path], folders=[place])
    if format == ONNX:
        _check_packages()
        from ensue.extensions.exporting.onnx.writing import export_onnx  # noqa: PLC0415 (its packages may not be installed)

        return export_onnx(directory, place, int8=int8, overwrite=overwrite)
    if format == C:
        from ensue.extensions.exporting.c.writing import export_c  # noqa: PLC0415 (of one format alone)

        return export_c(directory, place, embed=embed, precision=precision, overwrite=overwrite)
    if format == WEB:
        from ensue.extensions.exporting.c.web import export_web  # noqa: PLC0415 (of one format alone)

        return export_web(directory, place, precision=precision, overwrite=overwrite)
    exported = _exported(directory)
    files = exported.files | (sentence_files(directory) if format == SENTENCES else {})
    contents: dict[str, Any] = {
        name: (json.dumps(content, ensure_ascii=False, indent=2) + "\n").encode() for name, content in files.items()
    }
    contents["model.safetensors"] = lambda path: write_tensors(path, exported.tensors, {"format": "pt"})
    write_directory(place, contents, overwrite=overwrite)
    return []


def sentence_files(run: RunDirectory) -> dict[str, Any]:
    """The files of sentence-transformers: how vectors of tokens become one of a text. Raises EnsueError if none do."""
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


def _check_packages() -> None:
    for name in ("onnx", "onnxruntime"):
        if find_spec(name) is None:
            raise EnsueError(f'ONNX needs the package {name}, which is not installed: pip install "ensue[onnx]"')


def _exported(run: RunDirectory) -> Exported:
    task = run.entry.recipe.model_fields["task"].default
    if task not in EXPORTERS:
        raise EnsueError(f"{run.path}: a {run.entry.what} is none of transformers' models; {CAN}")
    model = run.model(torch.device("cpu"))
    return EXPORTERS[task](run, {name: parameter.detach() for name, parameter in model.named_parameters()})


def _classifier(run: RunDirectory, tensors: dict[str, Tensor]) -> Exported:
    return gpt_export.classifier(run, tensors) if _is_causal(run) else bert_export.classifier(run, tensors)


def _tagger(run: RunDirectory, tensors: dict[str, Tensor]) -> Exported:
    return gpt_export.tagger(run, tensors) if _is_causal(run) else bert_export.tagger(run, tensors)


def _is_causal(run: RunDirectory) -> bool:
    """Whether the layers that were tuned are those of a language model that reads from left to right."""
    tuned = run.parts.tuned
    return tuned is not None and tuned.framing.is_causal


EXPORTERS: dict[str, Callable[[RunDirectory, dict[str, Tensor]], Exported]] = {
    MASKED: bert_export.masked,
    "sentence-vectors": bert_export.masked,
    CAUSAL: gpt_export.causal,
    "classification": _classifier,
    "labeling": _tagger,
}
