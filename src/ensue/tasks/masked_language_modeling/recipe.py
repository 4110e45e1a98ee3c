"""The recipes of masked language models and of sentence vectors."""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from ensue.models.specification import Table, TransformerEncoder
from ensue.models.word_specification import ColumnName
from ensue.recipe.tables import CorpusRecipe, CorpusTuning, DividedData, Recipe, Rows, TokenizerRecipe, TrainRecipe
from ensue.tasks.words.recipe import TextsTrain

MIN_CONTEXT = 8
Fraction = Annotated[float, Field(ge=0, le=1)]


class MaskedData(CorpusRecipe):
    """The table `[data]` of a masked language model."""

    documents: Literal["lines", "blank-lines"] = "blank-lines"
    """The end of a document: each line end, or a blank line. [SEP] separates documents."""
    next_sentence: bool = False
    """Whether an example is two segments of complete lines, and the model learns whether the second segment follows the
    first (true for half of the examples). By default, an example is a block of running text.
    """


class WordPieceTable(TokenizerRecipe):
    """The table `[tokenizer]` of a masked language model."""

    kind: Literal["wordpiece", "bpe", "published"] = "wordpiece"
    """The kind of token; published: the tokenizer of an imported model."""
    lowercase: bool = True
    """Whether text is lowercased; then WordPiece also removes accents."""


class MaskingTable(Table):
    """The table `[masking]`: the hidden tokens, which are drawn again in each epoch."""

    share: Annotated[float, Field(gt=0, lt=1)] = 0.15
    """The share of tokens that are hidden and predicted."""
    masked: Fraction = 0.8
    """The share of hidden tokens that are replaced by [MASK]."""
    random: Fraction = 0.1
    """The share of hidden tokens that are replaced by a random token; other hidden tokens are unchanged."""
    whole_words: bool = False
    """Whether all tokens of a word are hidden together."""

    def problems(self) -> Iterator[str]:
        if self.masked + self.random > 1 + 1e-9:  # the sum may have a rounding error
            yield f"has masked {self.masked} and random {self.random}, together more than 1"


class InputTable(Table):
    """The table `[input]`: vectors that are added to the vectors of tokens and positions."""

    segments: Annotated[int, Field(ge=0, le=1000)] = 0
    """The number of segment vectors; 0: no segment vectors. Pairs of texts need 2 (Devlin et al. 2019)."""


class HeadTable(Table):
    """The table `[head]`: the outputs of the model."""

    masked: bool = True
    """Whether a head predicts masked tokens; without it the model computes vectors of texts (`sentence-vectors`)."""
    pooler: bool = False
    """Whether the model has BERT's map of the first position, tanh(W h + b); `data.next_sentence` implies true."""


class SentencesTable(Table):
    """The table `[sentences]`: the vector of a text from the vectors of its tokens."""

    pooling: Literal["mean", "first", "last", "max"] = "mean"
    """The vector of a text: the mean or the maxima of all tokens, or the first ([CLS]) or last ([SEP]) token."""
    unit_length: bool = False
    """Whether the vector of a text is scaled to length 1."""


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

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.encoder.context < MIN_CONTEXT:
            yield f"has an encoder.context of {self.encoder.context}; expected at least {MIN_CONTEXT}"
        if self.data.next_sentence and self.input.segments < 2:
            yield "has data.next_sentence, which needs input.segments = 2"
        if self.data.next_sentence and self.data.documents == "lines":
            yield 'has data.next_sentence and documents = "lines"; expected data.documents = "blank-lines"'

    def continuing(self, run: str) -> dict[str, Any]:
        return super().continuing(run) | {"tuning.vocabulary": "both"}

    @property
    def block_tokens(self) -> int:
        """The number of tokens of an example, without [CLS] and [SEP]."""
        return self.encoder.context - (3 if self.data.next_sentence else 2)


class PairsData(MaskedData, DividedData):
    """The table `[data]` of a model of sentence vectors: pairs of similar texts. `documents` is ignored."""

    sources: list[ColumnName] = Field(default_factory=list)
    """The column or key of the first text; empty: detected by name or order."""
    targets: list[ColumnName] = Field(default_factory=list)
    """The column or key of the similar text, and further columns or keys of texts that are not similar."""


class ContrastTable(SentencesTable):
    """The table `[sentences]` of a model that is trained on pairs."""

    temperature: Annotated[float, Field(ge=1e-3, le=1e3)] = 0.05
    """The divisor of cosines before the softmax."""


class PairsTrain(TextsTrain):
    """The table `[train]` of a model of sentence vectors."""

    batch_tokens: Rows = 20_000
    """The maximum number of tokens of all texts in a batch."""


class SentenceVectorsRecipe(MaskedLanguageModelingRecipe):
    """The recipe of a model of sentence vectors, which is a masked language model without a head."""

    what: ClassVar[str] = "model of sentence vectors"
    reads: ClassVar[str] = "pairs of similar texts"

    task: Literal["sentence-vectors"] = "sentence-vectors"  # type: ignore[assignment]
    data: PairsData = PairsData()
    head: HeadTable = HeadTable(masked=False)
    sentences: ContrastTable = ContrastTable()
    train: PairsTrain

    continuing = Recipe.continuing

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.head.masked:
            yield "has head.masked = true, but learns only vectors; expected head.masked = false"
        if self.data.next_sentence:
            yield "has data.next_sentence, which is for running text"
        if self.train.accumulate > 1 or self.train.deterministic:
            yield "has train.accumulate or train.deterministic, which split batches; the loss compares a whole batch"
