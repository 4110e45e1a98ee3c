"""Single calls of recurrent layers in inference beside torch.nn, and a step of one row; one thread, in turns.

    python benchmarks/calls.py [--layers LSTM GRU Elman] [--batches 1 8 32 64] [--lengths 1 10 30 100]
                               [--widths 64 128 256 512] [--seconds 0.5]

A shape has (B, T, d) with as many input features as units. In each turn ensue's layer and torch.nn's with other weights
are called one after the other, under `torch.inference_mode`. Each time is the least processor time of all turns, since
other programs only add to it; the ratio is torch's time to ensue's. `step` has one row. ATEN_CPU_CAPABILITY=avx2,
ONEDNN_MAX_CPU_ISA=AVX2 and ENSUE_CFLAGS=-march=x86-64-v3 make another processor of one with AVX-512.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product

import torch
from machine import describe_machine
from torch import nn

import ensue.nn

PEERS = {"LSTM": nn.LSTM, "GRU": nn.GRU, "Elman": nn.RNN}


def least_times(calls: Sequence[Callable[[], object]], seconds: float) -> list[float]:
    """Return the least time of each call in microseconds, from turns for as long as `seconds`."""
    least = [float("inf")] * len(calls)
    end = time.thread_time() + seconds
    turns = 0
    while turns < 5 or time.thread_time() < end:
        for number, call in enumerate(calls):
            began = time.thread_time()
            call()
            least[number] = min(least[number], time.thread_time() - began)
        turns += 1
    return [1e6 * value for value in least]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8, 32, 64])
    parser.add_argument("--lengths", nargs="+", type=int, default=[1, 10, 30, 100])
    parser.add_argument("--widths", nargs="+", type=int, default=[64, 128, 256, 512])
    parser.add_argument("--seconds", type=float, default=0.5, help="for each shape; default: 0.5")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(describe_machine(seed=0))
    print("| layer | B | T | d | ensue µs | torch.nn µs | × | step of one row µs |\n|---|---|---|---|---|---|---|---|")
    ratios = []
    for name, d, batch, length in product(options.layers, options.widths, options.batches, options.lengths):
        layer, peer = getattr(ensue.nn, name)(d, d), PEERS[name](d, d, batch_first=True)
        x = torch.randn(batch, length, d)
        with torch.inference_mode():
            calls = [partial(layer, x), partial(peer, x), partial(layer.step, x[:1, 0])]
            ours, theirs, step = least_times(calls, options.seconds)
        ratios.append(theirs / ours)
        cells = [name, batch, length, d, f"{ours:,.0f}", f"{theirs:,.0f}", f"{ratios[-1]:.2f}", f"{step:.0f}"]
        print(f"| {' | '.join(map(str, cells))} |", flush=True)
    print(f"\n{sum(ratio < 1 for ratio in ratios)} of {len(ratios)} shapes below 1.0; least {min(ratios):.2f}")


if __name__ == "__main__":
    main()
