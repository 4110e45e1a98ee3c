"""The parts of a model that has one tokenizer, its file, and the parts that it takes from another run.

These are of its task: layers, and the rows of symbols.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ensue.errors import RecipeError
from ensue.recipe import Recipe
from ensue.runs.directory import RunDirectory
from ensue.runs.origin import Origin
from ensue.runs.schema import Config, DamagedError, Size
from ensue.tasks.contract.model import ModelParts
from ensue.tasks.texts.framing import Framing
from ensue.text.tokenizers import Tokenizer


class TokenizerConfig(Config):
    """The keys of `config.json` for a model with one tokenizer."""

    vocabulary_size: Size
    training_characters: Size | None = None
    """How many characters of the text were for training; older runs do not say it."""


@dataclass(frozen=True)
class TokenizerParts(ModelParts):
    """The tokenizer of a model that has one."""

    config: ClassVar[type[Config]] = TokenizerConfig
    reads: ClassVar[type[Tokenizer]] = Tokenizer  # type: ignore[type-abstract]
    """The kind of tokenizer that `tokenizer.json` has."""
    tokenizer: Tokenizer

    @property
    def vocabulary_size(self) -> int:
        """The number of symbols that the model knows."""
        return self.tokenizer.vocabulary_size

    @property
    def symbols(self) -> list[str]:
        """The text of each symbol, by its id."""
        return [self.tokenizer.symbol(id) for id in range(self.vocabulary_size)]

    def framing(self, recipe: Any) -> Framing | None:
        """How a model of this recipe reads texts for other models that begin from its layers; None if it cannot."""
        return None

    @classmethod
    def read(cls, run: RunDirectory) -> Self:
        """Raises RunError if the file is missing or damaged, or if config.json has another size."""
        tokenizer = run.read_json("tokenizer.json", cls.reads.from_json)
        size, expected = tokenizer.vocabulary_size, run.config["vocabulary_size"]
        if size != expected:
            raise DamagedError(f"{run.path / 'tokenizer.json'}: not the model's: it has {size} symbols, not {expected}")
        return cls(tokenizer)

    def files(self) -> dict[str, Any]:
        return {"tokenizer.json": self.tokenizer.to_json()}


TABLES = ("encoder", "tokens", "input")
"""The tables of a recipe that decide on the shape of a model."""
OF_SYMBOLS = ("features.weight", "head.weight", "head.bias")
"""The parameters with a row for each symbol."""
FREE = ("from", "dropout", "zoneout", "min_count", "max_size", "label_smoothing", "bigram_weight", "class_weights")
"""Keys that may differ, by what their names begin with."""


def check_same_shape(recipe: Recipe, origin: Origin, tables: Sequence[str] = TABLES) -> None:
    """Raises RecipeError unless the origin has a model of the same shape, and is a run of the same task, or of one from
    whose recipe this one derives.
    """
    theirs, ours = origin.run.recipe.model_dump(), recipe.model_dump()
    if not isinstance(recipe, type(origin.run.recipe)):
        what = origin.run.entry.what
        raise RecipeError(f"encoder.from: {origin.path} is a {what}; a {recipe.what} begins from a {recipe.what}")
    free = FREE if ours["encoder"].get("positions") == "learned" else (*FREE, "context")
    for table in tables:
        for key, value in ours.get(table, {}).items():
            expected = theirs[table].get(key)
            if value != expected and not key.startswith(free):
                raise RecipeError(
                    f"{table}.{key} is {value!r}; it is {expected!r} in {origin.path}, from which this run begins "
                    f"(encoder.from); a recipe that fits is {origin.path}/recipe.toml"
                )


def shared_rows(ours: Sequence[str], theirs: Sequence[str]) -> NDArray[np.int64]:
    """For each of our symbols its row among theirs (V,), or -1 if they do not have it."""
    rows = {symbol: row for row, symbol in reversed(list(enumerate(theirs)))}
    return np.array([rows.get(symbol, -1) for symbol in ours], np.int64)


def fill(parameter: Tensor, source: Tensor) -> Tensor | None:
    """Copies a table into one of as many rows or more, in which new rows begin at the mean. The result says which rows
    (V,) are not new; None for all.
    """
    if parameter.shape == source.shape:
        parameter.copy_(source)
        return None
    parameter.copy_(source.mean(0, keepdim=True).expand_as(parameter))
    parameter[: len(source)] = source
    return torch.arange(len(parameter)) < len(source)


@torch.no_grad()
def inherit(model: nn.Module, origin: nn.Module, rows: NDArray[np.int64]) -> dict[str, Tensor | None]:
    """Copies the parameters of `origin` into `model`, which has the same shape but for its symbols and its dropout.

    `rows` (V,) are the rows of our symbols in the origin's tables, -1 for new ones, which begin at the mean of all. The
    result is for `Job.inherited`.
    """
    taken = torch.from_numpy(rows)
    known = taken >= 0
    found: dict[str, Tensor | None] = {}
    for name, parameter, source in pairs_of(model, origin):
        if name in OF_SYMBOLS:
            parameter.copy_(source.mean(0, keepdim=True).expand_as(parameter))
            parameter[known] = source[taken[known]]
            found[name] = None if known.all() else known
        else:
            parameter.copy_(source)
            found[name] = None
    return found


def pairs_of(model: nn.Module, origin: nn.Module) -> Iterator[tuple[str, Tensor, Tensor]]:
    """The parameters that both models have: those of the layers in their order, since dropout changes names, and all
    others by their names. A head for a further question, as of next sentences, may be on one side only.
    """
    ours, theirs = (list(part.get_submodule("layers").named_parameters()) for part in (model, origin))
    for (name, parameter), (_, source) in zip(ours, theirs, strict=True):
        yield f"layers.{name}", parameter, source
    others = {name: parameter for name, parameter in origin.named_parameters() if not name.startswith("layers.")}
    for name, parameter in model.named_parameters():
        if name in others:
            yield name, parameter, others[name]
