"""Recipes of word vectors."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from ensue.models.specification import Path, Share, Table
from ensue.recipe.tables import Count, DataRecipe, Recipe, Rows, TokenizerRecipe, TrainRecipe

Size = Annotated[int, Field(ge=1, le=65_536)]
Window = Annotated[int, Field(ge=1, le=1000)]
Power = Annotated[float, Field(ge=0, le=2)]
NOT_USED = ("accumulate", "optimizer", "weight_decay", "beta1", "beta2", "average", "clip")
"""The keys of `[train]` that say how gradients become steps, which these updates do by themselves."""


class StaticVectorsTable(Table):
    """The table `[vectors]` of vectors that were made elsewhere, which are not trained."""

    kind: Literal["static"]
    d_words: Size = 100
    """Numbers in a vector."""
    shortest_ngram: Annotated[int, Field(ge=1, le=100)] = 3
    """Characters of the shortest n-gram."""
    longest_ngram: Annotated[int, Field(ge=0, le=100)] = 0
    """Characters of the longest n-gram; 0: vectors of whole words alone."""
    ngram_buckets: Annotated[int, Field(ge=1, le=1_000_000_000)] = 2_000_000
    """Rows that the n-grams share by their hashes."""
    unit_length: bool = False
    """Whether the vector of a text is divided by its length."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if 0 < self.longest_ngram < self.shortest_ngram:
            raise ValueError(f"has a longest_ngram of {self.longest_ngram} below shortest_ngram {self.shortest_ngram}")
        return self


class SampledVectorsTable(StaticVectorsTable):
    """The table `[vectors]` of vectors that are trained by negative sampling."""

    kind: Literal["cbow", "skip-gram"]  # type: ignore[assignment]  # in place of "static"
    """The prediction. cbow: of a word from its context; skip-gram: of each word of the context from the word."""
    window: Window = 5
    """Words of the context on each side, at most; the number is drawn for each word, from 1 on."""
    negatives: Annotated[int, Field(ge=1, le=100)] = 5
    """Words of noise for each word that is predicted."""
    noise_power: Power = 0.75
    """Words of noise are drawn in proportion to their counts to this power."""
    subsample: Share = 1e-3
    """A word with a larger share of the text is left out at random, more often for a larger share; 0: never."""


class CountedVectorsTable(Table):
    """The table `[vectors]` of GloVe."""

    kind: Literal["glove"]
    d_words: Size = 100
    """Numbers in a vector."""
    window: Window = 10
    """Words on each side that count as near; n words away counts 1/n."""
    largest_count: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 100.0
    """Pairs with this count or more have the weight 1."""
    power: Power = 0.75
    """Rarer pairs have the weight (count / largest_count) to this power."""


class DistilledVectorsTable(Table):
    """The table `[vectors]` of vectors that another run gives to single words (`ensue distill`)."""

    kind: Literal["distilled"]
    d_words: Size = 256
    """Numbers in a vector: principal components of the other run's."""
    smoothing: Annotated[float, Field(ge=0, le=1)] = 1e-4
    """A vector is multiplied by a / (a + p), where a is this and p the word's share of the text; 0: by 1."""
    unit_length: bool = True
    """Whether the vector of a text is divided by its length."""


class WordsTable(TokenizerRecipe):
    """The table `[tokenizer]` of word vectors."""

    kind: Literal["words", "published"] = "words"
    """The kind of token; published: the tokenizer of an imported model, which is not trained."""
    min_count: Count = 5
    """Rarer words have no vector, and do not count as context."""
    splitter: Literal["whitespace", "simple"] = "simple"
    """How words are found."""


class SensesTable(Table):
    """The table `[senses]`: several vectors for a word, each for a cluster of its uses (Huang et al. 2012)."""

    origin: Path = Field(default="", alias="from")
    """The directory of a run of word vectors. The new run has its words, and their vectors tell uses apart. "": a word
    has one vector.
    """
    most: Annotated[int, Field(ge=2, le=100)] = 3
    """Vectors of a word, at most."""
    least: Share = 0.1
    """The smallest share of a word's uses that has a vector of its own."""
    alike: Annotated[float, Field(gt=-1, le=1)] = 0.7
    """Clusters whose centers have a higher cosine are one."""
    words: Count = 1_000
    """The number of words that may have several: the most frequent ones that `vectors.subsample` never leaves out."""
    window: Window = 5
    """Words on each side of a use that make its vector."""


class WordVectorsData(DataRecipe):
    """The table `[data]` of word vectors. `valid` and `test` are not texts but questions about words: pairs with a
    similarity, or analogies.
    """

    valid_fraction: Annotated[float, Field(ge=0, le=0)] = 0.0
    """No text is kept back: vectors are judged by pairs or analogies."""
    across_lines: bool = False
    """Whether a context goes on behind a line end, as in texts whose lines are broken anywhere."""


class WordVectorsTrain(TrainRecipe):
    """The table `[train]` of word vectors."""

    batch_size: Rows = 10_000
    """Tokens of running text in a step, or counts of pairs."""
    learning_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.025
    """The learning rate at the beginning."""
    warmup: Share = 0.0
    """Share of the budget over which the learning rate rises from zero."""
    validations: Annotated[int, Field(ge=1, le=1_000_000)] = 5
    """How often the validation data are scored, evenly over the budget; less often if that would take more than a tenth
    of a budget of seconds.
    """

    @model_validator(mode="after")
    def _has_no_gradients(self) -> Self:
        for name in NOT_USED:
            if getattr(self, name) != WordVectorsTrain.model_fields[name].default:
                raise ValueError(f"has {name}, but word vectors have an update of their own, without it")
        return self


class WordVectorsRecipe(Recipe):
    """The recipe of word vectors."""

    what: ClassVar[str] = "table of word vectors"
    reads: ClassVar[str] = "running text"
    has_own_update: ClassVar[bool] = True

    task: Literal["word-vectors"] = "word-vectors"
    data: WordVectorsData = WordVectorsData()
    tokenizer: WordsTable = WordsTable()
    vectors: Annotated[
        SampledVectorsTable | CountedVectorsTable | StaticVectorsTable | DistilledVectorsTable,
        Field(discriminator="kind"),
    ]
    senses: SensesTable = SensesTable()
    train: WordVectorsTrain

    @model_validator(mode="after")
    def _has_senses(self) -> Self:
        is_whole = isinstance(self.vectors, StaticVectorsTable) and not self.vectors.longest_ngram
        if self.senses.origin and not is_whole:
            raise ValueError("has senses.from, which is for cbow and skip-gram without n-grams")
        return self

    @property
    def origins(self) -> tuple[str, ...]:
        return (self.senses.origin,) if self.senses.origin else ()

    def describe(self) -> str:
        return f"{self.vectors.kind} {self.vectors.d_words}"
