"""Causal language models."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from ensue.models.modules import device_of
from ensue.nn import SequenceLayer, SoftmaxHead, TokenEmbedding, WordSample
from ensue.types import Loss, Memory, State


class LanguageModel(nn.Module):
    """A causal language model, `P(w_1 .. w_n) = Π_t softmax(head(layers(features(w_<t))))[w_t]`.

    `context` is the maximum number of tokens that attention reads; None for models without attention, which read
    texts of any length in constant memory. Raises ValueError for layers that are not causal.
    """

    adapts = False
    """Whether reading changes the weights in the state, so that rows are read one by one (`AdaptiveModel`)."""

    def __init__(
        self, features: TokenEmbedding, layers: SequenceLayer, head: SoftmaxHead, *, context: int | None = None
    ) -> None:
        super().__init__()
        if not layers.is_causal:
            raise ValueError("a language model's layers must be causal")
        self.features, self.layers, self.head, self.context = features, layers, head, context
        self.vocabulary_size = features.vocabulary_size

    def init_state(self, batch_size: int, memory: Memory | None = None) -> State:
        """Return the state of the layers before the first token."""
        return self.layers.init_state(batch_size, memory)

    def read(
        self, ids: Int[Tensor, "B T"], state: State = None, *, mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T d"], State]:
        """Return the input of the head at each position, and the final state."""
        h, state = self.layers(self.features(ids), state, mask=mask)
        return h, state

    def forward(
        self, ids: Int[Tensor, "B T"], state: State = None, *, mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T V"], State]:
        """Return the logits of each position's next token, and the final state."""
        h, state = self.read(ids, state, mask=mask)
        return self.head(h), state

    @property
    def readers(self) -> tuple[TokenEmbedding, SequenceLayer]:
        """The embedding and the layers."""
        return self.features, self.layers

    def step(self, ids_t: Int[Tensor, " B"], state: State = None) -> tuple[Float[Tensor, "B V"], State]:
        """Return the logits of the next token after one more token in each row, and the state."""
        h, state = self.layers.step(self.features(ids_t), state)
        return self.head(h), state

    def nats(
        self, ids: Int[Tensor, "B T"], targets: Int[Tensor, "B T"], state: State = None
    ) -> tuple[Float[Tensor, "B T"], State]:
        """Return the surprisal in nats of each target (the next token at each position), and the final state."""
        h, state = self.read(ids, state)
        return self.head.nats(h, targets), state

    def loss(
        self, ids: Int[Tensor, "B T"], targets: Int[Tensor, "B T"], state: State = None, *,
        sample: WordSample | None = None,
    ) -> tuple[Loss, State]:  # fmt: skip
        """Return the sum and the number of surprisals of the targets in nats, and the final state.

        With a `sample` of the vocabulary, the loss is the sampled softmax.
        """
        h, state = self.read(ids, state)
        return Loss(self.head.total_nats(h, targets, sample=sample), targets.numel()), state


MAX_CHUNK_TOKENS = 4096
"""The maximum number of tokens, over all rows, in one forward pass."""


def read_prefixes(model: LanguageModel, rows: Sequence[NDArray[np.int64]], state: State = None) -> State:
    """Return the state after the last token of each row; for an empty row, the state before.

    Memory does not grow with the length of the rows, except for the keys and values of attention.
    """
    device = device_of(model)
    columns = max(1, MAX_CHUNK_TOKENS // len(rows))
    for start in range(0, max(len(row) for row in rows), columns):
        ids, mask = pad_rows([row[start : start + columns] for row in rows])
        chunk_mask = None if mask.all() else torch.from_numpy(mask).to(device)
        _, state = model.read(torch.from_numpy(ids).to(device), state, mask=chunk_mask)
    return state


def pad_rows(rows: Sequence[NDArray[np.int64]], value: int = 0) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return rows as an array (B, T), padded with a value on the right, and the mask (B, T) of real positions."""
    lengths = np.array([len(row) for row in rows])
    mask = np.arange(lengths.max(initial=0)) < lengths[:, None]
    ids = np.full(mask.shape, value, np.int64)
    ids[mask] = np.concatenate(rows)
    return ids, mask
