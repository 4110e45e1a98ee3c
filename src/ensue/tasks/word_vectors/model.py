"""The parts of word vectors: their vocabulary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field

from ensue.data.compact_texts import Ragged
from ensue.models.word_vectors import CountedVectors, SampledVectors
from ensue.runs.directory import RunDirectory
from ensue.runs.schema import Config, DamagedError, Symbols, Vocabulary
from ensue.tasks.model import ModelParts
from ensue.tasks.word_vectors.recipe import SampledVectorsTable, WordVectorsRecipe
from ensue.text.character_ngrams import ngram_hashes
from ensue.text.words import WordTokenizer


class WordVectorsConfig(Config):
    """`config.json`."""

    vocabulary_size: Annotated[int, Field(ge=1, lt=2**31)]


class WordsContent(Vocabulary):
    """`tokenizer.json`."""

    kind: Literal["words"]
    splitter: str
    symbols: Symbols


@dataclass(frozen=True)
class WordVectorParts(ModelParts):
    """The vocabulary, in a tokenizer."""

    config: ClassVar[type[Config]] = WordVectorsConfig
    tokenizer: WordTokenizer

    @classmethod
    def read(cls, run: RunDirectory) -> Self:
        tokenizer = run.read_json("tokenizer.json", WordsContent, WordTokenizer.from_json)
        size, expected = tokenizer.vocabulary_size, run.config["vocabulary_size"]
        if size != expected:
            raise DamagedError(f"{run.path / 'tokenizer.json'}: not the model's: it has {size} symbols, not {expected}")
        return cls(tokenizer)

    def files(self) -> dict[str, object]:
        return {"tokenizer.json": self.tokenizer.to_json()}

    def build(self, recipe: WordVectorsRecipe) -> SampledVectors | CountedVectors:
        table, size = recipe.vectors, self.tokenizer.vocabulary_size
        if table.kind == "glove":
            return CountedVectors(size, table.d_words)
        if not table.longest_ngram:
            return SampledVectors(size, table.d_words)
        ngrams = ngram_rows(list(self.tokenizer.vocabulary.symbols), table)
        return SampledVectors(size, table.d_words, ngrams=ngrams, buckets=table.ngram_buckets)


def ngram_rows(words: list[str], table: SampledVectorsTable) -> Ragged:
    """The buckets of each word's n-grams."""
    hashes, starts = ngram_hashes(words, table.shortest_ngram, table.longest_ngram)
    return Ragged((hashes % table.ngram_buckets).astype("int64"), starts)
