"""The parts that taggers and classifiers share: their lexicon, pretrained vectors and labels."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, NamedTuple, TypeVar, cast

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from ensue.data.vectors import read_vectors
from ensue.errors import DataError, RunError
from ensue.models.layer_outputs import LayersShape
from ensue.models.subword_encoder import SubwordEncoder
from ensue.runs.checkpoint import complete_checkpoints
from ensue.runs.directory import RunDirectory
from ensue.runs.origin import origins_in
from ensue.runs.schema import Config, Size
from ensue.tasks.contract.model import ModelParts
from ensue.tasks.words.recipe import WordsRecipe
from ensue.tasks.words.subwords import SubwordReader
from ensue.tasks.words.tuned import Tuned
from ensue.text.label_columns import TaggerLabels
from ensue.text.labels import Classes
from ensue.text.lexicon import Lexicon
from ensue.text.tokenizer import UNKNOWN


class ContextualConfig(Config):
    """The keys of `config.json` for a model that reads the layers of other runs."""

    contextual: list[Annotated[tuple[Size, Size], Field(strict=False)]] = Field(default_factory=list)
    """For each run in `features.contextual`, how many layers are read, and the size of a vector."""


class WordsConfig(ContextualConfig):
    """The keys of `config.json` for a model that reads words."""

    d_vectors: Annotated[int, Field(ge=0, le=100_000)]


@dataclass(frozen=True)
class WordParts(ModelParts):
    """The parts that a model that reads words is built from. `pretrained` are vectors of the words of the lexicon that
    have one, (V, d), `contextual` the shapes of the layers of other models.
    """

    lexicon: Lexicon
    pretrained: Tensor | None
    labels: TaggerLabels | Classes
    contextual: tuple[LayersShape, ...] = field(default=(), kw_only=True)
    tuned: Tuned | None = field(default=None, kw_only=True)
    """The run whose layers are the encoder."""

    @staticmethod
    def shared(run: RunDirectory) -> dict[str, Any]:
        """The fields of all such models. Pretrained vectors are zeros, since they are loaded with the weights."""
        lexicon, d_vectors = run.read_json("tokenizer.json", Lexicon.from_json), run.config["d_vectors"]
        vectors = torch.zeros(len(lexicon.vectors), d_vectors) if d_vectors and lexicon.vectors else None
        tuned = Tuned.of(cast("WordsRecipe", run.recipe).encoder, origins_in(run))
        return {"lexicon": lexicon, "pretrained": vectors, "contextual": layers_shapes(run), "tuned": tuned}

    def tuned_encoder(self) -> SubwordEncoder | None:
        """The layers of the run that is tuned."""
        return None if self.tuned is None else self.tuned.build()

    def subwords(self, recipe: Any) -> SubwordReader | None:
        """The reader of the layers that are tuned, if there are some."""
        return None if self.tuned is None else self.tuned.reader(whole=False)

    def files(self) -> dict[str, Any]:
        return {"tokenizer.json": self.lexicon.to_json(), "labels.json": self.labels.to_json()}


def layers_shapes(run: RunDirectory) -> tuple[LayersShape, ...]:
    """The shapes of the layers that a run takes from other models."""
    return tuple(LayersShape(*shape) for shape in run.config.get("contextual", []))


Parts = TypeVar("Parts", bound=WordParts)


class Pretrained(NamedTuple):
    """Words with pretrained vectors (1 + words, d), of which row 0 is zero; the last `kept` are not of the data."""

    words: Sequence[str]
    vectors: Tensor
    kept: int


def pretrained_vectors(path: str, forms: Collection[str], kept: int) -> Pretrained:
    """The words of `forms`, or their lowercased forms, that the file has, and those of its first `kept` words that are
    not among them. Raises DataError if it has none of `forms`.
    """
    wanted = {*forms, *(form.lower() for form in forms)} - {UNKNOWN}
    words, matrix = read_vectors(path, wanted, first=kept)
    of_data = np.array([word in wanted for word in words], np.bool_)
    if not of_data.any():
        raise DataError(f"has none of the {len(forms):,} words of the data", path)
    order = np.argsort(~of_data, kind="stable")
    rows = np.concatenate((np.zeros((1, matrix.shape[1]), np.float32), matrix[order]))
    return Pretrained([words[place] for place in order], torch.from_numpy(rows), int((~of_data).sum()))


def d_vectors(pretrained: Tensor | None) -> int:
    """The size of pretrained vectors; 0 if there are none."""
    return 0 if pretrained is None else pretrained.shape[1]


def with_vectors(parts: Parts, run: RunDirectory, path: str) -> Parts:
    """The parts of a resumed run; before its first checkpoint vectors are read again. Raises RunError for others."""
    table, known = parts.pretrained, parts.lexicon.vectors
    if table is None or known is None or complete_checkpoints(run.checkpoints):
        return parts
    recipe, kept = cast("WordsRecipe", run.recipe), parts.lexicon.kept_vectors
    of_data = known.symbols[: len(known) - kept]
    found = pretrained_vectors(path, of_data, recipe.features.kept_vectors if kept else 0)
    if (UNKNOWN, *found.words) != known.symbols or found.vectors.shape != table.shape:
        raise RunError(f"{run.path}: {path} has changed since this run began; choose another --out")
    return replace(parts, pretrained=found.vectors)
