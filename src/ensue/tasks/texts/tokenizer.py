"""The stored tokenizer of a model, and initialization of a model from a run with another vocabulary."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ensue.runs.directory import RunDirectory
from ensue.runs.schema import Config, DamagedError, Size
from ensue.tasks.contract.job import ModelParts, copy_rows, paired_parameters
from ensue.tasks.texts.framing import Framing
from ensue.text.tokenizer import Tokenizer


class TokenizerConfig(Config):
    """The keys of `config.json` for a model with a tokenizer."""

    vocabulary_size: Size
    training_characters: Size | None = None
    """The number of characters of training text; None in runs of earlier versions."""


@dataclass(frozen=True)
class TokenizerParts(ModelParts):
    """The tokenizer of a model, from which the model is built."""

    config: ClassVar[type[Config]] = TokenizerConfig
    tokenizer_class: ClassVar[type[Tokenizer]] = Tokenizer  # type: ignore[type-abstract]
    """The class of the tokenizer in `tokenizer.json`."""
    tokenizer: Tokenizer

    @property
    def vocabulary_size(self) -> int:
        """The number of symbols."""
        return self.tokenizer.vocabulary_size

    @property
    def symbols(self) -> list[str]:
        """The text of each symbol, by its id."""
        return [self.tokenizer.symbol(id) for id in range(self.vocabulary_size)]

    def framing(self, recipe: Any) -> Framing | None:
        """Return the framing of texts for fine-tuning; None if the layers of the recipe cannot be fine-tuned."""
        return None

    @classmethod
    def read(cls, run: RunDirectory) -> Self:
        tokenizer = run.read_json("tokenizer.json", cls.tokenizer_class.from_json)
        size, expected = tokenizer.vocabulary_size, run.config["vocabulary_size"]
        if size != expected:
            raise DamagedError(f"{run.path / 'tokenizer.json'}: {size} symbols; the model has {expected}")
        return cls(tokenizer)

    def files(self) -> dict[str, Any]:
        return {"tokenizer.json": self.tokenizer.to_json()}


SYMBOL_PARAMETERS = ("features.weight", "head.weight", "head.bias")
"""The parameters with a row for each symbol."""


def shared_rows(symbols: Sequence[str], origin_symbols: Sequence[str]) -> NDArray[np.int64]:
    """Return the row (V,) of each of `symbols` among `origin_symbols`; -1 for a missing symbol."""
    rows = {symbol: row for row, symbol in reversed(list(enumerate(origin_symbols)))}
    return np.array([rows.get(symbol, -1) for symbol in symbols], np.int64)


@torch.no_grad()
def inherit(model: nn.Module, origin: nn.Module, rows: NDArray[np.int64]) -> dict[str, Tensor | None]:
    """Copy the parameters of `origin` into `model`, and return masks of the copied rows (`Job.inherited`).

    Models may differ in symbols and dropout. `rows` (V,) are the rows of symbols in `origin`, -1 for a missing symbol.
    """
    indices = torch.from_numpy(rows)
    return {
        name: copy_rows(parameter, source, indices if name in SYMBOL_PARAMETERS else None)
        for name, parameter, source in paired_parameters(model, origin)
    }
