"""The layers that `cells.py` measures, and how many multiply-adds their matrix products take in a forward pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ensue.nn import (
    GRU,
    HGRN2,
    LEM,
    LRU,
    LSTM,
    QRNN,
    RWKV7,
    SLSTM,
    Clockwork,
    CoupledLSTM,
    DepthGatedLSTM,
    Elman,
    GatedDeltaNet,
    GridLSTM,
    LayerNormLSTM,
    MinGRU,
    MinLSTM,
    MogrifierLSTM,
    PeepholeLSTM,
    ProjectedLSTM,
    SequenceLayer,
    Zoneout,
)

Count = Callable[[Sequence[int], int, int], int]
"""Multiply-adds from the rows' lengths, d_in and d."""

HEADS, RANK = 4, 32
PERIODS = (1, 2, 4, 8, 16, 32, 64, 128)


@dataclass(frozen=True)
class Cell:
    build: Callable[[int, int], SequenceLayer]
    """From d_in and d."""
    multiply_adds: Count


def gates(number: int) -> Count:
    """So many gates that read x and h, of d units each."""
    return lambda lengths, d_in, d: sum(lengths) * number * d * (d_in + d)


def of_inputs(number: int) -> Count:
    """So many gates of d units that read x alone."""
    return lambda lengths, d_in, d: sum(lengths) * number * d * d_in


def projected(lengths: Sequence[int], d_in: int, d: int) -> int:
    """Four gates of 2 d cells that read x and h, and the projection."""
    return sum(lengths) * (4 * 2 * d * (d_in + d) + 2 * d * d)


def depth_gated(lengths: Sequence[int], d_in: int, d: int) -> int:
    """An LSTM, and above it five gates that read its h, of which four read their own."""
    return sum(lengths) * (4 * d * (d_in + d) + 9 * d * d)


def grid(num_layers: int) -> Count:
    """The map of x, and in every layer two LSTMs that read two h."""
    return lambda lengths, d_in, d: sum(lengths) * (2 * d * d_in + num_layers * 16 * d * d)


def clockwork(lengths: Sequence[int], d_in: int, d: int) -> int:
    """At its turns, module k reads x, itself and the slower modules; at others it rests."""
    size, total = d // len(PERIODS), 0
    for k, period in enumerate(PERIODS):
        turns = sum(-(-length // period) for length in lengths)
        total += turns * size * (d_in + size * (len(PERIODS) - k))
    return total


def lru(lengths: Sequence[int], d_in: int, d: int) -> int:
    """The maps of x to a complex state and to the output, that of the state, and two of the output."""
    return sum(lengths) * (3 * d * d_in + 4 * d * d)


def mogrifier(lengths: Sequence[int], d_in: int, d: int) -> int:
    """An LSTM, and five maps between x and h."""
    return sum(lengths) * (4 * d * (d_in + d) + 5 * d * d_in)


def slstm(lengths: Sequence[int], d_in: int, d: int) -> int:
    """Four gates, which read a fourth of h each."""
    return sum(lengths) * (4 * d * d_in + d * d)


def hgrn2(lengths: Sequence[int], d_in: int, d: int) -> int:
    """Three maps of x and the last one; an outer product, and reading after it."""
    return sum(lengths) * (3 * d * d_in + d * d + 2 * d * d // HEADS)


def gated_deltanet(lengths: Sequence[int], d_in: int, d: int) -> int:
    """Four maps of x and the gates, and the last one; an outer product, and reading before and after it."""
    return sum(lengths) * (4 * d * d_in + 2 * HEADS * d_in + d * d + 3 * d * d // HEADS)


def rwkv7(lengths: Sequence[int], d_in: int, d: int) -> int:
    """Three maps of x and the last one; narrow ones; two outer products, and reading before and after them."""
    return sum(lengths) * (3 * d * d_in + d * d + 4 * RANK * (d_in + d) + 4 * d * d // HEADS)


full_elman = gates(1)

GATED = {
    "lstm": Cell(LSTM, gates(4)),
    "gru": Cell(GRU, gates(3)),
    "gru-before": Cell(lambda d_in, d: GRU(d_in, d, reset="before"), gates(3)),
    "elman": Cell(Elman, gates(1)),
    "peephole": Cell(PeepholeLSTM, gates(4)),
    "coupled": Cell(CoupledLSTM, gates(3)),
    "layer-norm": Cell(LayerNormLSTM, gates(4)),
    "projected": Cell(lambda d_in, d: ProjectedLSTM(d_in, d, d_cell=2 * d), projected),
    "zoneout": Cell(lambda d_in, d: Zoneout(LSTM(d_in, d), hidden=0.05, cell=0.5), gates(4)),
}
RECENT = {
    "lru": Cell(LRU, lru),
    "mogrifier": Cell(MogrifierLSTM, mogrifier),
    "lem": Cell(LEM, gates(4)),
    "slstm": Cell(SLSTM, slstm),
    "hgrn2": Cell(HGRN2, hgrn2),
    "gated-deltanet": Cell(GatedDeltaNet, gated_deltanet),
    "rwkv7": Cell(RWKV7, rwkv7),
}
STACKS = {
    "depth-gated-2": Cell(lambda d_in, d: DepthGatedLSTM(d_in, d, num_layers=2), depth_gated),
    "grid-1": Cell(lambda d_in, d: GridLSTM(d_in, d, num_layers=1), grid(1)),
    "grid-2": Cell(lambda d_in, d: GridLSTM(d_in, d, num_layers=2), grid(2)),
    "clockwork": Cell(lambda d_in, d: Clockwork(d_in, d, periods=PERIODS), clockwork),
}
SCANS = {
    "mingru": Cell(MinGRU, of_inputs(2)),
    "minlstm": Cell(MinLSTM, of_inputs(3)),
    "qrnn": Cell(QRNN, of_inputs(6)),
}
CELLS = GATED | RECENT | STACKS | SCANS
