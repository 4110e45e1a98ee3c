"""The recipe of word vectors."""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ensue.models.specification import Path, Share, Table
from ensue.recipe.tables import OPTIMIZER_KEYS, Count, DataRecipe, Recipe, Rows, TokenizerRecipe, TrainRecipe
from ensue.tasks.entry import TaskEntry

Size = Annotated[int, Field(ge=1, le=65_536)]
Window = Annotated[int, Field(ge=1, le=1000)]
Power = Annotated[float, Field(ge=0, le=2)]


class StaticVectorsTable(Table):
    """The table `[vectors]` of imported vectors. They are not trained."""

    kind: Literal["static"]
    d_words: Size = 100
    """The size of a vector."""
    shortest_ngram: Annotated[int, Field(ge=1, le=100)] = 3
    """The length of the shortest n-grams, in characters."""
    longest_ngram: Annotated[int, Field(ge=0, le=100)] = 0
    """The length of the longest n-grams, in characters; 0: no n-grams."""
    ngram_buckets: Annotated[int, Field(ge=1, le=1_000_000_000)] = 2_000_000
    """The number of rows for n-grams. N-grams with the same hash modulo this number share a row."""
    unit_length: bool = False
    """Whether the vector of a text is scaled to norm 1."""

    def problems(self) -> Iterator[str]:
        if 0 < self.longest_ngram < self.shortest_ngram:
            yield f"has a longest_ngram of {self.longest_ngram} below shortest_ngram {self.shortest_ngram}"


class SampledVectorsTable(StaticVectorsTable):
    """The table `[vectors]` of CBOW and skip-gram with negative sampling."""

    kind: Literal["cbow", "skip-gram"]  # type: ignore[assignment]  # in place of "static"
    """cbow: a word is predicted from its context; skip-gram: each word of the context is predicted from the word."""
    window: Window = 5
    """The maximum number of context words on each side. For each word, a number from 1 to `window` is drawn."""
    negatives: Annotated[int, Field(ge=1, le=100)] = 5
    """The number of noise words for each predicted word."""
    noise_power: Power = 0.75
    """Noise words are drawn in proportion to count ** noise_power."""
    subsample: Share = 1e-3
    """t in the probability min(1, √(t/f) + t/f) of keeping a word with the share f of the text; 0: no subsampling."""


class CountedVectorsTable(Table):
    """The table `[vectors]` of GloVe."""

    kind: Literal["glove"]
    d_words: Size = 100
    """The size of a vector."""
    window: Window = 10
    """The number of context words on each side. A pair at a distance of n words has the count 1/n."""
    largest_count: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 100.0
    """Pairs with at least this count have the weight 1."""
    power: Power = 0.75
    """The exponent in the weight (count / largest_count) ** power of rarer pairs."""


class DistilledVectorsTable(Table):
    """The table `[vectors]` of vectors of single words that are computed by another run (`ensue distill`)."""

    kind: Literal["distilled"]
    d_words: Size = 256
    """The size of a vector: the number of principal components of the other run's vectors."""
    smoothing: Annotated[float, Field(ge=0, le=1)] = 1e-4
    """a in the factor a / (a + p) of a vector, where p is the word's share of the text; 0: no factor."""
    unit_length: bool = True
    """Whether the vector of a text is scaled to norm 1."""


class WordsTable(TokenizerRecipe):
    """The table `[tokenizer]` of word vectors."""

    kind: Literal["words", "published"] = "words"
    """The kind of token; published: the tokenizer of an imported model, which is not trained."""
    min_count: Count = 5
    """The smallest count of a word in the vocabulary. Rarer words have no vector, and are removed from contexts."""
    splitter: Literal["whitespace", "simple"] = "simple"
    """The rule that splits text into words."""


class SensesTable(Table):
    """The table `[senses]` of a run with a vector for each sense, a cluster of a word's uses (Huang et al. 2012)."""

    origin: Path = Field(default="", alias="from")
    """The run of word vectors with which the uses of words are clustered; "": one vector for each word."""
    most: Annotated[int, Field(ge=2, le=100)] = 3
    """The largest number of senses of a word."""
    least: Share = 0.1
    """The smallest share of a word's uses in a cluster. Smaller clusters are dropped."""
    alike: Annotated[float, Field(gt=-1, le=1)] = 0.7
    """The largest cosine of two centers. Of two more similar clusters, the smaller cluster is dropped."""
    words: Count = 1_000
    """The number of words that may have several senses: the most frequent words that subsampling never removes."""
    window: Window = 5
    """The number of context words on each side of a use. Their vectors form the vector of the use."""


class WordVectorsData(DataRecipe):
    """The table `[data]` of word vectors. `valid` and `test` are pairs of words with similarities, or analogies."""

    valid_fraction: Annotated[float, Field(ge=0, le=0)] = 0.0
    """Always 0, since vectors are scored by pairs or analogies."""
    across_lines: bool = False
    """Whether contexts cross line ends, for texts whose sentences are broken into lines."""


class WordVectorsTrain(TrainRecipe):
    """The table `[train]` of word vectors."""

    batch_size: Rows = 10_000
    """The number of tokens, or of counted pairs, in a step."""
    learning_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.025
    """The initial learning rate."""
    warmup: Share = 0.0
    """The share of the budget over which the learning rate rises from zero."""
    validations: Annotated[int, Field(ge=1, le=1_000_000)] = 5
    """The number of evenly spaced validations; fewer if they would take more than a fifth of `train.seconds`."""


class WordVectorsRecipe(Recipe):
    """The recipe of word vectors."""

    what: ClassVar[str] = "table of word vectors"
    reads: ClassVar[str] = "running text"
    unused_keys: ClassVar[tuple[str, ...]] = OPTIMIZER_KEYS

    task: Literal["word-vectors"] = "word-vectors"
    data: WordVectorsData = WordVectorsData()
    tokenizer: WordsTable = WordsTable()
    vectors: Annotated[
        SampledVectorsTable | CountedVectorsTable | StaticVectorsTable | DistilledVectorsTable,
        Field(discriminator="kind"),
    ]
    senses: SensesTable = SensesTable()
    train: WordVectorsTrain

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        has_ngrams = not isinstance(self.vectors, StaticVectorsTable) or self.vectors.longest_ngram
        if self.senses.origin and has_ngrams:
            yield "has senses.from, which is for cbow and skip-gram without n-grams"

    @property
    def origins(self) -> tuple[str, ...]:
        return (self.senses.origin,) if self.senses.origin else ()

    def describe(self) -> str:
        return f"{self.vectors.kind} {self.vectors.d_words}"


TASK = TaskEntry(
    recipe=WordVectorsRecipe, pipeline_tag="feature-extraction",
    parts="ensue.extensions.word_vectors.model:WordVectorParts", job="ensue.extensions.word_vectors.job:WordVectorsJob",
    pipeline="ensue.extensions.word_vectors.pipeline:WordVectorsPipeline",
    commands=("neighbors", "inspect", "embed", "evaluate", "export"), judged_by=("spearman", "accuracy"),
)  # fmt: skip
