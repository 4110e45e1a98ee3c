"""Families of published models: the keys of config.json, and the mapping between published and native parameters.

Native parameters are the parameters of a model of ensue. The same mapping serves import and export.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ensue.errors import DataError, quote
from ensue.models.specification import TransformerEncoder


class Conversion(NamedTuple):
    """A pair of functions: `read` converts published tensors to a native parameter, and `write` does the reverse.

    The second argument of `write` is the number of published tensors. Without `write`, models cannot be exported.
    """

    read: Callable[[Sequence[Tensor]], Tensor]
    write: Callable[[Tensor, int], Sequence[Tensor]] = lambda *_: []


IDENTITY = Conversion(lambda published: published[0], lambda native, _: [native])
TRANSPOSED = Conversion(lambda published: published[0].t().contiguous(), lambda native, _: [native.t().contiguous()])
"""The conversion of a matrix that is published as [in, out]."""
JOINED = Conversion(lambda published: torch.cat(list(published)), torch.chunk)
"""The conversion of several published tensors to their concatenation."""
REVERSED_ROWS = Conversion(lambda published: published[0].flip(0), lambda native, _: [native.flip(0)])
"""The conversion that reverses rows. The class "next sentence" is 0 in published models, and 1 in native models."""
SKIP_TWO_POSITIONS = Conversion(
    lambda published: published[0][2:], lambda native, _: [torch.cat([native.new_zeros(2, native.shape[1]), native])]
)
"""The conversion of position embeddings whose first two rows are unused."""


class ParameterMapping(NamedTuple):
    """The name of a native parameter, and the names of the published tensors from which it is computed."""

    native: str
    published: tuple[str, ...]
    conversion: Conversion = IDENTITY


class BlockNames(NamedTuple):
    """The names of a block's layers in a published model."""

    attention_in: tuple[str, ...]
    attention_out: str
    norm_attention: str
    feedforward_in: str
    feedforward_out: str
    norm_feedforward: str
    factor: str = ""
    """The projection that gates the feed-forward network."""


def map_layer(
    native: str, *names: str, conversion: Conversion = IDENTITY, has_bias: bool = True
) -> list[ParameterMapping]:
    """Return the mappings of a layer's weight, with `conversion`, and of its bias, which is zero unless `has_bias`."""
    bias = JOINED if conversion is JOINED else IDENTITY
    weights = tuple(f"{name}.weight" for name in names)
    zeros = Conversion(lambda tensors: (weight := conversion.read(tensors)).view(len(weight), -1)[:, 0] * 0)
    return [
        ParameterMapping(f"{native}.weight", weights, conversion),
        ParameterMapping(f"{native}.bias", tuple(f"{name}.bias" for name in names), bias)
        if has_bias
        else ParameterMapping(f"{native}.bias", weights, zeros),
    ]


def map_blocks(
    encoder: TransformerEncoder, prefix: str, names: BlockNames, *, conversion: Conversion = IDENTITY,
    native_prefix: str = "layers.layers", attention: Conversion | None = None, has_bias: bool = True,
) -> list[ParameterMapping]:  # fmt: skip
    """Return the mappings of all blocks. `{}` in `prefix` is the index of a block. `attention` converts Q, K and V."""
    start, mappings = first_block(encoder), []
    attention = attention or (JOINED if len(names.attention_in) > 1 else conversion)
    weight_and_bias = slice(1 if encoder.norm_kind == "rms" else 2)
    for number in range(encoder.num_layers):
        native, published = f"{native_prefix}.{start + number}", prefix.format(number)
        heads = (published + name for name in names.attention_in)
        factor = [("feedforward.factor", names.factor)] if encoder.gated else []
        linear = [("attention.project_out", names.attention_out), ("feedforward.0", names.feedforward_in), *factor]
        mappings += map_layer(f"{native}.attention.project_in", *heads, conversion=attention, has_bias=has_bias)
        norms = [("norm_attention", names.norm_attention)] if number or encoder.norm_first else []
        for child, name in [*linear, ("feedforward.3", names.feedforward_out)]:
            mappings += map_layer(f"{native}.{child}", published + name, conversion=conversion, has_bias=has_bias)
        for child, name in (*norms, ("norm_feedforward", names.norm_feedforward)):
            mappings += map_layer(f"{native}.{child}", published + name, has_bias=has_bias)[weight_and_bias]
    return mappings


def first_block(encoder: TransformerEncoder) -> int:
    """Return the index of the first block among the layers, after positions, normalization, dropout and projection."""
    return (encoder.positions in ("learned", "sinusoidal")) + encoder.norm_input + 1 + (encoder.d_input is not None)


def rotary_pairs(encoder: TransformerEncoder) -> Tensor:
    """Return the published index of each native feature of a head.

    Two features that are rotated together are adjacent in native heads. In published heads, each half has one of them.
    """
    d = encoder.d_model // encoder.num_heads
    num_rotated = int(d * encoder.rotary_share) // 2 * 2
    return torch.cat([torch.arange(num_rotated).view(2, -1).t().flatten(), torch.arange(num_rotated, d)])


def import_parameters(
    mappings: Iterable[ParameterMapping], tensors: Mapping[str, Tensor], path: Path
) -> dict[str, Tensor]:
    """Return the native parameters. Raises DataError for a missing tensor or an unexpected shape."""
    parameters = {}
    for mapping in mappings:
        if missing := next((name for name in mapping.published if name not in tensors), None):
            raise DataError(f"no tensor {missing}", path)
        try:
            parameters[mapping.native] = mapping.conversion.read([tensors[name] for name in mapping.published])
        except (RuntimeError, IndexError):
            sizes = ", ".join(f"{name} {tuple(tensors[name].shape)}" for name in mapping.published)
            raise DataError(f"tensor shapes do not match config.json: {sizes}", path) from None
    return parameters


def export_parameters(mappings: Iterable[ParameterMapping], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the published tensors of native parameters."""
    published: dict[str, Tensor] = {}
    for native, names, conversion in mappings:
        published |= zip(names, conversion.write(tensors[native], len(names)), strict=True)
    return {name: tensor.contiguous() for name, tensor in published.items()}


ACTIVATIONS = {
    "gelu": "gelu", "gelu_new": "gelu-tanh", "gelu_pytorch_tanh": "gelu-tanh", "relu": "relu", "silu": "silu",
    "swish": "silu",
}  # fmt: skip
"""The native name of each published activation."""
PUBLISHED_ACTIVATIONS = {"gelu": "gelu", "gelu-tanh": "gelu_new", "relu": "relu", "silu": "silu"}
MAX_LISTED_TENSORS = 5


class Configuration:
    """The content of a `config.json`, and its path for messages."""

    def __init__(self, content: dict[str, Any], path: Path) -> None:
        self.content, self.path = content, path

    def _get(self, name: str, default: Any) -> Any:
        return default if self.content.get(name) is None else self.content[name]

    def positive_int(self, name: str, default: int | None = None) -> int:
        """Return a positive integer. Raises DataError for another value, and for a missing key without default."""
        value = self._get(name, default)
        if type(value) is not int or value < 1:
            raise DataError(f"expected a positive integer for {name}, found {quote(value)}", self.path)
        return value

    def fraction(self, name: str, default: float = 0.0) -> float:
        value = self._get(name, default)
        if type(value) not in (int, float) or not 0 <= value < 1:
            raise DataError(f"expected a number from 0 to below 1 for {name}, found {quote(value)}", self.path)
        return float(value)

    def epsilon(self, name: str, default: float) -> float:
        return self.fraction(name, default) or default

    def activation(self, name: str, default: str) -> str:
        """Return the native name of an activation. Raises DataError for an unsupported activation."""
        value = self.content.get(name) or default
        if not isinstance(value, str) or value not in ACTIVATIONS:
            raise DataError(f"expected {name} to be one of {', '.join(ACTIVATIONS)}; found {quote(value)}", self.path)
        return ACTIVATIONS[value]

    def rotary(self, fraction: float) -> dict[str, Any]:
        """Return the keys of `[encoder]` for rotary positions; `fraction` is the default share of rotated features.

        Raises DataError for scaled frequencies.
        """
        rope = self.content.get("rope_parameters") or self.content.get("rope_scaling") or {}
        rope_type = rope.get("rope_type", rope.get("type", "default")) if isinstance(rope, dict) else rope
        if rope_type != "default" or not isinstance(rope, dict):
            problem = f"rotary positions of the kind {quote(rope_type)} are not supported; expected default"
            raise DataError(problem, self.path)
        keys = self.content | rope
        return {
            "positions": "rotary",
            "rotary_base": keys.get("rope_theta", keys.get("rotary_emb_base", 10_000)),
            "rotary_share": keys.get("partial_rotary_factor", keys.get("rotary_pct", fraction)),
        }

    def tied(self, default: bool, name: str, names: Set[str]) -> dict[str, Any]:
        """Return keys of `[tokens]`. The softmax is untied if the tensor `name` exists and the key is false."""
        is_tied = self.content.get("tie_word_embeddings", default) is not False or name not in names
        return {"tied": is_tied, "scaled": False}

    def expect(self, name: str, *values: Any) -> None:
        """Raise DataError if a key has a value that is not among `values`."""
        if name in self.content and self.content[name] not in values:
            expected, value = " or ".join(map(quote, values)), quote(self.content[name])
            raise DataError(f"{name} = {value} is not supported; expected {expected}", self.path)


class EncoderKeys(NamedTuple):
    """The keys of config.json for keys of the recipe's table `[encoder]`. The defaults are the keys of BERT."""

    d_model: str = "hidden_size"
    num_layers: str = "num_hidden_layers"
    num_heads: str = "num_attention_heads"
    d_feedforward: str = "intermediate_size"
    context: str = "max_position_embeddings"
    norm_epsilon: str = "layer_norm_eps"
    dropout: str = "hidden_dropout_prob"
    dropout_attention: str = "attention_probs_dropout_prob"

    def read(
        self, config: Configuration, *, epsilon: float, dropout: float = 0.0, d_feedforward: int | None = None
    ) -> dict[str, Any]:
        """Return the table `[encoder]`. The keyword arguments are the defaults of missing keys."""
        return {
            "kind": "transformer", "d_model": config.positive_int(self.d_model),
            "num_layers": config.positive_int(self.num_layers), "num_heads": config.positive_int(self.num_heads),
            "d_feedforward": config.positive_int(self.d_feedforward, d_feedforward),
            "context": config.positive_int(self.context), "norm_epsilon": config.epsilon(self.norm_epsilon, epsilon),
            "dropout": config.fraction(self.dropout, dropout),
            "dropout_attention": config.fraction(self.dropout_attention, dropout),
        }  # fmt: skip

    def to_config(self, encoder: TransformerEncoder) -> dict[str, Any]:
        """Return the keys of config.json for an encoder."""
        config = {name: getattr(encoder, key) for key, name in self._asdict().items()}
        if encoder.dropout_attention is None:
            config[self.dropout_attention] = encoder.dropout
        return config | {self.d_feedforward: encoder.d_feedforward or 4 * encoder.d_model}


@dataclass(frozen=True)
class Family:
    """A family of published models."""

    prefix: str
    """A prefix that tensor names have in some files, and lack in others."""
    is_masked: bool
    """Whether the models are masked language models instead of causal language models."""
    recipe_tables: Callable[[Configuration, Set[str]], dict[str, Any]]
    """The function that returns the tables of the recipe, for a configuration and the names of the tensors."""
    layout: Callable[[Any], list[ParameterMapping]]
    """The function that returns the mappings of the parameters, for a recipe."""
    unused: tuple[str, ...] = ()
    """Suffixes of the names of tensors that are ignored, such as buffers and copies of tied tensors."""
    renamed: tuple[tuple[str, str], ...] = ()
    """The prefixes of tensor names in some files, and their replacements."""
    tied: str = ""
    """The name of the softmax matrix, a copy of the token embedding that some files contain."""

    def rename_tensors(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the tensors by their current names: without prefix, `weight` for `gamma`, `bias` for `beta`."""
        return {self._rename(name): tensor for name, tensor in tensors.items()}

    def _rename(self, name: str) -> str:
        name = re.sub(r"\.beta$", ".bias", re.sub(r"\.gamma$", ".weight", name.removeprefix(self.prefix)))
        for old, new in self.renamed:
            name = new + name.removeprefix(old) if name.startswith(old) else name
        return name

    def note_unused(self, tensors: Iterable[str], layout: Sequence[ParameterMapping]) -> list[str]:
        """Return a note with the names of tensors that are neither imported nor in `unused`; [] if there are none."""
        used = {name for mapping in layout for name in mapping.published}
        ignored = (*self.unused, *([self.tied] if self.tied else []))
        unused = sorted(name for name in tensors if name not in used and not name.endswith(ignored))
        more = f" and {len(unused) - MAX_LISTED_TENSORS} more tensors" if len(unused) > MAX_LISTED_TENSORS else ""
        return [f"not used: {', '.join(unused[:MAX_LISTED_TENSORS])}{more}"] if unused else []
