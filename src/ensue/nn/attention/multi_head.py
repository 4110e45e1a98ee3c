"""Multi-head self-attention, with keys and values as state."""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from itertools import groupby
from typing import Any, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ensue.engine.storage import ALIGNED_BYTES, appended
from ensue.nn.attention.positions import Disentangled, RelativeBias, Rotary, advance, positions_after, rotate
from ensue.nn.attention.scores import fused_attention
from ensue.nn.draws import check_probability
from ensue.nn.layer import Parallel, mask_padding
from ensue.nn.recurrent.initialization import features_per_head
from ensue.nn.taps import Tap, is_watched
from ensue.types import Inputs, Mask, Memory, Outputs, State, change_temporarily, copy_views

OptionsT = TypeVar("OptionsT", bound="AttentionOptions")
_rows: ContextVar[int] = ContextVar("rows", default=0)


def row_by_row(count: int) -> AbstractContextManager[None]:
    """Compute self-attention of each row alone, without padding, in a `with` block, when rows have a single position.

    Padding changes the order in which a row's terms are added, and thereby the rounding of the sum. Padding has to be
    on the left, as after `ensue.types.concatenate_rows`. Rows after the first `count` get the result of row 0.
    """
    return change_temporarily(_rows.set, count, _rows.get())


def attend_by_row(
    queries: Float[Tensor, "B H 1 d"], keys: Float[Tensor, "B H S d"], values: Float[Tensor, "B H S d"],
    real: Bool[Tensor, "B S"],
) -> Float[Tensor, "B H 1 d"]:  # fmt: skip
    """Attend to the real positions of every row, inside `row_by_row`."""
    count = _rows.get()
    heads: list[Tensor] = []
    for row, size in enumerate(real[:count].sum(1).tolist()):
        start = keys.shape[2] - size
        arguments = (queries[row, None], keys[row, None, :, start:], values[row, None, :, start:])
        # The order of a kernel's sums depends on the alignment of its arguments.
        q, k, v = (tensor if tensor.data_ptr() % ALIGNED_BYTES == 0 else tensor.clone() for tensor in arguments)
        heads.append(F.scaled_dot_product_attention(q, k, v))
    return torch.cat([*heads, *heads[:1] * (len(queries) - count)])


class KVState(NamedTuple):
    """The keys and values of the S positions read so far, the mask `real`, and each row's number of real positions."""

    keys: Float[Tensor, "B H S d_head"]
    values: Float[Tensor, "B H S d_head"]
    real: Bool[Tensor, "B S"]
    position: Int[Tensor, " B"]

    def __reduce__(self) -> "tuple[type[KVState], tuple[Tensor, ...]]":
        """Pickle and copy the tensors without the unused space of their buffers, which later states share."""
        return KVState, copy_views(tuple(self), with_room=False)

    @property
    def num_positions(self) -> int:
        """The number of positions S; 0 in an initial state."""
        return self.keys.shape[2]

    def resized(self, length: int) -> "KVState":
        """Return this state with S = `length`; see `ensue.types.Growing`."""
        more = length - self.keys.shape[2]
        if more == 0:
            return self
        keys, values = (F.pad(tensor, (0, 0, more, 0)) for tensor in (self.keys, self.values))
        return KVState(keys, values, F.pad(self.real, (more, 0)), self.position)

    def num_unused(self) -> int:
        """Return the number of positions on the left that are padding in all rows."""
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
    """Whether queries and keys have rotary positions."""
    rotary_share: float = 1.0
    """The fraction of a head's features that rotary positions rotate, from the first feature on."""
    rotary_base: float = 10_000.0
    """The b of the rotary frequencies b^(-2i/d)."""
    relative_buckets: int = 0
    """The number of buckets of distances, each with a bias of attention scores; 0: no relative positions."""
    farthest: int = 0
    """The largest distance of disentangled positions, which have `relative_buckets` buckets on each side; 0: none."""
    neighbors: int = 0
    """The number of neighbors on each side to which a position attends; 0: all positions."""

    def to(self, cls: type[OptionsT], **changes: Any) -> OptionsT:
        """Return an object of the class `cls` with these options and changes."""
        return cls(**{field.name: getattr(self, field.name) for field in fields(cls)} | changes)

    def __str__(self) -> str:
        """Return the options that differ from their defaults, as arguments of a call."""
        values = ((field, getattr(self, field.name)) for field in fields(self))
        return ", ".join(f"{field.name}={value!r}" for field, value in values if value != field.default)


class MultiHeadAttention(Parallel):
    """Self-attention with h heads (Vaswani et al. 2017, eqs. 1 and 5):

        head_j = softmax(Q_j K_jᵀ / √d_head) V_j,   Q, K, V = W_Q x, W_K x, W_V x,   y = W_O [head_1; ...; head_h]

    In a causal layer a position attends to itself and to earlier real positions; otherwise to all real positions, or to
    `neighbors` real positions on each side. `dropout` acts on the attention weights. Tap: `weights`, (B, H, T, S).

    With `relative_buckets`, a `RelativeBias` is added to the scores. With `farthest` too, positions are `Disentangled`:
    the score of positions i and j is (Q_i K_jᵀ + Q_i (W_K P)ᵀ + W_Q P K_jᵀ) / √(3 d_head), where P is the vector of the
    distance between i and j. Raises ValueError unless `num_heads` divides `d_model`, and for a causal layer with
    relative positions or neighbors.
    """

    def __init__(self, d_model: int, options: AttentionOptions | None = None, **keywords: Any) -> None:
        """Build the layer from `options`, or from the fields of `AttentionOptions` as keywords."""
        super().__init__()
        self.options = options = options or AttentionOptions(**keywords)
        num_heads, is_causal = options.num_heads, options.is_causal
        self.d_in = self.d_out = d_model
        self.num_heads, self.d_head, self.is_causal = num_heads, features_per_head(d_model, num_heads), is_causal
        self.dropout = check_probability(options.dropout)
        self.project_in = nn.Linear(d_model, 3 * d_model)
        self.project_out = nn.Linear(d_model, d_model)
        buckets, farthest = options.relative_buckets, options.farthest
        if is_causal and (buckets or farthest or options.neighbors):
            raise ValueError("relative positions and `neighbors` need bidirectional attention, is_causal=False")
        self.neighbors = options.neighbors
        self.relative: Disentangled | RelativeBias | None = None
        if farthest:
            self.relative = Disentangled(d_model, buckets, farthest=farthest)
        elif buckets:
            self.relative = RelativeBias(num_heads, buckets)
        self.terms = 3 if farthest else 1
        """The number of products in the sum of a score."""
        self.rotary = (
            Rotary(self.d_head, share=options.rotary_share, base=options.rotary_base) if options.rotary else None
        )
        self.weights = Tap()

    def init_state(self, batch_size: int, memory: Memory | None = None) -> KVState:
        empty = self.project_in.weight.new_zeros(batch_size, self.num_heads, 0, self.d_head)
        real = torch.zeros(batch_size, 0, dtype=torch.bool, device=empty.device)
        return KVState(empty, empty, real, real.sum(1))

    def forward(self, x: Inputs, state: State = None, *, mask: Mask = None) -> tuple[Outputs, KVState]:
        if state is not None and not self.is_causal:
            raise TypeError("attention that is not causal reads whole sequences and takes no initial state")
        is_first, state = state is None, self.init_state(len(x)) if state is None else state
        queries, keys, values = self._split_heads(self.project_in(mask_padding(x, mask)))
        if self.rotary is not None:
            positions = positions_after(state.position[:1] if is_first else state.position, x.shape[1])
            queries, keys = rotate(self.rotary.table(positions, queries.dtype), queries, keys)
        before, from_start = state, state.keys.shape[2] == 0
        state = self._extend(before, keys, values, mask)
        # Padding comes last: real positions of a causal layer do not attend to it. Outputs at padding are unspecified.
        if from_start and (mask is None or self.is_causal) and not is_watched(self):
            heads = self._attend(queries, keys, values, self._neighbor_mask(x.shape[1]))
        else:
            is_single = mask is None and x.shape[1] == 1  # a single position attends to all real positions
            if is_single and _rows.get() and not is_watched(self):
                heads = attend_by_row(queries, state.keys, state.values, state.real)
            else:
                allowed = state.real[:, None, None] if is_single else self._attention_mask(state.real, x.shape[1])
                heads = self._attend(queries, state.keys, state.values, allowed)
        y = self.project_out(heads.transpose(1, 2).flatten(2))
        if not self.is_causal:  # no call continues from the state
            return y, before
        return y, copy_views(state) if from_start and not torch.is_grad_enabled() else state

    def forward_packed(self, x: Float[Tensor, "1 N d_in"], lengths: Sequence[int]) -> Float[Tensor, "1 N d_out"]:
        """Return the outputs of concatenated texts of these `lengths`. Each text attends to itself only.

        Adjacent texts of equal length are computed together. Layers with rotary positions are not supported.
        """
        assert self.rotary is None
        queries_keys_values, heads, start = self.project_in(x)[0], [], 0
        for length, group in groupby(lengths):
            count = sum(1 for _ in group)
            projected = queries_keys_values[start : start + count * length]
            queries, keys, values = self._split_heads(projected.view(count, length, -1))
            attended = self._attend(queries, keys, values, self._neighbor_mask(length))
            heads.append(attended.transpose(1, 2).reshape(count * length, self.d_out))
            start += count * length
        return self.project_out(torch.cat(heads).unsqueeze(0))

    def _split_heads(self, projected: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Split a projection into queries, keys and values, each (B, H, T, d_head)."""
        queries, keys, values = projected.view(*projected.shape[:2], 3, self.num_heads, self.d_head).unbind(2)
        return queries.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2)

    def _extend(self, state: KVState, keys: Tensor, values: Tensor, mask: Tensor | None) -> KVState:
        new = keys.new_ones(len(keys), keys.shape[2], dtype=torch.bool) if mask is None else mask
        joined = appended(state.keys, keys, dim=2), appended(state.values, values, dim=2)
        return KVState(*joined, appended(state.real, new, dim=1), advance(state.position, keys.shape[2], mask))

    def _attend(self, queries: Tensor, keys: Tensor, values: Tensor, allowed: Tensor | None) -> Tensor:
        return fused_attention(
            queries, keys, values, allowed, dropout=self.dropout if self.training else 0.0,
            is_causal=self.is_causal and allowed is None, scale=1 / math.sqrt(self.terms * self.d_head),
            bias=self._bias(queries, keys), tap=self.weights if is_watched(self) else None,
        )  # fmt: skip

    def _bias(self, queries: Tensor, keys: Tensor) -> Tensor | None:
        """Return the bias (B or 1, H, T, T) of the scaled scores."""
        if not isinstance(self.relative, Disentangled):
            return None if self.relative is None else self.relative(queries.shape[2]).unsqueeze(0)
        vectors, indices = self.relative(queries.shape[2])
        position_queries, position_keys, _ = self._split_heads(self.project_in(vectors.unsqueeze(0)))
        shape = (*queries.shape[:3], queries.shape[2])
        with_queries = (queries @ position_keys.transpose(2, 3)).gather(3, indices.expand(shape))
        with_keys = (keys @ position_queries.transpose(2, 3)).gather(3, indices.t().expand(shape))
        return (with_queries + with_keys.transpose(2, 3)) / math.sqrt(self.terms * self.d_head)

    def _attention_mask(self, real: Tensor, length: int) -> Tensor:
        """Return the mask (B, 1, T, S) of keys for the last `length` positions. Each position attends to itself."""
        columns = torch.arange(real.shape[1], device=real.device)
        queries = columns[real.shape[1] - length :].unsqueeze(1)
        itself = columns == queries
        past = columns <= queries if self.is_causal else torch.ones_like(itself)
        neighbors = self._neighbor_mask(length)
        return ((real.unsqueeze(1) & (past if neighbors is None else neighbors[0])) | itself).unsqueeze(1)

    def _neighbor_mask(self, length: int) -> Tensor | None:
        """Return the mask (1, 1, T, T) of keys that are neighbors of each query; None: all keys."""
        if not self.neighbors:
            return None
        positions = torch.arange(length, device=self.project_in.weight.device)
        return ((positions.unsqueeze(1) - positions).abs() <= self.neighbors)[None, None]

    def extra_repr(self) -> str:
        return f"d_model={self.d_in}, {self.options}"
