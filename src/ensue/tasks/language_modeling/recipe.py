"""Recipes of language models."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from ensue.models.specification import EncoderSpecification, Share, Tokens, WordHead
from ensue.recipe.tables import CorpusRecipe, CorpusTuning, Recipe, Rows, TokenizerRecipe, TrainRecipe


class LanguageModelingTrain(TrainRecipe):
    """The table `[train]` of a language model."""

    segment_length: Rows = 64
    """Tokens in a segment of truncated back-propagation, or in a block where attention's `context` does not say."""
    reset_state: Share = 0.0
    """Chance that a row's carried state is dropped before a segment, so that a model also knows beginnings."""
    sample_tokens: Annotated[int, Field(ge=0, le=1_000_000)] = 160
    """Length of the sample at each validation."""

    @model_validator(mode="after")
    def _equal_parts(self) -> Self:
        if self.batch_size % self.accumulate:
            raise ValueError(f"batch_size {self.batch_size} cannot be split in {self.accumulate} equal parts")
        return self


class LanguageModelingRecipe(Recipe):
    """The recipe of a language model."""

    what: ClassVar[str] = "language model"
    reads: ClassVar[str] = "running text"
    begins: ClassVar[bool] = True

    task: Literal["language-modeling"] = "language-modeling"
    data: CorpusRecipe = CorpusRecipe()
    tokenizer: TokenizerRecipe = TokenizerRecipe()
    tokens: Tokens = Tokens()
    encoder: EncoderSpecification
    head: WordHead = WordHead()
    train: LanguageModelingTrain
    tuning: CorpusTuning = CorpusTuning()
