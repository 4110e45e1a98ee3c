"""The tables `[words]` and `[head]` of recipes for models that read a text in both directions."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ensue.models.specification import Size, Specification, WordHead

Filter = Annotated[list[Annotated[int, Field(ge=1, le=100_000)]], Field(min_length=2, max_length=2)]


class WordTable(Specification):
    """The table `[words]` of a model that has a vector for each word of its vocabulary."""

    kind: Literal["table"]
    d_words: Size | None = None
    """Numbers in the vector of a word; default: the encoder's `d_model`."""


class CharacterWords(Specification):
    """The table `[words]` of a model that works out the vectors of words from their characters."""

    kind: Literal["characters"]
    d_words: Size | None = None
    """Numbers in the vector of a word; default: the encoder's `d_model`."""
    d_character: Size = 16
    """Numbers in the vector of a character."""
    filters: list[Filter] = Field(
        default=[[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]], min_length=1
    )
    """Pairs of a width in characters, and the number of filters of this width."""
    num_highways: Annotated[int, Field(ge=0, le=100)] = 2
    """Highways between filters and projection."""
    activation: Literal["relu", "tanh"] = "relu"
    """The nonlinearity of the filters."""
    longest: Annotated[int, Field(ge=3, le=10_000)] = 50
    """The most characters of a word, in bytes, with its begin and its end; what is behind them is not read."""

    @model_validator(mode="after")
    def _wide(self) -> Self:
        if (widest := max(width for width, _ in self.filters)) > self.longest:
            raise ValueError(f"has a filter over {widest} characters, more than the longest word ({self.longest})")
        return self


class SoftmaxOutput(WordHead):
    """The table `[head]` of a bidirectional language model."""

    kind: Literal["softmax"]


class ContextOutput(Specification):
    """The table `[head]` of context2vec: the vector of a context, which is near those of the words that fit."""

    kind: Literal["context"]
    d_context: Size = 600
    """Numbers in the vectors of contexts, and of the words that are predicted."""
    d_hidden: Size | None = None
    """Units between both sides of a word and the vector of its context; default: 2 · `d_model`."""
    negatives: Annotated[int, Field(ge=1, le=1000)] = 10
    """Words of noise for each word that is predicted."""
    noise_power: Annotated[float, Field(ge=0, le=2)] = 0.75
    """Words of noise are drawn in proportion to their counts to this power."""


class NoOutput(Specification):
    """The table `[head]` of a model that gives vectors and predicts nothing, such as a published ELMo."""

    kind: Literal["none"]


WordInput = Annotated[CharacterWords | WordTable, Field(discriminator="kind")]
WordOutput = Annotated[SoftmaxOutput | ContextOutput | NoOutput, Field(discriminator="kind")]
