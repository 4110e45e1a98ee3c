"""Recipes of models that read a text in both directions."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import model_validator

from ensue.models.specification import EncoderSpecification, RecurrentEncoder, Share
from ensue.models.word_specification import ContextOutput, WordInput, WordOutput
from ensue.recipe.tables import CorpusRecipe, Recipe, Rows, TokenizerRecipe, TrainRecipe
from ensue.tasks.entry import TaskEntry


class WordsOfText(TokenizerRecipe):
    """The table `[tokenizer]` of a bidirectional language model: the words that it predicts."""

    kind: Literal["words"] = "words"
    """The kind of token."""


class BidirectionalTrain(TrainRecipe):
    """The table `[train]` of a bidirectional language model."""

    segment_length: Rows = 32
    """Words in a segment of truncated back-propagation, or in a block that is read by itself."""
    carry_state: bool = True
    """Whether a segment goes on from the state after the one before: the rows of a batch read the text from end to end,
    in both directions. Without it, blocks of the text are read by themselves, in a shuffled order.
    """
    reset_state: Share = 0.0
    """Chance that a row's carried state is dropped before a segment, so that a model also knows beginnings."""

    @model_validator(mode="after")
    def _carries(self) -> Self:
        if self.reset_state and not self.carry_state:
            raise ValueError("has reset_state, but no state is carried")
        return self


class BidirectionalRecipe(Recipe):
    """The recipe of a bidirectional language model."""

    what: ClassVar[str] = "bidirectional language model"
    reads: ClassVar[str] = "running text"

    task: Literal["bidirectional-language-modeling"] = "bidirectional-language-modeling"
    data: CorpusRecipe = CorpusRecipe()
    tokenizer: WordsOfText = WordsOfText()
    words: WordInput
    encoder: EncoderSpecification
    head: WordOutput
    train: BidirectionalTrain

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if not isinstance(self.encoder, RecurrentEncoder):
            raise ValueError(f'has the encoder "{self.encoder.kind}"; expected a recurrent one, such as "projected"')
        if isinstance(self.head, ContextOutput) and self.train.carry_state:
            raise ValueError('has the head "context", which needs both sides of a word: train.carry_state = false')
        return self

    @property
    def d_words(self) -> int:
        """The size of the vectors of words."""
        assert isinstance(self.encoder, RecurrentEncoder)
        return self.words.d_words or self.encoder.d_model


TASK = TaskEntry(
    recipe=BidirectionalRecipe,
    pipeline_tag="feature-extraction",
    parts="ensue.extensions.bidirectional.model:BidirectionalParts",
    job="ensue.extensions.bidirectional.job:BidirectionalJob",
    pipeline="ensue.extensions.bidirectional.pipeline:BidirectionalPipeline",
    commands=("embed", "neighbors", "evaluate", "score", "inspect"),
    judged_by=("nats_per_token", "noise_nats"),
)
