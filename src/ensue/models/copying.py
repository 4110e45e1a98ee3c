"""An encoder–decoder that can copy words of the source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ensue.models.encoder_decoder import EncoderDecoder
from ensue.models.layer_outputs import ContextualVectors
from ensue.nn import CopyingHead, CopyingState, SequenceLayer, TokenEmbedding
from ensue.types import Loss, State


class DecoderState(NamedTuple):
    """The states of the decoder's layers and of the head, which knows what can be copied."""

    decoder: State
    head: CopyingState


class CopyingEncoderDecoder(EncoderDecoder):
    """An `EncoderDecoder` with a pointer-generator as head (See et al. 2017).

    Both sides have one vocabulary of V tokens. The id V + k is the k-th word of a source that the vocabulary does not
    have; layers read `unknown_id` in its place. `coverage` weighs the loss for attending twice to the same place.
    """

    head: CopyingHead

    def __init__(
        self,
        source: TokenEmbedding,
        encoder: SequenceLayer,
        target: TokenEmbedding,
        decoder: SequenceLayer,
        head: CopyingHead,
        *,
        unknown_id: int,
        coverage: float = 0.0,
        contextual: ContextualVectors | None = None,
    ) -> None:
        super().__init__(source, encoder, target, decoder, head, contextual=contextual)
        self.unknown_id, self.coverage = unknown_id, coverage

    def start_from_counts(self, counts: Int[Tensor, " V"]) -> None:
        self.head.head.start_from_counts(counts)

    def known(self, ids: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
        """The ids that layers read."""
        return ids.where(ids < self.vocabulary_size, self.unknown_id)

    def _begin(self, sources: Tensor, mask: Tensor | None, contextual: Sequence[Tensor]) -> DecoderState:
        memory = self.encode(self.known(sources), mask, contextual)
        head = self.head.init_state(len(sources), memory, sources)
        return DecoderState(self.decoder.init_state(len(sources), memory), head)

    def forward(self, ids: Int[Tensor, "B T"], state: State = None) -> tuple[Float[Tensor, "B T words"], DecoderState]:
        """The log-probabilities of V + S words after each of `ids`, and the state after them."""
        h, decoder = self.decoder(self.target(self.known(ids)), state.decoder)
        scores, head = self.head(h, state.head)
        return scores, DecoderState(decoder, head)

    def step(self, ids_t: Int[Tensor, " B"], state: State = None) -> tuple[Float[Tensor, "B words"], DecoderState]:
        """As `forward`, for one position."""
        h, decoder = self.decoder.step(self.target(self.known(ids_t)), state.decoder)
        scores, head = self.head.step(h, state.head)
        return scores, DecoderState(decoder, head)

    def nats(self, inputs: Int[Tensor, "B T"], targets: Int[Tensor, "B T"], state: State) -> Float[Tensor, "B T"]:
        h, _ = self.decoder(self.target(self.known(inputs)), state.decoder)
        found, _ = self.head.nats(h, targets, state.head)
        return found.nats

    def _loss(self, inputs: Tensor, targets: Tensor, state: State, mask: Tensor | None) -> Loss:
        """The summed surprisal of the targets where `mask` is True, and the weighted loss of repeated attention."""
        h, _ = self.decoder(self.target(self.known(inputs)), state.decoder)
        found, _ = self.head.nats(h, targets, state.head, mask=mask)
        total = found.nats.sum()
        if self.coverage:
            total = total + self.coverage * found.repeated.sum()
        return Loss(total, targets.numel() if mask is None else int(torch.count_nonzero(mask)))
