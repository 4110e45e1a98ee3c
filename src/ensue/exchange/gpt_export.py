"""Models of GPT's shapes for transformers: language models, and the classifiers and taggers that began from one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ensue.errors import EnsueError
from ensue.exchange import gpt, gpt_neox
from ensue.exchange.exported import ALWAYS, Exported, check_transformer, refused
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
    origin, layers = _layers(run, tensors)
    words, layers = published_vectors(origin.recipe, layers)
    weight = tensors["head.1.weight"].double()
    _check_width(run, weight, origin)
    matrix = without_bias(weight, tensors["head.1.bias"].double(), layers, origin.recipe)
    problem = "multi_label_classification" if labels.multiple else "single_label_classification"
    return _tuned(run, origin, words, layers, {"score.weight": matrix.float()}, "SequenceClassification", labels.names,
                  problem_type=problem)  # fmt: skip


def tagger(run: RunDirectory, tensors: dict[str, Tensor]) -> Exported:
    """A tagger whose tags do not depend on each other: a score for each tag and subword."""
    recipe: Any = run.recipe
    if recipe.head.kind != "softmax":
        best = "the best path; classes of transformers choose each tag by itself, as softmax does"
        raise refused(run, f"head.kind = {recipe.head.kind}, {best}")
    origin, layers = _layers(run, tensors)
    if origin.recipe.layers.norm == "post":
        raise refused(run, "tags over layers with norm = post; GPT has no class of transformers for tags")
    words, layers = published_vectors(origin.recipe, layers)
    weight, bias = (tensors[f"head.projection.{name}"] for name in ("weight", "bias"))
    _check_width(run, weight, origin)
    head = {"classifier.weight": weight, "classifier.bias": bias}
    return _tuned(run, origin, words, layers, head, "TokenClassification", run.parts.labels.tags.symbols)


def _layers(run: RunDirectory, tensors: dict[str, Tensor]) -> tuple[RunDirectory, dict[str, Tensor]]:
    """The language model whose layers were tuned, and their tensors as they are now."""
    origin: RunDirectory = run.parts.tuned.base
    _check_shape(run, origin)
    return origin, {name.removeprefix("layers."): x for name, x in tensors.items() if name.startswith("layers.")}


def _check_width(run: RunDirectory, weight: Tensor, origin: RunDirectory) -> None:
    recipe: Any = origin.recipe
    if weight.shape[1] != recipe.encoder.d_model:
        raise refused(
            run, "features of words beside the layers, or head.repeats; heads of transformers read the layers"
        )


def _tuned(
    run: RunDirectory, origin: RunDirectory, words: Tensor, layers: dict[str, Tensor], head: dict[str, Tensor],
    what: str, labels: Sequence[str], **more: Any,
) -> Exported:  # fmt: skip
    """The layers with this head. A text ends with our sign behind it; padding is the sign between pairs, of which there
    are none.
    """
    recipe: Any = origin.recipe.model_copy(update={"encoder": run.parts.tuned.layers})
    outer: Any = run.recipe
    encoder, reading, names = recipe.encoder, run.parts.tuned.reading, dict(enumerate(labels))
    config = {
        **_config(recipe),
        "architectures": [f"{SHAPES[encoder.positions, encoder.norm]}For{what}"],
        "vocab_size": len(words),
        "bos_token_id": reading.begin[0],
        "eos_token_id": reading.end[0],
        "pad_token_id": reading.between[0],
        "classifier_dropout": getattr(outer.head, "dropout", 0.0),
        "id2label": names,
        "label2id": {name: number for number, name in names.items()},
        **ALWAYS,
        **more,
    }
    splitter = outer.data.splitter if what == "SequenceClassification" else None
    files = tuned_files(reading, splitter=splitter, context=encoder.context)
    return Exported({"config.json": config, **files}, _theirs(recipe, words.float(), layers) | head)


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
