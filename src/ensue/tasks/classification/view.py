"""The inside of a classifier of texts, in numbers: probabilities, effects of words, values of the pooling.

`page.py` draws it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.inspection.attributions import Integrated, integrated_gradients, rows_together
from ensue.inspection.encoder import Attention, Trace, attention_of, traces_of
from ensue.inspection.features import ReadFeatures, ReadWords
from ensue.models.classifier import Classifier, Pooled
from ensue.models.subword_encoder import SubwordEncoder, beside
from ensue.nn import AttentionPooling, MaxPooling, Pooling, watch
from ensue.types import exact

BUDGET_WORDS = 400_000
"""The most words that are read to find the effects of words, over all variants of a text."""
CALL_WORDS = 16_384
"""The most words of variants in a batch."""
POSITIONS, FEWEST_POINTS = 4_096, 48
"""About the most words that are read for integrated gradients, and the fewest points of an integral."""


class Contribution(NamedTuple):
    """The effect of the words of `group`: the label's probability without them, and by how much its log-odds fall."""

    group: range
    probability: float
    log_odds: float


@dataclass(frozen=True)
class ClassifierView:
    """A text, or one of the two of a pair. `is_known`, `attention` and `maxima` are (T,).

    `label` is the most probable label, and `contributions` are the effects on it: of single words, or of some words
    together in longer texts. `attention` are the weights of attention pooling, and `maxima` the share of the features
    whose maximum is at a word; None if the model has no such pooling.
    """

    words: tuple[str, ...]
    is_known: NDArray[np.bool_]
    label: int
    probabilities: NDArray[np.float32]
    contributions: list[Contribution]
    attention: NDArray[np.float64] | None
    maxima: NDArray[np.float64] | None
    traces: list[Trace]
    heads: list[Attention] | None
    """The attention of the layers; None for a text that is too long."""
    integrated: Integrated | None
    """The share of each word's features in the log-odds of the label, where zeros are the baseline; None where words
    have no features of their own, and where gradients end between pieces of a text.
    """


def view_classifier(model: Classifier, texts: Sequence[ReadWords]) -> tuple[ClassifierView, ...]:
    """The views of a text, or of the two of a pair. Every text has at least one word."""
    with torch.no_grad():
        readings = [read.reading() for read in texts]
        pooled = [model.pooled(reading.x, reading.keys, None, reading.subwords) for reading in readings]
        label = int(model.probabilities(model.logits_of(pooled))[0].argmax())
    integrated = [integrated_of(model, reading, pooled, side, label) for side, reading in enumerate(readings)]
    with torch.inference_mode():
        logits = model.logits_of(pooled)
        probabilities = model.probabilities(logits)[0]
        return tuple(
            ClassifierView(
                words=read.words,
                is_known=read.is_known(),
                label=label,
                probabilities=probabilities.cpu().numpy(),
                contributions=_contributions(model, read, pooled, side=side, logits=logits, label=label),
                attention=attention_weights(model, reading),
                maxima=maxima_of(model, reading),
                traces=[] if model.pooling is None else traces_of(model.layers, reading.x),
                heads=[] if model.pooling is None else attention_of(model.layers, reading.x),
                integrated=integrated[side],
            )
            for side, (read, reading) in enumerate(zip(texts, readings, strict=True))
        )


def integrated_of(
    model: Classifier, reading: ReadFeatures, pooled: Sequence[Pooled], side: int, label: int
) -> Integrated | None:
    """The integrated gradients of the label's log-odds by the features of one text's words."""
    length = reading.x.shape[1]
    is_cut = 0 < model.segment < length
    if model.pooling is None or isinstance(model.layers, SubwordEncoder) or is_cut or not reading.x.shape[2]:
        return None

    def output(x: Tensor) -> Tensor:
        texts = [Pooled(*(part.expand(len(x), -1) for part in text)) for text in pooled]
        texts[side] = model.pooled(x, reading.keys.expand(len(x), -1), None)
        return log_odds(model, model.logits_of(texts), label)

    rows = rows_together(model.layers, length)
    return integrated_gradients(output, reading.x, points=max(FEWEST_POINTS, POSITIONS // length), rows=rows)


def groups_of(length: int) -> list[range]:
    """Groups of words: single words, or larger groups for texts that would exceed the budget."""
    size = max(1, -(-length * length // BUDGET_WORDS))
    return [range(start, min(start + size, length)) for start in range(0, length, size)]


def _contributions(
    model: Classifier, read: ReadWords, pooled: Sequence[Pooled], *, side: int, logits: Tensor, label: int
) -> list[Contribution]:
    """The effects of the words of one text; the other text of a pair is not changed."""
    groups, found = groups_of(len(read)), []
    before = float(log_odds(model, logits, label)[0])
    rows = max(1, CALL_WORDS // len(read))
    for start in range(0, len(groups), rows):
        some = groups[start : start + rows]
        both = [Pooled(*(part.expand(len(some), -1) for part in text)) for text in pooled]
        without = read.unread(some)
        both[side] = model.pooled(without.x, without.keys, None, without.subwords)
        if model.is_joint:  # which stands beside either text
            both[1 - side] = both[1 - side]._replace(vector=both[side].vector)
        logits_without = model.logits_of(both)
        probabilities = model.probabilities(logits_without)[:, label].tolist()
        falls = (before - log_odds(model, logits_without, label)).tolist()
        found += [Contribution(*each) for each in zip(some, probabilities, falls, strict=True)]
    return found


def log_odds(model: Classifier, logits: Tensor, label: int) -> Tensor:
    """log p / (1 - p) of the label (B,), exact even if p is almost 1."""
    logits = exact(logits)
    if model.multiple:
        return logits[:, label]
    others = torch.cat((logits[:, :label], logits[:, label + 1 :]), dim=1)
    return logits[:, label] - others.logsumexp(1)


def _slots(model: Classifier, reading: ReadFeatures) -> tuple[Tensor, slice]:
    """The vectors that the pooling reads (1, T, d), and which of them belong to the words of the text."""
    if isinstance(model.layers, SubwordEncoder):
        assert reading.subwords is not None
        first, words = reading.subwords.first, reading.keys.shape[1]
        return beside(model.layers(reading.subwords), reading.x, first=first), slice(first, first + words)
    return model.layers(reading.x)[0], slice(None)


def attention_weights(model: Classifier, reading: ReadFeatures) -> NDArray[np.float64] | None:
    """The weights of attention pooling (T,)."""
    pooling = _pooling(model, AttentionPooling)
    if pooling is None or model.is_joint:
        return None
    h, own = _slots(model, reading)
    with watch(pooling, "scores") as seen:
        pooling(h)
    weights: NDArray[np.float64] = exact(seen["scores"][0][0]).softmax(0).cpu().numpy()
    return weights[own]


def maxima_of(model: Classifier, reading: ReadFeatures) -> NDArray[np.float64] | None:
    """The share of the features whose maximum is at each word (T,); among equal values the first counts."""
    if _pooling(model, MaxPooling) is None or model.is_joint:
        return None
    slots, own = _slots(model, reading)
    h: NDArray[np.float32] = slots[0].cpu().numpy()
    shares: NDArray[np.float64] = np.bincount(h.argmax(0), minlength=len(h)) / h.shape[1]
    return shares[own]


def _pooling(model: Classifier, kind: type[Pooling]) -> Pooling | None:
    """The model's pooling of that kind, if it has one."""
    return next((part for part in model.modules() if isinstance(part, kind)), None)
