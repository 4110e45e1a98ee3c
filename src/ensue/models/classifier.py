"""Classifiers of texts and of pairs of texts, with one label or several."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ensue.models.ngram_bag import NgramBag, PairBag
from ensue.models.subword_encoder import SubwordEncoder, Subwords, append_features
from ensue.models.word_features import Positions
from ensue.nn import Pooling, SequenceLayer
from ensue.nn.draws import ElementDropout
from ensue.nn.layer import mask_padding
from ensue.types import Loss, State, detach


class PooledTexts(NamedTuple):
    """Pooled texts: features (B, p) of texts, and keys (B, T) or (B, T, 1 + G) of their words, 0 for padding."""

    vector: Float[Tensor, "B p"]
    keys: Int[Tensor, "B T ..."]


def real_keys(keys: Int[Tensor, "B T ..."], mask: Bool[Tensor, "B T"] | None) -> Int[Tensor, "B T ..."]:
    """Return the keys of words, 0 where `mask` is False. Hash columns of zeros are removed, except in exports."""
    if mask is not None:
        keys = keys.masked_fill(~mask.view(*mask.shape, *[1] * (keys.dim() - 2)), 0)
    has_hashes = keys.dim() == 3 and not keys.is_meta
    return keys[..., F.pad((keys[..., 1:] != 0).any(0).any(0), (1, 0), value=True)] if has_hashes else keys


@dataclass(frozen=True, kw_only=True)
class ClassifierOptions:
    """The options of a `Classifier`."""

    d_hidden: int = 0
    """Width of a hidden layer before the labels; 0: none."""
    activation: Literal["relu", "tanh"] = "relu"
    dropout: float = 0.0
    label_smoothing: float = 0.0
    pair: bool = False
    """Whether the inputs are pairs of texts."""
    multiple: bool = False
    """Whether the task is multi-label: labels are independent of each other."""
    segment: int = 0
    """The number of words in a segment of a long text; 0: texts are not segmented."""
    language_loss: float = 0.0
    """The weight of the auxiliary language-model loss of a `SubwordEncoder`."""


class Classifier(nn.Module):
    """A classifier: features of positions → layers → pooling → (hidden layer) → logits, plus scores of n-grams.

    Without `pooling`, the logits are the scores of `bag`, and `features` and `layers` are not used.

    With `pair`, the same layers read two texts u and v, which are compared as [u; v; |u − v|; u ⊙ v] (Conneau et al.
    2017). With `segment`, a text is read in segments of this many words. The state is carried between segments without
    gradients; the pooling is over all segments. With `multiple`, the task is multi-label.

    `layers` may be a `SubwordEncoder` with the layers of another model. It reads the subwords of the words, and a pair
    as one text. Features are concatenated to its output. `language_loss` is the weight of its language-model loss.
    """

    layers: SequenceLayer | SubwordEncoder
    features: Any  # `Module.__call__` has no types

    def __init__(
        self, features: nn.Module, layers: SequenceLayer | SubwordEncoder, pooling: Pooling | None, num_labels: int, *,
        bag: NgramBag | None = None, **keywords: Any,
    ) -> None:  # fmt: skip
        """Build the classifier; `keywords` are the fields of `ClassifierOptions`."""
        super().__init__()
        options = ClassifierOptions(**keywords)
        pair, segment, d_hidden = options.pair, options.segment, options.d_hidden
        self.language_loss, self.is_joint = options.language_loss, pair and isinstance(layers, SubwordEncoder)
        if pooling is None and bag is None:
            raise ValueError("a classifier needs a pooling or n-grams; set head.pooling or head.ngrams")
        if bag is not None and isinstance(bag, PairBag) != pair:
            raise ValueError("a PairBag is for pairs, an NgramBag for single texts")
        if segment and not layers.is_causal:
            raise ValueError("only layers that read in one direction carry a state; set directions.bidirectional=false")
        if isinstance(layers, SubwordEncoder):  # checkpoints store the optimizer's moments in this order
            if segment:
                raise ValueError("data.segment_tokens excludes encoder.from, which reads long texts in windows")
            self.layers, self.features = layers, features
        self.features, self.layers, self.pooling, self.bag = features, layers, pooling, bag
        self.label_smoothing, self.multiple = options.label_smoothing, options.multiple
        self.pair, self.segment = pair, segment
        self.num_labels, self.head = num_labels, None
        self.temperature = 1.0
        """The divisor of the logits before the softmax or sigmoid."""
        if pooling is not None:
            d_in = pooling.d_out * (4 if pair and not self.is_joint else 1)
            nonlinear = nn.Tanh() if options.activation == "tanh" else nn.ReLU()
            hidden = [nn.Linear(d_in, d_hidden), nonlinear, ElementDropout(options.dropout)] if d_hidden else []
            self.head = nn.Sequential(ElementDropout(options.dropout), *hidden, nn.Linear(d_hidden or d_in, num_labels))

    def modules_in_order(self) -> Iterator[nn.Module]:
        """Yield the modules in the order of computation."""
        body = (self.layers, self.features) if isinstance(self.layers, SubwordEncoder) else (self.features, self.layers)
        yield from (module for module in (*body, self.pooling, self.bag, self.head) if module is not None)

    @property
    def label_prefix(self) -> str:
        """The prefix of the names of parameters that have a row for each label."""
        return "bag." if self.head is None else f"head.{len(self.head) - 1}."

    def start_from_frequencies(self, shares: Float[Tensor, " K"]) -> None:
        """Set the biases of the logits from the frequencies of the labels in the training data."""
        last = self.bag if self.head is None else self.head[-1]
        assert isinstance(last, NgramBag | nn.Linear)
        last.bias.data.copy_(torch.logit(shares) if self.multiple else shares.log())

    def pool(
        self, x: Float[Tensor, "B T d"], keys: Int[Tensor, "B T ..."], mask: Bool[Tensor, "B T"] | None,
        subwords: Subwords | None = None, encoded: Tensor | None = None,
    ) -> PooledTexts:  # fmt: skip
        """Return pooled texts. `encoded` is the output of a `SubwordEncoder`, if it is already computed."""
        keys = real_keys(keys, mask)
        if self.pooling is None:
            return PooledTexts(x.new_zeros(len(x), 0).float(), keys)
        if isinstance(self.layers, SubwordEncoder):
            if subwords is None:  # the second text of a pair is encoded with the first
                return PooledTexts(x.new_zeros(len(x), 0).float(), keys)
            h = self.layers.sum_subwords(self.layers.read(subwords) if encoded is None else encoded, subwords)
            x, first = mask_padding(x, mask), subwords.first_word_slot
            return PooledTexts(self.pool_slots(h, x, subwords.slot_mask, first=first), keys)
        return PooledTexts(self._pool_sequence(self.pooling, self.layers, x, mask).float(), keys)

    def pool_slots(self, h: Tensor, x: Tensor, real: Tensor | None, *, first: int) -> Float[Tensor, "B p"]:
        """Append the features x of words to the vectors h of slots (B, S, d), from slot `first` on, and pool them.

        The features of a slot without a word, such as the slot of a special token, are 0.
        """
        assert self.pooling is not None
        vector: Tensor = self.pooling(append_features(h, x, first=first), real)
        return vector.float()

    def _pool_sequence(self, pooling: Pooling, layers: SequenceLayer, x: Tensor, mask: Tensor | None) -> Tensor:
        if not self.segment:
            return pooling(layers(x, mask=mask)[0], mask)
        state: State = None
        pool = pooling.init_state(len(x))
        for start in range(0, x.shape[1], self.segment):
            segment = slice(start, start + self.segment)
            real = None if mask is None else mask[:, segment]
            h, state = layers(x[:, segment], state, mask=real)
            pool = pooling.update(pool, h, real)
            state = detach(state)
        return pooling.result(pool)

    def head_inputs(self, texts: Sequence[PooledTexts]) -> Float[Tensor, "B p"]:
        """Return the input of the head: the vectors of pooled texts, or for pairs [u; v; |u − v|; u ⊙ v]."""
        u = next((text.vector for text in texts if text.vector.shape[1]), texts[0].vector)
        if not self.pair or self.is_joint:
            return u
        v = texts[1].vector
        return torch.cat((u, v, (u - v).abs(), u * v), dim=-1)

    def compute_logits(self, texts: Sequence[PooledTexts]) -> Float[Tensor, "B K"]:
        """Return the logits of the labels for pooled texts, or for pairs of pooled texts."""
        terms = [] if self.bag is None else [self.bag(*(text.keys for text in texts))]
        if self.head is not None:
            terms.append(self.head(self.head_inputs(texts)).float())
        return sum(terms[1:], terms[0])

    def forward(self, texts: Sequence[Positions]) -> Float[Tensor, "B K"]:
        """Return the logits of the labels for texts, or for pairs of texts."""
        return self.compute_logits([self.read(words) for words in texts])

    def read(self, words: Positions, encoded: Tensor | None = None) -> PooledTexts:
        """Return a batch of pooled texts. `encoded` is as for `pool`."""
        keys = words.keys
        x = keys.new_zeros(*words.shape, 0, dtype=torch.float32) if self.pooling is None else self.features(words)
        return self.pool(x, keys, words.mask, words.subwords, encoded)

    def probabilities(self, logits: Float[Tensor, "B K"]) -> Float[Tensor, "B K"]:
        """Return the probability of each label."""
        logits = logits / self.temperature
        return logits.sigmoid() if self.multiple else logits.softmax(-1)

    def loss(self, texts: Sequence[Positions], targets: Tensor, weights: Float[Tensor, " K"] | None = None) -> Loss:
        """Return the sum of the losses in nats, and the number of texts.

        `targets` are ids (B,), or indicators or probabilities (B, K). `weights` multiply the losses of true labels.
        """
        if not (self.language_loss and isinstance(self.layers, SubwordEncoder)):
            return Loss(self._compute_loss(self(texts), targets, weights), len(targets))
        first, *others = texts
        assert first.subwords is not None
        encoded = self.layers.read(first.subwords)
        logits = self.compute_logits([self.read(first, encoded), *map(self.read, others)])
        language_loss = self.language_loss * self.layers.language_nats(encoded, first.subwords)
        return Loss(self._compute_loss(logits, targets, weights) + language_loss, len(targets))

    def _compute_loss(self, logits: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
        if self.multiple:
            smoothed = targets * (1 - self.label_smoothing) + 0.5 * self.label_smoothing
            return F.binary_cross_entropy_with_logits(logits, smoothed, pos_weight=weights, reduction="sum")
        return F.cross_entropy(logits, targets, weight=weights, reduction="sum", label_smoothing=self.label_smoothing)
