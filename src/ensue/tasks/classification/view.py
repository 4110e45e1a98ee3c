"""The values of a classifier on the page of a text: probabilities, effects of words, values of the pooling."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.inspection.attributions import Attribution, choose_batch_size, integrated_gradients
from ensue.inspection.encoder import LayerAttention, LayerTrace, record_attention, trace_layers
from ensue.inspection.features import ReadFeatures, ReadWords
from ensue.models.classifier import Classifier, PooledTexts
from ensue.models.subword_encoder import SubwordEncoder, append_features
from ensue.nn import AttentionPooling, MaxPooling, Pooling, watch
from ensue.types import to_float64

MAX_VARIANT_WORDS = 400_000
"""The maximum total number of words of a text's variants, which lack one group of words each."""
MAX_BATCH_WORDS = 16_384
"""The maximum number of words in a batch of variants."""


class Contribution(NamedTuple):
    """The effect on a label of replacing a group of words by the unknown word."""

    group: range
    """The positions of the words."""
    probability: float
    """The probability of the label without the words."""
    log_odds: float
    """The decrease of the log-odds of the label."""


@dataclass(frozen=True)
class ClassifierView:
    """A text of T words in a classifier, or one of the two texts of a pair."""

    words: tuple[str, ...]
    is_known: NDArray[np.bool_]
    """Whether each word is in the vocabulary (T,)."""
    label: int
    """The most probable label."""
    probabilities: NDArray[np.float32]
    contributions: list[Contribution]
    """The effects of single words on the label; in long texts, of groups of words."""
    attention: NDArray[np.float64] | None
    """The weights (T,) of attention pooling; None for a model without it, and for pairs with one vector."""
    maxima: NDArray[np.float64] | None
    """The share (T,) of features whose maximum is at a word; None without max pooling, or for pairs with one vector."""
    traces: list[LayerTrace]
    heads: list[LayerAttention] | None
    """The attention of the layers; None for a text that is too long."""
    integrated: Attribution | None
    """The integrated gradients of the log-odds of the label for each word, with zeros as the baseline; None for
    fine-tuned layers, for a model that pools no features of words, and for a text of several segments.
    """


def view_classifier(model: Classifier, texts: Sequence[ReadWords]) -> tuple[ClassifierView, ...]:
    """Return the view of a text, or the views of the two texts of a pair. Every text has at least one word."""
    with torch.no_grad():
        readings = [read.inputs() for read in texts]
        pooled = [model.pool(reading.x, reading.keys, None, reading.subwords) for reading in readings]
        label = int(model.probabilities(model.compute_logits(pooled))[0].argmax())
    integrated = [integrate_gradients(model, reading, pooled, side, label) for side, reading in enumerate(readings)]
    with torch.inference_mode():
        logits = model.compute_logits(pooled)
        probabilities = model.probabilities(logits)[0]
        return tuple(
            ClassifierView(
                words=read.words, is_known=read.is_known(), label=label, probabilities=probabilities.cpu().numpy(),
                contributions=_measure_contributions(model, read, pooled, side=side, logits=logits, label=label),
                attention=attention_weights(model, reading), maxima=max_shares(model, reading),
                traces=[] if model.pooling is None else trace_layers(model.layers, reading.x),
                heads=[] if model.pooling is None else record_attention(model.layers, reading.x),
                integrated=integrated[side],
            )
            for side, (read, reading) in enumerate(zip(texts, readings, strict=True))
        )  # fmt: skip


def integrate_gradients(
    model: Classifier, reading: ReadFeatures, pooled: Sequence[PooledTexts], side: int, label: int
) -> Attribution | None:
    """Return the integrated gradients of the log-odds of the label for the words of the text at `side`."""
    length = reading.x.shape[1]
    has_segments = 0 < model.segment < length
    if model.pooling is None or isinstance(model.layers, SubwordEncoder) or has_segments or not reading.x.shape[2]:
        return None

    def output(x: Tensor) -> Tensor:
        texts = [PooledTexts(*(tensor.expand(len(x), *tensor.shape[1:]) for tensor in text)) for text in pooled]
        texts[side] = model.pool(x, reading.keys.expand(len(x), *reading.keys.shape[1:]), None)
        return log_odds(model, model.compute_logits(texts), label)

    return integrated_gradients(output, reading.x, rows=choose_batch_size(model.layers, length))


def group_words(length: int) -> list[range]:
    """Return groups of words: single words, or larger groups for long texts (`MAX_VARIANT_WORDS`)."""
    size = max(1, -(-length * length // MAX_VARIANT_WORDS))
    return [range(start, min(start + size, length)) for start in range(0, length, size)]


def _measure_contributions(
    model: Classifier, read: ReadWords, pooled: Sequence[PooledTexts], *, side: int, logits: Tensor, label: int
) -> list[Contribution]:
    groups, contributions = group_words(len(read)), list[Contribution]()
    before = float(log_odds(model, logits, label)[0])
    rows = max(1, MAX_BATCH_WORDS // len(read))
    for start in range(0, len(groups), rows):
        batch = groups[start : start + rows]
        texts = [PooledTexts(*(tensor.expand(len(batch), *tensor.shape[1:]) for tensor in text)) for text in pooled]
        without = read.blank_words(batch)
        texts[side] = model.pool(without.x, without.keys, None, without.subwords)
        if model.is_joint:  # both texts have one vector
            texts[1 - side] = texts[1 - side]._replace(vector=texts[side].vector)
        logits_without = model.compute_logits(texts)
        probabilities = model.probabilities(logits_without)[:, label].tolist()
        decreases = (before - log_odds(model, logits_without, label)).tolist()
        contributions += map(Contribution, batch, probabilities, decreases)
    return contributions


def log_odds(model: Classifier, logits: Tensor, label: int) -> Tensor:
    """Return log p / (1 - p) of the label (B,), without cancellation if p is almost 1."""
    logits = to_float64(logits)
    if model.multiple:
        return logits[:, label]
    return logits[:, label] - torch.cat((logits[:, :label], logits[:, label + 1 :]), dim=1).logsumexp(1)


def _pooling_input(model: Classifier, reading: ReadFeatures) -> tuple[Tensor, slice]:
    """Return the input of the pooling (1, S, d), and the slice of its words."""
    if isinstance(model.layers, SubwordEncoder):
        assert reading.subwords is not None
        first, words = reading.subwords.first_word_slot, reading.keys.shape[1]
        return append_features(model.layers(reading.subwords), reading.x, first=first), slice(first, first + words)
    return model.layers(reading.x)[0], slice(None)


def attention_weights(model: Classifier, reading: ReadFeatures) -> NDArray[np.float64] | None:
    """Return the weights (T,) of attention pooling; None as in `ClassifierView`."""
    pooling = _find_pooling(model, AttentionPooling)
    if pooling is None or model.is_joint:
        return None
    h, word_slice = _pooling_input(model, reading)
    with watch(pooling, "scores") as taps:
        pooling(h)
    weights: NDArray[np.float64] = to_float64(taps["scores"][0][0]).softmax(0).cpu().numpy()
    return weights[word_slice]


def max_shares(model: Classifier, reading: ReadFeatures) -> NDArray[np.float64] | None:
    """Return the share (T,) of features whose first maximum is at each word; None as in `ClassifierView`."""
    if _find_pooling(model, MaxPooling) is None or model.is_joint:
        return None
    slots, word_slice = _pooling_input(model, reading)
    h: NDArray[np.float32] = slots[0].cpu().numpy()
    shares: NDArray[np.float64] = np.bincount(h.argmax(0), minlength=len(h)) / h.shape[1]
    return shares[word_slice]


def _find_pooling(model: Classifier, pooling_class: type[Pooling]) -> Pooling | None:
    return next((module for module in model.modules() if isinstance(module, pooling_class)), None)
