"""A language model that writes a text behind its source, in place of an encoder and a decoder."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Bool, Float, Int
from torch import Tensor

from ensue.models.encoder_decoder import TextModel
from ensue.nn import SequenceLayer, TokenEmbedding
from ensue.types import State


class DecoderOnly(TextModel):
    """`P(y_1 .. y_n | x) = Π_t softmax(head(layers(x δ y_<t)))[y_t]`: one text, in which δ, the begin symbol, stands
    between source and output (SLP ch. 9; Radford et al. 2018).

    The loss counts behind δ only. Both sides have one vocabulary and one table of vectors. The state after the source
    is that of the layers, so the source is read once.
    """

    @property
    def readers(self) -> tuple[TokenEmbedding, SequenceLayer]:
        return self.target, self.decoder

    def begin(
        self,
        sources: Int[Tensor, "B S"],
        mask: Bool[Tensor, "B S"] | None = None,
        contextual: Sequence[Float[Tensor, "B S _ _"]] = (),
    ) -> State:
        _, state = self.decoder(self.target(sources), mask=mask)
        return state
