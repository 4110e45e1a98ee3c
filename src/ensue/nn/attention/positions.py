"""Encodings of positions: learned, sinusoidal and rotary.

A row's positions count its real tokens from 0. The count is part of the state, so each row continues after its own
prefix.
"""

from __future__ import annotations

import ctypes
import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ensue.engine import passes
from ensue.engine.products import in_parts, worth_threads
from ensue.engine.storage import address
from ensue.errors import ContextError
from ensue.nn.border import expect
from ensue.nn.layer import Parallel
from ensue.types import Memory, State


class PositionState(NamedTuple):
    """The state of a layer that adds positions."""

    position: Int[Tensor, " B"]
    """How many tokens a row has read."""


def numbered(position: Tensor, length: int) -> Tensor:
    """The positions (B, T) of `length` tokens that follow `position` (B,) tokens."""
    return position.unsqueeze(1) + torch.arange(length, device=position.device)


def advanced(position: Tensor, length: int, mask: Tensor | None) -> Tensor:
    """`position` (B,) after a call with `length` columns; those in `mask` are real."""
    return position + (length if mask is None else mask.sum(1))


class LearnedPositions(Parallel):
    """`x_t + P[t]` with a trained vector for each of `max_positions` positions (Radford et al. 2018).

    Raises `ContextError` for a position after the last.
    """

    def __init__(self, d_model: int, *, max_positions: int) -> None:
        super().__init__()
        self.d_in = self.d_out = d_model
        self.max_positions = max_positions
        self.weight = nn.Parameter(torch.empty(max_positions, d_model))
        nn.init.normal_(self.weight, std=0.02)

    def init_state(self, batch_size: int, memory: Memory | None = None) -> PositionState:
        return PositionState(torch.zeros(batch_size, dtype=torch.long, device=self.weight.device))

    def forward(
        self, x: Float[Tensor, "B T d_in"], state: State = None, *, mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T d_out"], PositionState]:
        length = x.shape[1]
        if state is None and length <= self.max_positions:  # the same for all rows: no look-up
            (position,) = self.init_state(len(x))
            return x + self.weight[:length], PositionState(advanced(position, length, mask))
        (position,) = self.init_state(len(x)) if state is None else state
        after = advanced(position, length, mask)
        self.check_end(after)
        positions = numbered(position, length).clamp(max=self.max_positions - 1)  # padding may lie beyond
        return x + F.embedding(positions, self.weight), PositionState(after)

    def check_end(self, after: Int[Tensor, " B"]) -> None:
        """Raises `ContextError` for rows that have more positions than there are."""
        if len(after) and int(after.max()) > self.max_positions:
            raise ContextError(f"{int(after.max())} positions; this model has learned {self.max_positions}")

    def extra_repr(self) -> str:
        return f"d_model={self.d_in}, max_positions={self.max_positions}"


class Frequencies(nn.Module):
    """`b^(-2i/d)` for i = 0 .. d/2 - 1, radians per position; never in half precision, which has no 257.

    With a `share` below 1, d is that share of all features, and the frequencies of the others are 0.
    """

    def __init__(self, d: int, *, share: float = 1.0, base: float = 10_000.0) -> None:
        super().__init__()
        self.d, self.turned, self.base = d, int(d * share) // 2 * 2, base
        self.values: Tensor
        self.register_buffer("values", self._made(None), persistent=False)

    def _made(self, device: torch.device | None) -> Tensor:
        places = torch.arange(0, self.d, 2, device=device)
        values = torch.exp(places * (-math.log(self.base) / max(1, self.turned)))
        return values if self.turned == self.d else values.masked_fill(places >= self.turned, 0.0)

    def _apply(self, fn: Any, recurse: bool = True) -> Frequencies:
        """The change of type or device by `to`, `half` and the like."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self.values.dtype in (torch.float16, torch.bfloat16):
            self.values = self._made(self.values.device)
        return self

    def angles(self, positions: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape half"]:
        """The angles at `positions`, in radians."""
        return positions.unsqueeze(-1) * self.values


class SinusoidalPositions(Parallel):
    """`x_t + P(t)`, `P(t, 2i) = sin(t / 10000^(2i/d))`, `P(t, 2i+1) = cos(t / 10000^(2i/d))` (Vaswani et al. 2017)."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        if d_model % 2:
            raise ValueError(f"sinusoidal positions come in pairs; d_model is {d_model}")
        self.d_in = self.d_out = d_model
        self.frequencies = Frequencies(d_model)
        self.zero: Tensor
        self.register_buffer("zero", torch.zeros(()), persistent=False)  # of the layer's type

    def init_state(self, batch_size: int, memory: Memory | None = None) -> PositionState:
        return PositionState(torch.zeros(batch_size, dtype=torch.long, device=self.zero.device))

    def forward(
        self, x: Float[Tensor, "B T d_in"], state: State = None, *, mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T d_out"], PositionState]:
        (position,) = self.init_state(len(x)) if state is None else state
        angles = self.frequencies.angles(numbered(position, x.shape[1]))
        encoding = torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)
        return x + encoding.to(x.dtype), PositionState(advanced(position, x.shape[1], mask))

    def extra_repr(self) -> str:
        return f"d_model={self.d_in}"


FARTHEST = 128
"""From this distance on, all positions of a side are in one bucket."""


class RelativeBias(nn.Module):
    """A trained number for the distance of two positions, added to their score, for each head (Raffel et al. 2020).

    Half of the `buckets` are for keys to the left. A quarter has one distance each; the others are logarithmic, up to
    128. Raises `ValueError` for fewer than four.
    """

    def __init__(self, num_heads: int, buckets: int) -> None:
        super().__init__()
        if buckets < 4:
            raise ValueError(f"relative positions have four buckets at least, not {buckets}")
        self.buckets = buckets
        self.weight = nn.Parameter(torch.zeros(buckets, num_heads))

    def forward(self, length: int) -> Float[Tensor, "H T T"]:
        """The numbers for `length` queries and as many keys."""
        places = torch.arange(length, device=self.weight.device)
        distances = places.unsqueeze(1) - places  # from the key to the query
        half, exact = self.buckets // 2, self.buckets // 4
        far = (distances.abs().clamp(min=1) / exact).log() / math.log(FARTHEST / exact) * (half - exact)
        near = torch.where(distances.abs() < exact, distances.abs(), (exact + far.long()).clamp(max=half - 1))
        return self.weight[near + half * (distances < 0)].permute(2, 0, 1)


class Disentangled(nn.Module):
    """A trained vector P for the distance of two positions, which meets queries and keys (He et al. 2021).

    A side has as many `buckets`. Half of them have one distance each; the others are logarithmic, up to `farthest`.
    Raises `ValueError` for fewer than four, and for a `farthest` of no more than half of them.
    """

    def __init__(self, d_model: int, buckets: int, *, farthest: int) -> None:
        super().__init__()
        if not 4 <= buckets < 2 * farthest:
            raise ValueError(
                f"disentangled positions of {farthest} distances have 4 to {2 * farthest - 1} buckets, not {buckets}"
            )
        self.buckets, self.farthest = buckets, farthest
        self.weight = nn.Parameter(torch.zeros(2 * buckets, d_model))

    def forward(self, length: int) -> tuple[Float[Tensor, "R d"], Int[Tensor, "T T"]]:
        """The vectors of all distances in `length` positions, and the place among them for each query and key."""
        places = torch.arange(length, device=self.weight.device)
        distances, half = places.unsqueeze(1) - places, self.buckets // 2  # from the key to the query
        far = (distances.abs().clamp(min=half) / half).log() / math.log((self.farthest - 1) / half) * (half - 1)
        far = ((far.ceil() + half) * distances.sign()).long()
        near = torch.where(distances.abs() <= half, distances, far)
        return self.weight, (near + self.buckets).clamp(0, 2 * self.buckets - 1)


class Rotary(nn.Module):
    """Rotary positions (Su et al. 2021): rotates each pair (2i, 2i+1) of a query or key by `t / 10000^(2i/d)` radians.

    Another `base` may stand for 10000. With a `share` below 1 the first d features turn (Black et al. 2022). It is not
    a layer: attention applies it to queries and keys, whose products then depend on distances alone. Raises
    `ValueError` if `d_head` is odd.
    """

    def __init__(self, d_head: int, *, share: float = 1.0, base: float = 10_000.0) -> None:
        super().__init__()
        if d_head % 2:
            raise ValueError(f"rotary positions turn pairs; a head has {d_head} features")
        self.frequencies = Frequencies(d_head, share=share, base=base)

    def forward(self, x: Float[Tensor, "B H T d_head"], positions: Int[Tensor, "B T"]) -> Float[Tensor, "B H T d_head"]:
        """Queries or keys `x`, rotated by their `positions`."""
        expect("Rotary", "x", x, ("rows", "heads", "positions", self.frequencies.d))
        expect("Rotary", "positions", positions, (x.shape[0], x.shape[2]), int, like=x)
        return turned(self.table(positions, x.dtype), x)[0]

    def table(self, positions: Int[Tensor, "B T"], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """The cosines and sines (B, T, d_head / 2) of the angles at `positions`."""
        angles = self.frequencies.angles(positions)
        return angles.cos().to(dtype), angles.sin().to(dtype)


def turned(table: tuple[Tensor, Tensor], *heads: Float[Tensor, "B H T d"], back: bool = False) -> tuple[Tensor, ...]:
    """`heads` with neighbors 2i and 2i+1 turned by angles of each row, or of one row for all; `back`: the other way."""
    functions = [passes(x) for x in heads]
    if all(functions):
        return _Turned.apply(functions[0], table, back, *heads)  # type: ignore[no-any-return, no-untyped-call]
    return tuple(_turned_in_torch(x, *(part.unsqueeze(1) for part in table), back=back) for x in heads)


def _turned_in_torch(x: Tensor, cos: Tensor, sin: Tensor, *, back: bool) -> Tensor:
    sin, even, odd = -sin if back else sin, x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).reshape(x.shape)


def _turned_in_c(functions: ctypes.CDLL, x: Tensor, cos: Tensor, sin: Tensor, *, back: bool) -> Tensor:
    x = x if x.stride(3) == 1 else x.contiguous()
    (batch, heads, length, d), rows = x.shape, len(cos)
    y, size = x.new_empty(x.shape), (1 if rows == 1 else batch, length, d // 2)
    tables = [address("angles", table, x.dtype, size) for table in (cos, sin)]
    sizes = (ctypes.c_int64 * 3)(heads, *size[1:])
    strides = (ctypes.c_int64 * 4)(*x.stride()[:3], cos.stride(0) * (rows > 1))
    given = sizes, strides, *tables, -1 if back else 1, x.data_ptr(), y.data_ptr(), x.dtype == torch.bfloat16
    in_parts(batch, lambda first, last, _: functions.turned(first, last, *given), most=worth_threads(x))
    return y


class _Turned(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, functions: ctypes.CDLL, table: tuple[Tensor, Tensor], back: bool, *heads: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.table, ctx.back = table, back
        return tuple(_turned_in_c(functions, x, *table, back=back) for x in heads)

    @staticmethod
    def backward(ctx: Any, *errors: Tensor) -> tuple[Tensor | None, ...]:
        return None, None, None, *turned(ctx.table, *errors, back=not ctx.back)
