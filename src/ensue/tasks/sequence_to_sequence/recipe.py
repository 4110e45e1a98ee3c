"""Recipes of models from sequence to sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from ensue.data.detection.format_table import PAIRS, settings_of
from ensue.models.specification import (
    Attention,
    Directions,
    EncoderSpecification,
    PairTokens,
    Table,
    TextHead,
    describe_encoder,
)
from ensue.models.word_specification import ColumnName, ContextualSpecification
from ensue.recipe.tables import DividedData, Recipe, Rows, TokenizerRecipe, TrainRecipe

Tokens = Annotated[int, Field(ge=0, le=1_000_000)]

if TYPE_CHECKING:
    DataFormat = str
else:
    DataFormat = Literal[settings_of(PAIRS)]


class PairData(DividedData):
    """The table `[data]` of a model from sequence to sequence. A path may be two files with a comma between them."""

    format: DataFormat = "auto"
    """The format of the files; auto: by their names and first lines."""
    sources: list[ColumnName] = Field(default_factory=list)
    """The columns or keys of the source; several are read one after another. Empty: found by names or by order."""
    targets: list[ColumnName] = Field(default_factory=list)
    """The columns or keys of the target; several are references. Empty: found by names or by order."""
    names: list[Annotated[int, Field(ge=1, le=100)]] = Field(default_factory=list)
    """The numbers of the source columns whose values are names, such as `V;PST`: each is a token of its own."""
    source_tokens: Tokens = 0
    """Longer sources are cut to this many tokens, and a note says how many; 0: they are read whole."""
    target_tokens: Tokens = 0
    """Pairs with longer targets are left out of training, and a note says how many; 0: none is."""


class SearchTable(Table):
    """The table `[search]`: how outputs are found, unless the command line says otherwise."""

    beams: Annotated[int, Field(ge=1, le=10_000)] = 5
    """Hypotheses that go on after each token; 1: greedy."""
    length_penalty: Annotated[float, Field(ge=0, le=10)] = 1.0
    """α in Σ ln P / length^α, by which hypotheses are ranked; 0: the sum."""
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] = 200
    """The most tokens of an output."""
    min_tokens: Tokens = 0
    """The least tokens of an output."""
    no_repeat_ngram: Tokens = 0
    """No sequence of this many tokens comes twice in an output; 0: any may."""


class PairTrain(TrainRecipe):
    """The table `[train]` of a model from sequence to sequence."""

    batch_size: Rows = 1_000
    """At most this many pairs go into a batch."""
    batch_tokens: Rows = 4_000
    """At most this many tokens of both sides go into a batch, unless one pair alone is longer."""
    samples: Annotated[int, Field(ge=0, le=100)] = 3
    """Validation sources whose outputs are shown at each validation."""


class SequenceToSequenceRecipe(Recipe):
    """The recipe of a model from sequence to sequence."""

    what: ClassVar[str] = "sequence-to-sequence model"
    reads: ClassVar[str] = "pairs of texts: source and target"
    keeps_examples: ClassVar[bool] = True

    task: Literal["sequence-to-sequence"] = "sequence-to-sequence"
    data: PairData = PairData()
    tokenizer: TokenizerRecipe = TokenizerRecipe(kind="bpe", max_size=4_000)
    target_tokenizer: TokenizerRecipe | None = None
    tokens: PairTokens = PairTokens()
    features: ContextualSpecification = ContextualSpecification()
    encoder: EncoderSpecification | None = None
    """Without an encoder the decoder reads the source itself, before the target."""
    directions: Directions = Directions()
    decoder: EncoderSpecification
    attention: Attention = Attention()
    head: TextHead = TextHead()
    search: SearchTable = SearchTable()
    train: PairTrain

    @model_validator(mode="after")
    def _has_words(self) -> Self:
        if self.features.contextual and self.tokenizer.kind != "words":
            raise ValueError(
                f"has features.contextual, which are of words, but the tokens of the source are {self.tokenizer.kind}; "
                'expected tokenizer.kind = "words", and what else the target needs as target_tokenizer'
            )
        return self

    @property
    def origins(self) -> tuple[str, ...]:
        return tuple(self.features.contextual)

    def describe(self) -> str:
        """A description such as `lstm 1×256 → lstm 1×256`."""
        decoder = describe_encoder(self.decoder)
        if self.encoder is None:
            return f"{decoder} for source and target"
        return f"{describe_encoder(self.encoder)} → {decoder}"

    @property
    def layers(self) -> Any:
        """The decoder, whose softmax takes the most time."""
        return self.decoder
