"""A text as senses of words: every use is the word of its nearest cluster, for which a vector of its own is trained.

The largest cluster keeps the word, the others are `bank_2`, `bank_3`. A use is the weighted mean of the unit vectors,
of another run, of the words around it; rare ones count more. The uses of a word are clustered by spherical k-means
(Huang et al. 2012).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import count as numbers
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ensue.arguments import check_whole
from ensue.data.corpus.cache import tokenize
from ensue.data.corpus.token_file import TokenFile
from ensue.data.permutation import mix, random_numbers, shares
from ensue.data.sources import TextSource
from ensue.errors import RecipeError
from ensue.runs.origin import Origin
from ensue.tasks.vectors.text_vectors import unit_vectors
from ensue.tasks.word_vectors.examples import LINE_END, kept_shares
from ensue.tasks.word_vectors.pipeline import WordVectorsPipeline
from ensue.tasks.word_vectors.recipe import SensesTable, WordVectorsRecipe
from ensue.text.published import NumberedTokenizer
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
        blocks = [self.senses.relabeled(ids[start : start + PIECE]) for start in range(0, len(ids), PIECE)]
        return np.concatenate([ids[:0], *blocks])

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
        return WordTokenizer([*tokenizer.symbols, *names], splitter=tokenizer.splitter, lowercase=tokenizer.lowercase)

    def to_json(self) -> dict[str, Any]:
        """The values on which the ids depend."""
        senses = self.senses
        parts = (senses.around.weighted, senses.ids, senses.centers, senses.counts)
        digest = hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest()
        return {"tokenizer": self.tokenizer.to_json(), "senses": digest, "window": senses.around.window}


def sense_coder(source: TextSource, origin: Origin, recipe: WordVectorsRecipe) -> SenseCoder:
    """Return the coder of a text as senses: clusters of the uses of a word, by the word vectors of another run.

    Raises RecipeError for a run without vectors of words.
    """
    if origin.run.recipe.task != recipe.task:
        raise RecipeError(f"senses.from: {origin.path} is a {origin.run.entry.what}; expected a {recipe.what}")
    if isinstance(origin.run.parts.tokenizer, NumberedTokenizer):
        raise RecipeError(f"senses.from: {origin.path} has vectors of pieces; expected those of words")
    tokenizer: WordTokenizer = origin.run.parts.tokenizer
    vectors = origin.run.model(torch.device("cpu")).of_words().numpy()
    settings, across_lines = recipe.senses, recipe.data.across_lines
    subsample = getattr(recipe.vectors, "subsample", 0.0)
    tokens = tokenize(source, tokenizer)
    size = tokenizer.vocabulary_size
    counts = sum((np.bincount(part, minlength=size) for _, part in blocks_of(tokens)), np.zeros(size, np.int64))
    around = Surroundings(vectors, counts, subsample=subsample, window=settings.window, across_lines=across_lines)
    often = np.where(kept_shares(counts, subsample) == 1, counts, 0)
    ids = np.argsort(-often, kind="stable")[: settings.words]
    ids = np.sort(ids[often[ids] >= settings.most])
    return SenseCoder(tokenizer, cluster_senses(tokens, around, ids, counts, settings, seed=recipe.train.seed))


def sense_of(pipeline: WordVectorsPipeline, words: Sequence[str], place: int, *, window: int = 5) -> str:
    """Return the sense of `words[place]`, such as `bank_2`: the one whose vector has the highest cosine with the mean
    of the `window` words on each side. It is the word itself if that has one vector, or if no word around it has one.
    """
    check_whole("place", place, 0, len(words) - 1)
    word = pipeline.lowered(words[place])
    senses = [word, *takewhile(pipeline.table.places.__contains__, (f"{word}_{number}" for number in numbers(2)))]
    around = [*words[max(0, place - window) : place], *words[place + 1 : place + 1 + window]]
    units = [unit_vectors(vector) for vector in pipeline.embed_words([around])[0] if np.any(vector)]
    if len(senses) == 1 or not units:
        return word
    mean = np.mean(units, axis=0)
    return max(senses, key=lambda sense: float(unit_vectors(pipeline.vector(sense)) @ mean))


Reals = NDArray[np.float32]
MOST_USES = 500
"""The uses of a word that are clustered, chosen at random."""
ROUNDS = 20
PIECE = 1 << 15
"""Tokens whose contexts are held at once."""
ROUNDING = 1e-6
"""Sums of vectors that are not longer come from rounding: nothing known stands there."""


class Uses(NamedTuple):
    """Unit vectors (N, d) of the words around uses; zeros where nothing is known around one."""

    places: NDArray[np.int64]
    vectors: Reals


class Surroundings:
    """The weighted mean of the unit vectors of up to `window` words on each side, on the same line unless
    `across_lines`.

    A word weighs as much as the chance that it stays when frequent words are left out.
    """

    def __init__(
        self, vectors: Reals, counts: NDArray[np.int64], *, subsample: float, window: int, across_lines: bool
    ) -> None:
        self.weighted = (unit_vectors(vectors) * kept_shares(counts, subsample)[:, None]).astype(np.float32)
        self.window, self.across_lines = window, across_lines

    def of(self, ids: NDArray[np.int64], chosen: NDArray[np.bool_]) -> Uses:
        """The surroundings of the `chosen` (T,) of these ids (T,)."""
        places = np.flatnonzero(chosen)
        lines = np.zeros(len(ids), np.int64) if self.across_lines else np.cumsum(ids == LINE_END)
        left = np.maximum(places - self.window, np.searchsorted(lines, lines[places]))
        right = np.minimum(places + self.window + 1, np.searchsorted(lines, lines[places], side="right"))
        vectors = self.weighted[ids]
        sums = np.concatenate([np.zeros((1, vectors.shape[1])), np.cumsum(vectors, axis=0, dtype=np.float64)])
        around = (sums[right] - sums[left] - vectors[places]).astype(np.float32)
        return Uses(places, unit_vectors(around, least=ROUNDING))


class SenseClusters:
    """The clusters of the words `ids` (W,): unit vectors `centers` (W, K, d), of which the first `counts` (W,) are
    there, the largest first. New words have the ids from `size` on.
    """

    def __init__(
        self, around: Surroundings, ids: NDArray[np.int64], centers: Reals, counts: NDArray[np.int64], *, size: int
    ) -> None:
        self.around, self.ids, self.centers, self.counts, self.size = around, ids, centers, counts, size
        self.row = np.full(size, -1)
        """The row of each id in `centers`; -1 for a word with one sense."""
        self.row[ids] = np.arange(len(ids))
        self.first_new = size + np.cumsum(counts - 1) - (counts - 1)

    def relabeled(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The ids (T,), with each use as the word of its sense."""
        uses = self.around.of(ids, self.row[ids] >= 0)
        rows = self.row[ids[uses.places]]
        cosines = np.einsum("nkd,nd->nk", self.centers[rows], uses.vectors)
        cosines[np.arange(self.centers.shape[1]) >= self.counts[rows, None]] = -np.inf
        sense = cosines.argmax(1)
        senses = ids.copy()
        senses[uses.places] = np.where(sense == 0, ids[uses.places], self.first_new[rows] + sense - 1)
        return senses


def cluster_senses(
    tokens: TokenFile,
    around: Surroundings,
    ids: NDArray[np.int64],
    counts: NDArray[np.int64],
    settings: SensesTable,
    *,
    seed: int,
) -> SenseClusters:
    """The senses of the words `ids`; `counts` (V,) says how often each word of the text occurs."""
    max_senses = settings.most
    vectors = _some_uses(tokens, around, ids, counts, seed=seed)
    centers = np.zeros((len(ids), max_senses, around.weighted.shape[1]), np.float32)
    num_senses = np.ones(len(ids), np.int64)
    for row, uses in enumerate(vectors):
        if len(uses) >= max_senses:
            clusters = clustered(uses, settings)
            num_senses[row], centers[row, : len(clusters)] = len(clusters), clusters
    several = num_senses > 1
    return SenseClusters(around, ids[several], centers[several], num_senses[several], size=len(counts))


def _some_uses(
    tokens: TokenFile, around: Surroundings, ids: NDArray[np.int64], counts: NDArray[np.int64], *, seed: int
) -> list[Reals]:
    """The surroundings of about `MOST_USES` uses of each word, the same for the same seed."""
    chance = np.zeros(len(counts))
    chance[ids] = MOST_USES / np.maximum(counts[ids], 1)
    row = np.full(len(counts), -1)
    row[ids] = np.arange(len(ids))
    vectors_of: list[list[Reals]] = [[] for _ in ids]
    for start, block in blocks_of(tokens):
        drawn = shares(random_numbers(mix(seed, 0), np.arange(start, start + len(block)))) < chance[block]
        uses = around.of(block, drawn)
        is_known = np.any(uses.vectors, axis=1)
        for place, vector in zip(uses.places[is_known], uses.vectors[is_known], strict=True):
            vectors_of[row[block[place]]].append(vector)
    d = around.weighted.shape[1]
    return [np.stack(uses) if uses else np.zeros((0, d), np.float32) for uses in vectors_of]


def blocks_of(tokens: TokenFile) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """The ids of a text in pieces, each with its place."""
    for start in range(0, len(tokens), PIECE):
        yield start, tokens.read(start, min(start + PIECE, len(tokens)))


def clustered(vectors: Reals, settings: SensesTable) -> Reals:
    """The centers (K, d) of unit vectors (N, d) by spherical k-means (Dhillon & Modha 2001), the largest cluster first.

    It begins with the vectors that are farthest from each other. Clusters that are too small, or too much like a larger
    one, are left out.
    """
    max_senses = settings.most
    centers = vectors[:1]
    nearest = vectors @ centers[0]
    for _ in range(max_senses - 1):
        centers = np.concatenate([centers, vectors[[nearest.argmin()]]])
        nearest = np.maximum(nearest, vectors @ centers[-1])
    for _ in range(ROUNDS):
        belongs = (vectors @ centers.T).argmax(1)
        sums = np.stack([vectors[belongs == k].sum(0) for k in range(max_senses)])
        centers = np.where(np.any(sums, axis=1, keepdims=True), unit_vectors(sums), centers)
    sizes = np.bincount((vectors @ centers.T).argmax(1), minlength=max_senses)
    first, *others = np.argsort(-sizes, kind="stable")
    distinct = centers[[first]]
    for cluster in others:
        if (
            sizes[cluster] >= max(1, settings.least * len(vectors))
            and (distinct @ centers[cluster]).max() <= settings.alike
        ):
            distinct = np.concatenate([distinct, centers[[cluster]]])
    return distinct
