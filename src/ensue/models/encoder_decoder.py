"""The probability of a text, given another text; an encoder–decoder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ensue.models.layer_outputs import ContextualVectors
from ensue.nn import CopyingHead, CopyingState, SequenceLayer, TokenEmbedding
from ensue.types import Loss, Memory, State


class TextModel(nn.Module, ABC):
    """`P(y_1 .. y_n | x) = Π_t softmax(head(decoder(target(y_<t))))[y_t]`, from the decoder's state after `begin`.

    A beam search or a sampler steps it as it steps a language model. Raises `ValueError` for a decoder that looks
    ahead.
    """

    head: Any
    """A `SoftmaxHead`, or what a subclass has in its place."""

    def __init__(
        self,
        target: TokenEmbedding,
        decoder: SequenceLayer,
        head: nn.Module,
        *,
        label_smoothing: float = 0.0,
        **reading: nn.Module | None,
    ) -> None:
        super().__init__()
        if not decoder.is_causal:
            raise ValueError("a decoder's layers must be causal")
        for name, module in reading.items():
            self.add_module(name, module)
        self.reading = tuple(reading)
        self.target, self.decoder, self.head = target, decoder, head
        self.label_smoothing = label_smoothing

    def passed_parts(self) -> Iterator[nn.Module]:
        """The parts in the order in which a text passes them: first those that read the source."""
        read = (getattr(self, name) for name in self.reading)
        yield from (part for part in (*read, self.target, self.decoder, self.head) if part is not None)

    @property
    def vocabulary_size(self) -> int:
        """The number of tokens that can be written, V."""
        return self.target.vocabulary_size

    def start_from_counts(self, counts: Int[Tensor, " V"]) -> None:
        """Sets the biases of the softmax to the targets' log frequencies."""
        self.head.start_from_counts(counts)

    @property
    @abstractmethod
    def readers(self) -> tuple[nn.Module, SequenceLayer]:
        """The vectors and the layers that read the source."""

    def begin(
        self, sources: Tensor, mask: Bool[Tensor, "B S"] | None = None, contextual: Sequence[Tensor] = ()
    ) -> State:
        """The state before the first token of the texts for these sources: ids (B, S), or vectors (B, S, d). `mask` is
        True at real ones, and `contextual` are the sources' words in the layers of other models, (B, S, _, _).
        """
        return self._begin(sources, mask, contextual)

    @abstractmethod
    def _begin(self, sources: Tensor, mask: Tensor | None, contextual: Sequence[Tensor]) -> State: ...

    def forward(self, ids: Int[Tensor, "B T"], state: State = None) -> tuple[Float[Tensor, "B T V"], State]:
        """The logits of the token after each of `ids`, and the state after them."""
        h, state = self.decoder(self.target(ids), state)
        return self.head(h), state

    def step(self, ids_t: Int[Tensor, " B"], state: State = None) -> tuple[Float[Tensor, "B V"], State]:
        """The logits of the next token after one more token in each row, and the state after it."""
        h, state = self.decoder.step(self.target(ids_t), state)
        return self.head(h), state

    def nats(self, inputs: Int[Tensor, "B T"], targets: Int[Tensor, "B T"], state: State) -> Float[Tensor, "B T"]:
        """The surprisal in nats of each target, the token after the input in its place."""
        h, _ = self.decoder(self.target(inputs), state)
        nats: Tensor = self.head.nats(h, targets)
        return nats

    def loss(
        self,
        inputs: Int[Tensor, "B T"],
        targets: Int[Tensor, "B T"],
        state: State,
        *,
        mask: Bool[Tensor, "B T"] | None = None,
    ) -> Loss:
        """The summed loss of the targets where `mask` is True, with their number: surprisal, or with label smoothing
        the cross-entropy with the smoothed target.
        """
        return self._loss(inputs, targets, state, mask)

    def _loss(self, inputs: Tensor, targets: Tensor, state: State, mask: Tensor | None) -> Loss:
        h, _ = self.decoder(self.target(inputs), state)
        if mask is not None:  # padding is at the right, where a causal decoder lets it reach nothing
            h, targets = h[mask], targets[mask]
        else:
            h, targets = h.flatten(0, 1), targets.flatten()
        return Loss(self.head.total_nats(h, targets, label_smoothing=self.label_smoothing), targets.numel())


class EncoderDecoder(TextModel):
    """A text model that attends to a memory of the source, `encoder(source(x))`, which enters the decoder's state once.

    Source: Sutskever et al. 2014; with attention Bahdanau et al. 2015, Vaswani et al. 2017.
    """

    source: TokenEmbedding
    contextual: ContextualVectors | None
    encoder: SequenceLayer

    def __init__(
        self,
        source: TokenEmbedding,
        encoder: SequenceLayer,
        target: TokenEmbedding,
        decoder: SequenceLayer,
        head: nn.Module,
        *,
        label_smoothing: float = 0.0,
        contextual: ContextualVectors | None = None,
    ) -> None:
        super().__init__(
            target,
            decoder,
            head,
            label_smoothing=label_smoothing,
            source=source,
            contextual=contextual,
            encoder=encoder,
        )

    @property
    def readers(self) -> tuple[TokenEmbedding, SequenceLayer]:
        return self.source, self.encoder

    def features(self, ids: Int[Tensor, "B S"], contextual: Sequence[Tensor] = ()) -> Float[Tensor, "B S d"]:
        """The input of the encoder: the vectors of the sources' tokens, beside those of other models."""
        x: Tensor = self.source(ids)
        return x if self.contextual is None else torch.cat((x, self.contextual(contextual)), dim=-1)

    def encode(
        self, ids: Int[Tensor, "B S"], mask: Bool[Tensor, "B S"] | None = None, contextual: Sequence[Tensor] = ()
    ) -> Memory:
        """The memory of sources, as `begin` has them."""
        h, _ = self.encoder(self.features(ids, contextual), mask=mask)
        return Memory(h, mask)

    def init_state(self, batch_size: int, memory: Memory | None = None) -> State:
        """The state of the decoder before the first token, from what `encode` returned."""
        return self.decoder.init_state(batch_size, memory)

    def _begin(self, sources: Tensor, mask: Tensor | None, contextual: Sequence[Tensor]) -> State:
        return self.init_state(len(sources), self.encode(sources, mask, contextual))


def right_shifted(targets: Int[Tensor, "B T"], begin_id: int) -> Int[Tensor, "B T"]:
    """The input of a decoder in training: the begin symbol, then each target but the last."""
    return torch.cat((targets.new_full((len(targets), 1), begin_id), targets[:, :-1]), dim=1)


class DecoderOnly(TextModel):
    """`P(y_1 .. y_n | x) = Π_t softmax(head(layers(x δ y_<t)))[y_t]`: one text, in which δ, the begin symbol, stands
    between source and output (SLP ch. 9; Radford et al. 2018).

    The loss counts behind δ only. Both sides have one vocabulary and one table of vectors. The state after the source
    is that of the layers, so the source is read once.
    """

    @property
    def readers(self) -> tuple[TokenEmbedding, SequenceLayer]:
        return self.target, self.decoder

    def _begin(self, sources: Tensor, mask: Tensor | None, contextual: Sequence[Tensor]) -> State:
        _, state = self.decoder(self.target(sources), mask=mask)
        return state


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
