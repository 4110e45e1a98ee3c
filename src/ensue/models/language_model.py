"""A causal language model: the probability of each next token, given all tokens before it."""

from __future__ import annotations

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ensue.nn import SequenceLayer, SoftmaxHead, TokenEmbedding, WordSample
from ensue.types import Loss, Memory, State


class LanguageModel(nn.Module):
    """`P(w_1 .. w_n) = Π_t softmax(head(layers(features(w_<t))))[w_t]` (SLP ch. 9).

    `context` is the number of tokens that attention reads, or None for a model that reads texts of any length in
    constant memory. Raises `ValueError` for layers that look ahead.
    """

    def __init__(
        self, features: TokenEmbedding, layers: SequenceLayer, head: SoftmaxHead, *, context: int | None = None
    ) -> None:
        super().__init__()
        if not layers.is_causal:
            raise ValueError("a language model's layers must be causal")
        self.features, self.layers, self.head, self.context = features, layers, head, context

    @property
    def vocabulary_size(self) -> int:
        """The number of tokens in the vocabulary, V."""
        return self.features.vocabulary_size

    def init_state(self, batch_size: int, memory: Memory | None = None) -> State:
        """The state of the layers before the first token."""
        return self.layers.init_state(batch_size, memory)

    def read(
        self, ids: Int[Tensor, "B T"], state: State = None, *, mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T d"], State]:
        """The input of the head at each position, and the final state."""
        h, state = self.layers(self.features(ids), state, mask=mask)
        return h, state

    def forward(
        self, ids: Int[Tensor, "B T"], state: State = None, *, mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T V"], State]:
        """The logits of each position's next token, and the final state."""
        h, state = self.read(ids, state, mask=mask)
        return self.head(h), state

    @property
    def readers(self) -> tuple[TokenEmbedding, SequenceLayer]:
        """The vectors and the layers that read a text."""
        return self.features, self.layers

    def step(self, ids_t: Int[Tensor, " B"], state: State = None) -> tuple[Float[Tensor, "B V"], State]:
        """The logits of the next token after one more token in each row, and the state after it."""
        h, state = self.layers.step(self.features(ids_t), state)
        return self.head(h), state

    def nats(
        self, ids: Int[Tensor, "B T"], targets: Int[Tensor, "B T"], state: State = None
    ) -> tuple[Float[Tensor, "B T"], State]:
        """The surprisal in nats of each target, the token after the id in its place; and the final state."""
        h, state = self.read(ids, state)
        return self.head.nats(h, targets), state

    def loss(
        self,
        ids: Int[Tensor, "B T"],
        targets: Int[Tensor, "B T"],
        state: State = None,
        *,
        sample: WordSample | None = None,
    ) -> tuple[Loss, State]:
        """The summed surprisal of all targets with their number, which training minimizes, and the final state.

        With a `sample` of the vocabulary it is estimated from the words of this sample.
        """
        h, state = self.read(ids, state)
        return Loss(self.head.total_nats(h, targets, sample=sample), targets.numel()), state
