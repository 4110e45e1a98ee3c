"""The recipe of language models."""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from ensue.models.specification import EncoderSpecification, Share, Tokens, WordHead
from ensue.recipe.tables import CorpusRecipe, CorpusTuning, Recipe, Rows, TokenizerRecipe, TrainRecipe


class LanguageModelingTrain(TrainRecipe):
    """The table `[train]` of a language model."""

    segment_length: Rows = 64
    """The number of tokens in a segment of truncated back-propagation; Transformers read blocks of their `context`."""
    reset_state: Share = 0.0
    """The probability that the state of a row is reset before a segment, so that a model learns how texts begin."""
    sample_tokens: Annotated[int, Field(ge=0, le=1_000_000)] = 160
    """The number of tokens of the sample at each validation; 0: no sample."""

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.batch_size % self.accumulate:
            yield f"batch_size {self.batch_size} cannot be split into {self.accumulate} equal parts"


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

    def continuing(self, run: str) -> dict[str, Any]:
        return super().continuing(run) | {"tuning.vocabulary": "both"}
