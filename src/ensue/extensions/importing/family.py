"""A family of published models: the keys of its configuration, its tensors, its task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from ensue.errors import DataError
from ensue.extensions.importing.layouts import Part
from ensue.models.specification import TransformerEncoder
from ensue.parsing import shown

ACTIVATIONS = {
    "gelu": "gelu", "gelu_new": "gelu-tanh", "gelu_pytorch_tanh": "gelu-tanh", "relu": "relu", "silu": "silu",
    "swish": "silu",
}  # fmt: skip
"""Our name of each nonlinearity."""
MOST_NAMES = 5
"""The most tensors that are named in a line."""
THEIRS = {"gelu": "gelu", "gelu-tanh": "gelu_new", "relu": "relu", "silu": "silu"}


class Configuration:
    """`config.json`, and its path for messages."""

    def __init__(self, content: dict[str, Any], path: Path) -> None:
        self.content, self.path = content, path

    def whole(self, name: str, default: int | None = None) -> int:
        """A whole number from 1 on. Raises DataError for another value, and if it is missing and has no default."""
        value = self.content.get(name)
        value = default if value is None else value
        if type(value) is not int or value < 1:
            raise DataError(f"expected a whole number from 1 on for {name}, found {shown(value)}", self.path)
        return value

    def share(self, name: str, default: float = 0.0) -> float:
        """A share below 1, such as that of dropout."""
        value = self.content.get(name)
        value = default if value is None else value
        if type(value) not in (int, float) or not 0 <= value < 1:
            raise DataError(f"expected a number from 0 to 1 for {name}, found {shown(value)}", self.path)
        return float(value)

    def epsilon(self, name: str, default: float) -> float:
        """A number added to variances."""
        return self.share(name, default) or default

    def activation(self, name: str, default: str) -> str:
        """Our name of a nonlinearity. Raises DataError for one that we have not."""
        value = self.content.get(name) or default
        if not isinstance(value, str) or value not in ACTIVATIONS:
            raise DataError(f"expected {name} to be one of {', '.join(ACTIVATIONS)}; found {shown(value)}", self.path)
        return ACTIVATIONS[value]

    def rotary(self, share: float) -> dict[str, Any]:
        """The keys of `[encoder]` for rotary positions; `share` is that of a model that says nothing. Raises DataError
        for frequencies that are scaled.
        """
        at = self.content
        given = at.get("rope_parameters") or at.get("rope_scaling") or {}
        kind = given.get("rope_type", given.get("type", "default")) if isinstance(given, dict) else given
        if kind != "default" or not isinstance(given, dict):
            raise DataError(
                f"rotary positions of the kind {shown(kind)} are not supported; expected default", self.path
            )
        at = at | given
        return {
            "positions": "rotary",
            "rotary_base": at.get("rope_theta", at.get("rotary_emb_base", 10_000)),
            "rotary_share": at.get("partial_rotary_factor", at.get("rotary_pct", share)),
        }

    def tied(self, default: bool, name: str, names: Set[str]) -> dict[str, Any]:
        """The table `[tokens]` but for its width: tied unless the softmax has vectors of its own, named `name`."""
        return {"tied": self.content.get("tie_word_embeddings", default) is not False or name not in names,
                "scaled": False}  # fmt: skip

    def expect(self, name: str, *values: Any) -> None:
        """Raises DataError if there is a key of this name with another value."""
        if name in self.content and self.content[name] not in values:
            expected, found = " or ".join(map(shown, values)), shown(self.content[name])
            raise DataError(f"{name} = {found} is not supported; expected {expected}", self.path)


class EncoderKeys(NamedTuple):
    """The keys of config.json that say what the layers are, by ours, in both directions; those of BERT."""

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
        """The table `[encoder]`. The numbers are those of a configuration that says nothing."""
        return {
            "kind": "transformer",
            "d_model": config.whole(self.d_model),
            "num_layers": config.whole(self.num_layers),
            "num_heads": config.whole(self.num_heads),
            "d_feedforward": config.whole(self.d_feedforward, d_feedforward),
            "context": config.whole(self.context),
            "norm_epsilon": config.epsilon(self.norm_epsilon, epsilon),
            "dropout": config.share(self.dropout, dropout),
            "dropout_attention": config.share(self.dropout_attention, dropout),
        }

    def written(self, encoder: TransformerEncoder) -> dict[str, Any]:
        """The keys of config.json for a table `[encoder]`."""
        found = {name: getattr(encoder, ours) for ours, name in self._asdict().items()}
        if encoder.dropout_attention is None:
            found[self.dropout_attention] = encoder.dropout
        return found | {self.d_feedforward: encoder.d_feedforward or 4 * encoder.d_model}


@dataclass(frozen=True)
class Family:
    """The recipe tables of a configuration, and the parameters of the recipe. Both know which tensors there are."""

    prefix: str
    """The beginning that names of tensors have in some files, and not in others."""
    is_masked: bool
    """Whether its models fill in masks; else they predict what comes next."""
    tables: Callable[[Configuration, Set[str]], dict[str, Any]]
    layout: Callable[[Any], list[Part]]
    unused: tuple[str, ...] = ()
    """The ends of the names of tensors that say nothing: buffers, and copies of what is tied."""
    renamed: tuple[tuple[str, str], ...] = ()
    """The beginnings of names in files of another program, and what stands for them here."""
    tied: str = ""
    """The name of a copy of the tokens' vectors that some files have."""

    def plain(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors by the names of today: without the prefix, and with `weight` for the older `gamma`."""
        older = {".gamma": ".weight", ".beta": ".bias"}
        found = {}
        for name, tensor in tensors.items():
            plain = name.removeprefix(self.prefix)
            for old, new in older.items():
                plain = plain.removesuffix(old) + new if plain.endswith(old) else plain
            for old, new in self.renamed:
                plain = new + plain.removeprefix(old) if plain.startswith(old) else plain
            found[plain] = tensor
        return found

    def left_out(self, tensors: Iterable[str], layout: Sequence[Part]) -> list[str]:
        """A line with the names of the tensors that are not used, but for those that say nothing."""
        used = {name for part in layout for name in part.theirs}
        known = (*self.unused, *([self.tied] if self.tied else []))
        left = sorted(name for name in tensors if name not in used and not name.endswith(known))
        more = f" and {len(left) - MOST_NAMES} more tensors" if len(left) > MOST_NAMES else ""
        return [f"not used: {', '.join(left[:MOST_NAMES])}{more}"] if left else []
