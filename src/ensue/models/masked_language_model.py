"""A masked language model: the probability of tokens that were hidden, given all tokens around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ensue.data.corpus.examples import NOT_HIDDEN
from ensue.models.layer_outputs import layer_outputs
from ensue.nn import LearnedPositions, Pointwise, PostNormBlock, TokenEmbedding, TransformedSoftmaxHead, Transformer
from ensue.nn.border import weight_of
from ensue.nn.taps import is_watched
from ensue.types import exact


class MaskedNats(NamedTuple):
    """The surprisals (N,) of N hidden tokens in float64, and whether each was the most probable one."""

    nats: Tensor
    is_best: Tensor


class MaskedLanguageModel(nn.Module):
    """`P(w_t | text) = softmax(head(h_t))[w_t]` with `h = layers(E[w] + S[segment])` (Devlin et al. 2019).

    The layers add positions; `context` is the number of positions that are read at once. `segments` are vectors for the
    parts of an input, if there are any. Without a `head` it gives vectors alone. With `pooler` it keeps the published
    `tanh(W_p h_1 + b_p)` of the first position; with `next_sentence` this says whether the second part follows the
    first. Raises `ValueError` for layers that look only back, and for `next_sentence` without segments.
    """

    def __init__(
        self,
        features: TokenEmbedding,
        layers: Transformer,
        head: TransformedSoftmaxHead | None,
        *,
        context: int,
        segments: TokenEmbedding | None = None,
        pooler: bool = False,
        next_sentence: bool = False,
    ) -> None:
        super().__init__()
        if layers.is_causal:
            raise ValueError("a masked language model's layers look in both directions")
        if next_sentence and (segments is None or segments.vocabulary_size < 2):
            raise ValueError("a model of next sentences has two segments at least")
        self.features, self.segments, self.layers, self.context = features, segments, layers, context
        self.head = head
        d = layers.d_out
        self.pooler = nn.Sequential(nn.Linear(d, d), nn.Tanh()) if pooler or next_sentence else None
        self.next_sentence = nn.Linear(d, 2) if next_sentence else None

    @property
    def vocabulary_size(self) -> int:
        """The number of tokens in the vocabulary, V."""
        return self.features.vocabulary_size

    @property
    def num_layers(self) -> int:
        """The number of blocks."""
        return sum(isinstance(layer, PostNormBlock) for layer in self.layers)

    def forward(
        self,
        ids: Int[Tensor, "B T"],
        mask: Bool[Tensor, "B T"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T d"]:
        """The features of each position; `mask` is True on real positions, which come first (None: all).

        `segments` are all 0 unless they are given. Raises `ContextError` for more positions than were learned.
        """
        h: Tensor = self.layers(self.input(ids, segments), mask=mask)[0]
        return h

    def layers_of(
        self,
        ids: Int[Tensor, "B T"],
        mask: Bool[Tensor, "B T"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
    ) -> list[Float[Tensor, "B T d"]]:
        """The features of each position after each block; the first are those that enter the first block."""
        return layer_outputs(self.layers, self.input(ids, segments), mask)

    @property
    def reads_apart(self) -> bool:
        """Whether `layers_apart` can read texts: on a CPU, with learned positions, while nobody watches."""
        plain = all(isinstance(layer, LearnedPositions | PostNormBlock | Pointwise) for layer in self.layers)
        rotary = any(isinstance(layer, PostNormBlock) and layer.attention.rotary is not None for layer in self.layers)
        on_cpu = self.features.weight.device.type == "cpu"
        return plain and not rotary and on_cpu and not self.training and not is_watched(self)

    def layers_apart(self, ids: Int[Tensor, " N"], lengths: Sequence[int]) -> list[Float[Tensor, "N d"]]:
        """As `layers_of`, for texts of these lengths that stand one after another, without padding.

        It is fastest with texts of one length side by side.
        """
        x = self.input(ids.unsqueeze(0))
        found = [x]
        for layer in self.layers:
            if isinstance(layer, PostNormBlock):
                x = layer.apart(x, lengths)
                found.append(x)
                continue
            if isinstance(layer, LearnedPositions):
                x = x + torch.cat([weight_of(layer)[:length] for length in lengths])
            else:
                x, _ = layer(x)
            found[-1] = x
        return [output.squeeze(0) for output in found]

    def input(self, ids: Int[Tensor, "B T"], segments: Int[Tensor, "B T"] | None = None) -> Float[Tensor, "B T d"]:
        """The input of the layers: the vectors of tokens and of segments."""
        x: Tensor = self.features(ids)
        if self.segments is None:
            return x
        return x + (weight_of(self.segments)[0] if segments is None else self.segments(segments))

    def logits(
        self,
        ids: Int[Tensor, "B T"],
        places: Bool[Tensor, "B T"],
        mask: Bool[Tensor, "B T"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "N V"]:
        """The logits at the N `places`, row by row."""
        return self._head(self(ids, mask, segments)[places])

    def _head(self, h: Tensor) -> Tensor:
        assert self.head is not None
        logits: Tensor = self.head(h)
        return logits

    def hidden_nats(self, h: Float[Tensor, "B T d"], targets: Int[Tensor, "B T"]) -> MaskedNats:
        """The surprisals of the `targets` that are not `NOT_HIDDEN`, row by row, from the features of all positions."""
        places = targets != NOT_HIDDEN
        wanted = targets[places]
        logits = self._head(h[places])
        nats = exact(F.cross_entropy(logits, wanted, reduction="none"))
        return MaskedNats(nats, logits.argmax(1) == wanted)

    def total_nats(self, h: Float[Tensor, "B T d"], targets: Int[Tensor, "B T"]) -> Float[Tensor, ""]:
        """The summed surprisal of the targets that are not `NOT_HIDDEN`. No other place has logits."""
        places = targets != NOT_HIDDEN
        assert self.head is not None
        return self.head.total_nats(h[places], targets[places])

    def follows(self, h: Float[Tensor, "B T d"]) -> Float[Tensor, "B 2"]:
        """The logits of "it does not follow" and "it follows", from the features of each row's first position."""
        assert self.pooler is not None
        assert self.next_sentence is not None
        logits: Tensor = self.next_sentence(self.pooler(h[:, 0]))
        return logits


def is_next_nats(logits: Float[Tensor, "B 2"], follows: Bool[Tensor, " B"]) -> Float[Tensor, ""]:
    """The summed surprisal of whether the second parts follow."""
    return F.cross_entropy(logits, follows.to(torch.int64), reduction="sum")
