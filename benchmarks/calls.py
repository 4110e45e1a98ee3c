"""Single calls of recurrent layers in inference beside torch.nn, and a step of one row; one thread, in turns.

    python benchmarks/calls.py [--layers LSTM GRU Elman] [--batches 1 8 32 64] [--lengths 1 10 30 100]
                               [--widths 64 128 256 512] [--seconds 0.5]

A shape is (B, T, d), with as many input features as units. In each turn the layers of ensue and torch.nn are called one
after the other, under `torch.inference_mode`. Their weights differ. Each time is the minimum processor time over all
turns, since other programs only add to it. The ratio is the time of torch.nn divided by the time of ensue. `step` has
one row. On a processor with AVX-512, the environment variables ATEN_CPU_CAPABILITY=avx2, ONEDNN_MAX_CPU_ISA=AVX2 and
ENSUE_CFLAGS=-march=x86-64-v3 restrict both sides to AVX2.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product

import torch
from machine import describe_machine
from timing import elapsed
from torch import nn

import ensue.nn

PEERS = {"LSTM": nn.LSTM, "GRU": nn.GRU, "Elman": nn.RNN}


def minimum_times(calls: Sequence[Callable[[], object]], seconds: float) -> list[float]:
    """Return the minimum time of each call in microseconds, over at least 5 turns and `seconds` of processor time."""
    minimum = [float("inf")] * len(calls)
    end = time.thread_time() + seconds
    turns = 0
    while turns < 5 or time.thread_time() < end:
        for number, call in enumerate(calls):
            minimum[number] = min(minimum[number], elapsed(call, time.thread_time))
        turns += 1
    return [1e6 * value for value in minimum]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8, 32, 64])
    parser.add_argument("--lengths", nargs="+", type=int, default=[1, 10, 30, 100])
    parser.add_argument("--widths", nargs="+", type=int, default=[64, 128, 256, 512])
    parser.add_argument("--seconds", type=float, default=0.5, help="for each shape; default: 0.5")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(describe_machine(seed=0))
    print("| layer | B | T | d | ensue µs | torch.nn µs | × | step of one row µs |\n|---|---|---|---|---|---|---|---|")
    ratios = []
    for name, d, batch, length in product(arguments.layers, arguments.widths, arguments.batches, arguments.lengths):
        layer, peer = getattr(ensue.nn, name)(d, d), PEERS[name](d, d, batch_first=True)
        x = torch.randn(batch, length, d)
        with torch.inference_mode():
            calls = [partial(layer, x), partial(peer, x), partial(layer.step, x[:1, 0])]
            ours, theirs, step = minimum_times(calls, arguments.seconds)
        ratios.append(theirs / ours)
        cells = [name, batch, length, d, f"{ours:,.0f}", f"{theirs:,.0f}", f"{ratios[-1]:.2f}", f"{step:.0f}"]
        print(f"| {' | '.join(map(str, cells))} |", flush=True)
    print(f"\n{sum(ratio < 1 for ratio in ratios)} of {len(ratios)} shapes below 1.0; minimum {min(ratios):.2f}")


if __name__ == "__main__":
    main()
