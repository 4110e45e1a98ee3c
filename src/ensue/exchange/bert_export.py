"""Models of BERT's shape for transformers: masked models, and the classifiers and taggers that began from one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ensue.errors import EnsueError
from ensue.exchange import bert
from ensue.exchange.configuration import THEIRS
from ensue.exchange.exported import ALWAYS, CAN, Exported, check_transformer, refused
from ensue.exchange.layouts import Part, to_theirs
from ensue.exchange.tokenizer_export import masked_files
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
    """A classifier: `[CLS]`, a linear layer with tanh, and the labels. A missing linear layer is written as one that
    changes nothing.
    """
    recipe: Any = run.recipe
    origin, labels = _origin(run), run.parts.labels
    d = origin.recipe.layers.d_model
    _check_classifier(run, d)
    if recipe.head.d_hidden:
        scale, pooler, last = 1.0, (tensors["head.1.weight"], tensors["head.1.bias"]), "head.4"
    else:
        scale, pooler, last = SMALL, (SMALL * torch.eye(d), torch.zeros(d)), "head.1"
    head = {
        "bert.pooler.dense.weight": pooler[0],
        "bert.pooler.dense.bias": pooler[1],
        "classifier.weight": tensors[f"{last}.weight"] / scale,
        "classifier.bias": tensors[f"{last}.bias"],
    }
    problem = "multi_label_classification" if labels.multiple else "single_label_classification"
    more = {"architectures": ["BertForSequenceClassification"], "problem_type": problem}
    return _tuned(run, origin, tensors, head, labels.names, more)


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
    recipe: Any = run.recipe
    origin = _origin(run)
    if recipe.head.kind != "softmax":
        best = "the best path; classes of transformers choose each tag by itself, as softmax does"
        raise refused(run, f"head.kind = {recipe.head.kind}, {best}")
    head = {f"classifier.{name}": tensors[f"head.projection.{name}"] for name in ("weight", "bias")}
    more = {"architectures": ["BertForTokenClassification"]}
    return _tuned(run, origin, tensors, head, run.parts.labels.tags.symbols, more)


def _origin(run: RunDirectory) -> RunDirectory:
    """The masked model whose layers were tuned."""
    tuned = run.parts.tuned
    if tuned is None:
        raise EnsueError(f"{run.path}: {run.recipe.describe()} is none of transformers' models; {CAN}")
    _check_shape(run, tuned.base)
    found: RunDirectory = tuned.base
    return found


def _tuned(
    run: RunDirectory,
    origin: RunDirectory,
    tensors: Mapping[str, Tensor],
    head: dict[str, Tensor],
    labels: Sequence[str],
    more: Mapping[str, Any],
) -> Exported:
    """The layers of the origin as they are now, with this head."""
    recipe: Any = origin.recipe.model_copy(update={"encoder": run.parts.tuned.layers})
    outer: Any = run.recipe
    if head["classifier.weight"].shape[1] != recipe.encoder.d_model:
        raise refused(
            run, "features of words beside the layers, or head.repeats; heads of transformers read the layers"
        )
    inner = {name.removeprefix("layers."): tensor for name, tensor in tensors.items() if name.startswith("layers.")}
    theirs = {f"bert.{name}": tensor for name, tensor in _theirs(bert.body(recipe), recipe, inner).items()}
    names = dict(enumerate(labels))
    config = {
        "classifier_dropout": getattr(outer.head, "dropout", 0.0),
        "id2label": names,
        "label2id": {name: number for number, name in names.items()},
        **more,
    }
    return _exported(recipe, origin.parts, theirs | head, config)


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
