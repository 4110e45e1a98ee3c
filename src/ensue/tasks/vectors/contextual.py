"""Models with a vector for each text, and pipelines with contextual vectors of words, from all layers of a model.

The vectors of a `LayeredPipeline` are outputs of the layers of a language model, or of the encoder of a translator
(CoVe, McCann et al. 2017). The tokens of a word do not depend on other words. The spaces between words are also read.
"""

import hashlib
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.data.files import Data, as_location
from ensue.data.judgments import Judgment, read_judged_texts
from ensue.errors import EnsueError, check_integer, nearest
from ensue.metrics.scores import TextSimilarityScores, pearson, spearman
from ensue.models.language_model import pad_rows
from ensue.models.layer_outputs import layer_outputs, output_sizes, pad_features
from ensue.models.modules import device_of, evaluating
from ensue.nn import SequenceLayer, TokenEmbedding
from ensue.tasks.contract.pipeline import Pipeline
from ensue.tasks.texts.export_encoder import ExportEncoder, SubwordExportEncoder
from ensue.tasks.texts.framing import MAX_CALL_TOKENS, Framing, batches_by_length


class TextVectors(Pipeline):
    """A model that maps a text to a vector."""

    @abstractmethod
    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors (N, d) of texts."""

    def similarity(self, first: str, second: str) -> float:
        """Return the cosine of the vectors of two texts; 0 if one vector is zero."""
        return float(cosines(*self.embed([first, second])[:, None])[0])

    def text_similarity(self, location: Data, *, encoding: str = "utf-8") -> TextSimilarityScores:
        """Return the correlation of cosines of pairs of texts with human judgments in files (`data.judgments`)."""
        location = as_location(location, "the pairs")
        return self.similarity_scores(read_judged_texts(location, encoding=encoding))

    def similarity_scores(self, pairs: Sequence[Judgment]) -> TextSimilarityScores:
        """Return the correlation of cosines of pairs of texts with human judgments."""
        vectors = self.embed([text for side in zip(*(pair.texts for pair in pairs), strict=True) for text in side])
        predicted, judged = cosines(*np.split(vectors, 2)), np.array([pair.score for pair in pairs])
        return TextSimilarityScores(spearman(predicted, judged), pearson(predicted, judged), len(judged))


def cosines(first: NDArray[np.float32], second: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the cosines (N,) of the rows of two matrices (N, d); 0 if a row is zero."""
    a, b = first.astype(np.float64), second.astype(np.float64)
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return (a * b).sum(1) / np.maximum(norms, 1e-30)  # not 0, since 0 / 0 is NaN


Vectors = NDArray[np.float32]
RealT = TypeVar("RealT", bound="np.floating[Any]")
POOLINGS: dict[str, Callable[[Vectors], Vectors]] = {
    "mean": lambda vectors: vectors.mean(-2), "first": lambda vectors: vectors[..., 0, :],
    "last": lambda vectors: vectors[..., -1, :], "max": lambda vectors: vectors.max(-2),
}  # fmt: skip
"""Functions from the vectors (..., T, d) of at least one token to a vector (..., d)."""


def pooling_of(name: str) -> Callable[[Vectors], Vectors]:
    """Return a pooling by its name. Raise EnsueError for an unknown name."""
    if name not in POOLINGS:
        raise EnsueError(f'no pooling "{name}"{nearest(name, POOLINGS)}; known: {", ".join(POOLINGS)}')
    return POOLINGS[name]


def unit_vectors(vectors: NDArray[RealT], *, least: float = 0.0) -> NDArray[RealT]:
    """Return the vectors (..., d) scaled to length 1; zeros for vectors whose length is at most `least`."""
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return (vectors / np.where(norms > least, norms, np.inf)).astype(vectors.dtype)


SEARCH_BLOCK_VECTORS, PAIR_BLOCK_VECTORS = 16_384, 2048
"""The numbers of vectors that `highest_cosines` and `near_duplicates` read at a time."""
MAX_PAIRS = 1 << 22
COSINE_TOLERANCE = 1e-6
"""The rounding error of a cosine in float32."""
StoredVectors = NDArray[np.float32] | NDArray[np.float16]
"""Vectors (N, d), which may be in a memory-mapped file."""


def highest_cosines(vectors: StoredVectors, queries: Vectors, count: int) -> tuple[Vectors, NDArray[np.int64]]:
    """Return the K = `count` highest cosines (Q, K) of each query with the vectors, and the rows (Q, K) of the vectors.
    Raise EnsueError for a vector that is not finite.
    """
    block, norms = _read_block(queries, range(len(queries)))
    units: Vectors = block / norms[:, None]
    best, rows = np.zeros((len(queries), 0), np.float32), np.zeros((len(queries), 0), np.int64)
    for start in range(0, len(vectors), SEARCH_BLOCK_VECTORS):
        block, norms = _read_block(vectors[start : start + SEARCH_BLOCK_VECTORS], range(start, len(vectors)))
        values: Vectors = (units @ block.T) / norms
        block_rows = np.broadcast_to(np.arange(start, start + len(block)), values.shape)
        if values.shape[1] > count:
            # the ascending columns of the `count` highest values of each row; of equal values, the first columns
            lowest = -np.partition(-values, count - 1, axis=1)[:, count - 1 : count]
            above, equal = values > lowest, values == lowest
            is_chosen = above | (equal & (np.cumsum(equal, axis=1) <= count - above.sum(1, keepdims=True)))
            columns = np.nonzero(is_chosen)[1].reshape(len(values), count)
            values, block_rows = np.take_along_axis(values, columns, 1), np.take_along_axis(block_rows, columns, 1)
        best, rows = np.hstack([best, values]), np.hstack([rows, block_rows])
        columns = np.argsort(-best, axis=1, kind="stable")[:, :count]
        best, rows = np.take_along_axis(best, columns, 1), np.take_along_axis(rows, columns, 1)
    return best, rows


def _read_block(vectors: StoredVectors, rows: Sequence[int]) -> tuple[Vectors, Vectors]:
    """Return vectors (N, d) and norms (N,), ∞ for a zero vector. Raise EnsueError for NaN and infinite numbers."""
    block = np.asarray(vectors, np.float32)
    norms: Vectors = np.sqrt(np.einsum("nd,nd->n", block, block))
    if not np.isfinite(norms).all():
        number = rows[int(np.isfinite(norms).argmin())] + 1
        raise EnsueError(f"vector {number:,} is not finite, or its norm exceeds the range of float32")
    norms[norms == 0] = np.inf
    return block, norms


def near_duplicates(vectors: StoredVectors, threshold: float) -> Iterator[tuple[int, int, float]]:
    """Yield all pairs of rows whose cosine is at least `threshold`, up to rounding, with the cosine.

    A row that equals earlier rows is paired only with the first of these rows: n equal rows yield n - 1 pairs.

    Raises:
        EnsueError: A vector is not finite, or there are more than `MAX_PAIRS` pairs.
    """
    first_rows: dict[bytes, int] = {}
    rows, count = [], 0
    for row, vector in enumerate(vectors):
        equal_row = first_rows.setdefault(hashlib.blake2b(vector.tobytes(), digest_size=16).digest(), row)
        if equal_row == row:
            rows.append(row)
        elif np.any(vector) and threshold <= 1 + COSINE_TOLERANCE:
            yield equal_row, row, 1.0

    def unit_block(start: int) -> Vectors:
        block_rows = rows[start : start + PAIR_BLOCK_VECTORS]
        block, norms = _read_block(vectors[block_rows], block_rows)
        return block / norms[:, None]

    for start in range(0, len(rows), PAIR_BLOCK_VECTORS):
        left = unit_block(start)
        for right_start in range(start, len(rows), PAIR_BLOCK_VECTORS):
            cosines = left @ (left if right_start == start else unit_block(right_start)).T
            pairs = np.argwhere(cosines >= threshold - COSINE_TOLERANCE)
            pairs = pairs[start + pairs[:, 0] < right_start + pairs[:, 1]]
            count += len(pairs)
            if count > MAX_PAIRS:
                raise EnsueError(
                    f"more than {MAX_PAIRS:,} pairs are similar; expected a higher threshold than {threshold:g}"
                )
            for row, column in pairs.tolist():
                yield rows[start + row], rows[right_start + column], float(cosines[row, column])


class ContextualPipeline(Pipeline):
    """A model with vectors of the words of a sentence in each layer, which can be features of other models."""

    @property
    @abstractmethod
    def num_layers(self) -> int:
        """The number of layers, L; the first layer is the embeddings."""

    @property
    @abstractmethod
    def d_layers(self) -> int:
        """The size of a vector of every layer, d."""

    @abstractmethod
    def layers_of_words(self, sentences: Sequence[Sequence[str]], *, pooling: str = "mean") -> list[Vectors]:
        """Return for each sentence the vectors (L, T, d) of its words in all layers, pooled from vectors of subwords.

        A word without subwords has zeros. A sentence may have any length; other sentences do not change its vectors.

        Raises:
            EnsueError: The pooling is unknown.
        """

    def embed_words(
        self, sentences: Sequence[Sequence[str]], *, pooling: str = "mean", layer: int = -1
    ) -> list[Vectors]:
        """Return for each sentence the vectors (T, d) of its words in a layer, pooled from vectors of subwords.

        Args:
            sentences: Sentences as lists of words. A word without subwords, such as a control character, has zeros.
            pooling: The name of the pooling.
            layer: The index of the layer; 0: the embeddings; negative indices count from the last layer.

        Raises:
            EnsueError: The pooling or the layer is unknown.
        """
        index = resolve_layer(layer, self.num_layers)
        return [layers[index] for layers in self.layers_of_words(sentences, pooling=pooling)]

    @abstractmethod
    def export_encoder(self, pooling: str) -> ExportEncoder:
        """Return the encoder of `layers_of_words` for exported programs."""


def resolve_layer(layer: int, num_layers: int) -> int:
    """Return the index of a layer from 0; a negative `layer` counts from the last layer."""
    check_integer("layer", layer, -num_layers, num_layers - 1)
    return layer % num_layers


def pool_words(vectors: Vectors, counts: Sequence[int], pool: Callable[[Vectors], Vectors]) -> Vectors:
    """Return the vectors (L, T, d) of words from `vectors` (L, S, d) of subwords; word t has `counts[t]` subwords."""
    pooled = np.zeros((len(vectors), len(counts), vectors.shape[-1]), np.float32)
    ends = np.cumsum(counts, dtype=np.int64).tolist()
    for word, (count, end) in enumerate(zip(counts, ends, strict=True)):
        if count:
            pooled[:, word] = pool(vectors[:, end - count : end])
    return pooled


class LayeredReader(NamedTuple):
    """The modules of a model that read a text, and the framing of texts."""

    features: TokenEmbedding
    layers: SequenceLayer
    framing: Framing


class LayeredPipeline(ContextualPipeline):
    """A pipeline whose model has a `LayeredReader`."""

    @property
    @abstractmethod
    def layered_reader(self) -> LayeredReader:
        """The reader of texts."""

    @property
    def num_layers(self) -> int:
        return len(output_sizes(self.layered_reader.layers))

    @property
    def d_layers(self) -> int:
        """The size of the largest layer, d; vectors of smaller layers are padded with zeros."""
        return max(output_sizes(self.layered_reader.layers))

    def layers_of_words(self, sentences: Sequence[Sequence[str]], *, pooling: str = "mean") -> list[Vectors]:
        """Return the vectors (L, T, d) of words. In a language model, no vector depends on later words."""
        pool, reader = pooling_of(pooling), self.layered_reader
        framing = reader.framing
        texts = [framing.split(words) for words in sentences]
        outputs = [np.zeros((self.num_layers, len(text.ids), self.d_layers), np.float32) for text in texts]
        windows = [w for index, text in enumerate(texts) if (n := len(text.ids)) for w in framing.windows(n, index)]
        num_framing = len(framing.begin) + len(framing.end)
        for batch in batches_by_length(windows, [window.size + num_framing for window in windows], MAX_CALL_TOKENS):
            ids = [texts[window.text].ids[window.begin : window.end] for window in batch]
            for window, vectors in zip(batch, _read_windows(reader, ids), strict=True):
                used_positions = slice(window.first - window.begin, window.last - window.begin)
                outputs[window.text][:, window.first : window.last] = vectors[:, used_positions]
        pairs = zip(outputs, texts, strict=True)
        return [pool_words(vectors[:, ~text.is_gap], text.counts, pool) for vectors, text in pairs]

    def export_encoder(self, pooling: str) -> ExportEncoder:
        framing = self.layered_reader.framing

        def layers(model: Any, ids: Tensor, mask: Tensor, segments: Tensor | None) -> list[Tensor]:
            features, layers = model.readers
            return pad_features(layer_outputs(layers, features(ids), mask))

        size = framing.tokenizer.vocabulary_size
        return SubwordExportEncoder(layers=layers, framing=framing, vocabulary_size=size, pooling=pooling)


@torch.inference_mode()
def _read_windows(reader: LayeredReader, windows: Sequence[NDArray[np.int64]]) -> Vectors:
    """Return the outputs (B, L, S, d) of all layers for windows of ids."""
    ids, array = pad_rows([reader.framing.add_frame(window) for window in windows])
    device = device_of(reader.layers)
    mask = None if array.all() else torch.from_numpy(array).to(device)
    with evaluating(reader.features), evaluating(reader.layers):
        outputs = layer_outputs(reader.layers, reader.features(torch.from_numpy(ids).to(device)), mask)
    vectors: Vectors = torch.stack(pad_features(outputs), dim=1).float().cpu().numpy()
    return vectors[:, :, len(reader.framing.begin) :]
