"""Models of BERT's shape for transformers: masked models, and the classifiers and taggers that began from one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ensue.errors import EnsueError
from ensue.extensions.exporting.exported import (
    ALWAYS,
    Exported,
    TunedLayers,
    check_transformer,
    check_width,
    head_config,
    refused,
    tag_head,
    tuned_layers,
)
from ensue.extensions.exporting.huggingface.tokenizer_export import masked_files
from ensue.extensions.importing import bert
from ensue.extensions.importing.family import THEIRS
from ensue.extensions.importing.layouts import Part, to_theirs
from ensue.runs.directory import RunDirectory
from ensue.tasks.texts.tokenizer import TokenizerParts

SMALL = 2.0**-14
"""For numbers z of a normalized vector, tanh(SMALL · z) / SMALL is z to the last bits of a float32."""
SEGMENTS, LEAST_SEGMENTS = "embeddings.token_type_embeddings.weight", 2


def masked(run: RunDirectory, tensors: Mapping[str, Tensor]) -> Exported:
    """A masked language model."""
    recipe: Any = run.recipe
    _check_shape(run, run)
    theirs = _theirs(bert.layout(recipe), recipe, tensors)
    if recipe.head.masked:
        theirs = {name if name.startswith("cls.") else f"bert.{name}": tensor for name, tensor in theirs.items()}
    return _exported(recipe, run.parts, theirs, {"architectures": [bert.architecture(recipe)]})


def classifier(run: RunDirectory, tensors: Mapping[str, Tensor]) -> Exported:
    """A classifier: `[CLS]`, a linear layer with tanh, and the labels. A missing linear layer becomes the identity."""
    recipe: Any = run.recipe
    layers = tuned_layers(run, tensors, _check_shape)
    d = layers.recipe.encoder.d_model
    _check_classifier(run, d)
    if recipe.head.d_hidden:
        scale, pooler, last = 1.0, (tensors["head.1.weight"], tensors["head.1.bias"]), "head.4"
    else:
        scale, pooler, last = SMALL, (SMALL * torch.eye(d), torch.zeros(d)), "head.1"
    head = {
        "bert.pooler.dense.weight": pooler[0],
        "bert.pooler.dense.bias": pooler[1],
        "classifier.weight": tensors[f"{last}.weight"] / scale / run.parts.labels.temperature,
        "classifier.bias": tensors[f"{last}.bias"] / run.parts.labels.temperature,
    }
    check_width(run, head["classifier.weight"], d)
    return _tuned(run, layers, head, run.parts.labels.names, "BertForSequenceClassification")


def _check_classifier(run: RunDirectory, d: int) -> None:
    """Raises EnsueError for a classifier over layers of width `d` that no class of transformers is."""
    recipe: Any = run.recipe
    head, splitter = recipe.head, recipe.data.splitter
    if head.pooling != ["first"]:
        raise refused(run, f"head.pooling = {head.pooling}; a class of transformers reads [CLS] alone, as [first] does")
    if head.ngrams:
        raise refused(run, "head.ngrams; no class of transformers counts n-grams")
    if head.d_hidden and (head.d_hidden, head.activation) != (d, "tanh"):
        found = f"head.d_hidden = {head.d_hidden} and head.activation = {head.activation}"
        raise refused(run, f"{found}; expected 0, or {d} with tanh")
    if splitter not in ("simple", "whitespace"):
        raise refused(run, f"data.splitter = {splitter}, which cuts texts as no tokenizer of transformers does")


def tagger(run: RunDirectory, tensors: Mapping[str, Tensor]) -> Exported:
    """A tagger whose tags do not depend on each other: a score for each tag and subword."""
    layers = tuned_layers(run, tensors, _check_shape)
    head = tag_head(run, tensors, layers.recipe.encoder.d_model)
    return _tuned(run, layers, head, run.parts.labels.tags.symbols, "BertForTokenClassification")


def _tuned(
    run: RunDirectory, layers: TunedLayers, head: dict[str, Tensor], labels: Sequence[str], architecture: str
) -> Exported:
    """The layers with this head."""
    recipe = layers.recipe
    theirs = {f"bert.{name}": x for name, x in _theirs(bert.body(recipe), recipe, layers.tensors).items()}
    more = {"architectures": [architecture], **head_config(run, labels)}
    return _exported(recipe, layers.origin.parts, theirs | head, more)


def _check_shape(run: RunDirectory, layers: RunDirectory) -> None:
    """Raises EnsueError for layers of another shape than BERT's."""
    check_transformer(layers)
    encoder = layers.recipe.layers
    if (encoder.positions, encoder.norm, encoder.norm_input) != ("learned", "post", True):
        raise EnsueError(
            f"{run.path}: the shape of BERT has encoder.positions = learned, norm = post and norm_input = true; found "
            f"{encoder.positions}, {encoder.norm} and {str(encoder.norm_input).lower()}"
        )


def _theirs(parts: list[Part], recipe: Any, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Their tensors. They have two segments at least, since their tokenizer numbers the two texts of a pair."""
    theirs = to_theirs(parts, tensors)
    if recipe.input.segments < LEAST_SEGMENTS:
        same = theirs.get(SEGMENTS, torch.zeros(1, recipe.encoder.d_model))
        theirs[SEGMENTS] = same.repeat(LEAST_SEGMENTS, 1)
    return theirs


def _exported(recipe: Any, parts: TokenizerParts, theirs: dict[str, Tensor], more: Mapping[str, Any]) -> Exported:
    encoder, coder = recipe.encoder, parts.coder  # type: ignore[attr-defined]  # those of a masked model
    config = {
        **bert.config(encoder),
        "vocab_size": coder.vocabulary_size,
        "type_vocab_size": max(LEAST_SEGMENTS, recipe.input.segments),
        "pad_token_id": coder.padding_id,
        "hidden_act": THEIRS[encoder.activation],
        **ALWAYS,
        **more,
    }
    return Exported({"config.json": config, **masked_files(coder, context=encoder.context)}, theirs)
