"""The recipe of bidirectional language models and context2vec."""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ensue.models.specification import EncoderSpecification, RecurrentEncoder, Share, Size, Table, WordHead
from ensue.recipe.tables import CorpusRecipe, Recipe, Rows, TokenizerRecipe, TrainRecipe
from ensue.tasks.entry import TaskEntry

Filter = Annotated[list[Annotated[int, Field(ge=1, le=100_000)]], Field(min_length=2, max_length=2)]


class LookupWords(Table):
    """The table `[words]` of a model with a vector for each word in its vocabulary."""

    kind: Literal["table"]
    d_words: Size | None = None
    """The size of the vector of a word; default: the encoder's `d_model`."""


class CharacterWords(Table):
    """The table `[words]` of a model that computes the vectors of words from their characters."""

    kind: Literal["characters"]
    d_words: Size | None = None
    """The size of the vector of a word; default: the encoder's `d_model`."""
    d_character: Size = 16
    """The size of the vector of a character."""
    filters: list[Filter] = Field(
        default=[[1, 32], [2, 32], [3, 64], [4, 128], [5, 256], [6, 512], [7, 1024]], min_length=1
    )
    """Pairs of a width in characters and the number of filters with this width."""
    num_highways: Annotated[int, Field(ge=0, le=100)] = 2
    """The number of highway layers between the filters and the projection."""
    activation: Literal["relu", "tanh"] = "relu"
    """The nonlinearity of the filters."""
    longest: Annotated[int, Field(ge=3, le=10_000)] = 50
    """The largest length of a word in bytes, including the marks of its beginning and end. Longer words are cut."""

    def problems(self) -> Iterator[str]:
        if (widest := max(width for width, _ in self.filters)) > self.longest:
            yield f"has a filter over {widest} characters, more than the longest word ({self.longest})"


class SoftmaxOutput(WordHead):
    """The table `[head]` of a bidirectional language model."""

    kind: Literal["softmax"]


class ContextOutput(Table):
    """The table `[head]` of context2vec."""

    kind: Literal["context"]
    d_context: Size = 600
    """The size of the vectors of contexts and of predicted words."""
    d_hidden: Size | None = None
    """The number of hidden units of the network that computes the vector of a context; default: 2 · `d_model`."""
    negatives: Annotated[int, Field(ge=1, le=1000)] = 10
    """The number of noise words for each predicted word."""
    noise_power: Annotated[float, Field(ge=0, le=2)] = 0.75
    """Noise words are drawn in proportion to count ** noise_power."""


class NoOutput(Table):
    """The table `[head]` of a model without predictions, such as a published ELMo."""

    kind: Literal["none"]


WordsSpecification = Annotated[CharacterWords | LookupWords, Field(discriminator="kind")]
OutputSpecification = Annotated[SoftmaxOutput | ContextOutput | NoOutput, Field(discriminator="kind")]


class WordsOfText(TokenizerRecipe):
    """The table `[tokenizer]` of a bidirectional language model, which defines the predicted words."""

    kind: Literal["words"] = "words"
    """The kind of token."""


class BidirectionalTrain(TrainRecipe):
    """The table `[train]` of a bidirectional language model."""

    segment_length: Rows = 32
    """The number of words in a segment of truncated back-propagation, or in an independent block."""
    carry_state: bool = True
    """Whether a segment begins with the state after the previous segment. Otherwise, blocks are in a shuffled order."""
    reset_state: Share = 0.0
    """The probability that the carried state of a row is reset before a segment."""

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.reset_state and not self.carry_state:
            yield "has reset_state, but no state is carried"


class BidirectionalRecipe(Recipe):
    """The recipe of a bidirectional language model."""

    what: ClassVar[str] = "bidirectional language model"
    reads: ClassVar[str] = "running text"

    task: Literal["bidirectional-language-modeling"] = "bidirectional-language-modeling"
    data: CorpusRecipe = CorpusRecipe()
    tokenizer: WordsOfText = WordsOfText()
    words: WordsSpecification
    encoder: EncoderSpecification
    head: OutputSpecification
    train: BidirectionalTrain

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if not isinstance(self.encoder, RecurrentEncoder):
            yield f'has the encoder "{self.encoder.kind}"; expected a recurrent encoder, such as "projected"'
        if isinstance(self.head, ContextOutput) and self.train.carry_state:
            yield 'has the head "context", which needs both sides of a word: train.carry_state = false'

    @property
    def d_words(self) -> int:
        """The size of the vectors of words."""
        assert isinstance(self.encoder, RecurrentEncoder)
        return self.words.d_words or self.encoder.d_model


TASK = TaskEntry(
    recipe=BidirectionalRecipe, pipeline_tag="feature-extraction",
    parts="ensue.extensions.bidirectional.model:BidirectionalParts",
    job="ensue.extensions.bidirectional.objectives:BidirectionalJob",
    pipeline="ensue.extensions.bidirectional.pipeline:BidirectionalPipeline",
    commands=("embed", "neighbors", "evaluate", "score", "inspect"), judged_by=("nats_per_token", "noise_nats"),
)  # fmt: skip
