"""The parts that taggers and classifiers share: their lexicon, pretrained vectors and labels."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from ensue.models.layer_outputs import LayersShape
from ensue.models.subword_encoder import SubwordEncoder
from ensue.runs.directory import RunDirectory
from ensue.runs.origin import origins_in
from ensue.runs.schema import Config, Size, Symbols, Vocabulary
from ensue.tasks.contract.model import ModelParts
from ensue.tasks.words.tuned import Tuned
from ensue.text.classes import Classes
from ensue.text.labels import Labels
from ensue.text.lexicon import Lexicon


class ContextualConfig(Config):
    """The keys of `config.json` for a model that reads the layers of other runs."""

    contextual: list[Annotated[tuple[Size, Size], Field(strict=False)]] = Field(default_factory=list)
    """For each run in `features.contextual`, how many layers are read, and the size of a vector."""


class WordsConfig(ContextualConfig):
    """The keys of `config.json` for a model that reads words."""

    d_vectors: Annotated[int, Field(ge=0, le=100_000)]


class LexiconContent(Vocabulary):
    """`tokenizer.json`."""

    kind: Literal["lexicon"]
    fold_digits: bool
    longest_affix: Annotated[int, Field(ge=0, le=1000)]
    words: Symbols
    characters: Symbols | None
    affixes: Symbols | None
    shapes: Symbols | None
    columns: dict[str, Symbols]
    vectors: Symbols | None
    kept_vectors: Annotated[int, Field(ge=0)] = 0


@dataclass(frozen=True)
class WordParts(ModelParts):
    """The parts that a model that reads words is built from. `pretrained` are vectors of the words of the lexicon that
    have one, (V, d), `contextual` the shapes of the layers of other models.
    """

    lexicon: Lexicon
    pretrained: Tensor | None
    labels: Labels | Classes
    contextual: tuple[LayersShape, ...] = field(default=(), kw_only=True)
    tuned: Tuned | None = field(default=None, kw_only=True)
    """The run whose layers are the encoder."""

    def tuned_encoder(self) -> SubwordEncoder | None:
        """The layers of the run that is tuned."""
        return None if self.tuned is None else self.tuned.build()

    def files(self) -> dict[str, Any]:
        return {"tokenizer.json": self.lexicon.to_json(), "labels.json": self.labels.to_json()}


def read_lexicon(run: RunDirectory) -> Lexicon:
    """The lexicon of a run. Raises RunError if its file is damaged."""
    return run.read_json("tokenizer.json", LexiconContent, Lexicon.from_json)


def empty_vectors(run: RunDirectory, lexicon: Lexicon) -> Tensor | None:
    """Zeros in place of the pretrained vectors, which are loaded later; None if the model has none."""
    d_vectors = run.config["d_vectors"]
    return torch.zeros(len(lexicon.vectors), d_vectors) if d_vectors and lexicon.vectors else None


def layers_shapes(run: RunDirectory) -> tuple[LayersShape, ...]:
    """The shapes of the layers that a run takes from other models."""
    return tuple(LayersShape(*shape) for shape in run.config.get("contextual", []))


def tuned_in(run: RunDirectory) -> Tuned | None:
    """The run inside of a run whose layers are its encoder, if it has one."""
    recipe: Any = run.recipe
    return Tuned.of(recipe.encoder, origins_in(run))
