"""Models of the shapes of BERT and GPT for transformers: language models, and the classifiers and taggers over them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from ensue.errors import EnsueError
from ensue.extensions.exporting.huggingface.tokenizer_export import causal_files, masked_files, tuned_files
from ensue.extensions.importing import bert, gpt
from ensue.extensions.importing.family import THEIRS
from ensue.extensions.importing.layouts import Part, first_block, to_theirs
from ensue.models.specification import TransformerEncoder
from ensue.runs.directory import RunDirectory

Tensors = Mapping[str, Tensor]
ALWAYS = {"dtype": "float32", "torch_dtype": "float32"}
"""The keys of every config.json."""
CAN = (
    "those of masked language models with norm = post and norm_input = true, of language models, and of classifiers "
    "and taggers over the layers of both (encoder.from), all with a transformer, can be exported"
)


class Exported(NamedTuple):
    """The JSON files by name, and the tensors."""

    files: dict[str, Any]
    tensors: dict[str, Tensor]


def _refused(run: RunDirectory, what: str) -> EnsueError:
    """Return the error for a run that has `what`."""
    return EnsueError(f"{run.path}: cannot be exported with {what}")


NEWER = (
    "norm_kind", "norm_first", "gated", "parallel", "rotary_share", "rotary_base", "relative_buckets", "neighbors",
    "d_input", "window",
)  # fmt: skip
"""The keys of a Transformer that not every published shape has."""


def _check_transformer(run: RunDirectory, *known: str) -> None:
    """Raise EnsueError for other layers, and for a key of `NEWER` that is set and not `known`."""
    if not isinstance(run.recipe.layers, TransformerEncoder):
        raise EnsueError(f"{run.path}: {run.recipe.describe()} is none of transformers' models; {CAN}")
    for name in (name for name in NEWER if name not in known):
        if (value := getattr(run.recipe.layers, name)) != TransformerEncoder.model_fields[name].default:
            raise _refused(run, f"encoder.{name} = {value}, which ensue imports but does not export")
    if run.recipe.layers.activation == "silu":
        raise _refused(run, "encoder.activation = silu, which ensue imports but does not export")


class TunedLayers(NamedTuple):
    """The tuned layers of a classifier or tagger: the run of their origin, its recipe with their sizes, the tensors."""

    origin: RunDirectory
    recipe: Any
    tensors: dict[str, Tensor]


def _tuned_layers(
    run: RunDirectory, tensors: Tensors, check_shape: Callable[[RunDirectory, RunDirectory], None]
) -> TunedLayers:
    """Return the layers that a classifier or tagger has tuned. Raises EnsueError without such layers."""
    tuned = run.parts.tuned
    if tuned is None:
        raise EnsueError(f"{run.path}: {run.recipe.describe()} is none of transformers' models; {CAN}")
    check_shape(run, tuned.base)
    inner = {name.removeprefix("layers."): x for name, x in tensors.items() if name.startswith("layers.")}
    return TunedLayers(tuned.base, tuned.base.recipe.model_copy(update={"encoder": tuned.layers}), inner)


def _tag_head(run: RunDirectory, tensors: Tensors, width: int) -> dict[str, Tensor]:
    """Return the head of a tagger, a score for each tag. Raises EnsueError if its tags depend on each other."""
    recipe: Any = run.recipe
    if recipe.head.kind != "softmax":
        best = "the best path; classes of transformers choose each tag by itself, as softmax does"
        raise _refused(run, f"head.kind = {recipe.head.kind}, {best}")
    if recipe.data.label_columns:
        raise _refused(run, "several columns of labels; classes of transformers have one")
    head = {f"classifier.{name}": tensors[f"head.projection.{name}"] for name in ("weight", "bias")}
    _check_width(run, head["classifier.weight"], width)
    return head


def _check_width(run: RunDirectory, weight: Tensor, width: int) -> None:
    """Raise EnsueError for a head that reads more than the layers."""
    if weight.shape[1] != width:
        beside = "features of words beside the layers, or head.repeats"
        raise _refused(run, f"{beside}; heads of transformers read the layers")


def _head_config(run: RunDirectory, labels: Sequence[str]) -> dict[str, Any]:
    """Return the keys of config.json about a head and its labels."""
    recipe: Any = run.recipe
    multiple = getattr(run.parts.labels, "multiple", None)
    config = {
        "classifier_dropout": getattr(recipe.head, "dropout", 0.0),
        "id2label": dict(enumerate(labels)),
        "label2id": {name: number for number, name in enumerate(labels)},
    }
    if multiple is not None:
        config["problem_type"] = f"{'multi' if multiple else 'single'}_label_classification"
    return config


SMALL = 2.0**-14
"""For numbers z of a normalized vector, tanh(SMALL · z) / SMALL is z to the last bits of a float32."""
SEGMENTS, LEAST_SEGMENTS = "embeddings.token_type_embeddings.weight", 2


def masked(run: RunDirectory, tensors: Tensors) -> Exported:
    """Return a masked language model."""
    recipe: Any = run.recipe
    _check_bert(run, run)
    theirs = _bert_tensors(bert.layout(recipe), recipe, tensors)
    if recipe.head.masked:
        theirs = {name if name.startswith("cls.") else f"bert.{name}": tensor for name, tensor in theirs.items()}
    return _bert_exported(recipe, run.parts, theirs, {"architectures": [bert.architecture(recipe)]})


def _bert_classifier(run: RunDirectory, tensors: Tensors) -> Exported:
    """Return a classifier: `[CLS]`, a linear layer with tanh, and the labels. A missing layer becomes the identity."""
    recipe: Any = run.recipe
    layers = _tuned_layers(run, tensors, _check_bert)
    d = layers.recipe.encoder.d_model
    _check_bert_classifier(run, d)
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
    _check_width(run, head["classifier.weight"], d)
    return _tuned_bert(run, layers, head, run.parts.labels.names, "BertForSequenceClassification")


def _check_bert_classifier(run: RunDirectory, d: int) -> None:
    """Raise EnsueError for a classifier over layers of width `d` that transformers does not have."""
    recipe: Any = run.recipe
    head, splitter = recipe.head, recipe.data.splitter
    if head.pooling != ["first"]:
        raise _refused(
            run, f"head.pooling = {head.pooling}; a class of transformers reads [CLS] alone, as [first] does"
        )
    if head.ngrams:
        raise _refused(run, "head.ngrams; no class of transformers counts n-grams")
    if head.d_hidden and (head.d_hidden, head.activation) != (d, "tanh"):
        found = f"head.d_hidden = {head.d_hidden} and head.activation = {head.activation}"
        raise _refused(run, f"{found}; expected 0, or {d} with tanh")
    if splitter not in ("simple", "whitespace"):
        raise _refused(run, f"data.splitter = {splitter}, which cuts texts as no tokenizer of transformers does")


def _tuned_bert(
    run: RunDirectory, layers: TunedLayers, head: dict[str, Tensor], labels: Sequence[str], architecture: str
) -> Exported:
    """Return the layers with this head."""
    recipe = layers.recipe
    theirs = {f"bert.{name}": x for name, x in _bert_tensors(bert.body(recipe), recipe, layers.tensors).items()}
    more = {"architectures": [architecture], **_head_config(run, labels)}
    return _bert_exported(recipe, layers.origin.parts, theirs | head, more)


def _check_bert(run: RunDirectory, layers: RunDirectory) -> None:
    """Raise EnsueError for layers of another shape than BERT's."""
    _check_transformer(layers)
    encoder = layers.recipe.layers
    if (encoder.positions, encoder.norm, encoder.norm_input) != ("learned", "post", True):
        raise EnsueError(
            f"{run.path}: the shape of BERT has encoder.positions = learned, norm = post and norm_input = true; found "
            f"{encoder.positions}, {encoder.norm} and {str(encoder.norm_input).lower()}"
        )


def _bert_tensors(parts: list[Part], recipe: Any, tensors: Tensors) -> dict[str, Tensor]:
    """Return the published tensors, with two segments at least, since tokenizers number the two texts of a pair."""
    theirs = to_theirs(parts, tensors)
    if recipe.input.segments < LEAST_SEGMENTS:
        same = theirs.get(SEGMENTS, torch.zeros(1, recipe.encoder.d_model))
        theirs[SEGMENTS] = same.repeat(LEAST_SEGMENTS, 1)
    return theirs


def _bert_exported(recipe: Any, parts: Any, theirs: dict[str, Tensor], more: Mapping[str, Any]) -> Exported:
    encoder, coder = recipe.encoder, parts.coder
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


SHAPES = {("learned", "pre"): "GPT2", ("learned", "post"): "OpenAIGPT", ("rotary", "pre"): "GPTNeoX"}
"""The classes of transformers, by encoder.positions and encoder.norm."""


def causal(run: RunDirectory, tensors: Tensors) -> Exported:
    """Return a language model."""
    recipe: Any = run.recipe
    _check_gpt(run, run)
    softmax, tokenizer = published_softmax(recipe, tensors), run.parts.tokenizer
    theirs = _gpt_tensors(recipe, softmax.words, softmax.tensors)
    if softmax.matrix is not None:
        theirs["embed_out.weight" if recipe.encoder.positions == "rotary" else "lm_head.weight"] = softmax.matrix
    config = {
        **_gpt_config(recipe),
        "vocab_size": tokenizer.vocabulary_size,
        "tie_word_embeddings": softmax.matrix is None,
        "bos_token_id": tokenizer.start_id,
        "eos_token_id": tokenizer.special_ids.get("[START]"),
        **ALWAYS,
    }
    return Exported({"config.json": config, **causal_files(tokenizer, context=recipe.encoder.context)}, theirs)


def _gpt_classifier(run: RunDirectory, tensors: Tensors) -> Exported:
    """Return a classifier: the last position, and the labels. Its bias goes into the matrix, since theirs have none."""
    recipe: Any = run.recipe
    head, labels = recipe.head, run.parts.labels
    if head.pooling != ["last"]:
        raise _refused(run, f"head.pooling = {head.pooling}; a class of transformers reads the last position alone")
    if head.ngrams or head.d_hidden or run.parts.pair:
        what = "head.ngrams" if head.ngrams else "head.d_hidden" if head.d_hidden else "pairs of texts"
        raise _refused(run, f"{what}; a class of transformers has one matrix over the last position of a text")
    if recipe.data.splitter.startswith("treebank"):
        raise _refused(
            run, f"data.splitter = {recipe.data.splitter}, which cuts texts as no tokenizer of transformers does"
        )
    layers = _tuned_layers(run, tensors, _check_gpt)
    words, inner = published_vectors(layers.origin.recipe, layers.tensors)
    weight, bias = (tensors[f"head.1.{name}"].double() / labels.temperature for name in ("weight", "bias"))
    _check_width(run, weight, layers.recipe.encoder.d_model)
    matrix = without_bias(weight, bias, inner, layers.origin.recipe)
    head = {"score.weight": matrix.float()}
    return _tuned_gpt(run, layers, words, inner, head, labels.names, "SequenceClassification")


def _tuned_gpt(
    run: RunDirectory, layers: TunedLayers, words: Tensor, inner: dict[str, Tensor], head: dict[str, Tensor],
    labels: Sequence[str], what: str,
) -> Exported:  # fmt: skip
    """Return the layers with a head. The padding token is the separator, since there are no pairs."""
    recipe, framing, outer = layers.recipe, run.parts.tuned.framing, cast(Any, run.recipe)
    encoder = recipe.encoder
    config = {
        **_gpt_config(recipe),
        "architectures": [f"{SHAPES[encoder.positions, encoder.norm]}For{what}"],
        "vocab_size": len(words),
        "bos_token_id": framing.begin[0],
        "eos_token_id": framing.end[0],
        "pad_token_id": framing.between[0],
        **_head_config(run, labels),
        **ALWAYS,
    }
    splitter = outer.data.splitter if what == "SequenceClassification" else None
    files = tuned_files(framing, splitter=splitter, context=encoder.context)
    return Exported({"config.json": config, **files}, _gpt_tensors(recipe, words.float(), inner) | head)


def _check_gpt(run: RunDirectory, layers: RunDirectory) -> None:
    """Raise EnsueError for layers of another shape than GPT's."""
    _check_transformer(layers, "parallel", "rotary_share", "rotary_base")
    encoder = layers.recipe.layers
    if encoder.norm_input or (encoder.positions, encoder.norm) not in SHAPES:
        raise EnsueError(
            f"{run.path}: a language model can be exported with encoder.norm = pre and positions = learned or rotary, "
            f"or norm = post and positions = learned; found {encoder.norm}, {encoder.positions}"
            f"{' and norm_input = true' * encoder.norm_input}"
        )
    if encoder.norm == "post":
        gpt.check_first(encoder, run.path)


def _gpt_config(recipe: Any) -> dict[str, Any]:
    encoder = recipe.encoder
    return gpt.neox_config(encoder) if encoder.positions == "rotary" else gpt.config(encoder)


def _gpt_tensors(recipe: Any, words: Tensor, layers: Tensors) -> dict[str, Tensor]:
    """Return the published tensors, without those of a head."""
    is_rotary = recipe.encoder.positions == "rotary"
    family, parts = (gpt.NEOX, gpt.neox_layout(recipe)) if is_rotary else (gpt.GPT2, gpt.layout(recipe))
    theirs = to_theirs(parts, {**layers, "features.weight": words})
    return {f"{family.prefix}{name}": tensor for name, tensor in theirs.items()}


WRAPPED, PLAIN = "layers.layers.1.layers", "layers.layers"
"""The names of the layers of a Transformer, after a projection of the input and without one."""


class PublishedSoftmax(NamedTuple):
    """The vectors of tokens (V, d), the matrix of the softmax (None: the same), and the tensors of the layers."""

    words: Tensor
    matrix: Tensor | None
    tensors: dict[str, Tensor]


def published_softmax(recipe: Any, tensors: Tensors) -> PublishedSoftmax:
    """Return one matrix without a bias that gives the same logits.

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


def published_vectors(recipe: Any, tensors: Tensors) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the vectors of tokens (V, d) in float64, with scale and projection applied, and tensors of the layers."""
    tokens, layers = recipe.tokens, dict(tensors)
    words = tensors["features.weight"].double() * (tokens.d_embedding**0.5 if tokens.tied and tokens.scaled else 1)
    if tokens.d_embedding != recipe.encoder.d_model:
        words = words @ tensors[f"{PLAIN}.0.module.weight"].double().T + tensors[f"{PLAIN}.0.module.bias"].double()
        layers = {name.replace(WRAPPED, PLAIN, 1): tensor for name, tensor in tensors.items()}
    return words, layers


def _last_norm(recipe: Any) -> str:
    """Return the name of the last normalization."""
    encoder = recipe.encoder
    last = first_block(encoder) + encoder.num_layers
    return f"{PLAIN}.{last}.module" if encoder.norm == "pre" else f"{PLAIN}.{last - 1}.norm_feedforward"


def without_bias(matrix: Tensor, bias: Tensor, layers: dict[str, Tensor], recipe: Any) -> Tensor:
    """Return the matrix that also adds the bias; β in `layers` may change."""
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


def classifier(run: RunDirectory, tensors: Tensors) -> Exported:
    """Return a classifier over the layers of a masked model or of a language model."""
    return _gpt_classifier(run, tensors) if _is_causal(run) else _bert_classifier(run, tensors)


def tagger(run: RunDirectory, tensors: Tensors) -> Exported:
    """Return a tagger whose tags do not depend on each other: a score for each tag and subword."""
    is_causal, labels = _is_causal(run), run.parts.labels
    layers = _tuned_layers(run, tensors, _check_gpt if is_causal else _check_bert)
    head = _tag_head(run, tensors, layers.recipe.encoder.d_model)
    if not is_causal:
        return _tuned_bert(run, layers, head, labels.tags.symbols, "BertForTokenClassification")
    if layers.origin.recipe.layers.norm == "post":
        raise _refused(run, "tags over layers with norm = post; GPT has no class of transformers for tags")
    words, inner = published_vectors(layers.origin.recipe, layers.tensors)
    return _tuned_gpt(run, layers, words, inner, head, labels.tags.symbols, "TokenClassification")


def _is_causal(run: RunDirectory) -> bool:
    """Return whether the tuned layers are those of a language model, which reads from left to right."""
    tuned = run.parts.tuned
    return tuned is not None and tuned.framing.is_causal
