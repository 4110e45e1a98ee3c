"""Models of GPT's shapes for transformers: language models, and the classifiers and taggers that began from one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from torch import Tensor

from ensue.errors import EnsueError
from ensue.exchange import gpt, gpt_neox
from ensue.exchange.exported import (
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
from ensue.exchange.layouts import to_theirs
from ensue.exchange.softmax import published_softmax, published_vectors, without_bias
from ensue.exchange.tokenizer_export import causal_files, tuned_files
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
    weight = tensors["head.1.weight"].double()
    check_width(run, weight, layers.recipe.encoder.d_model)
    matrix = without_bias(weight, tensors["head.1.bias"].double(), inner, layers.origin.recipe)
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
    """The layers with a head. A text ends with our sign behind it; padding is the sign between pairs, of which there
    are none.
    """
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
    check_transformer(layers)
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
    return gpt_neox.config(encoder) if encoder.positions == "rotary" else gpt.config(encoder)


def _theirs(recipe: Any, words: Tensor, layers: dict[str, Tensor]) -> dict[str, Tensor]:
    """Their tensors, without those of a head."""
    encoder = recipe.encoder
    if encoder.positions == "rotary":
        return to_theirs(gpt_neox.layout(recipe), layers) | {"gpt_neox.embed_in.weight": words}
    theirs = to_theirs(gpt.layout(recipe)[1:], layers) | {gpt.TENSORS[encoder.norm][0]: words}
    return {f"transformer.{name}": tensor for name, tensor in theirs.items()}
