"""A text as senses of words: every use is the word of its nearest cluster, for which a vector of its own is trained.

The largest cluster keeps the word, the others are `bank_2`, `bank_3`.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensue.data.corpus.cache import tokenize
from ensue.data.sources import TextSource
from ensue.tasks.word_vectors.examples import kept_shares
from ensue.tasks.word_vectors.recipe import SensesTable
from ensue.tasks.word_vectors.sense_clusters import (
    PIECE,
    Reals,
    SenseClusters,
    Surroundings,
    cluster_senses,
    parts_of,
)
from ensue.text.vocabulary import Vocabulary
from ensue.text.words import WordTokenizer


class SenseCoder:
    """A tokenizer whose ids are those of senses. It works on pieces of text; nothing beyond their edges is seen."""

    def __init__(self, tokenizer: WordTokenizer, senses: SenseClusters) -> None:
        self.tokenizer, self.senses = tokenizer, senses
        self.vocabulary_size = tokenizer.vocabulary_size + int((senses.counts - 1).sum())
        self.unknown_id = tokenizer.unknown_id

    def encode(self, text: str) -> NDArray[np.int64]:
        """The ids of a text."""
        ids = self.tokenizer.encode(text).astype(np.int64)
        parts = [self.senses.relabeled(ids[start : start + PIECE]) for start in range(0, len(ids), PIECE)]
        return np.concatenate([ids[:0], *parts])

    def named(self) -> WordTokenizer:
        """The tokenizer with a word for each new sense, behind all others."""
        tokenizer, senses = self.tokenizer, self.senses
        known, names = set(tokenizer.vocabulary.symbols), []
        for id, count in zip(senses.ids.tolist(), senses.counts.tolist(), strict=True):
            for number in range(2, count + 1):
                name = f"{tokenizer.symbol(id)}_{number}"
                while name in known:
                    name += "_"
                known.add(name)
                names.append(name)
        vocabulary = Vocabulary([*tokenizer.vocabulary.symbols, *names])
        return WordTokenizer(vocabulary, splitter=tokenizer.splitter, lowercase=tokenizer.lowercase)

    def to_json(self) -> dict[str, Any]:
        """The values on which the ids depend."""
        senses = self.senses
        parts = (senses.around.weighted, senses.ids, senses.centers, senses.counts)
        digest = hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest()
        return {"tokenizer": self.tokenizer.to_json(), "senses": digest, "window": senses.around.window}


def sense_coder(
    source: TextSource, tokenizer: WordTokenizer, vectors: Reals, settings: SensesTable, *, subsample: float,
    across_lines: bool, seed: int,
) -> SenseCoder:  # fmt: skip
    """A coder of texts as senses of words, which are clusters of their uses in `source`; `vectors` (V, d) tell uses
    apart.
    """
    tokens = tokenize(source, tokenizer)
    size = tokenizer.vocabulary_size
    counts = sum((np.bincount(part, minlength=size) for _, part in parts_of(tokens)), np.zeros(size, np.int64))
    around = Surroundings(vectors, counts, subsample=subsample, window=settings.window, across_lines=across_lines)
    often = np.where(kept_shares(counts, subsample) == 1, counts, 0)
    ids = np.argsort(-often, kind="stable")[: settings.words]
    ids = np.sort(ids[often[ids] >= settings.most])
    return SenseCoder(tokenizer, cluster_senses(tokens, around, ids, counts, settings, seed=seed))
