"""The full and the sampled softmax loss over a large vocabulary, with gradients, in turns.

    python benchmarks/sampled_softmax.py [--vocabulary 33278] [--size 400] [--rows 840] [--repeats 5]

The defaults are the sizes of a step of `word-lstm` on WikiText-2. Milliseconds are the minimum processor time over all
repeats, in one thread.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from machine import describe_machine
from timing import time_in_turns
from torch import Tensor

from ensue.nn import linear_cross_entropy, sampled_cross_entropy
from ensue.tasks.texts.corpus import SampledWords

SAMPLE_SIZES = (256, 1024, 4096, 8192)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("vocabulary", 33_278), ("size", 400), ("rows", 840), ("repeats", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(describe_machine(seed=0))
    h = torch.randn(arguments.rows, arguments.size, requires_grad=True)
    weight = (0.05 * torch.randn(arguments.vocabulary, arguments.size)).requires_grad_()
    bias = torch.zeros(arguments.vocabulary, requires_grad=True)
    counts = (2_000_000 / np.arange(1, arguments.vocabulary + 1)).astype(np.int64)  # Zipf's law
    targets = torch.multinomial(torch.from_numpy(counts + 1.0), arguments.rows, replacement=True)
    losses: dict[str, Callable[[], Tensor]] = {"all words": lambda: linear_cross_entropy(h, weight, bias, targets)}
    for size in (size for size in SAMPLE_SIZES if size <= arguments.vocabulary):
        sample = SampledWords(counts, size=size, power=1.0, seed=0).draw(0, torch.device("cpu"))
        losses[f"{size:,} words"] = lambda sample=sample: sampled_cross_entropy(h, weight, bias, targets, sample)
    for dtype in (torch.float32, torch.bfloat16):
        calls = {name: partial(compute_gradients, loss, [h, weight, bias], dtype) for name, loss in losses.items()}
        seconds = time_in_turns(calls, arguments.repeats)
        for name, values in seconds.items():
            ratio = min(seconds["all words"]) / min(values)
            print(f"{str(dtype).removeprefix('torch.'):9} {name:12} {1000 * min(values):8.1f} ms  {ratio:5.1f} x")


def compute_gradients(loss: Callable[[], Tensor], sources: list[Tensor], dtype: torch.dtype) -> None:
    """Compute a loss and its gradients."""
    for source in sources:
        source.grad = None
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype is torch.bfloat16):
        total = loss()
    total.backward()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
