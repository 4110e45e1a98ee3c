"""Multi-head self-attention with its keys and values as state."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from itertools import groupby
from typing import Any, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ensue.engine.storage import appended
from ensue.nn.attention.positions import Disentangled, RelativeBias, Rotary, advanced, numbered, turned
from ensue.nn.attention.scores import fused_attention
from ensue.nn.dropout import checked_share
from ensue.nn.layer import Parallel, blank
from ensue.nn.taps import Tap, is_watched
from ensue.types import Memory, State, owned

OptionsT = TypeVar("OptionsT", bound="AttentionOptions")
_rows: ContextVar[int] = ContextVar("rows", default=0)


@contextmanager
def row_by_row(count: int) -> Iterator[None]:
    """Inside of this block, self-attention of one position reads the first `count` rows one by one, without padding.

    With padding a row's sums are added up in another order. The real positions of a row have to be its last ones, as
    `ensue.types.concatenate_rows` has them. Rows behind `count` get what the first one gets.
    """
    token = _rows.set(count)
    try:
        yield
    finally:
        _rows.reset(token)


def attended_by_row(
    queries: Float[Tensor, "B H 1 d"], keys: Float[Tensor, "B H S d"], values: Float[Tensor, "B H S d"],
    real: Bool[Tensor, "B S"],
) -> Float[Tensor, "B H 1 d"]:  # fmt: skip
    """Attention to the real positions of each row."""
    count = _rows.get()
    found: list[Tensor] = []
    for row, size in enumerate(real[:count].sum(1).tolist()):
        start = keys.shape[2] - size
        of_row = (queries[row, None], keys[row, None, :, start:], values[row, None, :, start:])
        # How a kernel adds up depends on whether its numbers begin at a multiple of 64 bytes.
        q, k, v = (tensor if tensor.data_ptr() % 64 == 0 else tensor.clone() for tensor in of_row)
        found.append(F.scaled_dot_product_attention(q, k, v))
    return torch.cat([*found, *found[:1] * (len(queries) - count)])


class KVState(NamedTuple):
    """The keys and values of the S positions read so far, which of them are real, and the number of real ones."""

    keys: Float[Tensor, "B H S d_head"]
    values: Float[Tensor, "B H S d_head"]
    real: Bool[Tensor, "B S"]
    position: Int[Tensor, " B"]

    def __reduce__(self) -> tuple[type[KVState], tuple[Tensor, ...]]:
        """Pickles and copies have neither free room nor positions of later states."""
        return KVState, owned(tuple(self), with_room=False)

    @property
    def grows(self) -> int:
        """S, which is 0 at the beginning."""
        return self.keys.shape[2]

    def resized(self, length: int) -> KVState:
        """This state with S = `length`; see `ensue.types.Growing`."""
        more = length - self.keys.shape[2]
        if more == 0:
            return self
        keys, values = (F.pad(part, (0, 0, more, 0)) for part in (self.keys, self.values))
        return KVState(keys, values, F.pad(self.real, (more, 0)), self.position)

    def unused(self) -> int:
        """How many positions on the left are real in no row."""
        used = self.real.any(0)
        return int(used.int().argmax()) if used.any() else len(used)


@dataclass(frozen=True, kw_only=True)
class AttentionOptions:
    """The options of `MultiHeadAttention`."""

    num_heads: int
    dropout: float = 0.0
    """Dropout on the attention weights."""
    is_causal: bool = True
    """Whether a position attends to itself and earlier positions only."""
    rotary: bool = False
    """Whether rotary positions turn queries and keys."""
    rotary_share: float = 1.0
    """The share of a head's features that rotary positions turn, the first ones."""
    rotary_base: float = 10_000.0
    """The b of the rotary frequencies b^(-2i/d)."""
    relative_buckets: int = 0
    """Buckets of distances, each with a number that is added to scores; 0: none."""
    farthest: int = 0
    """The largest distance of disentangled positions, which have `relative_buckets` on each side; 0: no such ones."""
    neighbors: int = 0
    """Neighbors to each side that a position attends to; 0: all."""

    def to(self, kind: type[OptionsT], **changes: Any) -> OptionsT:
        """The options that the class `kind` has, with changes."""
        return kind(**{field.name: getattr(self, field.name) for field in fields(kind)} | changes)

    def __str__(self) -> str:
        """The options that have no default or another value, as arguments of a call."""
        values = ((field, getattr(self, field.name)) for field in fields(self))
        return ", ".join(f"{field.name}={value!r}" for field, value in values if value != field.default)


class MultiHeadAttention(Parallel):
    """Self-attention with h heads (Vaswani et al. 2017, eqs. 1 and 5):

        head_j = softmax(Q_j K_jᵀ / √d_head) V_j,   Q, K, V = W_Q x, W_K x, W_V x,   y = W_O [head_1; ...; head_h]

    In a causal layer a position attends to itself and to earlier real positions, otherwise to all real positions, or to
    as many neighbors to each side as `neighbors` says. With `relative_buckets` a `RelativeBias` is added to the scores.
    With `farthest` too they are `Disentangled`: the score of i and j is (Q_i K_jᵀ + Q_i (W_K P)ᵀ + W_Q P K_jᵀ) /
    √(3 d_head), where P is the vector of their distance. `dropout` acts on the attention weights. It runs as
    `fused_attention`. Tap: `weights`, (B, H, T, S). Raises `ValueError` if the heads cannot share `d_model`, and for
    buckets or neighbors if it is causal.
    """

    def __init__(self, d_model: int, options: AttentionOptions | None = None, **keywords: Any) -> None:
        """`keywords` are the fields of `AttentionOptions`, which may also be passed as one object."""
        super().__init__()
        self.options = options = options or AttentionOptions(**keywords)
        num_heads, is_causal = options.num_heads, options.is_causal
        if num_heads < 1 or d_model % num_heads:
            raise ValueError(f"{num_heads} heads cannot share {d_model} features")
        self.d_in = self.d_out = d_model
        self.num_heads, self.d_head, self.is_causal = num_heads, d_model // num_heads, is_causal
        self.dropout = checked_share(options.dropout)
        self.project_in = nn.Linear(d_model, 3 * d_model)
        self.project_out = nn.Linear(d_model, d_model)
        buckets, farthest = options.relative_buckets, options.farthest
        if is_causal and (buckets or farthest or options.neighbors):
            raise ValueError("relative positions and neighbors alone are for attention that looks in both directions")
        self.neighbors = options.neighbors
        self.relative: Disentangled | RelativeBias | None = None
        if farthest:
            self.relative = Disentangled(d_model, buckets, farthest=farthest)
        elif buckets:
            self.relative = RelativeBias(num_heads, buckets)
        self.terms = 3 if farthest else 1
        """The number of products that a score is the sum of."""
        rotary = Rotary(self.d_head, share=options.rotary_share, base=options.rotary_base) if options.rotary else None
        self.rotary = rotary
        self.weights = Tap()

    def init_state(self, batch_size: int, memory: Memory | None = None) -> KVState:
        empty = self.project_in.weight.new_zeros(batch_size, self.num_heads, 0, self.d_head)
        real = torch.zeros(batch_size, 0, dtype=torch.bool, device=empty.device)
        return KVState(empty, empty, real, real.sum(1))

    def forward(
        self, x: Float[Tensor, "B T d_in"], state: State = None, *, mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T d_out"], KVState]:
        if state is not None and not self.is_causal:
            raise TypeError("attention that looks ahead reads whole sequences and takes no initial state")
        is_first, state = state is None, self.init_state(len(x)) if state is None else state
        queries, keys, values = self._heads(self.project_in(blank(x, mask)))
        if self.rotary is not None:
            positions = numbered(state.position[:1] if is_first else state.position, x.shape[1])
            queries, keys = turned(self.rotary.table(positions, queries.dtype), queries, keys)
        before, from_start = state, state.keys.shape[2] == 0
        state = self._extended(before, keys, values, mask)
        # Padding comes last: no real position of a causal layer sees it, and outputs there are unspecified.
        if from_start and (mask is None or self.is_causal) and not is_watched(self):
            heads = self._fused(queries, keys, values, self._near(x.shape[1]))
        else:
            is_next = mask is None and x.shape[1] == 1  # one position, which attends to all that is real
            if is_next and _rows.get() and not is_watched(self):
                heads = attended_by_row(queries, state.keys, state.values, state.real)
            else:
                allowed = state.real[:, None, None] if is_next else self._allowed(state.real, x.shape[1])
                heads = self._fused(queries, state.keys, state.values, allowed)
        y = self.project_out(heads.transpose(1, 2).flatten(2))
        if not self.is_causal:  # nothing goes on from here
            return y, before
        return y, owned(state) if from_start and not torch.is_grad_enabled() else state

    def apart(self, x: Float[Tensor, "1 N d_in"], lengths: Sequence[int]) -> Float[Tensor, "1 N d_out"]:
        """The outputs for texts that stand one after another, of these lengths, none of which sees another one.

        There is no padding. Texts of one length that stand side by side are computed together. It has no rotary
        positions and no dropout.
        """
        assert self.rotary is None
        queries_keys_values, heads, start = self.project_in(x)[0], [], 0
        for length, group in groupby(lengths):
            count = sum(1 for _ in group)
            part = queries_keys_values[start : start + count * length]
            queries, keys, values = self._heads(part.view(count, length, -1))
            found = self._fused(queries, keys, values, self._near(length))
            heads.append(found.transpose(1, 2).reshape(count * length, self.d_out))
            start += count * length
        y: Tensor = self.project_out(torch.cat(heads).unsqueeze(0))
        return y

    def _heads(self, projected: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, each (B, H, T, d_head)."""
        queries, keys, values = projected.view(*projected.shape[:2], 3, self.num_heads, self.d_head).unbind(2)
        return queries.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2)

    def _extended(self, state: KVState, keys: Tensor, values: Tensor, mask: Tensor | None) -> KVState:
        new = keys.new_ones(len(keys), keys.shape[2], dtype=torch.bool) if mask is None else mask
        joined = appended(state.keys, keys, dim=2), appended(state.values, values, dim=2)
        return KVState(*joined, appended(state.real, new, dim=1), advanced(state.position, keys.shape[2], mask))

    def _fused(self, queries: Tensor, keys: Tensor, values: Tensor, allowed: Tensor | None) -> Tensor:
        return fused_attention(
            queries, keys, values, allowed, dropout=self.dropout if self.training else 0.0,
            is_causal=self.is_causal and allowed is None, scale=1 / math.sqrt(self.terms * self.d_head),
            bias=self._bias(queries, keys), tap=self.weights if is_watched(self) else None,
        )  # fmt: skip

    def _bias(self, queries: Tensor, keys: Tensor) -> Tensor | None:
        """The numbers (B or 1, H, T, T) that are added to the scaled scores."""
        if not isinstance(self.relative, Disentangled):
            return None if self.relative is None else self.relative(queries.shape[2]).unsqueeze(0)
        vectors, places = self.relative(queries.shape[2])
        their_queries, their_keys, _ = self._heads(self.project_in(vectors.unsqueeze(0)))
        shape = (*queries.shape[:3], queries.shape[2])
        with_queries = (queries @ their_keys.transpose(2, 3)).gather(3, places.expand(shape))
        with_keys = (keys @ their_queries.transpose(2, 3)).gather(3, places.t().expand(shape))
        return (with_queries + with_keys.transpose(2, 3)) / math.sqrt(self.terms * self.d_head)

    def _allowed(self, real: Tensor, length: int) -> Tensor:
        """Which of the S positions each of the last `length` attends to, (B, 1, T, S); always to itself."""
        columns = torch.arange(real.shape[1], device=real.device)
        queries = columns[real.shape[1] - length :].unsqueeze(1)
        itself = columns == queries
        past = columns <= queries if self.is_causal else torch.ones_like(itself)
        near = self._near(length)
        return ((real.unsqueeze(1) & (past if near is None else near[0])) | itself).unsqueeze(1)

    def _near(self, length: int) -> Tensor | None:
        """Which of `length` keys are neighbors of each query, (1, 1, T, T); None for all."""
        if not self.neighbors:
            return None
        places = torch.arange(length, device=self.project_in.weight.device)
        return ((places.unsqueeze(1) - places).abs() <= self.neighbors)[None, None]

    def extra_repr(self) -> str:
        return f"d_model={self.d_in}, {self.options}"
