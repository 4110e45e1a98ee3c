"""The scan: a recurrence that is linear in its state and element-wise, over a whole sequence at once.

    h_t = a_t ⊙ h_{t-1} + b_t

Two positions compose to one: (a_1, b_1) then (a_2, b_2) is (a_2 a_1, a_2 b_1 + b_2). Chunks of positions compose in the
same way. The scan cuts a sequence into chunks and composes each chunk, all chunks in parallel. The chunks are a shorter
sequence, which is scanned in the same way; this gives the state at the beginning of each chunk. From there the
positions of each chunk follow, again in parallel (Blelloch 1990; Martin & Cundy 2018). With chunks of a fixed length
this takes O(log T) consecutive operations and O(T) work. A GPU takes short chunks. A CPU takes longer chunks, or a
single one if a position is wide enough to keep it busy.

There are only products and sums, no quotient and no logarithm: if |a| ≤ 1, nothing overflows and no error grows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ensue.engine.storage import is_transformed, needs_history
from ensue.nn.border import expect, expect_mask

GPU_CHUNK = 4
"""Positions of a chunk on a GPU."""

CPU_CHUNK, CPU_WIDTH = 16, 4096
"""Positions of a chunk on a CPU, and the rows × features from which on there is a single chunk (docs/log)."""


def scan(
    a: Float[Tensor, "B T d"],
    b: Float[Tensor, "B T d"],
    start: Float[Tensor, "B d"],
    *,
    mask: Bool[Tensor, "B T"] | None = None,
) -> Float[Tensor, "B T d"]:
    """All `h_t = a_t ⊙ h_{t-1} + b_t` (B, T, d), with `start` (B, d) before the first.

    Where `mask` is False, h does not change, as with a = 1 and b = 0.

    The gradient is a scan from right to left over the errors δ_t = ∂loss/∂h_t:

        δ_t = dh_t + a_{t+1} ⊙ δ_{t+1}        da_t = δ_t ⊙ h_{t-1}        db_t = δ_t        dstart = a_1 ⊙ δ_1
    """
    expect("scan", "b", b, ("rows", "positions", "features"))
    expect("scan", "a", a, b.shape, b.dtype, like=b)
    expect("scan", "start", start, (b.shape[0], b.shape[2]), b.dtype, like=b)
    expect_mask("scan", mask, b)
    return scan_any(a, b, start, mask)


def scan_any(a: Tensor, b: Tensor, start: Tensor, mask: Tensor | None) -> Tensor:
    """`scan` without its checks, of complex numbers too: a and h are conjugated in the gradient, as torch has it."""
    if mask is not None:
        a, b = torch.where(mask.unsqueeze(-1), a, 1.0), torch.where(mask.unsqueeze(-1), b, 0.0)
    h: Tensor = (_in_order if is_transformed() else _Scan.apply)(a, b, start)
    return h


def _in_order(a: Tensor, b: Tensor, start: Tensor) -> Tensor:
    """The scan position by position under autograd."""
    hs = [start]
    for a_t, b_t in zip(a.unbind(1), b.unbind(1), strict=True):
        hs.append(torch.addcmul(b_t, a_t, hs[-1]))
    return torch.stack(hs, 1)[:, 1:]


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, start: Tensor) -> Tensor:
        h = _forward(a, b, start)
        ctx.save_for_backward(a, start, h)
        return h

    @staticmethod
    def backward(ctx: Any, dh: Tensor) -> Any:  # type: ignore[override]
        a, start, h = ctx.saved_tensors
        return (_backward_in_order if needs_history([dh]) else _backward)(a, start, h, dh)


def _forward(a: Tensor, b: Tensor, start: Tensor) -> Tensor:
    h = torch.empty_like(b)
    _execute(a, b, start, h, reverse=False)
    return h


def _backward(a: Tensor, start: Tensor, h: Tensor, dh: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of a, b and start."""
    delta, da = torch.empty_like(h), torch.empty_like(h)
    if h.shape[1] == 0:
        return da, delta, torch.zeros_like(start)
    delta[:, -1] = dh[:, -1]
    _execute(a[:, 1:].conj(), dh[:, :-1], delta[:, -1], delta[:, :-1], reverse=True)
    torch.mul(delta[:, 0], start.conj(), out=da[:, 0])
    torch.mul(delta[:, 1:], h[:, :-1].conj(), out=da[:, 1:])
    return da, delta, a[:, 0].conj() * delta[:, 0]


def _backward_in_order(a: Tensor, start: Tensor, h: Tensor, dh: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """`_backward` under autograd, which knows h as a function of a, b and start."""
    after = torch.cat((a[:, 1:].conj(), torch.zeros_like(a[:, :1])), 1)
    delta = _in_order(after.flip(1), dh.flip(1), torch.zeros_like(start)).flip(1)
    before = torch.cat((start.unsqueeze(1), h), 1)[:, :-1]
    return delta * before.conj(), delta, (a.conj() * delta)[:, :1].sum(1)


def _execute(a: Tensor, b: Tensor, start: Tensor, out: Tensor, *, reverse: bool) -> None:
    """The scan into `out`, from right to left if `reverse`, with chunks that suit the device and the size."""
    if a.device.type == "cpu":
        _on_cpu(a, b, start, out, reverse=reverse)
    else:
        _by_chunks(a, b, start, out, length=GPU_CHUNK, reverse=reverse)


def _on_cpu(a: Tensor, b: Tensor, start: Tensor, out: Tensor, *, reverse: bool) -> None:
    length = CPU_CHUNK if start.numel() < CPU_WIDTH else a.shape[1] + 1
    _by_chunks(a, b, start, out, length=length, reverse=reverse)


def _by_chunks(a: Tensor, b: Tensor, start: Tensor, out: Tensor, *, length: int, reverse: bool) -> None:
    """The scan in chunks of `length` positions, all in parallel; position by position if there are no two chunks.

    The remaining positions, which fill no chunk, are read last.
    """
    T = a.shape[1]
    chunks = T // length
    if chunks < 2:
        _one_by_one(_slices(a, reverse), _slices(b, reverse), start, _slices(out, reverse))
        return
    rest = T - chunks * length
    whole, tail = (slice(rest, T), slice(0, rest)) if reverse else (slice(0, T - rest), slice(T - rest, T))
    slices_a, slices_b, slices_out = (
        _slices(x[:, whole].view(len(x), chunks, length, x.shape[2]), reverse, dim=2) for x in (a, b, out)
    )
    A, B = _compose(slices_a, slices_b)
    ends = slices_out[-1]
    _by_chunks(A, B, start, ends, length=length, reverse=reverse)
    begins = torch.cat((ends[:, 1:], start[:, None]) if reverse else (start[:, None], ends[:, :-1]), dim=1)
    _one_by_one(slices_a[:-1], slices_b[:-1], begins, slices_out[:-1])
    end = ends[:, 0 if reverse else -1]
    _one_by_one(_slices(a[:, tail], reverse), _slices(b[:, tail], reverse), end, _slices(out[:, tail], reverse))


def _slices(x: Tensor, reverse: bool, dim: int = 1) -> Sequence[Tensor]:
    """The slices of `x` along `dim`, in the order of reading."""
    slices = x.unbind(dim)
    return slices[::-1] if reverse else slices


def _compose(a: Sequence[Tensor], b: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """The composition (A, B) of the given positions: after them h is A ⊙ h + B."""
    A, B = a[0], b[0]
    for a_t, b_t in zip(a[1:], b[1:], strict=True):
        A, B = a_t * A, torch.addcmul(b_t, a_t, B)
    return A, B


def _one_by_one(a: Sequence[Tensor], b: Sequence[Tensor], h: Tensor, out: Sequence[Tensor]) -> None:
    for a_t, b_t, h_t in zip(a, b, out, strict=True):
        h = torch.addcmul(b_t, a_t, h, out=h_t)
