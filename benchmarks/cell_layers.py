"""The layers that `cells.py` measures, and the multiply-adds of their matrix products in a forward pass."""

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
"""A function that returns the multiply-adds from the lengths of the rows, d_in and d."""

HEADS, RANK = 4, 32
PERIODS = (1, 2, 4, 8, 16, 32, 64, 128)


@dataclass(frozen=True)
class Cell:
    build: Callable[[int, int], SequenceLayer]
    """A function that returns the layer from d_in and d."""
    multiply_adds: Count


def gates(number: int) -> Count:
    """Return the count of `number` gates of d units, which read x and h."""
    return lambda lengths, d_in, d: sum(lengths) * number * d * (d_in + d)


def input_gates(number: int) -> Count:
    """Return the count of `number` gates of d units, which read only x."""
    return lambda lengths, d_in, d: sum(lengths) * number * d * d_in


def projected(lengths: Sequence[int], d_in: int, d: int) -> int:
    """Count four gates of 2 d units, which read x and h, and the projection."""
    return sum(lengths) * (4 * 2 * d * (d_in + d) + 2 * d * d)


def depth_gated(lengths: Sequence[int], d_in: int, d: int) -> int:
    """Count an LSTM, and above it five gates that read its h; four of them also read the h of their own layer."""
    return sum(lengths) * (4 * d * (d_in + d) + 9 * d * d)


def grid(num_layers: int) -> Count:
    """Return the count of the map of x, and of two LSTMs in each layer, which read two h."""
    return lambda lengths, d_in, d: sum(lengths) * (2 * d * d_in + num_layers * 16 * d * d)


def clockwork(lengths: Sequence[int], d_in: int, d: int) -> int:
    """Count the updates of each module: every `period` positions, module k reads x, itself and the slower modules."""
    size, total = d // len(PERIODS), 0
    for k, period in enumerate(PERIODS):
        updates = sum(-(-length // period) for length in lengths)
        total += updates * size * (d_in + size * (len(PERIODS) - k))
    return total


def lru(lengths: Sequence[int], d_in: int, d: int) -> int:
    """Count the maps from x to the complex state and to the output, from the state, and two maps of the output."""
    return sum(lengths) * (3 * d * d_in + 4 * d * d)


def mogrifier(lengths: Sequence[int], d_in: int, d: int) -> int:
    """Count an LSTM, and five maps between x and h."""
    return sum(lengths) * (4 * d * (d_in + d) + 5 * d * d_in)


def slstm(lengths: Sequence[int], d_in: int, d: int) -> int:
    """Count four gates, each of which reads x and a quarter of h."""
    return sum(lengths) * (4 * d * d_in + d * d)


def hgrn2(lengths: Sequence[int], d_in: int, d: int) -> int:
    """Count three maps of x, the output map, an outer product, and one product with the state."""
    return sum(lengths) * (3 * d * d_in + d * d + 2 * d * d // HEADS)


def gated_deltanet(lengths: Sequence[int], d_in: int, d: int) -> int:
    """Count four maps of x, the gates, the output map, an outer product, and two products with the state."""
    return sum(lengths) * (4 * d * d_in + 2 * HEADS * d_in + d * d + 3 * d * d // HEADS)


def rwkv7(lengths: Sequence[int], d_in: int, d: int) -> int:
    """Count three maps of x, the output map, low-rank maps, two outer products, and two products with the state."""
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
    "mingru": Cell(MinGRU, input_gates(2)),
    "minlstm": Cell(MinLSTM, input_gates(3)),
    "qrnn": Cell(QRNN, input_gates(6)),
}
CELLS = GATED | RECENT | STACKS | SCANS
