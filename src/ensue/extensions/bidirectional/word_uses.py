"""Word sense disambiguation with contextual vectors: readers of published data sets, nearest senses, and scores.

- Word senses (CoarseWSD-20): a folder for each word. `classes_map.txt` is a JSON object from numbers to senses.
  `train.data.txt` and `test.data.txt` have a line for each use: the position of the word (from 0), a tab, and the
  words of the sentence. `train.gold.txt` and `test.gold.txt` have the numbers of the senses.
- Word in context (WiC): pairs of uses of a word, in a file with `.data` in its name, and a line `T` or `F` for each
  pair in a file with `.gold` in its name. `T` means that both uses have the same meaning. A line of `.data` has the
  word, its part of speech, both positions such as `2-5`, and both sentences, separated by tabs.
- Word in context (MCL-WiC): the same pairs of files as arrays of JSON objects. `.data` has the keys `sentence1`,
  `start1`, `end1`, `sentence2`, `start2` and `end2`, and `.gold` has the key `tag`.

Files may be compressed.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, takewhile, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ensue.data.corpus.cache import tokenize
from ensue.data.decoding import COMPRESSED, decode
from ensue.data.lines import Lines
from ensue.data.mapped_file import TokenFile
from ensue.data.permutation import mix, random_numbers, uniform_floats
from ensue.data.sources import TextSource
from ensue.errors import DataError, EnsueError, RecipeError, check_integer, check_path, quote
from ensue.extensions.word_vectors.examples import LINE_END, keep_probabilities
from ensue.extensions.word_vectors.pipeline import WordVectorsPipeline
from ensue.extensions.word_vectors.recipe import SensesTable, WordVectorsRecipe
from ensue.metrics.scores import Scores
from ensue.parsing import ParseError, parse_json
from ensue.runs.directory import Origin
from ensue.tasks.vectors.contextual import ContextualPipeline, unit_vectors
from ensue.text.published import NumberedTokenizer
from ensue.text.tokenizer import WordTokenizer

SENSE_MAP = "classes_map.txt"
MAX_DIGITS = 9
"""The largest number of digits of a position, since `int` raises ValueError for thousands of digits."""


class WordUse(NamedTuple):
    """An occurrence of the word `words[place]` in a sentence."""

    words: tuple[str, ...]
    place: int


class LabeledUse(NamedTuple):
    """A use of a word with its sense."""

    use: WordUse
    sense: str


class WordSenses(NamedTuple):
    """The labeled uses of a word, for training and testing."""

    word: str
    train: list[LabeledUse]
    test: list[LabeledUse]


class UsePair(NamedTuple):
    """Two uses of a word, and whether they have the same meaning."""

    first: WordUse
    second: WordUse
    is_same: bool


def read_senses(location: str | Path) -> list[WordSenses]:
    """Return the uses of all words with a folder in `location`, sorted, or of the word whose folder is `location`.

    Raises DataError for other content.
    """
    folder = Path(location)
    if not folder.is_dir():
        raise DataError("not a folder; expected a folder with a subfolder for each word", folder)
    maps = [folder / SENSE_MAP] if (folder / SENSE_MAP).is_file() else sorted(folder.glob(f"*/{SENSE_MAP}"))
    if not maps:
        raise DataError(f"no {SENSE_MAP} in this folder or its subfolders; expected a subfolder for each word", folder)
    return [_read_word(path.parent) for path in maps]


def _read_word(folder: Path) -> WordSenses:
    names = _read_json(folder / SENSE_MAP)
    if not (isinstance(names, dict) and names and all(type(name) is str for name in names.values())):
        raise DataError('expected an object such as {"0": "bank_river"}', folder / SENSE_MAP)
    return WordSenses(folder.name, **{split: list(_read_uses(folder, split, names)) for split in ("train", "test")})


def _read_uses(folder: Path, split: str, names: dict[str, str]) -> Iterator[LabeledUse]:
    data, gold = (_existing_path(folder / f"{split}.{kind}.txt") for kind in ("data", "gold"))
    for number, (line, label) in enumerate(zip_longest(_read_lines(data), _read_lines(gold)), 1):
        if line is None or label is None:
            raise DataError(f"more lines than {(data if line is None else gold).name}", gold if line is None else data)
        place, tab, text = line.partition("\t")
        words = tuple(text.split())
        if not tab or not _is_place(place, words):
            expected = "expected the position of a word, a tab and the sentence"
            raise DataError(f"{expected}, found {quote(line)}", data, number)
        if label not in names:
            raise DataError(f"no sense {quote(label)} in {SENSE_MAP}", gold, number)
        yield LabeledUse(WordUse(words, int(place)), names[label])


def _is_place(number: str, words: tuple[str, ...]) -> bool:
    return number.isdecimal() and len(number) <= MAX_DIGITS and int(number) < len(words)


def read_use_pairs(location: str | Path) -> list[UsePair]:
    """Return the pairs of a file with `.data` in its name. Raises DataError for other content."""
    data = Path(location)
    stem, dot, suffix = data.name.rpartition(".data")
    if not dot:
        raise DataError("expected a file with .data in its name, and answers in a .gold file of the same folder", data)
    uncompressed = next((suffix.removesuffix(ending) for ending in COMPRESSED if suffix.endswith(ending)), suffix)
    gold = _existing_path(data.with_name(f"{stem}.gold{uncompressed}"))
    if any(line.lstrip().startswith("[") for line in Lines.of(data).head(1)):
        uses = [(_parse_use(row, "1", data), _parse_use(row, "2", data)) for row in _read_array(data)]
        tags: list[Any] = [row.get("tag") if isinstance(row, dict) else row for row in _read_array(gold)]
    else:
        uses, tags = _read_use_lines(data), list(_read_lines(gold))
    if len(uses) != len(tags):
        raise DataError(f"{len(uses):,} pairs, but {gold.name} has {len(tags):,} answers", data)
    if not uses:
        raise DataError("no pairs", data)
    for number, tag in enumerate(tags, 1):
        if tag not in ("T", "F"):
            raise DataError(f"answer {number:,}: expected T or F, found {quote(tag)}", gold)
    return [UsePair(*pair, tag == "T") for pair, tag in zip(uses, tags, strict=True)]


def _read_use_lines(path: Path) -> list[tuple[WordUse, WordUse]]:
    uses = []
    for number, line in enumerate(_read_lines(path), 1):
        fields = line.split("\t")
        places = fields[2].split("-") if len(fields) == 5 else []
        texts = [tuple(text.split()) for text in fields[3:]]
        if len(places) != 2 or not all(map(_is_place, places, texts)):
            expected = "expected a word, its part of speech, two positions (2-5) and two sentences between tabs"
            raise DataError(f"{expected}, found {quote(line)}", path, number)
        first, second = (WordUse(words, int(place)) for words, place in zip(texts, places, strict=True))
        uses.append((first, second))
    return uses


def _parse_use(row: Any, side: str, path: Path) -> WordUse:
    try:
        text, start, end = row[f"sentence{side}"], int(row[f"start{side}"]), int(row[f"end{side}"])
        before = text[:start].split()
        if not (0 <= start < end <= len(text) and text[start:end].strip()):
            raise ValueError
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        expected = f"expected sentence{side}, start{side} and end{side}"
        raise DataError(f"{expected}, found {quote(row)}", path) from None
    return WordUse((*before, text[start:end].strip(), *text[end:].split()), len(before))


def _read_array(path: Path) -> list[Any]:
    content = _read_json(path)
    if not isinstance(content, list):
        raise DataError("expected an array of objects", path)
    return content


def _read_json(path: Path) -> Any:
    try:
        return parse_json("".join(decode(path, "")))
    except ParseError as error:
        raise DataError(str(error), path) from None


def _read_lines(path: Path) -> Iterator[str]:
    return (line.rstrip("\r\n") for _, line in Lines.of(path))


def _existing_path(path: Path) -> Path:
    """Return the path of a file that may be compressed. Raises DataError if there is no file."""
    candidates = [path, *(path.with_name(path.name + ending) for ending in sorted(COMPRESSED))]
    existing = next((candidate for candidate in candidates if candidate.exists()), None)
    if existing is None:
        raise DataError("no such file", path)
    return existing


MAX_LAYERS = 4
"""The largest number of layers whose vectors are summed."""
BLOCK_SENTENCES = 512
"""The number of sentences whose vectors of all layers are in memory."""


class Senses:
    """A classifier of the uses of a word by the nearest sense (Loureiro et al. 2021).

    The vector of a use is the sum of the vectors of the word in the last four layers, without embeddings. The vector of
    a sense is the mean of the unit vectors of the sense's examples. A use has the sense with the highest cosine.
    """

    def __init__(self, model: ContextualPipeline, examples: Sequence[LabeledUse]) -> None:
        if not examples:
            raise EnsueError("expected labeled examples, found none")
        self.model = model
        self.names = sorted({example.sense for example in examples})
        vectors = compute_use_vectors(model, [example.use for example in examples])
        gold = np.array([self.names.index(example.sense) for example in examples])
        self._centers = unit_vectors(np.stack([vectors[gold == sense].mean(0) for sense in range(len(self.names))]))

    def cosines(self, uses: Sequence[WordUse]) -> NDArray[np.float64]:
        """Return the cosine of each use with each sense, (N, senses)."""
        vectors = compute_use_vectors(self.model, uses) if uses else np.zeros((0, self._centers.shape[1]))
        return vectors @ self._centers.T

    def nearest(self, uses: Sequence[WordUse]) -> list[str]:
        """Return the sense of each use."""
        return [self.names[sense] for sense in self.cosines(uses).argmax(1)]


def compute_use_vectors(model: ContextualPipeline, uses: Sequence[WordUse]) -> NDArray[np.float64]:
    """Return the unit vectors (N, d) of uses; zeros for unknown words. Raises EnsueError for an invalid position."""
    if invalid := next((use for use in uses if not 0 <= use.place < len(use.words)), None):
        raise EnsueError(f"no word {invalid.place} in a sentence of {len(invalid.words)} words; the first word is 0")
    blocks = (uses[start : start + BLOCK_SENTENCES] for start in range(0, len(uses), BLOCK_SENTENCES))
    vectors = [
        layers[-max(1, min(MAX_LAYERS, len(layers) - 1)) :, use.place].astype(np.float64).sum(0)
        for block in blocks
        for use, layers in zip(block, model.layers_of_words([use.words for use in block]), strict=True)
    ]
    return unit_vectors(np.stack(vectors)) if vectors else np.zeros((0, 1))


def senses(model: ContextualPipeline, examples: Sequence[tuple[Sequence[str], int, str]]) -> Senses:
    """Return a classifier of senses from examples (words of a sentence, position of the word from 0, sense)."""
    return Senses(model, [LabeledUse(WordUse(tuple(words), place), sense) for words, place, sense in examples])


@dataclass(frozen=True)
class SenseScores(Scores):
    """The recall of predicted senses."""

    micro_recall: float
    """The share of all uses whose predicted sense is right."""
    macro_recall: float
    """The mean over words of the mean recall over the senses of a word."""
    uses: int
    words: dict[str, float]
    """The share of each word's uses whose predicted sense is right."""

    def summary(self) -> str:
        recalls = f"micro recall {self.micro_recall:.4f}, macro recall {self.macro_recall:.4f}"
        return f"{recalls}, {self.uses:,} uses of {len(self.words):,} words"


def sense_scores(model: ContextualPipeline, location: str | Path) -> SenseScores:
    """Return the scores of the nearest senses on the words of a folder (CoarseWSD-20)."""
    check_path("the senses", location)
    pairs = {}
    for word in read_senses(location):
        if not word.train or not word.test:
            raise DataError(f'"{word.word}" has no {"test" if word.train else "training"} example', location)
        nearest = Senses(model, word.train).nearest([example.use for example in word.test])
        pairs[word.word] = [(example.sense, sense) for example, sense in zip(word.test, nearest, strict=True)]
    return score_senses(pairs)


def score_senses(pairs: Mapping[str, Sequence[tuple[str, str]]]) -> SenseScores:
    """Return the scores, for pairs of the gold sense and the predicted sense of each use, by word."""
    is_right = {word: np.array([gold == sense for gold, sense in uses]) for word, uses in pairs.items()}
    macro_recalls = []
    for word, uses in pairs.items():
        golds = np.array([gold for gold, _ in uses])
        macro_recalls.append(np.mean([is_right[word][golds == sense].mean() for sense in np.unique(golds)]))
    all_uses = np.concatenate(list(is_right.values()))
    recalls = {word: float(values.mean()) for word, values in is_right.items()}
    return SenseScores(float(all_uses.mean()), float(np.mean(macro_recalls)), len(all_uses), recalls)


@dataclass(frozen=True)
class WordInContextScores(Scores):
    """The accuracy of predicting whether two uses of a word have the same meaning.

    The prediction is "the same" if the cosine between the vectors of both uses is above `threshold`.
    """

    accuracy: float
    threshold: float
    pairs: int

    def summary(self) -> str:
        return f"accuracy {self.accuracy:.4f}, {self.pairs:,} pairs, the same meaning above {self.threshold:.4f}"


def word_in_context(
    model: ContextualPipeline, location: str | Path, *, threshold_from: str | Path
) -> WordInContextScores:
    """Return the accuracy on the pairs of a file (WiC, MCL-WiC).

    The threshold has the highest accuracy on the file `threshold_from`, which should have other pairs.
    """
    check_path("the pairs", location)
    check_path("the pairs", threshold_from)
    threshold = best_cosine(*_compare_pairs(model, threshold_from))
    cosines, is_same = _compare_pairs(model, location)
    return WordInContextScores(float(((cosines > threshold) == is_same).mean()), threshold, len(cosines))


def _compare_pairs(model: ContextualPipeline, location: str | Path) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    pairs = read_use_pairs(location)
    first = compute_use_vectors(model, [pair.first for pair in pairs])
    second = compute_use_vectors(model, [pair.second for pair in pairs])
    return (first * second).sum(1), np.array([pair.is_same for pair in pairs])


def best_cosine(cosines: NDArray[np.float64], is_same: NDArray[np.bool_]) -> float:
    """Return the lowest of the most accurate thresholds; pairs with higher cosines have the same meaning."""
    order = np.argsort(cosines, kind="stable")
    values, same = cosines[order], is_same[order]
    num_right = np.concatenate([[0], np.cumsum(~same)]) + np.concatenate([np.cumsum(same[::-1])[::-1], [0]])
    thresholds = np.concatenate([[values[0] - 1], (values[1:] + values[:-1]) / 2, [values[-1]]])
    distinct = np.flatnonzero(np.concatenate([[True], values[1:] > values[:-1], [True]]))
    return float(thresholds[distinct[num_right[distinct].argmax()]])


class SenseCoder:
    """A tokenizer whose ids are senses of words, by their contexts within blocks of `BLOCK_TOKENS` tokens."""

    def __init__(self, tokenizer: WordTokenizer, senses: "SenseClusters") -> None:
        self.tokenizer, self.senses = tokenizer, senses
        self.vocabulary_size = tokenizer.vocabulary_size + int((senses.counts - 1).sum())
        self.unknown_id = tokenizer.unknown_id

    def encode(self, text: str) -> NDArray[np.int64]:
        """Return the ids of the senses in a text."""
        ids = self.tokenizer.encode(text).astype(np.int64)
        blocks = [ids[start : start + BLOCK_TOKENS] for start in range(0, len(ids), BLOCK_TOKENS)]
        return np.concatenate([ids[:0], *map(self.senses.replace_words, blocks)])

    def to_word_tokenizer(self) -> WordTokenizer:
        """Return a tokenizer with the words of the original tokenizer, followed by the names of the new senses."""
        tokenizer, senses = self.tokenizer, self.senses
        names_in_use, names = set(tokenizer.vocabulary.symbols), []
        for id, num_senses in zip(senses.ids.tolist(), senses.counts.tolist(), strict=True):
            for number in range(2, num_senses + 1):
                name = f"{tokenizer.symbol(id)}_{number}"
                while name in names_in_use:
                    name += "_"
                names_in_use.add(name)
                names.append(name)
        return WordTokenizer([*tokenizer.symbols, *names], splitter=tokenizer.splitter, lowercase=tokenizer.lowercase)

    def to_json(self) -> dict[str, Any]:
        """Return the values on which the ids depend, for the key of a cache."""
        senses = self.senses
        arrays = (senses.contexts.weighted, senses.ids, senses.centers, senses.counts)
        digest = hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()
        return {"tokenizer": self.tokenizer.to_json(), "senses": digest, "window": senses.contexts.window}


def sense_coder(source: TextSource, origin: Origin, recipe: WordVectorsRecipe) -> SenseCoder:
    """Return a tokenizer of senses, from the word vectors of the run `origin`. Raises RecipeError without vectors."""
    if origin.run.recipe.task != recipe.task:
        raise RecipeError(f"senses.from: {origin.path} is a {origin.run.entry.what}; expected a {recipe.what}")
    if isinstance(origin.run.parts.tokenizer, NumberedTokenizer):
        raise RecipeError(f"senses.from: {origin.path} has vectors of subwords; expected vectors of words")
    tokenizer: WordTokenizer = origin.run.parts.tokenizer
    vectors = origin.run.model(torch.device("cpu")).compute_word_vectors().numpy()
    settings, across_lines = recipe.senses, recipe.data.across_lines
    subsample = getattr(recipe.vectors, "subsample", 0.0)
    tokens = tokenize(source, tokenizer)
    size = tokenizer.vocabulary_size
    counts = sum((np.bincount(block, minlength=size) for _, block in tokens.blocks()), np.zeros(size, np.int64))
    contexts = UseContexts(vectors, counts, subsample=subsample, window=settings.window, across_lines=across_lines)
    eligible_counts = np.where(keep_probabilities(counts, subsample) == 1, counts, 0)  # 0 for the most frequent words
    ids = np.argsort(-eligible_counts, kind="stable")[: settings.words]
    ids = np.sort(ids[eligible_counts[ids] >= settings.most])
    return SenseCoder(tokenizer, cluster_senses(tokens, contexts, ids, counts, settings, seed=recipe.train.seed))


def sense_of(pipeline: WordVectorsPipeline, words: Sequence[str], place: int, *, window: int = 5) -> str:
    """Return the sense of `words[place]`, such as `bank_2`, with the highest cosine with the mean of the context.

    The context has up to `window` words on each side. If the word has only one sense, or if no word of the context has
    a vector, the result is the word without a number.
    """
    check_integer("place", place, 0, len(words) - 1)
    word = pipeline.lowered(words[place])
    senses = [word, *takewhile(pipeline.table.rows.__contains__, (f"{word}_{number}" for number in count(2)))]
    context = [*words[max(0, place - window) : place], *words[place + 1 : place + 1 + window]]
    units = [unit_vectors(vector) for vector in pipeline.embed_words([context])[0] if np.any(vector)]
    if len(senses) == 1 or not units:
        return word
    mean = np.mean(units, axis=0)
    return max(senses, key=lambda sense: float(unit_vectors(pipeline.vector(sense)) @ mean))


Float32Array = NDArray[np.float32]
NUM_USES = 500
"""The expected number of uses of a word that are sampled for clustering."""
NUM_ROUNDS = 20
"""The number of iterations of k-means."""
BLOCK_TOKENS = 1 << 15
"""The number of tokens whose contexts are in memory."""
MIN_NORM = 1e-6
"""The norm up to which a sum of vectors counts as zero, since it may be a rounding error."""


class UseContexts:
    """The contexts of uses of words, as weighted means of the unit vectors of context words.

    A context has up to `window` words on each side, on the same line unless `across_lines` is true. The weight of a
    word is the probability that subsampling keeps the word.
    """

    def __init__(
        self, vectors: Float32Array, counts: NDArray[np.int64], *, subsample: float, window: int, across_lines: bool
    ) -> None:
        self.weighted = (unit_vectors(vectors) * keep_probabilities(counts, subsample)[:, None]).astype(np.float32)
        self.window, self.across_lines = window, across_lines

    def compute(self, ids: NDArray[np.int64], is_use: NDArray[np.bool_]) -> tuple[NDArray[np.int64], Float32Array]:
        """Return the positions (N,) at which `is_use` (T,) is true for the tokens `ids` (T,), and their contexts.

        A context is a unit vector (d,); zeros without context words.
        """
        places = np.flatnonzero(is_use)
        lines = np.zeros(len(ids), np.int64) if self.across_lines else np.cumsum(ids == LINE_END)
        left = np.maximum(places - self.window, np.searchsorted(lines, lines[places]))
        right = np.minimum(places + self.window + 1, np.searchsorted(lines, lines[places], side="right"))
        vectors = self.weighted[ids]
        sums = np.concatenate([np.zeros((1, vectors.shape[1])), np.cumsum(vectors, axis=0, dtype=np.float64)])
        contexts = (sums[right] - sums[left] - vectors[places]).astype(np.float32)
        return places, unit_vectors(contexts, least=MIN_NORM)


class SenseClusters:
    """The senses of W words.

    The words `ids` (W,) have `counts` (W,) senses each. `centers` (W, K, d) has the unit vectors of the senses, padded
    to K. The first sense has the id of the word. The ids of the other senses begin at `size`.
    """

    def __init__(
        self, contexts: UseContexts, ids: NDArray[np.int64], centers: Float32Array, counts: NDArray[np.int64], *,
        size: int,
    ) -> None:  # fmt: skip
        self.contexts, self.ids, self.centers, self.counts, self.size = contexts, ids, centers, counts, size
        self.row = np.full(size, -1)
        """The row of each id in `centers`; -1 for a word with one sense."""
        self.row[ids] = np.arange(len(ids))
        self.first_new_id = size + np.cumsum(counts - 1) - (counts - 1)

    def replace_words(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the ids (T,) with each word replaced by its sense."""
        places, vectors = self.contexts.compute(ids, self.row[ids] >= 0)
        rows = self.row[ids[places]]
        cosines = np.einsum("nkd,nd->nk", self.centers[rows], vectors)
        cosines[np.arange(self.centers.shape[1]) >= self.counts[rows, None]] = -np.inf
        sense = cosines.argmax(1)
        senses = ids.copy()
        senses[places] = np.where(sense == 0, ids[places], self.first_new_id[rows] + sense - 1)
        return senses


def cluster_senses(
    tokens: TokenFile, contexts: UseContexts, ids: NDArray[np.int64], counts: NDArray[np.int64], settings: SensesTable,
    *, seed: int,
) -> SenseClusters:  # fmt: skip
    """Return the senses of the words `ids` (W,); `counts` (V,) are the counts of all words."""
    centers = np.zeros((len(ids), settings.most, contexts.weighted.shape[1]), np.float32)
    num_senses = np.ones(len(ids), np.int64)
    for row, uses in enumerate(_sample_uses(tokens, contexts, ids, counts, seed=seed)):
        if len(uses) >= settings.most:
            clusters = cluster_centers(uses, settings)
            num_senses[row], centers[row, : len(clusters)] = len(clusters), clusters
    several = num_senses > 1
    return SenseClusters(contexts, ids[several], centers[several], num_senses[several], size=len(counts))


def _sample_uses(
    tokens: TokenFile, contexts: UseContexts, ids: NDArray[np.int64], counts: NDArray[np.int64], *, seed: int
) -> list[Float32Array]:
    """Return the vectors of about `NUM_USES` random uses of each word."""
    probabilities = np.zeros(len(counts))
    probabilities[ids] = NUM_USES / np.maximum(counts[ids], 1)
    vectors: dict[int, list[Float32Array]] = {id: [] for id in ids.tolist()}
    for start, block in tokens.blocks(BLOCK_TOKENS):
        uniform = uniform_floats(random_numbers(mix(seed, 0), np.arange(start, start + len(block))))
        for place, vector in zip(*contexts.compute(block, uniform < probabilities[block]), strict=True):
            if np.any(vector):
                vectors[int(block[place])].append(vector)
    d = contexts.weighted.shape[1]
    return [np.stack(uses) if uses else np.zeros((0, d), np.float32) for uses in vectors.values()]


def cluster_centers(vectors: Float32Array, settings: SensesTable) -> Float32Array:
    """Return the centers (K, d) of clusters of unit vectors (N, d), the largest cluster first.

    The algorithm is spherical k-means (Dhillon & Modha 2001), with initial centers that are far from each other. A
    cluster is dropped if it is small, or too similar to a larger cluster.
    """
    centers = vectors[:1]
    cosines = vectors @ centers[0]
    for _ in range(settings.most - 1):
        centers = np.concatenate([centers, vectors[[cosines.argmin()]]])
        cosines = np.maximum(cosines, vectors @ centers[-1])
    for _ in range(NUM_ROUNDS):
        clusters = (vectors @ centers.T).argmax(1)
        sums = np.stack([vectors[clusters == k].sum(0) for k in range(settings.most)])
        centers = np.where(np.any(sums, axis=1, keepdims=True), unit_vectors(sums), centers)
    sizes = np.bincount((vectors @ centers.T).argmax(1), minlength=settings.most)
    order, min_size = np.argsort(-sizes, kind="stable"), max(1, settings.least * len(vectors))
    distinct = centers[order[:1]]
    for k in order[1:]:
        if sizes[k] >= min_size and (distinct @ centers[k]).max() <= settings.alike:
            distinct = np.concatenate([distinct, centers[[k]]])
    return distinct
