"""The choice of texts to label next.

Source: Ash et al. 2020, "Deep batch active learning by diverse, uncertain gradient lower bounds" (BADGE).
The vector of a text is that of a gradient: of the model's last weights, if what the model says were right. It is the
outer product of a residual and of the text, as the model knows it. Such vectors are drawn as k-means++ draws its
centers: the further from all that are drawn, the likelier.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ensue.data.compact_texts import Ragged

D_RANDOM = 256
"""Numbers of the vector of a word for a model that has none."""

Numbers = NDArray[np.float32]


class Candidate(NamedTuple):
    """A text, or a pair, and what a model says of it: labels, or spans (start, end, label). `residual` (K,) is longer
    where the model is less sure.
    """

    texts: tuple[str, ...]
    labels: tuple[str, ...]
    spans: tuple[tuple[int, int, str], ...] | None
    probability: float
    residual: Numbers

    @property
    def letters(self) -> tuple[str, ...]:
        """The texts without blanks, which differ where a file has words of a tokenizer in place of running text."""
        return tuple("".join(text.split()) for text in self.texts)


def drawn(texts: Numbers, residuals: Numbers, count: int, seed: int) -> list[int]:
    """The rows of `count` texts (N, d) with residuals (N, K), or of all; first that of the longest vector."""
    draw = np.random.default_rng(seed)
    norms = (texts**2).sum(1) * (residuals**2).sum(1)
    found = [int(norms.argmax())]
    distances = np.full(len(norms), np.inf)
    while len(found) < min(count, len(norms)):
        last = found[-1]
        products = (texts @ texts[last]) * (residuals @ residuals[last])
        distances = np.minimum(distances, np.maximum(norms + norms[last] - 2 * products, 0))
        distances[found] = 0
        total = distances.sum()
        if total <= 0:  # the others say the same as those that are drawn
            left = np.setdiff1d(np.arange(len(norms)), found)
            return [*found, *left[: count - len(found)].tolist()]
        found.append(int(draw.choice(len(norms), p=distances / total)))
    return found


def text_vectors(words: Numbers, numbers: Ragged) -> Numbers:
    """The vectors of texts, of length 1 around their mean. They are means of the vectors (F, d) of the words that
    `numbers` has, weighed by how rare a word is in these texts.

    If d is 0, each word has a random vector, the same in every call.
    """
    if not words.shape[1]:
        words = np.random.default_rng(0).standard_normal((len(words), D_RANDOM), np.float32)
    texts = [numbers.values[start:end] for start, end in zip(numbers.starts, numbers.starts[1:], strict=False)]
    counts = np.zeros(len(words))
    for text in texts:
        counts[np.unique(text)] += 1
    weights = np.log((1 + len(texts)) / (1 + counts))[:, None]
    means = np.stack([(words[text] * weights[text]).sum(0) / max(1, len(text)) for text in texts])
    means -= means.mean(0)
    found: Numbers = (means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-9)).astype(np.float32)
    return found
