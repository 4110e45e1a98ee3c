"""The clockwork recurrent network: modules that work at different rates, each a simple recurrent network."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ensue.nn.elman import ElmanState
from ensue.nn.engine import runs_compiled
from ensue.nn.engine.c_library import library
from ensue.nn.engine.products import in_parts
from ensue.nn.layer import Recurrent, blank
from ensue.nn.taps import Tap, is_watched
from ensue.types import Memory, State

PART = 32
"""Units from which on a module is multiplied by itself: fewer do not fill the registers."""


class ClockworkState(NamedTuple):
    h: Float[Tensor, "B d"]
    clock: Int[Tensor, " B"]
    """How many positions the row has read."""


class Clockwork(Recurrent):
    """Koutník et al. 2014. The units are modules of equal size, fast ones first; module k has the period P_k:

        ĥ = tanh(W x + U h + b)
        h'_k = ĥ_k where t mod P_k = 0, h_k elsewhere          t = 0, 1, ... is the row's own clock

    A module reads itself and the slower ones: block (k, j) of U is used only if P_j ≥ P_k. The blocks below the
    diagonal are in `weight_hidden` (d, d), start at 0 and stay there: nothing reads them, no gradient reaches them.

    Raises `ValueError` where `periods` are not positive, ascending and each a divisor of the next, or do not divide the
    units evenly.
    """

    def __init__(self, d_in: int, d_out: int, *, periods: Sequence[int] = (1, 2, 4, 8, 16, 32, 64, 128)) -> None:
        super().__init__()
        self.d_in, self.d_out, self.periods = d_in, d_out, checked_periods(periods)
        if d_out % len(periods):
            raise ValueError(f"{d_out} units cannot be divided among {len(periods)} periods")
        self.size = d_out // len(periods)
        self.weight_input = nn.Parameter(torch.empty(d_out, d_in))
        self.weight_hidden = nn.Parameter(torch.empty(d_out, d_out))
        self.bias = nn.Parameter(torch.zeros(d_out))
        self.period: Tensor
        self.is_heard: Tensor
        self.register_buffer("period", torch.tensor(self.periods).repeat_interleave(self.size), persistent=False)
        self.register_buffer("is_heard", self.period >= self.period.unsqueeze(1), persistent=False)
        # In a tuple, so that it is no part of this layer: it lends its equations and is lent the weights.
        self.lent = (ClockworkUnits(d_out),)
        self.hidden = Tap()
        nn.init.xavier_uniform_(self.weight_input)
        nn.init.xavier_uniform_(self.weight_hidden)
        with torch.no_grad():
            self.weight_hidden.mul_(self.is_heard)
            for begin in range(0, d_out, self.size):
                nn.init.orthogonal_(self.weight_hidden[begin : begin + self.size, begin : begin + self.size])

    def init_state(self, batch_size: int, memory: Memory | None = None) -> ClockworkState:
        h = self.weight_hidden.new_zeros(batch_size, self.d_out)
        return ClockworkState(h, clock=self.period.new_zeros(batch_size))

    def step(
        self, x_t: Float[Tensor, "B d_in"], state: State = None
    ) -> tuple[Float[Tensor, "B d_out"], ClockworkState]:
        h, clock = self.init_state(len(x_t)) if state is None else state
        U = self.weight_hidden * self.is_heard
        works = clock.unsqueeze(-1) % self.period == 0
        candidate = torch.tanh(F.linear(x_t, self.weight_input, self.bias) + F.linear(h, U))
        h = self.hidden(torch.where(works, candidate, h))
        return h, ClockworkState(h, clock + 1)

    def forward(
        self, x: Float[Tensor, "B T d_in"], state: State = None, *, mask: Bool[Tensor, "B T"] | None = None
    ) -> tuple[Float[Tensor, "B T d_out"], ClockworkState]:
        """In C where the clocks of all rows show the same, up to whole turns of the slowest module: what rests costs
        nothing. Otherwise all units at every position, those that rest included."""
        if is_watched(self):
            return self.fold(x, state, mask=mask)
        h, clock = self.init_state(len(x)) if state is None else state
        x, lengths = blank(x, mask), x.shape[1] if mask is None else mask.sum(1)
        start = 0 if state is None else self._agreed(clock)
        if start is None or not self._runs_turns(x):
            y, (h,) = self._all_at_once(x, h, clock, mask)
            return y, ClockworkState(h, clock + lengths)
        turns = Turns(self.periods, self.size, start, x)
        y = _Clockwork.apply(turns, x, h, self.weight_input, self.weight_hidden, self.bias)
        if mask is None:
            return y, ClockworkState(y[:, -1].clone(), clock + lengths)
        last = (mask.sum(1) - 1).clamp(min=0).view(-1, 1, 1).expand(-1, 1, self.d_out)
        return y, ClockworkState(torch.where(mask[:, :1], y.gather(1, last).squeeze(1), h), clock + lengths)

    def _agreed(self, clock: Tensor) -> int | None:
        """What the clocks of all rows show, up to whole turns of the slowest module."""
        phases = (clock % self.periods[-1]).unique().tolist()
        return phases[0] if len(phases) == 1 else None

    def _runs_turns(self, x: Tensor) -> bool:
        """Whether the functions below run `x`: where the engine's do, but not in bfloat16."""
        is_plain = x.dtype == self.bias.dtype and not torch.is_autocast_enabled("cpu")
        return x.numel() > 0 and not torch.compiler.is_compiling() and is_plain and runs_compiled(self.lent[0], x) and functions(x.dtype) is not None

    def _all_at_once(self, x: Tensor, h: Tensor, clock: Tensor, mask: Tensor | None) -> tuple[Tensor, ElmanState]:
        """`fold`, with what x and the clocks say made ready for all positions."""
        clocks = clock.unsqueeze(1) + torch.arange(x.shape[1], device=x.device)
        works = clocks.unsqueeze(-1) % self.period == 0
        u = torch.cat((F.linear(x, self.weight_input, self.bias), works.to(x.dtype)), dim=-1)
        weights = {"weight_hidden": self.weight_hidden * self.is_heard}
        y, after = torch.func.functional_call(self.lent[0], weights, (u, ElmanState(h)), {"mask": mask})
        return y, after

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, periods={self.periods}"


class ClockworkModule(Recurrent):
    """One module over the positions where it works: `h' = tanh(u + U h)`, u being all that it hears."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.d_in = self.d_out = size
        self.weight_hidden = nn.Parameter(nn.init.orthogonal_(torch.empty(size, size)))

    def init_state(self, batch_size: int, memory: Memory | None = None) -> ElmanState:
        return ElmanState(self.weight_hidden.new_zeros(batch_size, self.d_out))

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], ElmanState]:
        (h,) = self.init_state(len(x_t)) if state is None else state
        h = torch.tanh(x_t + F.linear(h, self.weight_hidden))
        return h, ElmanState(h)

    def extra_repr(self) -> str:
        return f"size={self.d_out}"


class ClockworkUnits(ClockworkModule):
    """All modules, from [u; works]: `h' = works ⊙ tanh(u + U h) + (1 - works) ⊙ h`, works being 1 or 0, so exact."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.d_in = 2 * size

    def step(self, x_t: Float[Tensor, "B d_in"], state: State = None) -> tuple[Float[Tensor, "B d_out"], ElmanState]:
        (h,) = self.init_state(len(x_t)) if state is None else state
        u, works = x_t.chunk(2, dim=-1)
        h = works * torch.tanh(u + F.linear(h, self.weight_hidden)) + (1 - works) * h
        return h, ElmanState(h)


def checked_periods(periods: Sequence[int]) -> tuple[int, ...]:
    """`periods`, if they can be those of a `Clockwork`; raises `ValueError` otherwise."""
    ascending = all(0 < fast < slow and slow % fast == 0 for fast, slow in pairwise(periods))
    if not periods or periods[0] < 1 or not ascending:
        raise ValueError(f"periods are positive, ascending, and each divides the next; not {tuple(periods)}")
    return tuple(periods)


TEXT = r"""
#include <stdlib.h>

/* Arrays of positions are (batch, positions, width). At position 0 the clocks show `start`. */
typedef struct {
    int64_t batch, positions, start, d_in, d, parts, size, modules, periods[];
} shape;

/* One module, or several that are smaller than a panel: `size` units from `unit` on, of which some work at `turns`
 * positions, first, first + period, ... The errors at their pre-activations, (batch, turns, size), begin at `errors`. */
typedef struct {
    int64_t unit, size, period, first, turns, errors;
} part;

/* How many units work at position t, always the first ones. */
static int64_t working(const shape *s, int64_t t) {
    int64_t k = 0;
    while (k < s->modules && (s->start + t) % s->periods[k] == 0)
        k++;
    return k * s->size;
}

/* The first column of U, or of W, that is read by the module of a unit: it hears itself and the slower ones. */
static int64_t heard(const shape *s, int64_t unit, int of_h) { return of_h ? unit / s->size * s->size : 0; }

static int64_t most_packed(const shape *s, const part *m, int64_t width) {
    int64_t by_rows = packed_size(m->size, width), by_columns = packed_size(width, m->size);
    return by_rows > by_columns ? by_rows : by_columns;
}

/* The rows of A (d x width) of each part, or their transpose, from the first column that is heard on. */
static real *pack_parts(const shape *s, const part *m, const real *A, int64_t width, int of_h, int transposed) {
    enum { APART = 16 }; /* rows a power of two apart would share few places in the cache */
    int64_t ld = width + APART, each = most_packed(s, m, width);
    real *packed = malloc((s->parts * each + m->size * ld) * sizeof(real)), *copy = packed + s->parts * each;
    for (int64_t k = 0; k < s->parts; k++, m++) {
        int64_t from = heard(s, m->unit, of_h);
        for (int64_t j = 0; j < m->size; j++) {
            int64_t begin = heard(s, m->unit + j, of_h);
            memset(copy + j * ld + from, 0, (begin - from) * sizeof(real));
            memcpy(copy + j * ld + begin, A + (m->unit + j) * width + begin, (width - begin) * sizeof(real));
        }
        if (transposed)
            pack(width - from, m->size, copy + from, 1, ld, packed + k * each);
        else
            pack(m->size, width - from, copy + from, ld, 1, packed + k * each);
    }
    return packed;
}

/* y holds W x first. */
static void add_inputs(const shape *s, const part *m, int64_t row, const real *x, const real *W, real *y) {
    int64_t each = most_packed(s, m, s->d_in);
    for (int64_t k = 0; k < s->parts; k++, m++) {
        int64_t at = row * s->positions + m->first;
        if (m->turns)
            gemm(m->turns, m->size, s->d_in, x + at * s->d_in, m->period * s->d_in, 1, W + k * each,
                 y + at * s->d + m->unit, m->period * s->d, 0);
    }
}

/* Rows `first` to `last` of y from x and the states h before. */
void forward(const shape *s, const part *parts, int64_t first, int64_t last, const real *x, const real *h,
             const real *W, const real *U, const real *b, real *y) {
    int64_t d = s->d, ld = s->positions * d, each = most_packed(s, parts, d);
    real *W_parts = pack_parts(s, parts, W, s->d_in, 0, 1), *U_parts = pack_parts(s, parts, U, d, 1, 1);
    for (int64_t row = first; row < last; row++)
        add_inputs(s, parts, row, x, W_parts, y);
    for (int64_t t = 0; t < s->positions; t++) {
        const real *before = t ? y + first * ld + (t - 1) * d : h + first * d;
        int64_t ld_before = t ? ld : d, works = working(s, t);
        real *now = y + first * ld + t * d;
        for (const part *m = parts; m < parts + s->parts && m->unit < works; m++)
            gemm(last - first, m->size, d - m->unit, before + m->unit, ld_before, 1, U_parts + (m - parts) * each,
                 now + m->unit, ld, 1);
        for (int64_t row = first; row < last; row++, now += ld, before += ld_before) {
            for (int64_t j = 0; j < works; j++)
                now[j] = tanh_(now[j] + b[j]);
            memcpy(now + works, before + works, (d - works) * sizeof(real));
        }
    }
    free(W_parts);
    free(U_parts);
}

/* A row's errors at the pre-activations of a position. */
static real *errors_at(const part *m, int64_t row, int64_t t, real *errors) {
    return errors + m->errors + (row * m->turns + (t - m->first) / m->period) * m->size;
}

/* A row's error at x, from those at the pre-activations. */
static void put_errors(const shape *s, const part *m, int64_t row, real *errors, const real *W, real *error_x) {
    int64_t each = most_packed(s, m, s->d_in), every = m->period == 1;
    if (!every)
        memset(error_x + row * s->positions * s->d_in, 0, s->positions * s->d_in * sizeof(real));
    for (int64_t k = 0; k < s->parts; k++, m++)
        if (m->turns)
            gemm(m->turns, s->d_in, m->size, errors_at(m, row, m->first, errors), m->size, 1, W + k * each,
                 error_x + (row * s->positions + m->first) * s->d_in, m->period * s->d_in, k || !every);
}

/* One part's errors at a position, and zeros where its units rest; what works takes nothing else from before. */
static void end_errors(const part *m, int64_t works, const real *y, real *error, real *error_b, real *errors) {
    int64_t n = least(m->size, works - m->unit);
    for (int64_t j = 0, unit = m->unit; j < n; j++, unit++) {
        errors[j] = error[unit] * (1 - y[unit] * y[unit]);
        error_b[unit] += errors[j];
        error[unit] = 0;
    }
    memset(errors + n, 0, (m->size - n) * sizeof(real));
}

/* Of rows `first` to `last`: the errors at the pre-activations, at x and, added to what is there, at h and the bias. */
void backward(const shape *s, const part *parts, int64_t first, int64_t last, const real *y, const real *error_y,
              const real *W, const real *U, real *errors, real *error_x, real *error_h, real *error_b) {
    int64_t d = s->d, each = most_packed(s, parts, d);
    real *W_parts = pack_parts(s, parts, W, s->d_in, 0, 0), *U_parts = pack_parts(s, parts, U, d, 1, 0);
    for (int64_t t = s->positions - 1; t >= 0; t--) {
        int64_t works = working(s, t);
        for (int64_t row = first; row < last; row++) {
            int64_t at = (row * s->positions + t) * d;
            for (int64_t j = 0; j < d; j++)
                error_h[row * d + j] += error_y[at + j];
            for (const part *m = parts; m < parts + s->parts && m->unit < works; m++)
                end_errors(m, works, y + at, error_h + row * d, error_b, errors_at(m, row, t, errors));
        }
        for (const part *m = parts; m < parts + s->parts && m->unit < works; m++)
            gemm(last - first, d - m->unit, m->size, errors_at(m, first, t, errors), m->turns * m->size, 1,
                 U_parts + (m - parts) * each, error_h + first * d + m->unit, d, 1);
    }
    for (int64_t row = first; row < last; row++)
        put_errors(s, parts, row, errors, W_parts, error_x);
    free(W_parts);
    free(U_parts);
}

/* Row p of `count`, packed. */
static void pack_row(int64_t p, int64_t count, int64_t n, const real *row, real *packed) {
    for (packed += p * PANEL; n >= PANEL; n -= PANEL, row += PANEL, packed += count * PANEL)
        memcpy(packed, row, PANEL * sizeof(real));
    for (int64_t j = 0; n > 0 && j < PANEL; j++)
        packed[j] = j < n ? row[j] : 0;
}

/* Columns `first` to `last` of the errors at a matrix (d x width) that reads x, or the states before: with h given. */
void at_matrix(const shape *s, const part *m, int64_t first, int64_t last, const real *read, const real *h,
               int64_t width, real *errors, real *error_matrix) {
    real *packed = malloc(packed_size(BLOCK, last - first) * sizeof(real));
    for (int64_t k = 0; k < s->parts; k++, m++) {
        int64_t heard_from = heard(s, m->unit, h != NULL), from = heard_from > first ? heard_from : first;
        real *to = error_matrix + m->unit * width;
        for (int64_t i = 0, all = s->batch * m->turns, count; from < last && i < all; i += count) {
            count = even_part(all - i, BLOCK);
            for (int64_t p = 0; p < count; p++) {
                int64_t row = (i + p) / m->turns, t = m->first + (i + p) % m->turns * m->period;
                const real *source = read + (row * s->positions + t) * width;
                if (h)
                    source = t ? source - width : h + row * width;
                pack_row(p, count, last - from, source + from, packed);
            }
            gemm(m->size, last - from, count, errors + m->errors + i * m->size, 1, m->size, packed, to + from, width,
                 i > 0);
        }
        for (int64_t j = 0; j < m->size; j++, to += width)
            for (int64_t c = first; c < least(last, heard(s, m->unit + j, h != NULL)); c++)
                to[c] = 0;
    }
    free(packed);
}
"""
"""Each module at its turns: the rest of the time its states are copied and their errors passed on."""


class Turns:
    """Where each module works when all clocks show `start` at the first position, as the functions in C read it."""

    def __init__(self, periods: Sequence[int], size: int, start: int, x: Tensor) -> None:
        self.dtype, (batch, positions, d_in) = x.dtype, x.shape
        several = min(len(periods), -(-PART // size))
        numbers, errors = [], 0
        for k in range(0, len(periods), several):
            units, first = min(several, len(periods) - k) * size, -start % periods[k]
            turns = max(0, -(-(positions - first) // periods[k]))
            numbers += [k * size, units, periods[k], first, turns, errors]
            errors += batch * turns * units
        self.errors = errors
        """How many errors at pre-activations there are."""
        d, parts = len(periods) * size, len(numbers) // 6
        shape = [batch, positions, start, d_in, d, parts, size, len(periods), *periods]
        self.numbers = (ctypes.c_int64 * len(shape))(*shape), (ctypes.c_int64 * len(numbers))(*numbers)

    def run(self, name: str, rows: int, *given: Tensor | int | None, sums: Tensor | None = None) -> None:
        """A function, on so many rows in parts. Tensors are contiguous; `sums` has a row for each thread."""
        function = getattr(functions(self.dtype), name)
        numbers = [None if g is None else _number(g) for g in given]

        def work(first: int, last: int, worker: int) -> None:
            own = [] if sums is None else [_number(sums[worker])]
            function(*self.numbers, _number(first), _number(last), *numbers, *own)

        in_parts(rows, work)


def _number(given: Tensor | int) -> ctypes.c_int64:
    """A number, or an address."""
    return ctypes.c_int64(given.data_ptr() if isinstance(given, Tensor) else given)


@cache
def functions(dtype: torch.dtype) -> ctypes.CDLL | None:
    return library(TEXT, dtype)


class _Clockwork(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, turns: Turns, x: Tensor, h: Tensor, W: Tensor, U: Tensor, b: Tensor) -> Tensor:
        x, h, W, U, b = (tensor.contiguous() for tensor in (x, h, W, U, b))
        y = x.new_empty(*x.shape[:2], h.shape[1])
        turns.run("forward", len(x), x, h, W, U, b, y)
        ctx.turns = turns
        ctx.save_for_backward(x, h, W, U, y)
        return y

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, error: Tensor) -> tuple[Tensor | None, ...]:
        turns: Turns = ctx.turns
        x, h, W, U, y = ctx.saved_tensors
        errors, at_x, at_h = y.new_empty(turns.errors), torch.empty_like(x), torch.zeros_like(h)
        at_b = y.new_zeros(torch.get_num_threads(), y.shape[2])
        turns.run("backward", len(x), y, error.contiguous(), W, U, errors, at_x, at_h, sums=at_b)
        at_W, at_U = torch.zeros_like(W), torch.zeros_like(U)
        turns.run("at_matrix", W.shape[1], x, None, W.shape[1], errors, at_W)
        turns.run("at_matrix", U.shape[1], y, h, U.shape[1], errors, at_U)
        return None, at_x, at_h, at_W, at_U, at_b.sum(0)
