"""Speed of recurrent decoders: without attention, with attention after the cells, and with attention in the step.

    python benchmarks/decoders.py

The script measures a forward and a backward pass of one layer of LSTM cells over ragged rows, in one thread, in turns
in one process. "folded" is attention in the step under plain autograd, position by position.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext

import torch
from machine import describe_machine
from timing import time_in_turns
from torch import Tensor

from ensue.engine import executing
from ensue.nn import (
    LSTM,
    AdditiveAttention,
    AttentionalLayer,
    BilinearAttention,
    FromContext,
    InputFeeding,
    SequenceLayer,
    Stack,
)
from ensue.types import Memory

SIZES = ((64, 16, 16, 256), (32, 50, 150, 256))
"""The numbers of rows, target positions, source positions and features."""
NUM_TURNS = 10
SEED = 0


def ragged_mask(rows: int, positions: int) -> Tensor:
    """Return a mask of rows with random lengths."""
    return torch.arange(positions) < torch.randint(positions // 2, positions + 1, (rows, 1))


def make_call(layer: SequenceLayer, x: Tensor, mask: Tensor, memory: Memory, *, folded: bool) -> Callable[[], None]:
    def run() -> None:
        layer.zero_grad()
        with executing("fold") if folded else nullcontext():
            y, _ = layer(x, layer.init_state(len(x), memory), mask=mask)
            y[mask].sum().backward()

    return run


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    print(describe_machine(seed=SEED))
    for rows, positions, source, d in SIZES:
        x, mask = torch.randn(rows, positions, d, requires_grad=True), ragged_mask(rows, positions)
        memory = Memory(torch.randn(rows, source, 2 * d, requires_grad=True), ragged_mask(rows, source))
        for kind in (BilinearAttention, AdditiveAttention):
            attention = [AttentionalLayer(kind(d, 2 * d)) for _ in range(2)]
            inside = InputFeeding(LSTM(2 * d, d), attention[0])
            calls = {
                "none": make_call(FromContext(LSTM(d, d), 2 * d), x, mask, memory, folded=False),
                "after": make_call(Stack([LSTM(d, d), attention[1]]), x, mask, memory, folded=False),
                "inside": make_call(inside, x, mask, memory, folded=False),
                "folded": make_call(inside, x, mask, memory, folded=True),
            }
            seconds = time_in_turns(calls, NUM_TURNS, warm_up=2, clock=time.perf_counter)
            ms = {name: 1000 * statistics.median(values) for name, values in seconds.items()}
            print(
                f"{rows} rows, {positions} positions, source of {source}, {d} features, {kind.__name__}: "
                + ", ".join(f"{name} {value:.0f} ms" for name, value in ms.items())
                + f"; inside / after {ms['inside'] / ms['after']:.2f}"
                + f", folded / inside {ms['folded'] / ms['inside']:.2f}"
            )


if __name__ == "__main__":
    main()
