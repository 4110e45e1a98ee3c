"""Recipes of masked language models, and of models of their shape that learn vectors of texts."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from ensue.models.specification import Table, TransformerEncoder
from ensue.models.word_specification import ColumnName
from ensue.recipe.tables import CorpusRecipe, CorpusTuning, DividedData, Recipe, Rows, TokenizerRecipe, TrainRecipe
from ensue.tasks.words.recipe import TextsTrain

LEAST_CONTEXT = 8
Part = Annotated[float, Field(ge=0, le=1)]


class MaskedData(CorpusRecipe):
    """The table `[data]` of a masked language model."""

    documents: Literal["lines", "blank-lines"] = "blank-lines"
    """Where a document ends: at each line end, or at a blank line. [SEP] is between two documents."""
    next_sentence: bool = False
    """Whether an example is two segments of whole lines, and the model says whether they follow each other, as half of
    them do. Without it, an example is a block of running text.
    """


class WordPieceTable(TokenizerRecipe):
    """The table `[tokenizer]` of a masked language model."""

    kind: Literal["wordpiece", "bpe", "published"] = "wordpiece"
    """The kind of token; published: the tokenizer of an imported model, of no other kind, and not trained."""
    lowercase: bool = True
    """Whether all text is lowered first; WordPiece then drops accents too."""


class MaskingTable(Table):
    """The table `[masking]`: what is hidden, anew in each epoch."""

    share: Annotated[float, Field(gt=0, lt=1)] = 0.15
    """Share of the tokens that are hidden, and that the model has to find."""
    masked: Part = 0.8
    """Share of the hidden tokens that are read as [MASK]."""
    random: Part = 0.1
    """Share of the hidden tokens that are read as a random token; the others are read as they are."""
    whole_words: bool = False
    """Whether all tokens of a word are hidden together."""

    @model_validator(mode="after")
    def _shares(self) -> Self:
        if self.masked + self.random > 1 + 1e-9:
            raise ValueError(f"has masked {self.masked} and random {self.random}, together more than 1")
        return self


class InputTable(Table):
    """The table `[input]`: what is added to the vectors of tokens and positions."""

    segments: Annotated[int, Field(ge=0, le=1000)] = 0
    """Vectors for the parts of an input; 0: none. Published BERT has 2, and pairs need them."""


class HeadTable(Table):
    """The table `[head]`: what is worked out of the layers."""

    masked: bool = True
    """Whether there is a head that fills in masks. A model without one gives vectors alone, and learns from pairs
    (`sentence-vectors`).
    """
    pooler: bool = False
    """Whether the published map of the first position, tanh(W h + b), is kept; `data.next_sentence` has one anyway."""


class SentencesTable(Table):
    """The table `[sentences]`: how the vectors of a text's tokens become one."""

    pooling: Literal["mean", "first", "last", "max"] = "mean"
    """The vector of a text: the mean or the maxima of all tokens, or the first ([CLS]) or last ([SEP]) one."""
    unit_length: bool = False
    """Whether a text's vector is divided by its length."""


class MaskedLanguageModelingRecipe(Recipe):
    """The recipe of a masked language model."""

    what: ClassVar[str] = "masked language model"
    reads: ClassVar[str] = "running text"
    begins: ClassVar[bool] = True

    task: Literal["masked-language-modeling"] = "masked-language-modeling"
    data: MaskedData = MaskedData()
    tokenizer: WordPieceTable = WordPieceTable()
    input: InputTable = InputTable()
    encoder: TransformerEncoder
    head: HeadTable = HeadTable()
    sentences: SentencesTable = SentencesTable()
    masking: MaskingTable = MaskingTable()
    train: TrainRecipe
    tuning: CorpusTuning = CorpusTuning()

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.encoder.context < LEAST_CONTEXT:
            raise ValueError(f"has an encoder.context of {self.encoder.context}; expected {LEAST_CONTEXT} at least")
        if self.data.next_sentence and self.input.segments < 2:
            raise ValueError("has data.next_sentence, which needs input.segments = 2")
        if self.data.next_sentence and self.data.documents == "lines":
            raise ValueError('has data.next_sentence, for which a line is a sentence: data.documents = "blank-lines"')
        return self

    @property
    def block_tokens(self) -> int:
        """The tokens of an example, without those that frame it."""
        return self.encoder.context - (3 if self.data.next_sentence else 2)


class PairsData(MaskedData, DividedData):
    """The table `[data]` of a model of sentence vectors: pairs of texts that are alike. The keys of running text do
    nothing here.
    """

    sources: list[ColumnName] = Field(default_factory=list)
    """The column or key of the first text; empty: found by names or places."""
    targets: list[ColumnName] = Field(default_factory=list)
    """The column or key of the text that is like the first one. Further columns have texts that are not like it."""


class ContrastTable(SentencesTable):
    """The table `[sentences]` of a model that learns from pairs."""

    temperature: Annotated[float, Field(ge=1e-3, le=1e3)] = 0.05
    """The divisor of cosines before the softmax."""


class PairsTrain(TextsTrain):
    """The table `[train]` of a model of sentence vectors."""

    batch_tokens: Rows = 20_000
    """At most this many tokens go into a batch, those of both texts of a pair together."""


class SentenceVectorsRecipe(MaskedLanguageModelingRecipe):
    """The recipe of a model of sentence vectors: that of a masked language model without a head."""

    what: ClassVar[str] = "model of sentence vectors"
    reads: ClassVar[str] = "pairs of texts that are alike"

    task: Literal["sentence-vectors"] = "sentence-vectors"  # type: ignore[assignment]
    data: PairsData = PairsData()
    head: HeadTable = HeadTable(masked=False)
    sentences: ContrastTable = ContrastTable()
    train: PairsTrain

    @model_validator(mode="after")
    def _learns_vectors(self) -> Self:
        if self.head.masked:
            raise ValueError("has head.masked = true, but learns vectors alone: head.masked = false")
        if self.data.next_sentence:
            raise ValueError("has data.next_sentence, which is for running text")
        if self.train.accumulate > 1 or self.train.deterministic:
            raise ValueError(
                "cuts batches (train.accumulate, train.deterministic), but compares each text with all of its batch"
            )
        return self
