"""Models of GPT's shapes for transformers: language models, and the classifiers and taggers that began from one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

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
from ensue.extensions.exporting.huggingface.tokenizer_export import causal_files, tuned_files
from ensue.extensions.importing import gpt
from ensue.extensions.importing.layouts import first_block, to_theirs
from ensue.runs.directory import RunDirectory

SHAPES = {("learned", "pre"): "GPT2", ("learned", "post"): "OpenAIGPT", ("rotary", "pre"): "GPTNeoX"}
"""Their classes, by encoder.positions and encoder.norm."""


def causal(run: RunDirectory, tensors: dict[str, Tensor]) -> Exported:
    """A language model."""
    recipe: Any = run.recipe
    _check_shape(run, run)
    softmax, tokenizer = published_softmax(recipe, tensors), run.parts.tokenizer
    theirs = _theirs(recipe, softmax.words, softmax.tensors)
    if softmax.matrix is not None:
        theirs["embed_out.weight" if recipe.encoder.positions == "rotary" else "lm_head.weight"] = softmax.matrix
    config = {
        **_config(recipe),
        "vocab_size": tokenizer.vocabulary_size,
        "tie_word_embeddings": softmax.matrix is None,
        "bos_token_id": tokenizer.start_id,
        "eos_token_id": tokenizer.special_ids.get("[START]"),
        **ALWAYS,
    }
    return Exported({"config.json": config, **causal_files(tokenizer, context=recipe.encoder.context)}, theirs)


def classifier(run: RunDirectory, tensors: dict[str, Tensor]) -> Exported:
    """A classifier: the last position, and the labels. Its bias goes into the matrix, since theirs have none."""
    recipe: Any = run.recipe
    head, labels = recipe.head, run.parts.labels
    if head.pooling != ["last"]:
        raise refused(run, f"head.pooling = {head.pooling}; a class of transformers reads the last position alone")
    if head.ngrams or head.d_hidden or run.parts.pair:
        what = "head.ngrams" if head.ngrams else "head.d_hidden" if head.d_hidden else "pairs of texts"
        raise refused(run, f"{what}; a class of transformers has one matrix over the last position of a text")
    if recipe.data.splitter.startswith("treebank"):
        raise refused(
            run, f"data.splitter = {recipe.data.splitter}, which cuts texts as no tokenizer of transformers does"
        )
    layers = tuned_layers(run, tensors, _check_shape)
    words, inner = published_vectors(layers.origin.recipe, layers.tensors)
    weight, bias = (tensors[f"head.1.{name}"].double() / labels.temperature for name in ("weight", "bias"))
    check_width(run, weight, layers.recipe.encoder.d_model)
    matrix = without_bias(weight, bias, inner, layers.origin.recipe)
    head = {"score.weight": matrix.float()}
    return _tuned(run, layers, words, inner, head, labels.names, "SequenceClassification")


def tagger(run: RunDirectory, tensors: dict[str, Tensor]) -> Exported:
    """A tagger whose tags do not depend on each other: a score for each tag and subword."""
    layers = tuned_layers(run, tensors, _check_shape)
    head = tag_head(run, tensors, layers.recipe.encoder.d_model)
    if layers.origin.recipe.layers.norm == "post":
        raise refused(run, "tags over layers with norm = post; GPT has no class of transformers for tags")
    words, inner = published_vectors(layers.origin.recipe, layers.tensors)
    return _tuned(run, layers, words, inner, head, run.parts.labels.tags.symbols, "TokenClassification")


def _tuned(
    run: RunDirectory, layers: TunedLayers, words: Tensor, inner: dict[str, Tensor], head: dict[str, Tensor],
    labels: Sequence[str], what: str,
) -> Exported:  # fmt: skip
    """The layers with a head. Our sign ends a text; padding is the sign between pairs, which do not occur."""
    recipe, framing, outer = layers.recipe, run.parts.tuned.framing, cast(Any, run.recipe)
    encoder = recipe.encoder
    config = {
        **_config(recipe),
        "architectures": [f"{SHAPES[encoder.positions, encoder.norm]}For{what}"],
        "vocab_size": len(words),
        "bos_token_id": framing.begin[0],
        "eos_token_id": framing.end[0],
        "pad_token_id": framing.between[0],
        **head_config(run, labels),
        **ALWAYS,
    }
    splitter = outer.data.splitter if what == "SequenceClassification" else None
    files = tuned_files(framing, splitter=splitter, context=encoder.context)
    return Exported({"config.json": config, **files}, _theirs(recipe, words.float(), inner) | head)


def _check_shape(run: RunDirectory, layers: RunDirectory) -> None:
    """Raises EnsueError for layers of another shape than GPT's."""
    check_transformer(layers, "parallel", "rotary_share", "rotary_base")
    encoder = layers.recipe.layers
    if encoder.norm_input or (encoder.positions, encoder.norm) not in SHAPES:
        raise EnsueError(
            f"{run.path}: a language model can be exported with encoder.norm = pre and positions = learned or rotary, "
            f"or norm = post and positions = learned; found {encoder.norm}, {encoder.positions}"
            f"{' and norm_input = true' * encoder.norm_input}"
        )
    if encoder.norm == "post":
        gpt.check_first(encoder, run.path)


def _config(recipe: Any) -> dict[str, Any]:
    encoder = recipe.encoder
    return gpt.neox_config(encoder) if encoder.positions == "rotary" else gpt.config(encoder)


def _theirs(recipe: Any, words: Tensor, layers: dict[str, Tensor]) -> dict[str, Tensor]:
    """Their tensors, without those of a head."""
    is_rotary = recipe.encoder.positions == "rotary"
    family, parts = (gpt.NEOX, gpt.neox_layout(recipe)) if is_rotary else (gpt.GPT2, gpt.layout(recipe))
    theirs = to_theirs(parts, layers | {"features.weight": words})
    return {f"{family.prefix}{name}": tensor for name, tensor in theirs.items()}


WRAPPED, PLAIN = "layers.layers.1.layers", "layers.layers"
"""Where the layers of a Transformer are, behind a projection of the input and without one."""


class PublishedSoftmax(NamedTuple):
    """The vectors of tokens (V, d), the matrix of the softmax (None: the same), and the tensors of the layers."""

    words: Tensor
    matrix: Tensor | None
    tensors: dict[str, Tensor]


def published_softmax(recipe: Any, tensors: dict[str, Tensor]) -> PublishedSoftmax:
    """One matrix without a bias that gives these logits.

    A scale and projections are multiplied into the tables. For the bias b: the last layer is a normalization
    h = g·n + β, in which the numbers n have the sum 0. So uᵀh = uᵀβ =: s with u = 1/g, and (W + b uᵀ/s) h = W h + b. If
    |s| is below 1, β is changed first, by δ = ±2g/d; then h is h + δ, and W δ is taken off.
    """
    words, layers = published_vectors(recipe, tensors)
    matrix = tensors["features.weight" if recipe.tokens.tied else "head.weight"].double()
    if "head.projection.weight" in tensors:
        matrix = matrix @ tensors["head.projection.weight"].double()
    matrix = without_bias(matrix, tensors["head.bias"].double(), layers, recipe)
    same = matrix.shape == words.shape and torch.equal(matrix, words)
    return PublishedSoftmax(words.float(), None if same else matrix.float().contiguous(), layers)


def published_vectors(recipe: Any, tensors: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    """The vectors of tokens (V, d) in float64, without a scale and a projection, and the tensors of the layers."""
    tokens, layers = recipe.tokens, dict(tensors)
    words = tensors["features.weight"].double() * (tokens.d_embedding**0.5 if tokens.tied and tokens.scaled else 1)
    if tokens.d_embedding != recipe.encoder.d_model:
        words = words @ tensors[f"{PLAIN}.0.module.weight"].double().T + tensors[f"{PLAIN}.0.module.bias"].double()
        layers = {name.replace(WRAPPED, PLAIN, 1): tensor for name, tensor in tensors.items()}
    return words, layers


def _last_norm(recipe: Any) -> str:
    """The name of the last normalization."""
    encoder = recipe.encoder
    last = first_block(encoder) + encoder.num_layers
    return f"{PLAIN}.{last}.module" if encoder.norm == "pre" else f"{PLAIN}.{last - 1}.norm_feedforward"


def without_bias(matrix: Tensor, bias: Tensor, layers: dict[str, Tensor], recipe: Any) -> Tensor:
    """The matrix that adds the bias too; β in `layers` may change."""
    if not bias.any():
        return matrix
    norm = _last_norm(recipe)
    g, beta = layers[f"{norm}.weight"].double(), layers[f"{norm}.bias"].double()
    g = torch.where(g.abs() < 1e-6, 1e-6, g)
    u = 1 / g
    delta = torch.zeros_like(g)
    if (u @ beta).abs() < 1:
        delta = g * (2 / len(g)) * (1 if u @ beta >= 0 else -1)
        layers[f"{norm}.bias"] = (beta + delta).float()
        delta = layers[f"{norm}.bias"].double() - beta
    return matrix + torch.outer(bias - matrix @ delta, u / (u @ (beta + delta)))
