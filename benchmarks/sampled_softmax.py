"""The loss of a softmax over a large vocabulary by all words and by some, with its gradients, in turns.

    python benchmarks/sampled_softmax.py [--vocabulary 33278] [--size 400] [--rows 840] [--repeats 5]

One thread. The default is a step of `word-lstm` on WikiText-2. Milliseconds are of processor time, the least of all
repeats.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ensue.nn import linear_cross_entropy, sampled_cross_entropy
from ensue.tasks.texts.corpus import SampledWords

SAMPLES = (256, 1024, 4096, 8192)


def main() -> None:
    options = argparse.ArgumentParser()
    for name, default in (("vocabulary", 33_278), ("size", 400), ("rows", 840), ("repeats", 5)):
        options.add_argument(f"--{name}", type=int, default=default)
    given = options.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    h = torch.randn(given.rows, given.size, requires_grad=True)
    weight = (0.05 * torch.randn(given.vocabulary, given.size)).requires_grad_()
    bias = torch.zeros(given.vocabulary, requires_grad=True)
    counts = (2_000_000 / np.arange(1, given.vocabulary + 1)).astype(np.int64)  # as Zipf has them
    targets = torch.multinomial(torch.from_numpy(counts + 1.0), given.rows, replacement=True)
    losses: dict[str, Callable[[], Tensor]] = {"all words": lambda: linear_cross_entropy(h, weight, bias, targets)}
    for size in SAMPLES:
        sample = SampledWords(counts, size=size, power=1.0, seed=0).draw(0, torch.device("cpu"))
        losses[f"{size:,} words"] = lambda sample=sample: sampled_cross_entropy(h, weight, bias, targets, sample)
    for dtype in (torch.float32, torch.bfloat16):
        least = dict.fromkeys(losses, np.inf)
        for _ in range(given.repeats):
            for name, loss in losses.items():
                least[name] = min(least[name], milliseconds(loss, [h, weight, bias], dtype))
        for name, found in least.items():
            ratio = least["all words"] / found
            print(f"{str(dtype).removeprefix('torch.'):9} {name:12} {found:8.1f} ms  {ratio:5.1f} x")


def milliseconds(loss: Callable[[], Tensor], sources: list[Tensor], dtype: torch.dtype) -> float:
    for source in sources:
        source.grad = None
    started = time.process_time()
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype is torch.bfloat16):
        total = loss()
    total.backward()  # type: ignore[no-untyped-call]
    return 1000 * (time.process_time() - started)


if __name__ == "__main__":
    main()
