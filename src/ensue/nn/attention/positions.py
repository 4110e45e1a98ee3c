"""Encodings of positions: learned, sinusoidal, rotary and relative.

The position of a token is the number of real tokens before it in its row. The state of a layer has the number of tokens
that each row has read, from which the next call counts on.
"""

import ctypes
import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from ensue.engine import c_functions
from ensue.engine.products import parallel_rows, worth_threads
from ensue.engine.storage import address
from ensue.errors import ContextError
from ensue.nn.border import expect
from ensue.nn.layer import Parallel
from ensue.types import Inputs, Mask, Memory, Outputs, State


class PositionState(NamedTuple):
    """The state of a layer that adds positions."""

    position: Int[Tensor, " B"]
    """The number of tokens that a row has read."""


def positions_after(position: Tensor, length: int) -> Tensor:
    """Return the positions (B, T) of the next T = `length` tokens after `position` (B,) tokens."""
    return position.unsqueeze(1) + torch.arange(length, device=position.device)


def advance(position: Tensor, length: int, mask: Tensor | None) -> Tensor:
    """Return `position` (B,) after a call with `length` columns, whose real tokens are in `mask` (None: all)."""
    return position + (length if mask is None else mask.sum(1))


class LearnedPositions(Parallel):
    """Learned positions, `x_t + P[t]`, with a trained vector P[t] for each of `max_positions` (Radford et al. 2018).

    A call raises ContextError for a position that exceeds the table.
    """

    def __init__(self, d_model: int, *, max_positions: int) -> None:
        super().__init__()
        self.d_in = self.d_out = d_model
        self.max_positions = max_positions
        self.weight = nn.Parameter(torch.empty(max_positions, d_model))
        nn.init.normal_(self.weight, std=0.02)

    def init_state(self, batch_size: int, memory: Memory | None = None) -> PositionState:
        return PositionState(torch.zeros(batch_size, dtype=torch.long, device=self.weight.device))

    def forward(self, x: Inputs, state: State = None, *, mask: Mask = None) -> tuple[Outputs, PositionState]:
        length = x.shape[1]
        if state is None and length <= self.max_positions:  # all rows have the same positions: no lookup is needed
            (position,) = self.init_state(len(x))
            return x + self.weight[:length], PositionState(advance(position, length, mask))
        (position,) = self.init_state(len(x)) if state is None else state
        after = advance(position, length, mask)
        self.check_end(after)
        positions = positions_after(position, length).clamp(max=self.max_positions - 1)  # padding may exceed the table
        return x + F.embedding(positions, self.weight), PositionState(after)

    def check_end(self, after: Int[Tensor, " B"]) -> None:
        """Raise ContextError if a row has more positions than the table."""
        if len(after) and int(after.max()) > self.max_positions:
            raise ContextError(f"found {int(after.max())} positions; the model has {self.max_positions}")

    def extra_repr(self) -> str:
        return f"d_model={self.d_in}, max_positions={self.max_positions}"


class Frequencies(nn.Module):
    """The frequencies `b^(-2i/d)` for i = 0 .. d/2 - 1, in radians per position.

    Frequencies are never in bfloat16, which would round positions above 256. With a `share` below 1, d is this fraction
    of all features, and the frequencies of the other features are 0.
    """

    def __init__(self, d: int, *, share: float = 1.0, base: float = 10_000.0) -> None:
        super().__init__()
        self.d, self.num_rotated, self.base = d, int(d * share) // 2 * 2, base
        self.values: Tensor
        self.register_buffer("values", self._compute(None), persistent=False)

    def _compute(self, device: torch.device | None) -> Tensor:
        indices = torch.arange(0, self.d, 2, device=device)
        values = torch.exp(indices * (-math.log(self.base) / max(1, self.num_rotated)))
        return values if self.num_rotated == self.d else values.masked_fill(indices >= self.num_rotated, 0.0)

    def _apply(self, fn: Any, recurse: bool = True) -> "Frequencies":
        """Recompute the values in float32 after a conversion to 16 bits, such as `bfloat16()`."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self.values.dtype in (torch.float16, torch.bfloat16):
            self.values = self._compute(self.values.device)
        return self

    def angles(self, positions: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape half"]:
        """Return the angles at `positions`, in radians."""
        return positions.unsqueeze(-1) * self.values


class SinusoidalPositions(Parallel):
    """Sinusoidal positions, `x_t + P(t)` (Vaswani et al. 2017):

    P(t, 2i) = sin(t / 10000^(2i/d))        P(t, 2i+1) = cos(t / 10000^(2i/d))
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        if d_model % 2:
            raise ValueError(f"sinusoidal positions need an even d_model, found {d_model}")
        self.d_in = self.d_out = d_model
        self.frequencies = Frequencies(d_model)
        self.zero: Tensor
        self.register_buffer("zero", torch.zeros(()), persistent=False)  # has the layer's device

    def init_state(self, batch_size: int, memory: Memory | None = None) -> PositionState:
        return PositionState(torch.zeros(batch_size, dtype=torch.long, device=self.zero.device))

    def forward(self, x: Inputs, state: State = None, *, mask: Mask = None) -> tuple[Outputs, PositionState]:
        (position,) = self.init_state(len(x)) if state is None else state
        angles = self.frequencies.angles(positions_after(position, x.shape[1]))
        encoding = torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)
        return x + encoding.to(x.dtype), PositionState(advance(position, x.shape[1], mask))

    def extra_repr(self) -> str:
        return f"d_model={self.d_in}"


MAX_DISTANCE = 128
"""All larger distances are in the last bucket of their side."""


class RelativeBias(nn.Module):
    """A trained bias of scores for each bucket of distances and each head (Raffel et al. 2020).

    Half of the `buckets` are for keys to the left, half for keys to the right. On each side, half of the buckets have
    one distance each; the others grow logarithmically up to 128. Raises ValueError for fewer than four buckets.
    """

    def __init__(self, num_heads: int, buckets: int) -> None:
        super().__init__()
        if buckets < 4:
            raise ValueError(f"relative positions must have at least four buckets, found {buckets}")
        self.buckets = buckets
        self.weight = nn.Parameter(torch.zeros(buckets, num_heads))

    def forward(self, length: int) -> Float[Tensor, "H T T"]:
        """Return the biases (H, T, T) for `length` queries and keys."""
        positions = torch.arange(length, device=self.weight.device)
        distances = positions.unsqueeze(1) - positions  # from the key to the query
        half, exact = self.buckets // 2, self.buckets // 4
        far = (distances.abs().clamp(min=1) / exact).log() / math.log(MAX_DISTANCE / exact) * (half - exact)
        near = torch.where(distances.abs() < exact, distances.abs(), (exact + far.long()).clamp(max=half - 1))
        return self.weight[near + half * (distances < 0)].permute(2, 0, 1)


class Disentangled(nn.Module):
    """A trained vector P for each bucket of distances, multiplied by queries and keys (He et al. 2021).

    Each side has `buckets` buckets. Half of them have one distance each; the other half grow logarithmically, up to
    `farthest`. Raises ValueError if `buckets` is below 4, or at least twice `farthest`.
    """

    def __init__(self, d_model: int, buckets: int, *, farthest: int) -> None:
        super().__init__()
        if not 4 <= buckets < 2 * farthest:
            raise ValueError(
                f"{farthest} disentangled distances must have 4 to {2 * farthest - 1} buckets, found {buckets}"
            )
        self.buckets, self.farthest = buckets, farthest
        self.weight = nn.Parameter(torch.zeros(2 * buckets, d_model))

    def forward(self, length: int) -> tuple[Float[Tensor, "R d"], Int[Tensor, "T T"]]:
        """Return the vectors of all buckets, and the index of the bucket (T, T) for each query and key."""
        positions = torch.arange(length, device=self.weight.device)
        distances, half = positions.unsqueeze(1) - positions, self.buckets // 2  # from the key to the query
        far = (distances.abs().clamp(min=half) / half).log() / math.log((self.farthest - 1) / half) * (half - 1)
        far = ((far.ceil() + half) * distances.sign()).long()
        near = torch.where(distances.abs() <= half, distances, far)
        return self.weight, (near + self.buckets).clamp(0, 2 * self.buckets - 1)


class Rotary(nn.Module):
    """A rotation of each pair (2i, 2i+1) of a query or key by `t / 10000^(2i/d)` radians (Su et al. 2021).

    `base` replaces the 10000. With a `share` below 1, d is this fraction of all features, and only the first d features
    are rotated (Black et al. 2022). The module is not a layer: attention rotates queries and keys, so that their
    products depend on distances only. Raises ValueError if `d_head` is odd.
    """

    def __init__(self, d_head: int, *, share: float = 1.0, base: float = 10_000.0) -> None:
        super().__init__()
        if d_head % 2:
            raise ValueError(f"rotary positions need an even d_head, found {d_head}")
        self.frequencies = Frequencies(d_head, share=share, base=base)

    def forward(self, x: Float[Tensor, "B H T d_head"], positions: Int[Tensor, "B T"]) -> Float[Tensor, "B H T d_head"]:
        """Return queries or keys `x`, rotated by their `positions`."""
        expect("Rotary", "x", x, ("rows", "heads", "positions", self.frequencies.d))
        expect("Rotary", "positions", positions, (x.shape[0], x.shape[2]), int, like=x)
        return rotate(self.table(positions, x.dtype), x)[0]

    def table(self, positions: Int[Tensor, "B T"], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return the cosines and sines (B, T, d_head / 2) of the angles at `positions`."""
        angles = self.frequencies.angles(positions)
        return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(table: tuple[Tensor, Tensor], *heads: Float[Tensor, "B H T d"], back: bool = False) -> tuple[Tensor, ...]:
    """Rotate the pairs (2i, 2i+1) of queries or keys by the angles of a `Rotary.table`; `back` negates the angles."""
    functions = [c_functions(x) for x in heads]
    if all(functions):
        return _Rotation.apply(functions[0], table, back, *heads)  # type: ignore[no-untyped-call]
    return tuple(_rotate_in_torch(x, *(angles.unsqueeze(1) for angles in table), back=back) for x in heads)


def _rotate_in_torch(x: Tensor, cos: Tensor, sin: Tensor, *, back: bool) -> Tensor:
    sin, even, odd = -sin if back else sin, x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).reshape(x.shape)


def _rotate_in_c(functions: ctypes.CDLL, x: Tensor, cos: Tensor, sin: Tensor, *, back: bool) -> Tensor:
    x = x if x.stride(3) == 1 else x.contiguous()
    (batch, heads, length, d), rows = x.shape, len(cos)
    y, size = x.new_empty(x.shape), (1 if rows == 1 else batch, length, d // 2)
    tables = [address("angles", table, x.dtype, size) for table in (cos, sin)]
    sizes = (ctypes.c_int64 * 3)(heads, *size[1:])
    strides = (ctypes.c_int64 * 4)(*x.stride()[:3], cos.stride(0) * (rows > 1))
    arguments = sizes, strides, *tables, -1 if back else 1, x.data_ptr(), y.data_ptr(), x.dtype == torch.bfloat16
    parallel_rows(batch, lambda first, last, _: functions.rotate(first, last, *arguments), max_workers=worth_threads(x))
    return y


class _Rotation(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, functions: ctypes.CDLL, table: tuple[Tensor, Tensor], back: bool, *heads: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.table, ctx.back = table, back
        return tuple(_rotate_in_c(functions, x, *table, back=back) for x in heads)

    @staticmethod
    def backward(ctx: Any, *errors: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, None, *rotate(ctx.table, *errors, back=not ctx.back)
