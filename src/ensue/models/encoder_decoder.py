"""Encoder–decoders, and other models of the probability of a text given another text."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ensue.models.layer_outputs import ContextualVectors
from ensue.nn import CopyingHead, CopyingState, SequenceLayer, TokenEmbedding
from ensue.types import Loss, Mask, Memory, State


class TextModel(nn.Module, ABC):
    """A model of texts given a source, `P(y_1 .. y_n | x) = Π_t softmax(head(decoder(target(y_<t))))[y_t]`.

    The decoder starts from the state of `begin`. The model has the `step` of a language model, for beam search and
    sampling. `source_modules` names the modules that read the source. Raises ValueError if the decoder is not causal.
    """

    head: Any
    """A `SoftmaxHead`, or a `CopyingHead`."""

    def __init__(
        self, target: TokenEmbedding, decoder: SequenceLayer, head: nn.Module, *, label_smoothing: float = 0.0,
        **source_modules: nn.Module | None,
    ) -> None:  # fmt: skip
        super().__init__()
        if not decoder.is_causal:
            raise ValueError("a decoder's layers must be causal")
        for name, module in source_modules.items():
            self.add_module(name, module)
        self.source_modules = tuple(source_modules)
        self.target, self.decoder, self.head = target, decoder, head
        self.label_smoothing, self.vocabulary_size = label_smoothing, target.vocabulary_size

    def modules_in_order(self) -> Iterator[nn.Module]:
        """Yield the modules in the order of computation."""
        source_modules = (getattr(self, name) for name in self.source_modules)
        yield from (module for module in (*source_modules, self.target, self.decoder, self.head) if module is not None)

    def start_from_counts(self, counts: Int[Tensor, " V"]) -> None:
        """Set the biases of the softmax to the targets' log frequencies."""
        self.head.start_from_counts(counts)

    @property
    @abstractmethod
    def readers(self) -> tuple[nn.Module, SequenceLayer]:
        """The embedding and the layers that read the source."""

    @abstractmethod
    def begin(
        self, sources: Tensor, mask: Bool[Tensor, "B S"] | None = None, contextual: Sequence[Tensor] = ()
    ) -> State:
        """Return the state before the first target token; `contextual` are vectors of other models."""

    def forward(self, ids: Int[Tensor, "B T"], state: State = None) -> tuple[Float[Tensor, "B T V"], State]:
        """Return the logits of the token after each of `ids`, and the final state."""
        h, state = self.decoder(self.target(ids), state)
        return self.head(h), state

    def step(self, ids_t: Int[Tensor, " B"], state: State = None) -> tuple[Float[Tensor, "B V"], State]:
        """Return the logits of the next token after one more token in each row, and the state."""
        h, state = self.decoder.step(self.target(ids_t), state)
        return self.head(h), state

    def nats(self, inputs: Int[Tensor, "B T"], targets: Int[Tensor, "B T"], state: State) -> Float[Tensor, "B T"]:
        """Return the surprisal in nats of each target, which is the next token at its position."""
        h, _ = self.decoder(self.target(inputs), state)
        return self.head.nats(h, targets)

    def loss(self, inputs: Int[Tensor, "B T"], targets: Int[Tensor, "B T"], state: State, *, mask: Mask = None) -> Loss:
        """Return the sum and the number of losses where `mask` is True.

        The loss is the surprisal in nats, or with label smoothing the cross-entropy with smoothed targets.
        """
        h, _ = self.decoder(self.target(inputs), state)
        if mask is not None:  # the decoder is causal and padding is on the right, so it needs no mask
            h, targets = h[mask], targets[mask]
        else:
            h, targets = h.flatten(0, 1), targets.flatten()
        return Loss(self.head.total_nats(h, targets, label_smoothing=self.label_smoothing), targets.numel())


class EncoderDecoder(TextModel):
    """A text model whose decoder starts from a memory of the source, `encoder(source(x))`.

    Sutskever et al. 2014; with attention Bahdanau et al. 2015 and Vaswani et al. 2017.
    """

    source: TokenEmbedding
    contextual: ContextualVectors | None
    encoder: SequenceLayer

    def __init__(
        self, source: TokenEmbedding, encoder: SequenceLayer, target: TokenEmbedding, decoder: SequenceLayer,
        head: nn.Module, *, label_smoothing: float = 0.0, contextual: ContextualVectors | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            target, decoder, head, label_smoothing=label_smoothing, source=source, contextual=contextual,
            encoder=encoder,
        )  # fmt: skip

    @property
    def readers(self) -> tuple[TokenEmbedding, SequenceLayer]:
        return self.source, self.encoder

    def features(self, ids: Int[Tensor, "B S"], contextual: Sequence[Tensor] = ()) -> Float[Tensor, "B S d"]:
        """Return the input of the encoder: token vectors, concatenated with contextual features."""
        x: Tensor = self.source(ids)
        return x if self.contextual is None else torch.cat((x, self.contextual(contextual)), dim=-1)

    def encode(
        self, ids: Int[Tensor, "B S"], mask: Bool[Tensor, "B S"] | None = None, contextual: Sequence[Tensor] = ()
    ) -> Memory:
        """Return the memory of sources, from the arguments of `begin`."""
        h, _ = self.encoder(self.features(ids, contextual), mask=mask)
        return Memory(h, mask)

    def init_state(self, batch_size: int, memory: Memory | None = None) -> State:
        """Return the state of the decoder before the first token, from the memory of `encode`."""
        return self.decoder.init_state(batch_size, memory)

    def begin(self, sources: Tensor, mask: Tensor | None = None, contextual: Sequence[Tensor] = ()) -> State:
        return self.init_state(len(sources), self.encode(sources, mask, contextual))


def right_shifted(targets: Int[Tensor, "B T"], begin_id: int) -> Int[Tensor, "B T"]:
    """Return the input of a decoder in training: the begin symbol, then all targets but the last."""
    return torch.cat((targets.new_full((len(targets), 1), begin_id), targets[:, :-1]), dim=1)


class DecoderOnly(TextModel):
    """A text model without an encoder, `P(y_1 .. y_n | x) = Π_t softmax(head(layers(x δ y_<t)))[y_t]`.

    Source and target are one text, with the begin symbol δ between them (Radford et al. 2018). They share vocabulary
    and embedding. The loss is over target tokens only. `begin` returns the state after the source.
    """

    @property
    def readers(self) -> tuple[TokenEmbedding, SequenceLayer]:
        return self.target, self.decoder

    def begin(self, sources: Tensor, mask: Tensor | None = None, contextual: Sequence[Tensor] = ()) -> State:
        _, state = self.decoder(self.target(sources), mask=mask)
        return state


class DecoderState(NamedTuple):
    """The states of the decoder's layers and of the copying head."""

    decoder: State
    head: CopyingState


class CopyingEncoderDecoder(EncoderDecoder):
    """An `EncoderDecoder` with a pointer-generator as head (See et al. 2017).

    Both sides share a vocabulary of V tokens. The id V + k is out-of-vocabulary word k of a source; layers read
    `unknown_id` in its place. `coverage` is the weight of the coverage loss.
    """

    head: CopyingHead

    def __init__(
        self, source: TokenEmbedding, encoder: SequenceLayer, target: TokenEmbedding, decoder: SequenceLayer,
        head: CopyingHead, *, unknown_id: int, coverage: float = 0.0, contextual: ContextualVectors | None = None,
    ) -> None:  # fmt: skip
        super().__init__(source, encoder, target, decoder, head, contextual=contextual)
        self.unknown_id, self.coverage = unknown_id, coverage

    def start_from_counts(self, counts: Int[Tensor, " V"]) -> None:
        self.head.head.start_from_counts(counts)

    def replace_unknown(self, ids: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
        """Return ids in which `unknown_id` replaces out-of-vocabulary words."""
        return ids.where(ids < self.vocabulary_size, self.unknown_id)

    def begin(self, sources: Tensor, mask: Tensor | None = None, contextual: Sequence[Tensor] = ()) -> DecoderState:
        memory = self.encode(self.replace_unknown(sources), mask, contextual)
        head = self.head.init_state(len(sources), memory, sources)
        return DecoderState(self.decoder.init_state(len(sources), memory), head)

    def forward(self, ids: Int[Tensor, "B T"], state: State = None) -> tuple[Float[Tensor, "B T words"], DecoderState]:
        """Return the log-probabilities of V + S words after each of `ids`, and the final state."""
        h, decoder = self.decoder(self.target(self.replace_unknown(ids)), state.decoder)
        scores, head = self.head(h, state.head)
        return scores, DecoderState(decoder, head)

    def step(self, ids_t: Int[Tensor, " B"], state: State = None) -> tuple[Float[Tensor, "B words"], DecoderState]:
        h, decoder = self.decoder.step(self.target(self.replace_unknown(ids_t)), state.decoder)
        scores, head = self.head.step(h, state.head)
        return scores, DecoderState(decoder, head)

    def nats(self, inputs: Int[Tensor, "B T"], targets: Int[Tensor, "B T"], state: State) -> Float[Tensor, "B T"]:
        h, _ = self.decoder(self.target(self.replace_unknown(inputs)), state.decoder)
        losses, _ = self.head.nats(h, targets, state.head)
        return losses.nats

    def loss(self, inputs: Tensor, targets: Tensor, state: State, *, mask: Tensor | None = None) -> Loss:
        """Return the summed surprisal where `mask` is True, plus the weighted coverage loss."""
        h, _ = self.decoder(self.target(self.replace_unknown(inputs)), state.decoder)
        losses, _ = self.head.nats(h, targets, state.head, mask=mask)
        total = losses.nats.sum()
        if self.coverage:
            total = total + self.coverage * losses.repeated.sum()
        return Loss(total, targets.numel() if mask is None else int(torch.count_nonzero(mask)))
