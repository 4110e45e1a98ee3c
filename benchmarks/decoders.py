"""Recurrent decoders beside each other: no attention, attention after the cells, and attention inside of the step.

    python benchmarks/decoders.py

A forward and a backward pass of one layer of LSTM cells over ragged rows, one thread, in turns in one process. "folded"
is attention inside of the step as plain autograd runs it, position by position.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext

import torch
from machine import describe_machine
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
"""Rows, positions of the target, positions of the source, features."""
ROUNDS = 12
SEED = 0


def ragged(rows: int, positions: int) -> Tensor:
    return torch.arange(positions) < torch.randint(positions // 2, positions + 1, (rows, 1))


def call(layer: SequenceLayer, x: Tensor, mask: Tensor, memory: Memory, *, folded: bool) -> Callable[[], None]:
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
        x, mask = torch.randn(rows, positions, d, requires_grad=True), ragged(rows, positions)
        memory = Memory(torch.randn(rows, source, 2 * d, requires_grad=True), ragged(rows, source))
        for kind in (BilinearAttention, AdditiveAttention):
            reads = [AttentionalLayer(kind(d, 2 * d)) for _ in range(2)]
            inside = InputFeeding(LSTM(2 * d, d), reads[0])
            calls = {
                "none": call(FromContext(LSTM(d, d), 2 * d), x, mask, memory, folded=False),
                "after": call(Stack([LSTM(d, d), reads[1]]), x, mask, memory, folded=False),
                "inside": call(inside, x, mask, memory, folded=False),
                "folded": call(inside, x, mask, memory, folded=True),
            }
            seconds: dict[str, list[float]] = {name: [] for name in calls}
            for _ in range(ROUNDS):
                for name, run in calls.items():
                    begin = time.perf_counter()
                    run()
                    seconds[name].append(time.perf_counter() - begin)
            ms = {name: 1000 * statistics.median(found[2:]) for name, found in seconds.items()}
            print(
                f"{rows} rows, {positions} positions, source of {source}, {d} features, {kind.__name__}: "
                + ", ".join(f"{name} {value:.0f} ms" for name, value in ms.items())
                + f"; inside / after {ms['inside'] / ms['after']:.2f}"
                + f", folded / inside {ms['folded'] / ms['inside']:.2f}"
            )


if __name__ == "__main__":
    main()
