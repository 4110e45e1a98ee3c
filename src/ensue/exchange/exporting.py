"""Runs as directories of transformers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from ensue.arguments import check_path
from ensue.errors import DataError, EnsueError, nearest
from ensue.exchange import gpt, gpt_neox
from ensue.exchange.bert_export import classifier, masked, tagger
from ensue.exchange.directories import CAUSAL, MASKED
from ensue.exchange.exported import ALWAYS, CAN, Exported, check_transformer
from ensue.exchange.layouts import to_theirs
from ensue.exchange.softmax import published_softmax
from ensue.exchange.tokenizer_export import causal_files
from ensue.runs.directory import RunDirectory
from ensue.runs.weights import read_tensors, write_tensors

FORMAT = "huggingface"
NAMES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")


def export_run(run: str | Path, out: str | Path, format: str = FORMAT) -> None:
    """Writes a run as a directory that transformers loads: config.json, model.safetensors, and the tokenizer's files.

    Raises EnsueError for a run that transformers cannot express, and DataError for a directory with other files.
    """
    check_path("the run", run)
    check_path("out", out)
    if format != FORMAT:
        raise EnsueError(f'no format "{format}"{nearest(format, [FORMAT])}; known for this model: {FORMAT}')
    directory, place = RunDirectory(run), Path(out)
    exported = _exported(directory)
    _check_place(place)
    try:
        place.mkdir(parents=True, exist_ok=True)
        for name, content in exported.files.items():
            (place / name).write_text(json.dumps(content, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
        write_tensors(place / "model.safetensors", exported.tensors, {"format": "pt"})
    except OSError as error:
        raise DataError(f"cannot be written ({error.strerror})", place) from None


def _check_place(place: Path) -> None:
    if place.exists() and not place.is_dir():
        raise DataError("is a file; --out names a directory", place)
    found = sorted(entry.name for entry in place.iterdir()) if place.is_dir() else []
    if other := next((name for name in found if name not in NAMES), None):
        raise DataError(f"not empty (it holds {other}); choose another --out", place)


def _exported(run: RunDirectory) -> Exported:
    task = run.entry.recipe.model_fields["task"].default
    if task not in EXPORTERS:
        raise EnsueError(f"{run.path}: a {run.entry.what} is none of transformers' models; {CAN}")
    return EXPORTERS[task](run, read_tensors(run.manifest.check(run.weights.name)))


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
