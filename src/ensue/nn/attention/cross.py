"""Attention over another text: by scaled dot products with heads, dot products, a bilinear form, or an added layer.

What is attended to is the memory that `init_state` is given. Its keys and values are worked out there, once, and are
the state, which rows of a beam share.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ensue.engine.storage import is_transformed
from ensue.nn.attention.scores import additive_scores, fused_attention, weights_over
from ensue.nn.border import weight_of
from ensue.nn.draws import dropped
from ensue.nn.dropout import checked_share
from ensue.nn.layer import Parallel, blank
from ensue.nn.taps import Tap, is_watched
from ensue.types import Memory, Shared, State, select_rows


class Source(NamedTuple):
    """The keys and values of M texts of S positions; `real` is False at padding."""

    keys: Float[Tensor, "M S d_key"]
    values: Float[Tensor, "M S d_value"]
    real: Bool[Tensor, "M S"]


class CrossAttention(Parallel):
    """Each position attends to the positions s of a memory h (M texts of S positions, `d_memory` features):

        a_ts = softmax_s(score(x_t, h_s))        y_t = Σ_s a_ts value(h_s)

    Where there is nothing to attend to, the sum is zero. The state is the `Shared` keys and values of the memory. K
    rows that read the same text (a beam) are queries of one batch, without a copy of the keys. `dropout` acts on the
    weights a. Tap: `weights`, (B, H, T, S).
    """

    num_heads = 1
    scale = 1.0

    def __init__(self, d_in: int, d_out: int, *, d_memory: int, dropout: float) -> None:
        super().__init__()
        self.d_in, self.d_out, self.d_memory = d_in, d_out, d_memory
        self.dropout = checked_share(dropout)
        self.zero: Tensor
        self.register_buffer("zero", torch.zeros(()), persistent=False)  # knows the module's device and type
        self.weights = Tap()

    @abstractmethod
    def keys_and_values(self, h: Float[Tensor, "M S d_memory"]) -> tuple[Tensor, Tensor]:
        """Of a memory: (M, S, d_key) and (M, S, d_value)."""

    def queries(self, x: Float[Tensor, "B T d_in"]) -> Float[Tensor, "B T d_key"]:
        """The queries, which are compared with the keys."""
        return x

    def finished(self, context: Float[Tensor, "B T d_value"]) -> Float[Tensor, "B T d_out"]:
        """The output."""
        return context

    def init_state(self, batch_size: int, memory: Memory | None = None) -> Shared:
        assert self.d_memory is not None
        values, mask = Memory(self.zero.new_zeros(batch_size, 0, self.d_memory)) if memory is None else memory
        real = torch.ones(values.shape[:2], dtype=torch.bool, device=values.device) if mask is None else mask
        return Shared.of(Source(*self.keys_and_values(blank(values, mask)), real))

    def forward(
        self, x: Float[Tensor, "B T d_in"], state: State = None, *, mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T d_out"], Shared]:
        state = self.init_state(len(x)) if state is None else state
        batch, length = x.shape[:2]
        queries, source = grouped(self.queries(blank(x, mask)), state)
        context = self._context(queries, source, (batch, length))
        return self.finished(context.reshape(batch, length, context.shape[2])), state

    def _context(self, queries: Tensor, source: Source, sizes: tuple[int, int]) -> Tensor:
        """(M, columns, d_value). `sizes` are rows and positions, for the tap."""
        q, k, v = (self._heads(part) for part in (queries, source.keys, source.values))
        heads = fused_attention(
            q, k, v, source.real[:, None, None], dropout=self.dropout if self.training else 0.0, is_causal=False,
            scale=self.scale, tap=partial(self._seen, sizes=sizes) if is_watched(self) else None,
        )  # fmt: skip
        return heads.transpose(1, 2).flatten(2)

    def _heads(self, part: Tensor) -> Tensor:
        """(M, H, positions, features of a head)."""
        texts, positions, features = part.shape
        return part.view(texts, positions, self.num_heads, features // self.num_heads).transpose(1, 2)

    def _seen(self, weights: Tensor, sizes: tuple[int, int]) -> Tensor:
        """Weights (M, H, columns, S) as the tap, which has them by rows and positions, gives them back."""
        batch, length = sizes
        texts, heads, columns, positions = weights.shape
        repeats = columns // length if length else 0
        rows = weights.view(texts, heads, repeats, length, positions).transpose(1, 2)
        rows = self.weights(rows.reshape(batch, heads, length, positions))
        return rows.view(texts, repeats, heads, length, positions).transpose(1, 2).reshape(weights.shape)

    def extra_repr(self) -> str:
        return f"d_in={self.d_in}, d_memory={self.d_memory}, dropout={self.dropout}"


def sources_in(state: State) -> Iterator[tuple[Source, Tensor]]:
    """The sources that a state attends to, with the text that each row reads."""
    if isinstance(state, Shared) and isinstance(state.content, Source):
        yield state.content, state.rows
    elif isinstance(state, tuple):
        for part in state:
            yield from sources_in(part)


def grouped(queries: Tensor, state: Shared) -> tuple[Tensor, Any]:
    """Queries (B, T, d_key) by texts, (M, columns, d_key), and the content that they attend to, for M texts.

    Only where rows are not in the order of the texts, the content is selected for each.
    """
    batch, length, d_key = queries.shape
    content, texts = state.content, state.texts
    records_numbers = is_transformed() and not state.rows.is_meta  # what a trace records holds for all orders
    if records_numbers or state.repeats is None:
        content, texts = select_rows(content, state.rows), batch
    columns = batch * length // texts if texts else 0
    return queries.reshape(texts, columns, d_key), content


class MultiHeadCrossAttention(CrossAttention):
    """Scaled dot products with h heads (Vaswani et al. 2017, eqs. 1 and 5); `d_out` is `d_in`:

        head_j = softmax(Q_j K_jᵀ / √d_head) V_j,   Q = W_Q x,   K, V = W_K h, W_V h,   y = W_O [head_1; ...; head_h]

    It runs as `fused_attention`. Raises `ValueError` if the heads cannot share `d_in`.
    """

    def __init__(self, d_in: int, d_memory: int, *, num_heads: int = 1, dropout: float = 0.0) -> None:
        super().__init__(d_in, d_in, d_memory=d_memory, dropout=dropout)
        if num_heads < 1 or d_in % num_heads:
            raise ValueError(f"{num_heads} heads cannot share {d_in} features")
        self.num_heads, self.scale = num_heads, 1 / math.sqrt(d_in // num_heads)
        self.project_in = nn.Linear(d_in, d_in)
        self.project_memory = nn.Linear(d_memory, 2 * d_in)
        self.project_out = nn.Linear(d_in, d_in)

    def keys_and_values(self, h: Float[Tensor, "M S d_memory"]) -> tuple[Tensor, Tensor]:
        keys, values = self.project_memory(h).chunk(2, dim=-1)
        return keys, values

    def queries(self, x: Float[Tensor, "B T d_in"]) -> Float[Tensor, "B T d_in"]:
        queries: Tensor = self.project_in(x)
        return queries

    def finished(self, context: Float[Tensor, "B T d_in"]) -> Float[Tensor, "B T d_out"]:
        y: Tensor = self.project_out(context)
        return y

    def extra_repr(self) -> str:
        return f"d_in={self.d_in}, d_memory={self.d_memory}, num_heads={self.num_heads}, dropout={self.dropout}"


class DotAttention(CrossAttention):
    """`score = x · h`, `value = h` (Luong et al. 2015, "dot"). Raises `ValueError` if x and h have different sizes."""

    def __init__(self, d_in: int, d_memory: int, *, dropout: float = 0.0) -> None:
        if d_in != d_memory:
            raise ValueError(f"dot products need as many features in x as in the memory, not {d_in} and {d_memory}")
        super().__init__(d_in, d_memory, d_memory=d_memory, dropout=dropout)

    def keys_and_values(self, h: Float[Tensor, "M S d_memory"]) -> tuple[Tensor, Tensor]:
        return h, h


class BilinearAttention(CrossAttention):
    """`score = x · W h`, `value = h` (Luong et al. 2015, "general")."""

    def __init__(self, d_in: int, d_memory: int, *, dropout: float = 0.0) -> None:
        super().__init__(d_in, d_memory, d_memory=d_memory, dropout=dropout)
        self.project_memory = nn.Linear(d_memory, d_in, bias=False)

    def keys_and_values(self, h: Float[Tensor, "M S d_memory"]) -> tuple[Tensor, Tensor]:
        return self.project_memory(h), h


class AdditiveAttention(CrossAttention):
    """`score = v · tanh(W x + U h + b)`, `value = h` (Bahdanau et al. 2015); v has `d_attention` features (d_in)."""

    def __init__(self, d_in: int, d_memory: int, *, d_attention: int | None = None, dropout: float = 0.0) -> None:
        super().__init__(d_in, d_memory, d_memory=d_memory, dropout=dropout)
        self.d_attention = d_in if d_attention is None else d_attention
        self.project_in = nn.Linear(d_in, self.d_attention, bias=False)
        self.project_memory = nn.Linear(d_memory, self.d_attention)
        self.vector = nn.Linear(self.d_attention, 1, bias=False)

    def keys_and_values(self, h: Float[Tensor, "M S d_memory"]) -> tuple[Tensor, Tensor]:
        return self.project_memory(h), h

    def queries(self, x: Float[Tensor, "B T d_in"]) -> Float[Tensor, "B T d_key"]:
        queries: Tensor = self.project_in(x)
        return queries

    def _context(self, queries: Tensor, source: Source, sizes: tuple[int, int]) -> Tensor:
        scores = self.scores(queries, source.keys)
        weights = weights_over(scores, source.real).unsqueeze(1)
        weights = self._used(self._seen(weights, sizes) if is_watched(self) else weights)
        return weights.squeeze(1).to(source.values.dtype) @ source.values

    def _used(self, weights: Tensor) -> Tensor:
        """The factors of the values, for weights (M, 1, columns, S)."""
        return dropped(weights, self.dropout) if self.training else weights

    def scores(self, queries: Tensor, keys: Tensor, added: Tensor | None = None) -> Float[Tensor, "M columns S"]:
        """Of `queries` (M, columns, d_key) at `keys` (M, S, d_key); `added` (M, columns, S, d_key) inside of tanh."""
        if added is None:
            return additive_scores(queries, keys, weight_of(self.vector)[0])
        scores: Tensor = self.vector(torch.tanh(queries.unsqueeze(2) + keys.unsqueeze(1) + added)).squeeze(3)
        return scores

    def extra_repr(self) -> str:
        return f"d_in={self.d_in}, d_memory={self.d_memory}, d_attention={self.d_attention}, dropout={self.dropout}"
