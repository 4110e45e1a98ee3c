"""Active learning: choose the next texts to label, which are uncertain and differ from each other.

BADGE represents a text by the gradient of the loss with respect to the weights of the last layer, with the prediction
as the label: the outer product of a residual and a text vector. Texts are drawn like the centers of k-means++, with a
probability proportional to the squared distance to the nearest drawn text.

References:
    Ash et al. 2020, "Deep batch active learning by diverse, uncertain gradient lower bounds" (BADGE).
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensue.data.compact_texts import Ragged
from ensue.data.files import Data, as_location
from ensue.errors import DataError, check_integer
from ensue.extensions.annotation_formats.writers import Prediction, predict_texts
from ensue.stored import copy_with
from ensue.tasks.classification.pipeline import ClassificationPipeline
from ensue.tasks.labeling.pipeline import LabelingPipeline
from ensue.text.tokens import words_in

D_RANDOM = 256
"""The size of the random vectors that replace word vectors if the model has none."""

Float32Array = NDArray[np.float32]


class Candidate(NamedTuple):
    """A prediction with a residual: probabilities minus predicted labels (K,), or a tagger's mean surprisal (1,)."""

    prediction: Prediction
    residual: Float32Array

    @property
    def without_spaces(self) -> tuple[str, ...]:
        """The texts without whitespace, so that tokenized text and running text can be compared."""
        return tuple("".join(text.split()) for text in self.prediction.texts)


def choose(
    pipeline: ClassificationPipeline | LabelingPipeline, location: Data, count: int, *,
    without: Sequence[str | Path] = (), seed: int = 0, format: str | None = None, encoding: str = "utf-8",
) -> list[Prediction]:  # fmt: skip
    """Return at most `count` texts of a pool to label next. Texts of the labeled files `without` are left out."""
    check_integer("count", count, 1, 1_000_000)
    check_integer("seed", seed, 0, 2**32 - 1)
    as_trained: Any = copy_with(pipeline, chosen_columns={})
    excluded = {text.without_spaces for path in without for text in _candidates(as_trained, path, None, encoding)}
    by_text = {text.without_spaces: text for text in _candidates(pipeline, location, format, encoding)}
    pool = [text for without_spaces, text in by_text.items() if without_spaces not in excluded and any(without_spaces)]
    if not pool:
        raise DataError("no texts remain: all are empty, or also in --without", as_location(location))
    texts = [candidate.prediction.texts for candidate in pool]
    words = [[word for text in pair for word in words_in(text, pipeline.splitter)] for pair in texts]
    table, word_ids = pipeline.reader.read(words)
    vectors = text_vectors(table.vectors.float().cpu().numpy(), word_ids)
    rows = draw_diverse(vectors, np.stack([candidate.residual for candidate in pool]), count, seed)
    return [pool[row].prediction for row in rows]


def _candidates(
    pipeline: ClassificationPipeline | LabelingPipeline, location: Data, format: str | None, encoding: str
) -> Iterator[Candidate]:
    source = pipeline.source(location, format=format, encoding=encoding, is_labeled=False)
    for prediction in predict_texts(pipeline, source, encoding):
        residual = np.array([-np.log(prediction.probability)], np.float32)
        if isinstance(pipeline, ClassificationPipeline):
            multi_hot = pipeline.labels.matrix([prediction.labels])
            residual = np.array([*prediction.label_probabilities.values()], np.float32) - multi_hot[0]
        spans = prediction.spans and [(*span[:3], None) for span in prediction.spans]
        yield Candidate(prediction._replace(spans=spans, origin={}, model=""), residual)


def draw_diverse(texts: Float32Array, residuals: Float32Array, count: int, seed: int) -> list[int]:
    """Return up to `count` row indices of `texts` (N, d) and `residuals` (N, K), the largest gradient first."""
    random = np.random.default_rng(seed)
    norms = (texts**2).sum(1) * (residuals**2).sum(1)
    rows = [int(norms.argmax())]
    distances = np.full(len(norms), np.inf)
    while len(rows) < min(count, len(norms)):
        last = rows[-1]
        products = (texts @ texts[last]) * (residuals @ residuals[last])  # inner products of the outer products
        distances = np.minimum(distances, np.maximum(norms + norms[last] - 2 * products, 0))
        distances[rows] = 0
        total = distances.sum()
        if total <= 0:  # each remaining text equals a drawn text
            return [*rows, *np.setdiff1d(np.arange(len(norms)), rows)[: count - len(rows)].tolist()]
        rows.append(int(random.choice(len(norms), p=distances / total)))
    return rows


def text_vectors(words: Float32Array, word_ids: Ragged) -> Float32Array:
    """Return unit vectors of texts (N, d): centered means of the rows `words`, weighted by log((1 + N) / (1 + df))."""
    if not words.shape[1]:
        words = np.random.default_rng(0).standard_normal((len(words), D_RANDOM), np.float32)
    texts = [word_ids.values[start:end] for start, end in zip(word_ids.starts, word_ids.starts[1:], strict=False)]
    counts = np.zeros(len(words))
    for text in texts:
        counts[np.unique(text)] += 1
    weights = np.log((1 + len(texts)) / (1 + counts))[:, None]
    means = np.stack([(words[text] * weights[text]).sum(0) / max(1, len(text)) for text in texts])
    means -= means.mean(0)
    return (means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-9)).astype(np.float32)
