"""A classifier: one label, or several, for a text or a pair of texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ensue.models.ngram_bag import NgramBag, PairBag
from ensue.models.subword_encoder import SubwordEncoder, Subwords, beside
from ensue.models.word_features import Positions
from ensue.nn import Pooling, SequenceLayer
from ensue.nn.dropout import ElementDropout
from ensue.nn.layer import blank
from ensue.types import Loss, State, detach


class Pooled(NamedTuple):
    """A text after pooling: its features (B, p), and the keys of its words (B, T), 0 for padding."""

    vector: Float[Tensor, "B p"]
    keys: Int[Tensor, "B T"]


@dataclass(frozen=True, kw_only=True)
class ClassifierOptions:
    """The options of a `Classifier`."""

    d_hidden: int = 0
    """Width of a hidden layer before the labels; 0: none."""
    activation: Literal["relu", "tanh"] = "relu"
    dropout: float = 0.0
    label_smoothing: float = 0.0
    pair: bool = False
    """Whether two texts are compared."""
    multiple: bool = False
    """Whether labels are independent of each other."""
    segment: int = 0
    """Words of a segment of a long text; 0: texts are not segmented."""
    language_loss: float = 0.0
    """The weight of the loss of next subwords."""


class Classifier(nn.Module):
    """Features of positions → layers → pooling → (a hidden layer) → logits, plus the scores of a bag of n-grams.

    Without a pooling only the bag decides; `features` and `layers` are then not used.

    With `pair`, the same layers read two texts u and v, which are compared as [u; v; |u − v|; u ⊙ v] (Conneau et al.
    2017). With `segment`, a text is read in pieces of this many words. The state is carried from piece to piece and
    detached, so gradients end there; the pooling is over all pieces. With `multiple`, labels are independent of each
    other.

    The layers of another model, a `SubwordEncoder`, read the subwords of the words; those of a pair as one text. Then
    features stand beside what it gives, and its loss of next subwords counts `language_loss` times.
    """

    layers: SequenceLayer | SubwordEncoder
    features: Any  # `Module.__call__` has no types

    def __init__(
        self, features: nn.Module, layers: SequenceLayer | SubwordEncoder, pooling: Pooling | None, num_labels: int, *,
        bag: NgramBag | None = None, **keywords: Any,
    ) -> None:  # fmt: skip
        """`keywords` are the fields of `ClassifierOptions`."""
        super().__init__()
        options = ClassifierOptions(**keywords)
        pair, segment, d_hidden = options.pair, options.segment, options.d_hidden
        self.language_loss, self.is_joint = options.language_loss, pair and isinstance(layers, SubwordEncoder)
        if pooling is None and bag is None:
            raise ValueError("nothing to decide by; head.pooling names a pooling, or head.ngrams counts n-grams")
        if bag is not None and isinstance(bag, PairBag) != pair:
            raise ValueError("a PairBag is for pairs, and for nothing else")
        if segment and not layers.is_causal:
            raise ValueError("only layers that read in one direction can carry a state; set model.bidirectional=false")
        if isinstance(layers, SubwordEncoder):  # the order of moments in checkpoints
            if segment:
                raise ValueError("data.segment_tokens is not for encoder.from, whose long texts are read in windows")
            self.layers, self.features = layers, features
        self.features, self.layers, self.pooling, self.bag = features, layers, pooling, bag
        self.label_smoothing, self.multiple = options.label_smoothing, options.multiple
        self.pair, self.segment = pair, segment
        self.num_labels, self.head = num_labels, None
        self.temperature = 1.0
        """The number by which logits are divided before they become probabilities."""
        if pooling is not None:
            d_in = pooling.d_out * (4 if pair and not self.is_joint else 1)
            nonlinear = nn.Tanh() if options.activation == "tanh" else nn.ReLU()
            hidden = [nn.Linear(d_in, d_hidden), nonlinear, ElementDropout(options.dropout)] if d_hidden else []
            self.head = nn.Sequential(ElementDropout(options.dropout), *hidden, nn.Linear(d_hidden or d_in, num_labels))

    def passed_parts(self) -> Iterator[nn.Module]:
        """The parts in the order in which a text passes them."""
        read = (self.layers, self.features) if isinstance(self.layers, SubwordEncoder) else (self.features, self.layers)
        yield from (part for part in (*read, self.pooling, self.bag, self.head) if part is not None)

    @property
    def of_labels(self) -> str:
        """The parameters with a row for each label, by what their names begin with."""
        return "bag." if self.head is None else f"head.{len(self.head) - 1}."

    def start_from_shares(self, shares: Float[Tensor, " K"]) -> None:
        """Sets the biases of the logits to the labels' shares of the training texts."""
        last = self.bag if self.head is None else self.head[-1]
        assert isinstance(last, NgramBag | nn.Linear)
        last.bias.data.copy_(torch.logit(shares) if self.multiple else shares.log())

    def pooled(
        self,
        x: Float[Tensor, "B T d"],
        keys: Int[Tensor, "B T"],
        mask: Bool[Tensor, "B T"] | None,
        subwords: Subwords | None = None,
        read: Tensor | None = None,
    ) -> Pooled:
        """The texts after pooling, from the features (B, T, d) and keys (B, T) of their words, and for layers that read
        subwords from these, which for a pair stand beside one of its texts. `read` is what these layers give, if it is
        known.
        """
        keys = keys if mask is None else keys.masked_fill(~mask, 0)
        if self.pooling is None:
            return Pooled(x.new_zeros(len(x), 0).float(), keys)
        if isinstance(self.layers, SubwordEncoder):
            if subwords is None:  # of the other text of a pair
                return Pooled(x.new_zeros(len(x), 0).float(), keys)
            h = self.layers.gathered(self.layers.read(subwords) if read is None else read, subwords)
            return Pooled(self.pooled_slots(h, blank(x, mask), subwords.real, first=subwords.first), keys)
        return Pooled(self._pooled(self.pooling, self.layers, x, mask).float(), keys)

    def pooled_slots(self, h: Tensor, x: Tensor, real: Tensor | None, *, first: int) -> Float[Tensor, "B p"]:
        """The vectors of texts from those of their slots (B, S, d), of which some are `real`, with the features of
        words beside them, which begin at slot `first`; zeros where there is no word, as beside the text's own slot.
        """
        assert self.pooling is not None
        vector: Tensor = self.pooling(beside(h, x, first=first), real)
        return vector.float()

    def _pooled(self, pooling: Pooling, layers: SequenceLayer, x: Tensor, mask: Tensor | None) -> Tensor:
        if not self.segment:
            vector: Tensor = pooling(layers(x, mask=mask)[0], mask)
            return vector
        state: State = None
        pool = pooling.init_state(len(x))
        for start in range(0, x.shape[1], self.segment):
            piece = slice(start, start + self.segment)
            real = None if mask is None else mask[:, piece]
            h, state = layers(x[:, piece], state, mask=real)
            pool = pooling.update(pool, h, real)
            state = detach(state)
        return pooling.result(pool)

    def logits_of(self, texts: Sequence[Pooled]) -> Float[Tensor, "B K"]:
        """The labels' logits from a text after pooling, or from the two of a pair."""
        parts = [] if self.bag is None else [self.bag(*(text.keys for text in texts))]
        if self.head is not None:
            u = next((text.vector for text in texts if text.vector.shape[1]), texts[0].vector)
            if self.pair and not self.is_joint:
                v = texts[1].vector
                u = torch.cat((u, v, (u - v).abs(), u * v), dim=-1)
            parts.append(self.head(u).float())
        logits: Tensor = sum(parts[1:], parts[0])
        return logits

    def forward(self, texts: Sequence[Positions]) -> Float[Tensor, "B K"]:
        """The labels' logits of texts, or of pairs of texts."""
        return self.logits_of([self._read(words) for words in texts])

    def _read(self, words: Positions, read: Tensor | None = None) -> Pooled:
        keys = words.keys
        x = keys.new_zeros(*keys.shape, 0, dtype=torch.float32) if self.pooling is None else self.features(words)
        return self.pooled(x, keys, words.mask, words.subwords, read)

    def probabilities(self, logits: Float[Tensor, "B K"]) -> Float[Tensor, "B K"]:
        """The probability of each label, from the logits."""
        logits = logits / self.temperature
        return logits.sigmoid() if self.multiple else logits.softmax(-1)

    def loss(self, texts: Sequence[Positions], targets: Tensor, weights: Float[Tensor, " K"] | None = None) -> Loss:
        """The summed surprisal of the labels in nats, and the number of texts. `targets` (B,) are ids, or (B, K) 0 and
        1, or probabilities, under which it is the expected surprisal.

        `weights` (K,) multiply the loss of the texts that have a label.
        """
        if not (self.language_loss and isinstance(self.layers, SubwordEncoder)):
            return Loss(self._total(self(texts), targets, weights), len(targets))
        first, *others = texts
        assert first.subwords is not None
        read = self.layers.read(first.subwords)
        logits = self.logits_of([self._read(first, read), *map(self._read, others)])
        further = self.language_loss * self.layers.language_nats(read, first.subwords)
        return Loss(self._total(logits, targets, weights) + further, len(targets))

    def _total(self, logits: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
        """The summed surprisal of the labels."""
        if self.multiple:
            smoothed = targets * (1 - self.label_smoothing) + 0.5 * self.label_smoothing
            return F.binary_cross_entropy_with_logits(logits, smoothed, pos_weight=weights, reduction="sum")
        return F.cross_entropy(logits, targets, weight=weights, reduction="sum", label_smoothing=self.label_smoothing)
