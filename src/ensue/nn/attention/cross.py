"""Cross-attention: multi-head, dot-product, bilinear and additive, and attention before the cell.

`init_state` computes the keys and values of the memory once. They are the state, which the rows of a beam share.
"""

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ensue.engine.storage import is_transformed
from ensue.nn.attention.scores import additive_scores, fused_attention, weights_over
from ensue.nn.border import get_weight
from ensue.nn.draws import apply_dropout, check_probability, uniform
from ensue.nn.layer import Parallel, Recurrent, SequenceLayer, mask_padding
from ensue.nn.pooling import MeanPooling
from ensue.nn.recurrent.initialization import features_per_head
from ensue.nn.taps import Tap, is_watched
from ensue.types import Inputs, Mask, Memory, Outputs, Shared, State, select_rows


class Source(NamedTuple):
    """The keys and values of M texts of S positions, and the mask `real`, which is False at padding."""

    keys: Float[Tensor, "M S d_key"]
    values: Float[Tensor, "M S d_value"]
    real: Bool[Tensor, "M S"]


class CrossAttention(Parallel):
    """Attention from each position t to the positions s of a memory h (M texts of S positions, `d_memory` features):

        a_ts = softmax_s(score(x_t, h_s))        y_t = Σ_s a_ts value(h_s)

    Without real positions, the sum is zero. The state is the `Shared` keys and values of the memory. If K rows
    read the same text (a beam), their queries are multiplied by its keys at once. `dropout` acts on the weights a.
    Tap: `weights`, (B, H, T, S).
    """

    repr_arguments: tuple[str, ...] = ("d_in", "d_memory", "dropout")
    num_heads = 1
    scale = 1.0
    project_memory: nn.Module

    @abstractmethod
    def __init__(self, d_in: int, d_out: int, *, d_memory: int, dropout: float) -> None:
        super().__init__()
        self.d_in, self.d_out, self.d_memory = d_in, d_out, d_memory
        self.dropout = check_probability(dropout)
        self.zero: Tensor
        self.register_buffer("zero", torch.zeros(()), persistent=False)  # has the module's device and type
        self.weights = Tap()

    def keys_and_values(self, h: Float[Tensor, "M S d_memory"]) -> tuple[Tensor, Tensor]:
        """Return the keys (M, S, d_key) and values (M, S, d_value) of a memory."""
        return self.project_memory(h), h

    def queries(self, x: Inputs) -> Float[Tensor, "B T d_key"]:
        """Return the queries of the inputs x."""
        return x

    def finished(self, context: Float[Tensor, "B T d_value"]) -> Outputs:
        """Return the output from the weighted sums of values."""
        return context

    def init_state(self, batch_size: int, memory: Memory | None = None) -> Shared:
        assert self.d_memory is not None
        values, mask = Memory(self.zero.new_zeros(batch_size, 0, self.d_memory)) if memory is None else memory
        real = torch.ones(values.shape[:2], dtype=torch.bool, device=values.device) if mask is None else mask
        return Shared.of(Source(*self.keys_and_values(mask_padding(values, mask)), real))

    def forward(self, x: Inputs, state: State = None, *, mask: Mask = None) -> tuple[Outputs, Shared]:
        state = self.init_state(len(x)) if state is None else state
        batch, length = x.shape[:2]
        queries, source = group_by_text(self.queries(mask_padding(x, mask)), state)
        context = self._context(queries, source, (batch, length))
        return self.finished(context.reshape(batch, length, context.shape[2])), state

    def _context(self, queries: Tensor, source: Source, sizes: tuple[int, int]) -> Tensor:
        """Return the weighted sums (M, queries of a text, d_value). `sizes` are B and T, for the tap."""
        q, k, v = map(self._split_heads, (queries, source.keys, source.values))
        heads = fused_attention(
            q, k, v, source.real[:, None, None], dropout=self.dropout if self.training else 0.0, is_causal=False,
            scale=self.scale, tap=partial(self._tap_weights, sizes=sizes) if is_watched(self) else None,
        )  # fmt: skip
        return heads.transpose(1, 2).flatten(2)

    def _split_heads(self, x: Tensor) -> Tensor:
        """Split (M, positions, features) into (M, H, positions, features of a head)."""
        texts, positions, features = x.shape
        return x.view(texts, positions, self.num_heads, features // self.num_heads).transpose(1, 2)

    def _tap_weights(self, weights: Tensor, sizes: tuple[int, int]) -> Tensor:
        """Pass weights (M, H, queries of a text, S) through the tap, as (B, H, T, S)."""
        batch, length = sizes
        texts, heads, columns, positions = weights.shape
        repeats = columns // length if length else 0
        rows = weights.view(texts, heads, repeats, length, positions).transpose(1, 2)
        rows = self.weights(rows.reshape(batch, heads, length, positions))
        return rows.view(texts, repeats, heads, length, positions).transpose(1, 2).reshape(weights.shape)


def iterate_sources(state: State) -> Iterator[tuple[Source, Tensor]]:
    """Yield the sources inside a state, each with the index of the text that each row reads."""
    if isinstance(state, Shared) and isinstance(state.content, Source):
        yield state.content, state.rows
    elif isinstance(state, tuple):
        for item in state:
            yield from iterate_sources(item)


def group_by_text(queries: Tensor, state: Shared) -> tuple[Tensor, Any]:
    """Return the queries (B, T, d_key), grouped by text as (M, B · T / M, d_key), and the content of the M texts.

    Unless the rows are in the order of the texts, the content is copied for each row, and M is B.
    """
    batch, length, d_key = queries.shape
    content, texts = state.content, state.num_texts
    is_traced = is_transformed() and not state.rows.is_meta  # a trace has to be valid for all orders of rows
    if is_traced or state.repeats is None:
        content, texts = select_rows(content, state.rows), batch
    columns = batch * length // texts if texts else 0
    return queries.reshape(texts, columns, d_key), content


class MultiHeadCrossAttention(CrossAttention):
    """Scaled dot-product attention with H heads (Vaswani et al. 2017, eqs. 1 and 5); `d_out` is `d_in`:

        head_j = softmax(Q_j K_jᵀ / √d_head) V_j,   Q = W_Q x,   K, V = W_K h, W_V h,   y = W_O [head_1; ...; head_H]

    Raises ValueError unless `num_heads` divides `d_in`.
    """

    repr_arguments = ("d_in", "d_memory", "num_heads", "dropout")

    def __init__(self, d_in: int, d_memory: int, *, num_heads: int = 1, dropout: float = 0.0) -> None:
        super().__init__(d_in, d_in, d_memory=d_memory, dropout=dropout)
        self.num_heads, self.scale = num_heads, 1 / math.sqrt(features_per_head(d_in, num_heads))
        self.project_in = nn.Linear(d_in, d_in)
        self.project_memory = nn.Linear(d_memory, 2 * d_in)
        self.project_out = nn.Linear(d_in, d_in)

    def keys_and_values(self, h: Float[Tensor, "M S d_memory"]) -> tuple[Tensor, Tensor]:
        keys, values = self.project_memory(h).chunk(2, dim=-1)
        return keys, values

    def queries(self, x: Inputs) -> Inputs:
        return self.project_in(x)

    def finished(self, context: Inputs) -> Outputs:
        return self.project_out(context)


class DotAttention(CrossAttention):
    """Attention with `score = x · h`, `value = h` (Luong et al. 2015, "dot"). Raises ValueError for different sizes."""

    def __init__(self, d_in: int, d_memory: int, *, dropout: float = 0.0) -> None:
        if d_in != d_memory:
            raise ValueError(f"dot products need d_in = d_memory, found {d_in} and {d_memory}")
        super().__init__(d_in, d_memory, d_memory=d_memory, dropout=dropout)

    def keys_and_values(self, h: Float[Tensor, "M S d_memory"]) -> tuple[Tensor, Tensor]:
        return h, h


class BilinearAttention(CrossAttention):
    """Attention with `score = x · W h`, `value = h` (Luong et al. 2015, "general")."""

    def __init__(self, d_in: int, d_memory: int, *, dropout: float = 0.0) -> None:
        super().__init__(d_in, d_memory, d_memory=d_memory, dropout=dropout)
        self.project_memory = nn.Linear(d_memory, d_in, bias=False)


class AdditiveAttention(CrossAttention):
    """Attention with `score = v · tanh(W x + U h + b)`, `value = h` (Bahdanau et al. 2015).

    v has `d_attention` features, by default d_in.
    """

    repr_arguments = ("d_in", "d_memory", "d_attention", "dropout")

    def __init__(self, d_in: int, d_memory: int, *, d_attention: int | None = None, dropout: float = 0.0) -> None:
        super().__init__(d_in, d_memory, d_memory=d_memory, dropout=dropout)
        self.d_attention = d_in if d_attention is None else d_attention
        self.project_in = nn.Linear(d_in, self.d_attention, bias=False)
        self.project_memory = nn.Linear(d_memory, self.d_attention)
        self.vector = nn.Linear(self.d_attention, 1, bias=False)

    def queries(self, x: Inputs) -> Float[Tensor, "B T d_key"]:
        return self.project_in(x)

    def _context(self, queries: Tensor, source: Source, sizes: tuple[int, int]) -> Tensor:
        weights = weights_over(self.scores(queries, source.keys), source.real).unsqueeze(1)
        weights = self._select(self._tap_weights(weights, sizes) if is_watched(self) else weights)
        return weights.squeeze(1).to(source.values.dtype) @ source.values

    def _select(self, weights: Tensor) -> Tensor:
        """Return the weights of the sum; `HardAttention` overrides this method."""
        return apply_dropout(weights, self.dropout) if self.training else weights

    def scores(self, queries: Tensor, keys: Tensor, added: Tensor | None = None) -> Float[Tensor, "M columns S"]:
        """Return the scores of `queries` (M, columns, d_key) and `keys` (M, S, d_key); `added` is added inside tanh."""
        if added is None:
            return additive_scores(queries, keys, get_weight(self.vector)[0])
        return self.vector(torch.tanh(queries.unsqueeze(2) + keys.unsqueeze(1) + added)).squeeze(3)


class BeforeState(NamedTuple):
    """The output h of the cell (the next query), the state of the cell, and the memory."""

    h: Float[Tensor, "B d_cell"]
    inner: State
    memory: Shared


class AttentionBefore(Recurrent):
    """Attention before the cell, with the gate β of the context (Xu et al. 2015, sections 3.1.2 and 4.2.1):

        ẑ_t = β_t Σ_i α_ti a_i,   α_t = softmax_i f_att(a_i, h_{t-1}),   β_t = σ(w · h_{t-1} + b)
        h_t = cell([x_t; ẑ_t], h_{t-1})        y_t = tanh(W [x_t; h_t; ẑ_t])

    f_att is the score of `attention`, and h_0 = tanh(U ā + c) with the mean ā of the memory. The initial state of
    `cell` is `cell.init_state`, which depends on the memory if `cell` is a `FromContext`. Without `gated`, β is 1. Tap,
    if gated: `beta`, (B, 1). Raises ValueError for inconsistent sizes.
    """

    def __init__(self, cell: SequenceLayer, attention: CrossAttention, *, d_out: int, gated: bool = True) -> None:
        super().__init__()
        if cell.d_out != attention.d_in:
            raise ValueError(f"{attention!r} cannot read the {cell.d_out} features of {cell!r} as queries")
        if cell.d_in <= attention.d_out:
            raise ValueError(f"d_in of {cell!r} must exceed the {attention.d_out} features of {attention!r}")
        if cell.d_memory not in (None, attention.d_memory) or not cell.is_causal:
            raise ValueError(f"{cell!r} is not causal or needs another memory than {attention!r}")
        assert attention.d_memory is not None
        self.cell, self.attention = cell, attention
        self.d_in, self.d_out, self.d_memory = cell.d_in - attention.d_out, d_out, attention.d_memory
        self.pooling = MeanPooling(attention.d_memory)
        self.start = nn.Linear(attention.d_memory, cell.d_out)
        self.gate = nn.Linear(cell.d_out, 1) if gated else None
        self.beta = Tap() if gated else None
        self.combine = nn.Linear(self.d_in + cell.d_out + attention.d_out, d_out, bias=False)

    def init_state(self, batch_size: int, memory: Memory | None = None) -> BeforeState:
        empty = self.pooling.init_state(batch_size)
        mean = self.pooling.result(empty) if memory is None else self.pooling(memory.values, memory.mask)
        inner = self.cell.init_state(batch_size, memory)
        return BeforeState(torch.tanh(self.start(mean)), inner, self.attention.init_state(batch_size, memory))

    def forward(self, x: Inputs, state: State = None, *, mask: Mask = None) -> tuple[Outputs, BeforeState]:
        return self.fold(x, state, mask=mask)

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], BeforeState]:
        h, inner, memory = self.init_state(len(x_t)) if state is None else state
        z, memory = self.attention.step(h, memory)
        if self.gate is not None and self.beta is not None:
            z = self.beta(torch.sigmoid(self.gate(h))) * z
        h, inner = self.cell.step(torch.cat((x_t, z), dim=-1), inner)
        return torch.tanh(self.combine(torch.cat((x_t, h, z), dim=-1))), BeforeState(h, inner, memory)

    def extra_repr(self) -> str:
        return f"{self.cell!r}, {self.attention!r}, d_out={self.d_out}, gated={self.gate is not None}"


class HardAttention(AdditiveAttention):
    """Hard attention: `y = value(h_s)` for one position s drawn from α (Xu et al. 2015, section 4.1).

    A draw has no derivative, so α needs an estimated gradient in training (docs/captions.md). With the probability
    `expected`, a step uses the weighted mean instead of a draw. Evaluation uses the most probable position, with the
    derivative of the mean. Taps: `weights`, α (B, 1, T, S), and `chosen`, 1 at the drawn or most probable position and
    0 elsewhere (rows are grouped by text: (M, 1, B · T / M, S)).
    """

    repr_arguments = ("d_in", "d_memory", "d_attention", "expected")

    def __init__(self, d_in: int, d_memory: int, *, d_attention: int | None = None, expected: float = 0.0) -> None:
        super().__init__(d_in, d_memory, d_attention=d_attention)
        self.expected, self.chosen = check_probability(expected), Tap()

    def _select(self, alpha: Tensor) -> Tensor:
        if not alpha.shape[-1]:
            return alpha
        if not self.training:
            positions = torch.arange(alpha.shape[-1], device=alpha.device)
            best = ((positions == alpha.argmax(-1, keepdim=True)) & (alpha > 0)).to(alpha.dtype)
            return self.chosen(best + alpha - alpha.detach())
        is_drawn = uniform(alpha.shape[:-1], device=alpha.device) >= self.expected
        chosen = self.chosen(self.draw(alpha.detach()) * is_drawn.unsqueeze(-1))
        return torch.where(is_drawn.unsqueeze(-1), chosen, alpha)

    def draw(self, alpha: Float[Tensor, "B H T S"]) -> Float[Tensor, "B H T S"]:
        """Draw a position from each α. Return 1 at this position and 0 elsewhere, or zeros if α is all 0."""
        points = uniform((*alpha.shape[:-1], 1), device=alpha.device).to(alpha.dtype)
        below = alpha.cumsum(-1) <= points * alpha.sum(-1, keepdim=True)
        index = below.sum(-1, keepdim=True).clamp(max=alpha.shape[-1] - 1)
        return torch.zeros_like(alpha).scatter_(-1, index, 1.0) * (alpha > 0)


def joined_steps(seen: Sequence[Tensor], length: int) -> Float[Tensor, "B T S"]:
    """Return the mean over heads of the weights that `watch` collected in one `forward` or in `length` steps."""
    means = [weights.mean(1) if weights.dim() == 4 else weights for weights in seen]
    return means[0] if len(means) == 1 else torch.cat(means[:: len(means) // length], dim=1)
