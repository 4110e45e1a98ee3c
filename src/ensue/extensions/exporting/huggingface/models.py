"""Export to directories of transformers and sentence-transformers.

Language models with the architecture of BERT, GPT, GPT-2 or GPT-NeoX can be exported, and classifiers and taggers that
were fine-tuned from such models.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from ensue.errors import EnsueError
from ensue.extensions.exporting.exporting import write_directory
from ensue.extensions.exporting.huggingface.tokenizer_export import causal_files, masked_files, tuned_files
from ensue.extensions.importing import bert, gpt
from ensue.extensions.importing.directories import POOLING_FLAGS
from ensue.extensions.importing.family import PUBLISHED_ACTIVATIONS, ParameterMapping, export_parameters, first_block
from ensue.models.specification import TransformerEncoder
from ensue.runs.directory import RunDirectory
from ensue.runs.weights import write_tensors
from ensue.tasks.contract import description as contract
from ensue.tasks.contract.description import ModelDescription

Tensors = Mapping[str, Tensor]
DTYPE = {"dtype": "float32", "torch_dtype": "float32"}
"""The newer and the older key of config.json for the type of the weights."""
SUPPORTED_MODELS = (
    "expected a Transformer: a masked language model with norm = post and norm_input = true, a language model, or a "
    "classifier or tagger that was fine-tuned from one of these (encoder.from)"
)


class PublishedModel(NamedTuple):
    """A model in the format of transformers: the contents of its JSON files by name, and its tensors."""

    files: dict[str, Any]
    tensors: dict[str, Tensor]


def _unsupported(run: RunDirectory, option: str) -> EnsueError:
    return EnsueError(f"{run.path}: cannot be exported with {option}")


RESTRICTED_OPTIONS = (
    "norm_kind", "norm_first", "gated", "parallel", "rotary_share", "rotary_base", "relative_buckets", "neighbors",
    "d_input", "window",
)  # fmt: skip
"""The options of a Transformer that only some published architectures have."""


def _check_transformer(run: RunDirectory, *supported: str) -> None:
    """Raise EnsueError for another encoder, and for restricted options that are not among `supported`."""
    if not isinstance(run.recipe.layers, TransformerEncoder):
        raise EnsueError(f"{run.path}: {run.recipe.describe()} is not a model of transformers; {SUPPORTED_MODELS}")
    for name in (name for name in RESTRICTED_OPTIONS if name not in supported):
        if (value := getattr(run.recipe.layers, name)) != TransformerEncoder.model_fields[name].default:
            raise _unsupported(run, f"encoder.{name} = {value}, which ensue imports but does not export")
    if run.recipe.layers.activation == "silu":
        raise _unsupported(run, "encoder.activation = silu, which ensue imports but does not export")


class TunedLayers(NamedTuple):
    """The fine-tuned language model in a classifier or tagger."""

    origin: RunDirectory
    """The run of the language model before fine-tuning."""
    recipe: Any
    """The recipe of the origin, with the encoder of the fine-tuned model."""
    tensors: dict[str, Tensor]


def _tuned_layers(
    run: RunDirectory, tensors: Tensors, check_shape: Callable[[RunDirectory, RunDirectory], None]
) -> TunedLayers:
    tuned = run.parts.tuned
    if tuned is None:
        raise EnsueError(f"{run.path}: {run.recipe.describe()} is not a model of transformers; {SUPPORTED_MODELS}")
    check_shape(run, tuned.base)
    layers = {name.removeprefix("layers."): x for name, x in tensors.items() if name.startswith("layers.")}
    return TunedLayers(tuned.base, tuned.base.recipe.model_copy(update={"encoder": tuned.layers}), layers)


def _check_width(run: RunDirectory, weight: Tensor, width: int) -> None:
    if weight.shape[1] != width:
        features = "word features in addition to the layers, or head.repeats"
        raise _unsupported(run, f"{features}; heads of transformers read only the layers")


def _head_config(run: RunDirectory, labels: Sequence[str]) -> dict[str, Any]:
    recipe: Any = run.recipe
    is_multilabel = getattr(run.parts.labels, "multiple", None)
    config = {
        "classifier_dropout": getattr(recipe.head, "dropout", 0.0),
        "id2label": dict(enumerate(labels)),
        "label2id": {name: number for number, name in enumerate(labels)},
    }
    if is_multilabel is not None:
        config["problem_type"] = f"{'multi' if is_multilabel else 'single'}_label_classification"
    return config


TANH_SCALE = 2.0**-14
"""A scale ε so small that tanh(εz) / ε = z in float32 for the elements z of a normalized vector."""
SEGMENTS, MIN_SEGMENTS = "embeddings.token_type_embeddings.weight", 2


def convert_masked(run: RunDirectory, tensors: Tensors) -> PublishedModel:
    """Convert a masked language model to BERT."""
    recipe: Any = run.recipe
    _check_bert(run, run)
    published = _bert_tensors(bert.layout(recipe), recipe, tensors)
    if recipe.head.masked:
        published = {name if name.startswith("cls.") else f"bert.{name}": tensor for name, tensor in published.items()}
    return _bert_model(recipe, run.parts, published, {"architectures": [bert.architecture(recipe)]})


def _bert_classifier(run: RunDirectory, tensors: Tensors) -> PublishedModel:
    """Convert a classifier over BERT. Without a hidden layer, the pooler of BERT is the identity (`TANH_SCALE`)."""
    recipe: Any = run.recipe
    layers = _tuned_layers(run, tensors, _check_bert)
    d = layers.recipe.encoder.d_model
    _check_bert_classifier(run, d)
    if recipe.head.d_hidden:
        scale, pooler, last = 1.0, (tensors["head.1.weight"], tensors["head.1.bias"]), "head.4"
    else:
        scale, pooler, last = TANH_SCALE, (TANH_SCALE * torch.eye(d), torch.zeros(d)), "head.1"
    head = {
        "bert.pooler.dense.weight": pooler[0],
        "bert.pooler.dense.bias": pooler[1],
        "classifier.weight": tensors[f"{last}.weight"] / scale / run.parts.labels.temperature,
        "classifier.bias": tensors[f"{last}.bias"] / run.parts.labels.temperature,
    }
    _check_width(run, head["classifier.weight"], d)
    return _tuned_bert(run, layers, head, run.parts.labels.names, "BertForSequenceClassification")


def _check_bert_classifier(run: RunDirectory, d: int) -> None:
    recipe: Any = run.recipe
    head, splitter = recipe.head, recipe.data.splitter
    if head.pooling != ["first"]:
        raise _unsupported(
            run, f"head.pooling = {head.pooling}; a class of transformers reads only [CLS]; expected [first]"
        )
    if head.ngrams:
        raise _unsupported(run, "head.ngrams; no class of transformers counts n-grams")
    if head.d_hidden and (head.d_hidden, head.activation) != (d, "tanh"):
        options = f"head.d_hidden = {head.d_hidden} and head.activation = {head.activation}"
        raise _unsupported(run, f"{options}; expected 0, or {d} with tanh")
    if splitter not in ("simple", "whitespace"):
        raise _unsupported(run, f"data.splitter = {splitter}, which no tokenizer of transformers supports")


def _tuned_bert(
    run: RunDirectory, layers: TunedLayers, head: dict[str, Tensor], labels: Sequence[str], architecture: str
) -> PublishedModel:
    recipe = layers.recipe
    tensors = _bert_tensors(bert.map_encoder(recipe), recipe, layers.tensors)
    published = {f"bert.{name}": tensor for name, tensor in tensors.items()}
    config = {"architectures": [architecture], **_head_config(run, labels)}
    return _bert_model(recipe, layers.origin.parts, published | head, config)


def _check_bert(run: RunDirectory, base: RunDirectory) -> None:
    _check_transformer(base)
    encoder = base.recipe.layers
    if (encoder.positions, encoder.norm, encoder.norm_input) != ("learned", "post", True):
        raise EnsueError(
            f"{run.path}: the shape of BERT has encoder.positions = learned, norm = post and norm_input = true; found "
            f"{encoder.positions}, {encoder.norm} and {str(encoder.norm_input).lower()}"
        )


def _bert_tensors(mappings: list[ParameterMapping], recipe: Any, tensors: Tensors) -> dict[str, Tensor]:
    """Return the published tensors. A single segment embedding, or none, becomes two equal embeddings."""
    published = export_parameters(mappings, tensors)
    if recipe.input.segments < MIN_SEGMENTS:
        segment = published.get(SEGMENTS, torch.zeros(1, recipe.encoder.d_model))
        published[SEGMENTS] = segment.repeat(MIN_SEGMENTS, 1)
    return published


def _bert_model(recipe: Any, parts: Any, published: dict[str, Tensor], keys: Mapping[str, Any]) -> PublishedModel:
    """Return a model with the `keys` in its config.json."""
    encoder, coder = recipe.encoder, parts.coder
    config = {
        **bert.config(encoder), "vocab_size": coder.vocabulary_size,
        "type_vocab_size": max(MIN_SEGMENTS, recipe.input.segments), "pad_token_id": coder.padding_id,
        "hidden_act": PUBLISHED_ACTIVATIONS[encoder.activation], **DTYPE, **keys,
    }  # fmt: skip
    return PublishedModel({"config.json": config, **masked_files(coder, context=encoder.context)}, published)


ARCHITECTURES = {("learned", "pre"): "GPT2", ("learned", "post"): "OpenAIGPT", ("rotary", "pre"): "GPTNeoX"}
"""The architectures of transformers by encoder.positions and encoder.norm."""


def convert_causal(run: RunDirectory, tensors: Tensors) -> PublishedModel:
    """Convert a causal language model to GPT, GPT-2 or GPT-NeoX."""
    recipe: Any = run.recipe
    _check_gpt(run, run)
    (words, matrix, layers), tokenizer = published_softmax(recipe, tensors), run.parts.tokenizer
    published = _gpt_tensors(recipe, words, layers)
    if matrix is not None:
        published["embed_out.weight" if recipe.encoder.positions == "rotary" else "lm_head.weight"] = matrix
    config = {
        **_gpt_config(recipe), "vocab_size": tokenizer.vocabulary_size, "tie_word_embeddings": matrix is None,
        "bos_token_id": tokenizer.start_id, "eos_token_id": tokenizer.special_ids.get("[START]"), **DTYPE,
    }  # fmt: skip
    return PublishedModel({"config.json": config, **causal_files(tokenizer, context=recipe.encoder.context)}, published)


def _gpt_classifier(run: RunDirectory, tensors: Tensors) -> PublishedModel:
    """Convert a classifier over the last position of a causal language model.

    The classifier of transformers has no bias, so the bias is folded into the matrix.
    """
    recipe: Any = run.recipe
    head, labels = recipe.head, run.parts.labels
    if head.pooling != ["last"]:
        raise _unsupported(run, f"head.pooling = {head.pooling}; a class of transformers reads only the last position")
    if head.ngrams or head.d_hidden or run.parts.pair:
        option = "head.ngrams" if head.ngrams else "head.d_hidden" if head.d_hidden else "pairs of texts"
        raise _unsupported(run, f"{option}; a class of transformers has one matrix over the last position of a text")
    if recipe.data.splitter.startswith("treebank"):
        raise _unsupported(run, f"data.splitter = {recipe.data.splitter}, which no tokenizer of transformers supports")
    layers = _tuned_layers(run, tensors, _check_gpt)
    words, layer_tensors = published_vectors(layers.origin.recipe, layers.tensors)
    weight, bias = (tensors[f"head.1.{name}"].double() / labels.temperature for name in ("weight", "bias"))
    _check_width(run, weight, layers.recipe.encoder.d_model)
    head = {"score.weight": fold_bias(weight, bias, layer_tensors, layers.origin.recipe).float()}
    return _tuned_gpt(run, layers, words, layer_tensors, head, labels.names, "SequenceClassification")


def _tuned_gpt(
    run: RunDirectory, layers: TunedLayers, words: Tensor, tensors: dict[str, Tensor], head: dict[str, Tensor],
    labels: Sequence[str], task: str,
) -> PublishedModel:  # fmt: skip
    """Return a fine-tuned model with its head. The unused separator of pairs is the padding token."""
    recipe, framing, run_recipe = layers.recipe, run.parts.tuned.framing, cast(Any, run.recipe)
    encoder = recipe.encoder
    config = {
        **_gpt_config(recipe), "architectures": [f"{ARCHITECTURES[encoder.positions, encoder.norm]}For{task}"],
        "vocab_size": len(words), "bos_token_id": framing.begin[0], "eos_token_id": framing.end[0],
        "pad_token_id": framing.between[0], **_head_config(run, labels), **DTYPE,
    }  # fmt: skip
    splitter = run_recipe.data.splitter if task == "SequenceClassification" else None
    files = tuned_files(framing, splitter=splitter, context=encoder.context)
    return PublishedModel({"config.json": config, **files}, _gpt_tensors(recipe, words.float(), tensors) | head)


def _check_gpt(run: RunDirectory, base: RunDirectory) -> None:
    _check_transformer(base, "parallel", "rotary_share", "rotary_base")
    encoder = base.recipe.layers
    if encoder.norm_input or (encoder.positions, encoder.norm) not in ARCHITECTURES:
        raise EnsueError(
            f"{run.path}: a language model can be exported with encoder.norm = pre and positions = learned or rotary, "
            f"or norm = post and positions = learned; found {encoder.norm}, {encoder.positions}"
            f"{' and norm_input = true' * encoder.norm_input}"
        )
    if encoder.norm == "post":
        gpt.check_gpt(encoder, run.path)


def _gpt_config(recipe: Any) -> dict[str, Any]:
    encoder = recipe.encoder
    return gpt.neox_config(encoder) if encoder.positions == "rotary" else gpt.config(encoder)


def _gpt_tensors(recipe: Any, words: Tensor, layers: Tensors) -> dict[str, Tensor]:
    is_rotary = recipe.encoder.positions == "rotary"
    family, mappings = (gpt.NEOX, gpt.neox_layout(recipe)) if is_rotary else (gpt.GPT2, gpt.layout(recipe))
    published = export_parameters(mappings, {**layers, "features.weight": words})
    return {f"{family.prefix}{name}": tensor for name, tensor in published.items()}


PROJECTED_LAYERS, LAYERS = "layers.layers.1.layers", "layers.layers"
"""The prefixes of the layers of a Transformer, with and without a projection of the input."""


def published_softmax(recipe: Any, tensors: Tensors) -> tuple[Tensor, Tensor | None, dict[str, Tensor]]:
    """Return an embedding (V, d) and a softmax matrix with the same logits, and the tensors of the layers.

    The scale, projection and bias of the run are folded into them. The matrix is None if it equals the embedding.
    """
    words, layers = published_vectors(recipe, tensors)
    matrix = tensors["features.weight" if recipe.tokens.tied else "head.weight"].double()
    if "head.projection.weight" in tensors:
        matrix = matrix @ tensors["head.projection.weight"].double()
    matrix = fold_bias(matrix, tensors["head.bias"].double(), layers, recipe)
    is_tied = matrix.shape == words.shape and torch.equal(matrix, words)
    return words.float(), None if is_tied else matrix.float().contiguous(), layers


def published_vectors(recipe: Any, tensors: Tensors) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the embedding (V, d) in float64, after its scale and projection, and the tensors of the layers."""
    tokens, layers = recipe.tokens, dict(tensors)
    words = tensors["features.weight"].double() * (tokens.d_embedding**0.5 if tokens.tied and tokens.scaled else 1)
    if tokens.d_embedding != recipe.encoder.d_model:
        words = words @ tensors[f"{LAYERS}.0.module.weight"].double().T + tensors[f"{LAYERS}.0.module.bias"].double()
        layers = {name.replace(PROJECTED_LAYERS, LAYERS, 1): tensor for name, tensor in tensors.items()}
    return words, layers


def fold_bias(matrix: Tensor, bias: Tensor, layers: dict[str, Tensor], recipe: Any) -> Tensor:
    """Return a matrix W' with W' h = W h + b for all outputs h of the layers. May change β in `layers`.

    The last layer is a normalization h = g·n + β, in which the sum of n is 0. So uᵀh = uᵀβ =: s with u = 1/g, and
    (W + b uᵀ/s) h = W h + b. If |s| < 1, first δ = ±2g/d is added to β and so to h, and W δ is subtracted from b.
    """
    if not bias.any():
        return matrix
    encoder = recipe.encoder
    last = first_block(encoder) + encoder.num_layers
    norm = f"{LAYERS}.{last}.module" if encoder.norm == "pre" else f"{LAYERS}.{last - 1}.norm_feedforward"
    g, beta = layers[f"{norm}.weight"].double(), layers[f"{norm}.bias"].double()
    g = torch.where(g.abs() < 1e-6, 1e-6, g)
    u = 1 / g
    delta = torch.zeros_like(g)
    if (u @ beta).abs() < 1:
        delta = g * (2 / len(g)) * (1 if u @ beta >= 0 else -1)
        layers[f"{norm}.bias"] = (beta + delta).float()
        delta = layers[f"{norm}.bias"].double() - beta
    return matrix + torch.outer(bias - matrix @ delta, u / (u @ (beta + delta)))


def convert_classifier(run: RunDirectory, tensors: Tensors) -> PublishedModel:
    """Convert a classifier over a masked or causal language model."""
    return _gpt_classifier(run, tensors) if _is_causal(run) else _bert_classifier(run, tensors)


def convert_tagger(run: RunDirectory, tensors: Tensors) -> PublishedModel:
    """Convert a tagger with a softmax over the tags of each subword."""
    is_causal, labels = _is_causal(run), run.parts.labels
    layers = _tuned_layers(run, tensors, _check_gpt if is_causal else _check_bert)
    recipe: Any = run.recipe
    if recipe.head.kind != "softmax":
        reason = "transformers predicts each tag independently; expected softmax"
        raise _unsupported(run, f"head.kind = {recipe.head.kind}; {reason}")
    if recipe.data.label_columns or recipe.data.nested:
        raise _unsupported(run, "label columns or overlapping spans; classes of transformers have one head")
    head = {f"classifier.{name}": tensors[f"head.projection.{name}"] for name in ("weight", "bias")}
    _check_width(run, head["classifier.weight"], layers.recipe.encoder.d_model)
    if not is_causal:
        return _tuned_bert(run, layers, head, labels.tags.symbols, "BertForTokenClassification")
    if layers.origin.recipe.layers.norm == "post":
        raise _unsupported(run, "tags over layers with norm = post; GPT has no class of transformers for tags")
    words, layer_tensors = published_vectors(layers.origin.recipe, layers.tensors)
    return _tuned_gpt(run, layers, words, layer_tensors, head, labels.tags.symbols, "TokenClassification")


def _is_causal(run: RunDirectory) -> bool:
    tuned = run.parts.tuned
    return tuned is not None and tuned.framing.is_causal


CONVERSIONS = {
    (contract.TokenInput, contract.MaskedOutput): convert_masked,
    (contract.TokenInput, contract.TokenOutput): convert_causal,
    (contract.WordInput, contract.ClassOutput): convert_classifier,
    (contract.WordInput, contract.TagOutput): convert_tagger,
}
"""The conversions by the kinds of input and output of a model's description."""


def export_huggingface(
    run: RunDirectory, description: ModelDescription, out: Path, *, overwrite: bool = False,
    more_files: Callable[[RunDirectory], Mapping[str, Any]] = lambda run: {},
) -> list[str]:  # fmt: skip
    """Write a model and `more_files` for transformers. Raises EnsueError if it has no equivalent model."""
    convert = CONVERSIONS.get(description.kinds)
    if convert is None:
        raise EnsueError(f"{run.path}: a {run.entry.what} is not a model of transformers; {SUPPORTED_MODELS}")
    model = convert(run, {name: parameter.detach() for name, parameter in description.model.named_parameters()})
    contents: dict[str, Any] = {
        name: (json.dumps(content, ensure_ascii=False, indent=2) + "\n").encode()
        for name, content in {**model.files, **more_files(run)}.items()
    }
    contents["model.safetensors"] = lambda path: write_tensors(path, model.tensors, {"format": "pt"})
    write_directory(out, contents, overwrite=overwrite)
    return []


def export_sentences(
    run: RunDirectory, description: ModelDescription, out: Path, *, overwrite: bool = False
) -> list[str]:
    """Write a model as a directory of sentence-transformers. Raises EnsueError like `export_huggingface`."""
    return export_huggingface(run, description, out, overwrite=overwrite, more_files=sentence_files)


def sentence_files(run: RunDirectory) -> dict[str, Any]:
    """Return the files of sentence-transformers. Raises EnsueError for a model without sentence vectors."""
    recipe: Any = run.recipe
    if not hasattr(recipe, "sentences"):
        raise EnsueError(f"{run.path}: a {run.entry.what} has no text embeddings; expected a masked language model")
    kinds = {"": "Transformer", "1_Pooling": "Pooling"}
    kinds |= {"2_Normalize": "Normalize"} if recipe.sentences.unit_length else {}
    modes = {key: mode == recipe.sentences.pooling for key, mode in POOLING_FLAGS.items()}
    return {
        "modules.json": [
            {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for n, (path, kind) in enumerate(kinds.items())
        ],
        "sentence_bert_config.json": {"max_seq_length": recipe.encoder.context, "do_lower_case": False},
        "1_Pooling/config.json": {"word_embedding_dimension": recipe.encoder.d_model, **modes},
    }
