"""The parts of word vectors: their vocabulary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from ensue.data.compact_texts import Ragged
from ensue.models.word_vectors import CountedVectors, SampledVectors, StaticVectors
from ensue.runs.directory import RunDirectory
from ensue.runs.schema import DamagedError
from ensue.tasks.texts.tokenizer import TokenizerParts
from ensue.tasks.word_vectors.examples import LINE_END
from ensue.tasks.word_vectors.recipe import StaticVectorsTable, WordVectorsRecipe
from ensue.text.character_ngrams import ngram_hashes
from ensue.text.published import NumberedTokenizer
from ensue.text.words import WordTokenizer


@dataclass(frozen=True)
class WordVectorParts(TokenizerParts):
    """The vocabulary, in a tokenizer."""

    tokenizer: WordTokenizer | NumberedTokenizer

    @classmethod
    def read(cls, run: RunDirectory) -> Self:
        found = super().read(run)
        if not isinstance(found.tokenizer, WordTokenizer | NumberedTokenizer):
            raise DamagedError(f"{run.path / 'tokenizer.json'}: a tokenizer of {found.tokenizer.kind} has no words")
        return found

    def commands(self, recipe: WordVectorsRecipe, path: str) -> list[str]:
        return [
            f"ensue neighbors {path} WORD",
            f"ensue embed {path} TEXTS --json",
            f"ensue evaluate {path} PAIRS",
            f"ensue export {path} --format word2vec --out vectors.txt",
        ]

    def python(self, recipe: WordVectorsRecipe) -> list[str]:
        return [f"print(model.neighbors({self.tokenizer.symbol(LINE_END + 1)!r}))"]

    def build(self, recipe: WordVectorsRecipe) -> StaticVectors | CountedVectors:
        table, size = recipe.vectors, self.vocabulary_size
        if not isinstance(table, StaticVectorsTable):
            return (CountedVectors if table.kind == "glove" else StaticVectors)(size, table.d_words)
        kind = StaticVectors if table.kind == "static" else SampledVectors
        if not table.longest_ngram:
            return kind(size, table.d_words)
        ngrams = ngram_rows(list(self.tokenizer.vocabulary.symbols), table)
        return kind(size, table.d_words, ngrams=ngrams, buckets=table.ngram_buckets)


def ngram_rows(words: list[str], table: StaticVectorsTable) -> Ragged:
    """The buckets of each word's n-grams."""
    hashes, starts = ngram_hashes(words, table.shortest_ngram, table.longest_ngram)
    return Ragged((hashes % table.ngram_buckets).astype("int64"), starts)
