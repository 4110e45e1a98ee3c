"""The recipe of sequence-to-sequence models."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from ensue.data.detection.format_table import PAIRS, format_choices
from ensue.models import specification
from ensue.models.word_specification import ColumnName, ContextualSpecification
from ensue.recipe.tables import DividedData, Recipe, Rows, TokenizerRecipe, TrainRecipe

Tokens = Annotated[int, Field(ge=0, le=1_000_000)]

if TYPE_CHECKING:
    DataFormat = str
else:
    DataFormat = Literal[format_choices(PAIRS)]


class PairData(DividedData):
    """The table `[data]` of a sequence-to-sequence model. A path may be two files with a comma between them."""

    format: DataFormat = "auto"
    """The format of the files; auto: detected from their names and first lines."""
    sources: list[ColumnName] = Field(default_factory=list)
    """The columns or keys of the source; several columns are concatenated. Empty: detected by name or order."""
    targets: list[ColumnName] = Field(default_factory=list)
    """The columns or keys of the target; several columns are references. Empty: detected by name or order."""
    names: list[Annotated[int, Field(ge=1, le=100)]] = Field(default_factory=list)
    """The numbers of the source columns that contain lists of tags, such as `V;PST`; each tag is one token."""
    source_tokens: Tokens = 0
    """The number of tokens to which longer sources are truncated, with a note; 0: no limit."""
    target_tokens: Tokens = 0
    """The maximum number of tokens of a training target; longer targets are left out, with a note; 0: no limit."""
    other_stems: Annotated[int, Field(ge=0, le=1_000)] = 0
    """The number of copies of each training pair, with other letters in the substrings that source and target have in
    common, for inflection from few pairs (Anastasopoulos & Neubig 2019).
    """


class SearchTable(specification.Table):
    """The table `[search]`: the defaults of beam search."""

    beams: Annotated[int, Field(ge=1, le=10_000)] = 5
    """The width of the beam; 1: greedy search."""
    length_penalty: Annotated[float, Field(ge=0, le=10)] = 1.0
    """α in Σ ln P / length^α, by which hypotheses are ranked; 0: the sum."""
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] = 200
    """The maximum number of tokens of an output."""
    min_tokens: Tokens = 0
    """The minimum number of tokens of an output."""
    no_repeat_ngram: Tokens = 0
    """The n for which an n-gram must not occur twice in an output; 0: no limit."""


class PairTrain(TrainRecipe):
    """The table `[train]` of a sequence-to-sequence model."""

    batch_size: Rows = 1_000
    """The maximum number of pairs in a batch."""
    batch_tokens: Rows = 4_000
    """The maximum number of tokens of both sides in a batch, unless one pair is longer."""
    samples: Annotated[int, Field(ge=0, le=100)] = 3
    """The number of validation sources whose outputs are shown at each validation."""


class SequenceToSequenceRecipe(Recipe):
    """The recipe of a sequence-to-sequence model."""

    what: ClassVar[str] = "sequence-to-sequence model"
    reads: ClassVar[str] = "pairs of texts: source and target"
    is_preparable: ClassVar[bool] = True

    task: Literal["sequence-to-sequence"] = "sequence-to-sequence"
    data: PairData = PairData()
    tokenizer: TokenizerRecipe = TokenizerRecipe(kind="bpe", max_size=4_000)
    target_tokenizer: TokenizerRecipe | None = None
    tokens: specification.PairTokens = specification.PairTokens()
    features: ContextualSpecification = ContextualSpecification()
    encoder: specification.EncoderSpecification | None = None
    """The encoder; without an encoder the decoder reads the source before the target."""
    directions: specification.Directions = specification.Directions()
    decoder: specification.EncoderSpecification
    attention: specification.Attention = specification.Attention()
    head: specification.TextHead = specification.TextHead()
    search: SearchTable = SearchTable()
    train: PairTrain

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        kinds = {self.tokenizer.kind, (self.target_tokenizer or self.tokenizer).kind}
        if self.data.other_stems and (kinds - {"characters", "bytes"} or 1 in self.data.names):
            yield (
                "has data.other_stems, which needs words as the first source column, and tokens of characters or bytes"
            )
        if self.features.contextual and self.tokenizer.kind != "words":
            yield (
                f"has features.contextual, which need words, but the tokens of the source are {self.tokenizer.kind}; "
                'expected tokenizer.kind = "words"; [target_tokenizer] can be of another kind'
            )

    @property
    def origins(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(filter(None, [*self.features.contextual, self.decoder.origin])))

    def continuing(self, run: str) -> dict[str, Any]:
        return {"decoder.from": run, "tuning.rehearse": True}

    def describe(self) -> str:
        """Return a description such as `lstm 1×256 → lstm 1×256`."""
        decoder, encoder = specification.describe_encoder(self.decoder), self.encoder
        name = "" if encoder is None else specification.describe_encoder(encoder)
        return f"{name} → {decoder}" if name else f"{decoder} for source and target"

    @property
    def layers(self) -> Any:
        """The table of the decoder, whose softmax takes most of the time of a step."""
        return self.decoder
