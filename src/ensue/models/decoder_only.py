"""A language model that writes a text behind its source, in place of an encoder and a decoder."""

from __future__ import annotations

from jaxtyping import Bool, Int
from torch import Tensor

from ensue.models.encoder_decoder import EncoderDecoder
from ensue.nn import SequenceLayer, SoftmaxHead, TokenEmbedding
from ensue.types import Memory, State


class DecoderOnly(EncoderDecoder):
    """`P(y_1 .. y_n | x) = Π_t softmax(head(layers(x δ y_<t)))[y_t]`: one text, in which δ, the begin symbol, stands
    between source and output (SLP ch. 9; Radford et al. 2018).

    The loss counts behind δ only. Both sides have one vocabulary and one table of vectors. The state after the source
    is that of the layers, so the source is read once.
    """

    def __init__(
        self, target: TokenEmbedding, decoder: SequenceLayer, head: SoftmaxHead, *, label_smoothing: float = 0.0
    ) -> None:
        super().__init__(target, decoder, target, decoder, head, label_smoothing=label_smoothing)

    def encode(self, ids: Int[Tensor, "B S"], mask: Bool[Tensor, "B S"] | None = None) -> Memory:
        """There is no memory beside the state that `begin` returns."""
        raise TypeError("DecoderOnly has no encoder; begin reads the sources")

    def begin(self, sources: Int[Tensor, "B S"], mask: Bool[Tensor, "B S"] | None = None) -> State:
        _, state = self.decoder(self.target(sources), mask=mask)
        return state
