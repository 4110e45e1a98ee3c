"""The time of a step of beam search, beside that of the model: an untrained decoder, processor time, one thread.

python benchmarks/beam_search.py
"""

from __future__ import annotations

import time

import torch
from machine import describe_machine
from torch import nn

from ensue.decode import beam
from ensue.decode.search import BeamSearch
from ensue.nn import Transformer
from ensue.types import Memory

D, LAYERS, HEADS, D_FEEDFORWARD, SOURCE, MAX_TOKENS, SEED = 128, 4, 4, 256, 15, 20, 0
SHAPES = ((1, 5, 4_000), (1, 5, 10_000), (32, 5, 4_000), (32, 5, 10_000), (32, 1, 10_000))


class Decoder(nn.Module):
    """An embedding, a `Transformer` that attends to a memory, and logits."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(size, D), nn.Linear(D, size)
        self.layers = Transformer(
            D, num_heads=HEADS, num_layers=LAYERS, d_feedforward=D_FEEDFORWARD, d_memory=D, max_positions=MAX_TOKENS + 2
        )

    def step(self, ids_t, state):
        h, state = self.layers.step(self.embedding(ids_t), state)
        return self.head(h), state


class Timed:
    """A function whose calls are timed; `seconds` is their total time."""

    def __init__(self, function) -> None:
        self.function, self.seconds, self.calls = function, 0.0, 0

    def __call__(self, *arguments):
        start = time.thread_time()
        result = self.function(*arguments)
        self.seconds += time.thread_time() - start
        self.calls += 1
        return result


def main() -> None:
    torch.set_num_threads(1)
    print(describe_machine(seed=SEED))
    print(
        f"d {D}, {LAYERS} layers, {HEADS} heads, feed-forward {D_FEEDFORWARD}, sources of {SOURCE}, {MAX_TOKENS} tokens"
    )
    print("| inputs | beams | vocabulary | step, ms | rows selected, ms | search, ms | search, share |")
    print("|---|---|---|---|---|---|---|")
    for inputs, width, size in SHAPES:
        step, select, search = min((measure(inputs, width, size) for _ in range(3)), key=sum)
        share = search / (step + select + search)
        print(f"| {inputs} | {width} | {size:,} | {step:.2f} | {select:.2f} | {search:.2f} | {share:.0%} |")


def measure(inputs: int, width: int, size: int) -> tuple[float, ...]:
    """Return the milliseconds of one step in the model, in selecting rows of its state, and in the search."""
    torch.manual_seed(SEED)
    model = Decoder(size).eval()
    state = model.layers.init_state(inputs, Memory(torch.randn(inputs, SOURCE, D)))
    search, starts = BeamSearch(width, max_tokens=MAX_TOKENS), torch.zeros(inputs, dtype=torch.long)
    select_rows = beam.select_rows
    model.step, beam.select_rows = Timed(model.step), Timed(select_rows)
    start = time.thread_time()
    beam.beam_search(model, state, starts, end_id=None, search=search)
    seconds = time.thread_time() - start
    steps, selections, beam.select_rows = model.step, beam.select_rows, select_rows
    parts = steps.seconds, selections.seconds, seconds - steps.seconds - selections.seconds
    return tuple(1000 * part / steps.calls for part in parts)


if __name__ == "__main__":
    main()
