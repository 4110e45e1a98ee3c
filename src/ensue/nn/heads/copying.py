"""A pointer-generator head: each word is generated from the vocabulary, or copied from the source."""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ensue.nn.attention.cross import AdditiveAttention, group_by_text
from ensue.nn.attention.scores import weights_over
from ensue.nn.border import expect, expect_mask, expect_memory, expect_range, expect_state
from ensue.nn.heads.softmax import SoftmaxHead
from ensue.nn.layer import mask_padding
from ensue.nn.taps import Tap
from ensue.types import Inputs, Mask, Memory, Shared, at_least_float32


class CopyingSource(NamedTuple):
    """M source texts of S positions: keys, features, the mask `real` of real positions, and ids (see `CopyingHead`)."""

    keys: Float[Tensor, "M S d_key"]
    values: Float[Tensor, "M S d_memory"]
    real: Bool[Tensor, "M S"]
    ids: Int[Tensor, "M S"]


class CopyingState(NamedTuple):
    """The sources, and the coverage: the sum of each row's attention weights so far (None without coverage)."""

    source: Shared
    coverage: Float[Tensor, "B S"] | None


class CopyingNats(NamedTuple):
    """The losses of each target in training; both are 0 at padding."""

    nats: Float[Tensor, "B T"]
    """The surprisal of the target."""
    repeated: Float[Tensor, "B T"]
    """The coverage loss Σ_i min(a_ti, c_ti); 0 without coverage."""


class SourceAttention(NamedTuple):
    """The attention to the source: weights, weighted sums of features, the coverage loss, and the state."""

    weights: Float[Tensor, "B T S"]
    context: Float[Tensor, "B T d_memory"]
    coverage_loss: Float[Tensor, "B T"]
    state: CopyingState


class CopyingHead(nn.Module):
    """A pointer-generator (See et al. 2017) over the outputs s_t of any decoder and a memory h_1 .. h_S of the source:

        a_t = softmax_i v · tanh(W_s s_t + W_h h_i + w_c c_ti + b)        c_t = Σ_{t' < t} a_t'
        p_t = σ(w · [s_t; h*_t] + b'),   h*_t = Σ_i a_ti h_i
        P(w) = p_t softmax(head(W_o [s_t; h*_t] + b''))[w] + (1 - p_t) Σ_{i: x_i = w} a_ti

    The vocabulary of V words is extended by the out-of-vocabulary words of each source: word k of them (from 0) has the
    id V + k in `source_ids`. So the head returns V + S log probabilities, -inf for ids that the source does not use.
    The p_t of See et al. also reads the decoder's input. This term is left out, since s_t depends on the input.

    The coverage c reduces repetition; the coverage loss is `CopyingNats.repeated`. With `coverage`, weights are
    computed position by position. For an empty source, p_t is 1. Taps: `weights` (B, T, S), and p_t as `generates`.
    """

    def __init__(
        self, d_in: int, head: SoftmaxHead, *, d_memory: int, d_attention: int | None = None, coverage: bool = False
    ) -> None:
        super().__init__()
        self.d_in, self.d_memory, self.vocabulary_size = d_in, d_memory, head.vocabulary_size
        self.head = head
        self.attention = AdditiveAttention(d_in, d_memory, d_attention=d_attention)
        self.combine = nn.Linear(d_in + d_memory, head.d_in)
        self.generate = nn.Linear(d_in + d_memory, 1)
        self.cover = nn.Linear(1, self.attention.d_attention, bias=False) if coverage else None
        self.weights, self.generates = Tap(), Tap()

    def init_state(
        self, batch_size: int, memory: Memory | None = None, source_ids: Int[Tensor, "B S"] | None = None
    ) -> CopyingState:
        """Return the state before the first word. Without a memory, the source is empty.

        Raises `ValueError` for wrong sizes and ids, and `TypeError` for wrong types.
        """
        if memory is None:
            memory = Memory(self.generate.weight.new_zeros(batch_size, 0, self.d_memory))
            source_ids = torch.zeros(batch_size, 0, dtype=torch.int64, device=memory.values.device)
        expect_memory(self, batch_size, memory)
        where, like = f"{type(self).__name__}.init_state", memory.values
        expect(where, "source_ids", source_ids, tuple(like.shape[:2]), torch.int64, like=like)
        assert source_ids is not None
        state = self.attention.init_state(batch_size, memory)
        ids = source_ids.masked_fill(~state.content.real, 0)
        self.check_ids(where, ids)
        coverage = None if self.cover is None else like.new_zeros(like.shape[:2], dtype=at_least_float32(like.dtype))
        keys, values, real = state.content
        return CopyingState(state._replace(content=CopyingSource(keys, values, real, ids)), coverage)

    def forward(
        self, s: Inputs, state: CopyingState, *, mask: Mask = None
    ) -> tuple[Float[Tensor, "B T words"], CopyingState]:
        """Return the log probabilities of V + S words at each position, and the final state.

        Raises `ValueError` for wrong sizes and `TypeError` for wrong types of features, state and mask.
        """
        self.check("forward", s, state, mask)
        attended = self._attend(s, state, mask)
        logits, generate, copy = self._scores(s, attended)
        ids = self._ids(state).unsqueeze(1).expand_as(attended.weights)
        words = self.vocabulary_size + ids.shape[2]
        copied = attended.weights.new_zeros(*s.shape[:2], words).scatter_add(2, ids, attended.weights)
        copied = _add_log(copy.unsqueeze(2), copied)
        generated = generate.unsqueeze(2) + logits.log_softmax(-1)
        in_vocabulary, other_words = copied[..., : self.vocabulary_size], copied[..., self.vocabulary_size :]
        return torch.cat((torch.logaddexp(generated, in_vocabulary), other_words), dim=2), attended.state

    def step(self, s_t: Float[Tensor, "B d_in"], state: CopyingState) -> tuple[Float[Tensor, "B words"], CopyingState]:
        """Compute `forward` for one position."""
        expect(f"{type(self).__name__}.step", "s", s_t, ("rows", self.d_in), self.generate.weight.dtype)
        scores, state = self(s_t.unsqueeze(1), state)
        return scores.squeeze(1), state

    def nats(
        self, s: Inputs, targets: Int[Tensor, "B T"], state: CopyingState, *, mask: Mask = None
    ) -> tuple[CopyingNats, CopyingState]:
        """Return the surprisal of each target in nats, the coverage loss, and the final state.

        Target ids from V on are out-of-vocabulary words of the source; nats of words not in the source are infinite.
        """
        self.check("nats", s, state, mask)
        expect(f"{type(self).__name__}.nats", "targets", targets, tuple(s.shape[:2]), torch.int64, like=s)
        attended = self._attend(s, state, mask)
        logits, generate, copy = self._scores(s, attended)
        is_known = targets < self.vocabulary_size
        known = targets.where(is_known, 0)
        generated = generate - F.cross_entropy(logits.flatten(0, 1), known.flatten(), reduction="none").view_as(known)
        copied = (attended.weights * (self._ids(state).unsqueeze(1) == targets.unsqueeze(2))).sum(2)
        log_p = torch.logaddexp(generated.masked_fill(~is_known, -torch.inf), _add_log(copy, copied))
        nats = (-log_p).masked_fill(log_p == -torch.inf, torch.inf)  # stops the gradient, which would be NaN
        if mask is not None:
            nats = nats.masked_fill(~mask, 0.0)
        return CopyingNats(nats, attended.coverage_loss), attended.state

    def _attend(self, s: Tensor, state: CopyingState, mask: Tensor | None) -> SourceAttention:
        queries, source = group_by_text(self.attention.queries(mask_padding(s, mask)), state.source)
        batch, length = s.shape[:2]
        sizes = (batch, length, source.ids.shape[1])
        coverage_loss = s.new_zeros(batch, length)
        if self.cover is None:
            weights = weights_over(self.attention.scores(queries, source.keys), source.real)
        else:
            weights, coverage_loss, coverage = self._attend_with_coverage(queries, source, state, length, mask)
            state = state._replace(coverage=coverage)
        tapped = self.weights(weights.view(sizes))
        context = (tapped.view_as(weights).to(source.values.dtype) @ source.values).view(batch, length, self.d_memory)
        return SourceAttention(tapped, context, coverage_loss, state)

    def _attend_with_coverage(
        self, queries: Tensor, source: Any, state: CopyingState, length: int, mask: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return weights by text (M, queries of a text, S), the coverage loss (B, T), and the final coverage (B, S)."""
        assert self.cover is not None
        assert state.coverage is not None
        coverage = state.coverage
        texts, (batch, positions) = len(queries), coverage.shape
        repeats = batch // texts if texts else 0
        by_position = queries.view(texts, repeats, length, queries.shape[2])
        by_step, losses = [], []
        for t in range(length):
            added = self.cover(coverage.to(queries.dtype).view(texts, repeats, positions, 1))
            scores = self.attention.scores(by_position[:, :, t], source.keys, added)
            weights = weights_over(scores, source.real).view(batch, positions)
            weights = weights if mask is None else weights * mask[:, t : t + 1]
            by_step.append(weights)
            losses.append(torch.minimum(weights, coverage).sum(1))
            coverage = coverage + weights
        if not by_step:
            return queries.new_zeros(texts, 0, positions), queries.new_zeros(batch, 0), coverage
        weights = torch.stack(by_step, dim=1).view(texts, repeats * length, positions)
        return weights, torch.stack(losses, dim=1), coverage

    def _scores(self, s: Tensor, attended: SourceAttention) -> tuple[Tensor, Tensor, Tensor]:
        """Return the logits of the vocabulary (B, T, V), and the logarithms of p_t and of 1 - p_t (B, T)."""
        joined = torch.cat((s, attended.context), dim=-1)
        dtype = attended.weights.dtype  # float32 at least, also under autocast
        z = self.generate(joined).squeeze(2).to(dtype)
        p = z.sigmoid()
        tapped = self.generates(p)
        z = z if tapped is p else tapped.logit()
        source = attended.state.source
        has_source = source.content.real.any(1)[source.rows].unsqueeze(1)
        generate, copy = F.logsigmoid(z).where(has_source, 0.0), F.logsigmoid(-z).where(has_source, -torch.inf)
        return self.head(self.combine(joined)).to(dtype), generate, copy

    def _ids(self, state: CopyingState) -> Tensor:
        """Return the source ids of each row, (B, S)."""
        return state.source.content.ids[state.source.rows]

    def check_ids(self, where: str, ids: Int[Tensor, "B S"]) -> None:
        """Raise ValueError for ids beyond the vocabulary and the words of the source."""
        expect_range(where, "source_ids", ids, self.vocabulary_size + ids.shape[1] - 1)

    def check(self, name: str, s: Tensor, state: CopyingState, mask: Tensor | None) -> None:
        """Raise ValueError for wrong sizes and TypeError for wrong types of features, state and mask."""
        where, like = f"{type(self).__name__}.{name}", self.generate.weight
        expect(where, "s", s, ("rows", "positions", self.d_in), like.dtype, like=like)
        expect_mask(where, mask, s)
        if not isinstance(state, CopyingState):
            raise TypeError(f"{where} expects state as CopyingState, found {type(state).__name__}")
        expect_state(self, where, "state.source", state.source, len(s), lambda: self.init_state(1).source)
        if self.cover is not None:
            sizes = (len(s), state.source.content.ids.shape[1])
            expect(where, "state.coverage", state.coverage, sizes, at_least_float32(like.dtype), like=like)

    def extra_repr(self) -> str:
        return f"d_in={self.d_in}, d_memory={self.d_memory}, coverage={self.cover is not None}"


def _add_log(copy: Tensor, p: Tensor) -> Tensor:
    """Return `copy + log(p)`, and -inf without a gradient where p is 0."""
    return (copy + p.clamp(min=torch.finfo(p.dtype).tiny).log()).masked_fill(p <= 0, -torch.inf)
