"""Recurrent layers with an elementwise linear recurrence, computed by a scan: MinGRU, MinLSTM, LRU, QRNN.

    h_t = a_t ⊙ h_{t-1} + b_t

Positions compose: (a_1, b_1) followed by (a_2, b_2) is (a_2 a_1, a_2 b_1 + b_2). The scan divides a sequence into
chunks and composes the positions of each chunk, for all chunks in parallel. The compositions are a shorter sequence,
and their scan is the state at the end of each chunk. From these states all chunks are computed in parallel (Blelloch
1990; Martin & Cundy 2018). With chunks of a fixed length, the scan takes O(log T) sequential operations and O(T) work.
Chunks are short on a GPU and longer on a CPU. On a CPU, a single chunk is faster if positions have many features.

The scan has no quotients or logarithms. So if |a| ≤ 1, numbers do not overflow, and rounding errors do not grow.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ensue.engine.storage import is_transformed, needs_history
from ensue.nn.border import expect, expect_mask
from ensue.nn.layer import Recurrent, mask_padding
from ensue.nn.recurrent.initialization import gate_bias, input_weight
from ensue.nn.taps import Tap, Taps, is_watched
from ensue.nn.window import build_windows
from ensue.types import Inputs, Mask, Memory, Outputs, State

GPU_CHUNK = 4
"""The number of positions in a chunk on a GPU."""

CPU_CHUNK, CPU_WIDTH = 16, 4096
"""The positions of a chunk on a CPU; for CPU_WIDTH or more rows × features, a single chunk is faster (docs/log)."""


def scan(
    a: Float[Tensor, "B T d"], b: Float[Tensor, "B T d"], start: Float[Tensor, "B d"], *, mask: Mask = None
) -> Float[Tensor, "B T d"]:
    """Compute all `h_t = a_t ⊙ h_{t-1} + b_t`.

    The gradient is a scan from right to left over the errors δ_t = ∂loss/∂h_t:

        δ_t = dh_t + a_{t+1} ⊙ δ_{t+1}        da_t = δ_t ⊙ h_{t-1}        db_t = δ_t        dstart = a_1 ⊙ δ_1

    Args:
        a: The factors, (B, T, d).
        b: The terms, (B, T, d).
        start: h before the first position, (B, d).
        mask: Where the mask (B, T) is False, h does not change.

    Returns:
        h, (B, T, d).

    Raises:
        ValueError: A size is wrong.
        TypeError: A type or device is wrong.
    """
    expect("scan", "b", b, ("rows", "positions", "features"))
    expect("scan", "a", a, b.shape, b.dtype, like=b)
    expect("scan", "start", start, (b.shape[0], b.shape[2]), b.dtype, like=b)
    expect_mask("scan", mask, b)
    return scan_unchecked(a, b, start, mask)


def scan_unchecked(a: Tensor, b: Tensor, start: Tensor, mask: Tensor | None) -> Tensor:
    """Compute `scan` without checks, also for complex numbers, with gradients in torch's convention."""
    if mask is not None:
        a, b = torch.where(mask.unsqueeze(-1), a, 1.0), torch.where(mask.unsqueeze(-1), b, 0.0)
    return (_scan_in_order if is_transformed() else _Scan.apply)(a, b, start)


def _scan_in_order(a: Tensor, b: Tensor, start: Tensor) -> Tensor:
    """Scan position by position under autograd."""
    hs = [start]
    for a_t, b_t in zip(a.unbind(1), b.unbind(1), strict=True):
        hs.append(torch.addcmul(b_t, a_t, hs[-1]))
    return torch.stack(hs, 1)[:, 1:]


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, start: Tensor) -> Tensor:
        h = torch.empty_like(b)
        _execute(a, b, start, h, reverse=False)
        ctx.save_for_backward(a, start, h)
        return h

    @staticmethod
    def backward(ctx: Any, dh: Tensor) -> Any:  # type: ignore[override]
        a, start, h = ctx.saved_tensors
        return (_backward_in_order if needs_history([dh]) else _backward)(a, start, h, dh)


def _backward(a: Tensor, start: Tensor, h: Tensor, dh: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    delta, da = torch.empty_like(h), torch.empty_like(h)
    if h.shape[1] == 0:
        return da, delta, torch.zeros_like(start)
    delta[:, -1] = dh[:, -1]
    _execute(a[:, 1:].conj(), dh[:, :-1], delta[:, -1], delta[:, :-1], reverse=True)
    torch.mul(delta[:, 0], start.conj(), out=da[:, 0])
    torch.mul(delta[:, 1:], h[:, :-1].conj(), out=da[:, 1:])
    return da, delta, a[:, 0].conj() * delta[:, 0]


def _backward_in_order(a: Tensor, start: Tensor, h: Tensor, dh: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the results of `_backward` by operations that autograd records, for second derivatives."""
    after = torch.cat((a[:, 1:].conj(), torch.zeros_like(a[:, :1])), 1)
    delta = _scan_in_order(after.flip(1), dh.flip(1), torch.zeros_like(start)).flip(1)
    before = torch.cat((start.unsqueeze(1), h), 1)[:, :-1]
    return delta * before.conj(), delta, (a.conj() * delta)[:, :1].sum(1)


def _execute(a: Tensor, b: Tensor, start: Tensor, out: Tensor, *, reverse: bool) -> None:
    """Scan into `out`, from right to left if `reverse`, with a chunk length for the device and the size."""
    length = GPU_CHUNK if a.device.type != "cpu" else CPU_CHUNK if start.numel() < CPU_WIDTH else a.shape[1] + 1
    _scan_chunks(a, b, start, out, length=length, reverse=reverse)


def _scan_chunks(a: Tensor, b: Tensor, start: Tensor, out: Tensor, *, length: int, reverse: bool) -> None:
    """Scan chunks of `length` positions in parallel, then the remaining positions; fewer than two chunks in order."""
    T = a.shape[1]
    chunks = T // length
    if chunks < 2:
        _scan_sequentially(_unbind(a, reverse), _unbind(b, reverse), start, _unbind(out, reverse))
        return
    rest = T - chunks * length
    chunked, tail = (slice(rest, T), slice(0, rest)) if reverse else (slice(0, T - rest), slice(T - rest, T))
    slices_a, slices_b, slices_out = (
        _unbind(x[:, chunked].view(len(x), chunks, length, x.shape[2]), reverse, dim=2) for x in (a, b, out)
    )
    A, B = _compose(slices_a, slices_b)
    ends = slices_out[-1]
    _scan_chunks(A, B, start, ends, length=length, reverse=reverse)
    begins = torch.cat((ends[:, 1:], start[:, None]) if reverse else (start[:, None], ends[:, :-1]), dim=1)
    _scan_sequentially(slices_a[:-1], slices_b[:-1], begins, slices_out[:-1])
    end = ends[:, 0 if reverse else -1]
    _scan_sequentially(_unbind(a[:, tail], reverse), _unbind(b[:, tail], reverse), end, _unbind(out[:, tail], reverse))


def _unbind(x: Tensor, reverse: bool, dim: int = 1) -> Sequence[Tensor]:
    """Return the slices of `x` along `dim`, in the order of reading."""
    slices = x.unbind(dim)
    return slices[::-1] if reverse else slices


def _compose(a: Sequence[Tensor], b: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return the composition (A, B) of positions, which maps h to A ⊙ h + B."""
    A, B = a[0], b[0]
    for a_t, b_t in zip(a[1:], b[1:], strict=True):
        A, B = a_t * A, torch.addcmul(b_t, a_t, B)
    return A, B


def _scan_sequentially(a: Sequence[Tensor], b: Sequence[Tensor], h: Tensor, out: Sequence[Tensor]) -> None:
    for a_t, b_t, h_t in zip(a, b, out, strict=True):
        h = torch.addcmul(b_t, a_t, h, out=h_t)


class LinearState(NamedTuple):
    """The state h of a `LinearRecurrence`."""

    h: Float[Tensor, "B d"]


class LinearRecurrence(Recurrent, ABC):
    """A recurrence `h' = a ⊙ h + b` with `h_0 = 0`; a and b depend on x only. Subclasses define `coefficients`."""

    def __init__(self, d_in: int, d_out: int, *, gates: tuple[str, ...], forget: int | None = None) -> None:
        """Create the weights of all `gates`, as one matrix; the bias of gate number `forget` starts at 1."""
        super().__init__()
        self.d_in, self.d_out = d_in, d_out
        self.weight_input = input_weight(len(gates), d_out, d_in)
        self.bias = gate_bias(len(gates), d_out, forget=forget)
        self.gates = Taps(*gates)
        self.hidden = Tap()

    @abstractmethod
    def coefficients(self, x: Float[Tensor, "*positions d_in"]) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return a, b and the output gate (or None), each (..., d_out)."""

    def output(self, h: Tensor, gate: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the output and the new state from h and the output gate."""
        h = self.hidden(h)
        return h, h

    def preactivations(self, x: Tensor) -> tuple[Tensor, ...]:
        """Return the pre-activations of each gate, (*positions, d_out), in the type of the weights.

        Under autocast, only the product is in bfloat16. The gates are not, since forget gates are often between 0.996
        and 1, where bfloat16 has no numbers.
        """
        v = F.linear(x, self.weight_input, self.bias)
        return v.to(self.weight_input.dtype).chunk(len(self.bias) // self.d_out, dim=-1)

    def init_state(self, batch_size: int, memory: Memory | None = None) -> LinearState:
        return LinearState(self.weight_input.new_zeros(batch_size, self.d_out))

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], LinearState]:
        (h,) = self.init_state(len(x_t)) if state is None else state
        a, b, gate = self.coefficients(x_t)
        y, h = self.output(a * h + b, gate)
        return y, LinearState(h)

    def kernel(self, x: Tensor, state: State, mask: Tensor | None) -> tuple[Tensor, LinearState]:
        # Unused if C code is compiled: its loop includes the gates, so it reads and writes fewer numbers than a scan.
        return self.by_scan(x, state, mask=mask)

    def by_scan(self, x: Inputs, state: State = None, *, mask: Mask = None) -> tuple[Outputs, LinearState]:
        """Compute `forward` by a scan over all positions, as on GPUs or without a compiler."""
        (start,) = self.init_state(len(x)) if state is None else state
        a, b, gate = self.coefficients(mask_padding(x, mask))
        y, h = self.output(scan(a, b, start, mask=mask), gate)
        # A copy, so that the state does not keep all positions in memory.
        return mask_padding(y, mask), LinearState(h[:, -1].clone() if h.shape[1] else start)


class MinGRU(LinearRecurrence):
    """A GRU without reset gate, whose gate and candidate read x only (Feng et al. 2024, "Were RNNs all we needed?"):

        z = σ(W_z x + b_z)        n = g(W_n x + b_n)        h' = (1 - z) ⊙ h + z ⊙ n

        g(v) = v + 0.5 where v ≥ 0, else σ(v)

    The paper's scan needs positive n and h, since it computes in logarithms. This package uses the same g, though its
    scan has no logarithms. The weights stack z, n.
    """

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__(d_in, d_out, gates=("update", "candidate"))

    def coefficients(self, x: Float[Tensor, "*positions d_in"]) -> tuple[Tensor, Tensor, None]:
        v_z, v_n = self.preactivations(x)
        z, n = self.gates.update(torch.sigmoid(v_z)), self.gates.candidate(positive_activation(v_n))
        return 1 - z, z * n, None


class MinLSTM(LinearRecurrence):
    """An LSTM without output gate, whose gates read x only and are normalized to a sum of 1 (Feng et al. 2024):

        f = σ(W_f x + b_f)        i = σ(W_i x + b_i)        n = g(W_n x + b_n)
        f' = f / (f + i)          i' = i / (f + i)          h' = f' ⊙ h + i' ⊙ n

    with the g of `MinGRU`. Since f and i may both be near 0, f' is computed as σ(log f - log i) and i' as
    σ(log i - log f). The taps `forget` and `input` have f' and i'. The weights stack f, i, n.
    """

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__(d_in, d_out, gates=("forget", "input", "candidate"))

    def coefficients(self, x: Float[Tensor, "*positions d_in"]) -> tuple[Tensor, Tensor, None]:
        v_f, v_i, v_n = self.preactivations(x)
        k = F.softplus(-v_i) - F.softplus(-v_f)  # log f - log i
        f, i = self.gates.forget(torch.sigmoid(k)), self.gates.input(torch.sigmoid(-k))
        return f, i * self.gates.candidate(positive_activation(v_n)), None


def positive_activation(v: Tensor) -> Tensor:
    """Return the paper's g: v + 0.5 where v ≥ 0, else σ(v), which is continuous, increasing and positive."""
    return torch.where(v < 0, torch.sigmoid(v), v + 0.5)


class LRUState(NamedTuple):
    """The real and the imaginary part of the state s of an `LRU`."""

    real: Float[Tensor, "B n"]
    imaginary: Float[Tensor, "B n"]


class LRU(Recurrent):
    """The linear recurrent unit (Orvieto et al. 2023, eqs. 6 to 8), followed by the paper's gated linear map:

        s' = λ ⊙ s + e^γ ⊙ (B x)        λ = exp(-e^ν + i e^θ)        v = Re(C s') + D x
        g = silu(norm(v))               y = (W g + b) ⊙ σ(V g + c)

    s, λ (n,) and B (n, d_in) are complex. Initially the modulus r of λ is between `radius[0]` and `radius[1]`, the
    angle is below `angle`, and e^γ = √(1 - r²), so that s has the variance of B x. n is `d_state`, by default d_out.

    `weight_input` (2 n, d_in) stacks the real and the imaginary part of B. `weight_state` is [Re C, -Im C].
    `weight_output` (2 d_out, d_out) stacks W and V, and `bias` stacks b and c. The layer normalization comes after the
    recurrence, since a normalization of x would set an input of a single feature to 0. Raises ValueError unless
    0 ≤ `radius[0]` < `radius[1]` ≤ 1 and `angle` is above 0.
    """

    repr_arguments = ("d_in", "d_out", "d_state")

    def __init__(
        self, d_in: int, d_out: int, *, d_state: int | None = None, radius: tuple[float, float] = (0.9, 0.999),
        angle: float = 0.314,
    ) -> None:  # fmt: skip
        super().__init__()
        low, high = radius
        if not 0 <= low < high <= 1 or not angle > 0:
            raise ValueError(f"expected 0 <= radius[0] < radius[1] <= 1 and angle > 0, found {radius}, {angle}")
        self.d_in, self.d_out, self.d_state = d_in, d_out, d_state or d_out
        squared = torch.empty(self.d_state).uniform_(low**2, high**2)
        self.decay = nn.Parameter((-squared.log() / 2).log())
        self.frequency = nn.Parameter(torch.rand(self.d_state).mul(angle).log())
        self.scale = nn.Parameter((1 - squared).log() / 2)
        self.weight_input = nn.Parameter(torch.randn(2 * self.d_state, d_in) / math.sqrt(2 * d_in))
        self.weight_direct = input_weight(1, d_out, d_in)
        self.weight_state = nn.Parameter(torch.randn(d_out, 2 * self.d_state) / math.sqrt(self.d_state))
        self.norm = nn.LayerNorm(d_out)
        self.weight_output, self.bias = input_weight(2, d_out, d_out), gate_bias(2, d_out)
        self.cell, self.hidden = Tap(), Tap()

    def init_state(self, batch_size: int, memory: Memory | None = None) -> LRUState:
        zeros = self.decay.new_zeros(batch_size, self.d_state)
        return LRUState(zeros, zeros)

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], LRUState]:
        real, imaginary = self.init_state(len(x_t)) if state is None else state
        a, b = self._factors()
        u, v = self._input(x_t).chunk(2, dim=-1)
        s = self.cell(torch.cat((a * real - b * imaginary + u, a * imaginary + b * real + v), dim=-1))
        return self._output(s, x_t), LRUState(*s.chunk(2, dim=-1))

    def kernel(self, x: Tensor, state: State, mask: Tensor | None) -> tuple[Tensor, LRUState]:
        x, start = mask_padding(x, mask), torch.complex(*(self.init_state(len(x)) if state is None else state))
        u = torch.complex(*self._input(x).to(self.decay.dtype).chunk(2, dim=-1))
        s = scan_unchecked(torch.complex(*self._factors()).expand_as(u), u, start, mask)
        y = self._output(torch.cat((s.real, s.imag), dim=-1), x)
        end = s[:, -1] if x.shape[1] else start
        return mask_padding(y, mask), LRUState(end.real.clone(), end.imag.clone())

    def _factors(self) -> tuple[Tensor, Tensor]:
        """Return the real and the imaginary part of λ, (n,)."""
        modulus, angle = (-self.decay.exp()).exp(), self.frequency.exp()
        return modulus * angle.cos(), modulus * angle.sin()

    def _input(self, x: Tensor) -> Tensor:
        """Return the real and the imaginary part of e^γ ⊙ (B x), concatenated, (..., 2 n)."""
        return F.linear(x, torch.cat((self.scale, self.scale)).exp().unsqueeze(1) * self.weight_input)

    def _output(self, s: Tensor, x: Tensor) -> Tensor:
        """Return y from x and the concatenated parts of s, (..., 2 n)."""
        v = F.linear(s, self.weight_state) + F.linear(x, self.weight_direct)
        w, gate = F.linear(F.silu(self.norm(v)), self.weight_output, self.bias).chunk(2, dim=-1)
        return self.hidden(w * torch.sigmoid(gate))


class QRNNState(NamedTuple):
    """The state of a `QRNN`: the cell and the last inputs."""

    c: Float[Tensor, "B d"]
    last: Float[Tensor, "B before d_in"]
    """The last `size` - 1 inputs, the oldest first; zeros in place of inputs before the first position."""


class QRNN(Recurrent):
    """The quasi-recurrent network with fo-pooling (Bradbury et al. 2017). With X = [x_{t-size+1}; ...; x_t]:

        z = tanh(W_z X + b_z)        f = σ(W_f X + b_f)        o = σ(W_o X + b_o)
        c' = f ⊙ c + (1 - f) ⊙ z     h = o ⊙ c'

    The submodule `pooling` reads X and computes these equations. Raises ValueError if `size` is below 1.
    """

    repr_arguments = ("d_in", "d_out", "size")

    def __init__(self, d_in: int, d_out: int, *, size: int = 2) -> None:
        super().__init__()
        if size < 1:
            raise ValueError(f"a window must have at least one position, found {size}")
        self.d_in, self.d_out, self.size = d_in, d_out, size
        self.pooling = FoPooling(size * d_in, d_out)

    def init_state(self, batch_size: int, memory: Memory | None = None) -> QRNNState:
        (c,) = self.pooling.init_state(batch_size)
        return QRNNState(c, last=c.new_zeros(batch_size, self.size - 1, self.d_in))

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], QRNNState]:
        c, last = self.init_state(len(x_t)) if state is None else state
        window = torch.cat((last, x_t.unsqueeze(1)), dim=1)
        y_t, (c,) = self.pooling.step(window.flatten(1), LinearState(c))
        return y_t, QRNNState(c, window[:, 1:].clone())

    def forward(self, x: Inputs, state: State = None, *, mask: Mask = None) -> tuple[Outputs, QRNNState]:
        if is_watched(self):
            return self.fold(x, state, mask=mask)
        c, last = self.init_state(len(x)) if state is None else state
        windows, last = build_windows(x, last, mask)
        y, (c,) = self.pooling(windows, LinearState(c), mask=mask)
        return y, QRNNState(c, last)


class FoPooling(LinearRecurrence):
    """The gates and the cell of a `QRNN`. The inputs are windows (B, T, inputs). The weights stack z, f, o.

    The forget bias starts at 1, as in the LSTM.
    """

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__(d_in, d_out, gates=("candidate", "forget", "output"), forget=1)
        self.cell = Tap()

    def coefficients(self, x: Float[Tensor, "*positions d_in"]) -> tuple[Tensor, Tensor, Tensor]:
        v_z, v_f, v_o = self.preactivations(x)
        z, f = self.gates.candidate(torch.tanh(v_z)), self.gates.forget(torch.sigmoid(v_f))
        return f, (1 - f) * z, self.gates.output(torch.sigmoid(v_o))

    def output(self, h: Tensor, gate: Tensor | None) -> tuple[Tensor, Tensor]:
        assert gate is not None
        c = self.cell(h)
        return self.hidden(gate * c), c
