"""Masked language models."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ensue.data.corpus.examples import NOT_HIDDEN
from ensue.models.layer_outputs import layer_outputs
from ensue.nn import LearnedPositions, Pointwise, PostNormBlock, TokenEmbedding, TransformedSoftmaxHead, Transformer
from ensue.nn.border import get_weight
from ensue.nn.taps import is_watched
from ensue.types import to_float64


class MaskedNats(NamedTuple):
    """The surprisals (N,) of N masked tokens in float64, and the mask (N,) of tokens that were the most probable."""

    nats: Tensor
    is_best: Tensor


class MaskedLanguageModel(nn.Module):
    """A masked language model, `P(w_t | text) = softmax(head(layers(E[w] + S[segment])_t))[w_t]` (Devlin et al. 2019).

    Args:
        features: The token embedding E.
        layers: Bidirectional layers, which add positions.
        head: The softmax; None for a model that only returns vectors.
        context: The largest number of positions.
        segments: The segment embedding S.
        pooler: Whether the model has a pooler `tanh(W_p h_1 + b_p)` of the first position.
        next_sentence: Whether a head on the pooler predicts whether the second segment follows the first segment.

    Raises:
        ValueError: The layers are causal, or next-sentence prediction lacks two segments.
    """

    def __init__(
        self, features: TokenEmbedding, layers: Transformer, head: TransformedSoftmaxHead | None, *, context: int,
        segments: TokenEmbedding | None = None, pooler: bool = False, next_sentence: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        if layers.is_causal:
            raise ValueError("a masked language model needs bidirectional layers")
        if next_sentence and (segments is None or segments.vocabulary_size < 2):
            raise ValueError("next-sentence prediction needs at least two segments")
        self.features, self.segments, self.layers, self.context = features, segments, layers, context
        self.head, self.vocabulary_size = head, features.vocabulary_size
        d = layers.d_out
        self.pooler = nn.Sequential(nn.Linear(d, d), nn.Tanh()) if pooler or next_sentence else None
        self.next_sentence = nn.Linear(d, 2) if next_sentence else None

    @property
    def num_layers(self) -> int:
        """The number of blocks."""
        return sum(isinstance(layer, PostNormBlock) for layer in self.layers)

    def forward(
        self, ids: Int[Tensor, "B T"], mask: Bool[Tensor, "B T"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T d"]:  # fmt: skip
        """Return the features of each position. `mask` is True at real positions, which come first."""
        return self.layers(self.input(ids, segments), mask=mask)[0]

    def layers_of(
        self, ids: Int[Tensor, "B T"], mask: Bool[Tensor, "B T"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
    ) -> list[Float[Tensor, "B T d"]]:  # fmt: skip
        """Return the features before the first block and after each block."""
        return layer_outputs(self.layers, self.input(ids, segments), mask)

    @property
    def can_read_packed(self) -> bool:
        """Whether `packed_layers` supports the model: in evaluation on a CPU, not rotary, without watched taps."""
        plain = all(isinstance(layer, LearnedPositions | PostNormBlock | Pointwise) for layer in self.layers)
        rotary = any(isinstance(layer, PostNormBlock) and layer.attention.rotary is not None for layer in self.layers)
        on_cpu = self.features.weight.device.type == "cpu"
        return plain and not rotary and on_cpu and not self.training and not is_watched(self)

    def packed_layers(self, ids: Int[Tensor, " N"], lengths: Sequence[int]) -> list[Float[Tensor, "N d"]]:
        """Return the outputs of `layers_of` for concatenated texts of these lengths, without padding.

        This is fastest if texts of the same length are adjacent.
        """
        x = self.input(ids.unsqueeze(0))
        outputs = [x]
        for layer in self.layers:
            if isinstance(layer, PostNormBlock):
                x = layer.forward_packed(x, lengths)
                outputs.append(x)
                continue
            if isinstance(layer, LearnedPositions):
                x = x + torch.cat([get_weight(layer)[:length] for length in lengths])
            else:
                x, _ = layer(x)
            outputs[-1] = x
        return [output.squeeze(0) for output in outputs]

    def input(self, ids: Int[Tensor, "B T"], segments: Int[Tensor, "B T"] | None = None) -> Float[Tensor, "B T d"]:
        """Return the input of the layers: the sum of token and segment vectors."""
        x: Tensor = self.features(ids)
        if self.segments is None:
            return x
        return x + (get_weight(self.segments)[0] if segments is None else self.segments(segments))

    def logits(
        self, ids: Int[Tensor, "B T"], places: Bool[Tensor, "B T"], mask: Bool[Tensor, "B T"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "N V"]:  # fmt: skip
        """Return the logits at the N positions where `places` is True, row by row."""
        return self._head(self(ids, mask, segments)[places])

    def _head(self, h: Tensor) -> Tensor:
        assert self.head is not None
        return self.head(h)

    def masked_nats(self, h: Float[Tensor, "B T d"], targets: Int[Tensor, "B T"]) -> MaskedNats:
        """Return the surprisals of the masked tokens from the features. Other tokens have the target `NOT_HIDDEN`."""
        is_masked = targets != NOT_HIDDEN
        masked_ids, logits = targets[is_masked], self._head(h[is_masked])
        nats = to_float64(F.cross_entropy(logits, masked_ids, reduction="none"))
        return MaskedNats(nats, logits.argmax(1) == masked_ids)

    def total_nats(self, h: Float[Tensor, "B T d"], targets: Int[Tensor, "B T"]) -> Float[Tensor, ""]:
        """Return the summed surprisal of the masked tokens. Logits are computed at masked positions only."""
        is_masked = targets != NOT_HIDDEN
        assert self.head is not None
        return self.head.total_nats(h[is_masked], targets[is_masked])

    def next_sentence_logits(self, h: Float[Tensor, "B T d"]) -> Float[Tensor, "B 2"]:
        """Return the logits of "the second segment does not follow" and "follows", from the first position."""
        assert self.pooler is not None
        assert self.next_sentence is not None
        return self.next_sentence(self.pooler(h[:, 0]))
