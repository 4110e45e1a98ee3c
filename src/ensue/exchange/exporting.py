"""Runs as directories for other programs: of transformers, and of ONNX."""

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
from ensue.exchange import gpt, gpt_neox
from ensue.exchange.bert_export import classifier, masked, tagger
from ensue.exchange.directories import CAUSAL, MASKED
from ensue.exchange.exported import ALWAYS, CAN, Exported, check_transformer
from ensue.exchange.layouts import to_theirs
from ensue.exchange.places import new_directory
from ensue.exchange.softmax import published_softmax
from ensue.exchange.tokenizer_export import causal_files
from ensue.runs.directory import RunDirectory
from ensue.runs.weights import write_tensors

HUGGINGFACE, ONNX = FORMATS = ("huggingface", "onnx")
NAMES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")


def export_run(run: str | Path, out: str | Path, format: str = HUGGINGFACE, *, int8: bool = False) -> list[str]:
    """Writes a run as a directory for other programs.

    "huggingface" is what transformers loads: config.json, model.safetensors, and the tokenizer's files. "onnx" are
    graphs, settings and a program that uses them; with `int8`, their matrices have eight bits. Returns what is worth
    saying of the files. Raises EnsueError for a run that the format cannot express, and DataError for a directory with
    other files.
    """
    check_path("the run", run)
    check_path("out", out)
    if format not in FORMATS:
        raise EnsueError(f'no format "{format}"{nearest(format, FORMATS)}; known for this model: {", ".join(FORMATS)}')
    if int8 and format != ONNX:
        raise EnsueError(f"int8 is for the format {ONNX}")
    directory, place = RunDirectory(run), Path(out)
    if format == ONNX:
        _check_packages()
        from ensue.exchange.onnx.writing import export_onnx  # noqa: PLC0415 (its packages may not be installed)

        return export_onnx(directory, place, int8=int8)
    exported = _exported(directory)
    with new_directory(place, NAMES):
        for name, content in exported.files.items():
            (place / name).write_text(json.dumps(content, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
        write_tensors(place / "model.safetensors", exported.tensors, {"format": "pt"})
    return []


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


def _causal(run: RunDirectory, tensors: dict[str, Tensor]) -> Exported:
    recipe: Any = run.recipe
    check_transformer(run)
    encoder, tokenizer = recipe.encoder, run.parts.tokenizer
    if encoder.norm_input or (encoder.positions, encoder.norm) not in CAUSAL_SHAPES:
        raise EnsueError(
            f"{run.path}: a language model can be exported with encoder.norm = pre and positions = learned or rotary, "
            f"or norm = post and positions = learned; found {encoder.norm}, {encoder.positions}"
            f"{' and norm_input = true' * encoder.norm_input}"
        )
    if encoder.norm == "post":
        gpt.check_first(encoder, run.path)
    softmax = published_softmax(recipe, tensors)
    if encoder.positions == "rotary":
        config, layout = gpt_neox.config(encoder), gpt_neox.layout(recipe)
        read, written = "gpt_neox.embed_in.weight", "embed_out.weight"
    else:
        config, layout = gpt.config(encoder), gpt.layout(recipe)[1:]
        read, written = gpt.TENSORS[encoder.norm][0], "lm_head.weight"
    theirs = to_theirs(layout, softmax.tensors) | {read: softmax.words}
    if encoder.positions != "rotary":
        theirs = {f"transformer.{name}": tensor for name, tensor in theirs.items()}
    if softmax.matrix is not None:
        theirs[written] = softmax.matrix
    config |= {
        "vocab_size": tokenizer.vocabulary_size,
        "tie_word_embeddings": softmax.matrix is None,
        "bos_token_id": tokenizer.start_id,
        "eos_token_id": tokenizer.special_ids.get("[START]"),
        **ALWAYS,
    }
    return Exported({"config.json": config, **causal_files(tokenizer, context=encoder.context)}, theirs)


CAUSAL_SHAPES = {("learned", "pre"), ("learned", "post"), ("rotary", "pre")}
EXPORTERS: dict[str, Callable[[RunDirectory, dict[str, Tensor]], Exported]] = {
    MASKED: masked,
    CAUSAL: _causal,
    "classification": classifier,
    "labeling": tagger,
}
