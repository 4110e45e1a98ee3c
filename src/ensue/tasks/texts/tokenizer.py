"""The parts of a model with one tokenizer: its file, and layers and rows of symbols taken from another run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ensue.runs.directory import RunDirectory
from ensue.runs.schema import Config, DamagedError, Size
from ensue.tasks.contract.model import ModelParts, fill, pairs_of
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


OF_SYMBOLS = ("features.weight", "head.weight", "head.bias")
"""The parameters with a row for each symbol."""


def shared_rows(ours: Sequence[str], theirs: Sequence[str]) -> NDArray[np.int64]:
    """For each of our symbols its row among theirs (V,), or -1 if they do not have it."""
    rows = {symbol: row for row, symbol in reversed(list(enumerate(theirs)))}
    return np.array([rows.get(symbol, -1) for symbol in ours], np.int64)


@torch.no_grad()
def inherit(model: nn.Module, origin: nn.Module, rows: NDArray[np.int64]) -> dict[str, Tensor | None]:
    """Copies the parameters of `origin` into `model`, which has the same shape but for its symbols and its dropout.

    `rows` (V,) are the rows of our symbols in the origin's tables, -1 for new ones, which begin at the mean of all. The
    result is for `Job.inherited`.
    """
    taken = torch.from_numpy(rows)
    return {
        name: fill(parameter, source, taken if name in OF_SYMBOLS else None)
        for name, parameter, source in pairs_of(model, origin)
    }
