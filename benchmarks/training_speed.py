"""Training speed beside torch.nn: one whole step, from ids to updated weights, in turns in one process.

    python benchmarks/training_speed.py

"torch.nn" is what one writes by hand: Embedding, LSTM/GRU/RNN, Linear, cross_entropy, clip_grad_norm_, AdamW(fused) in
float32 with torch's defaults, on batches that lie ready. "ensue" is `Trainer.step` with everything it does: reading the
batch, seeding the step, checking the loss. Both have the same shapes and no dropout. bfloat16 is a setting of ensue's
trainer, measured where the processor multiplies in it. Seconds are of processor time, in one thread.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from machine import describe_machine
from torch import nn

from ensue.data.corpus.batches import Segments
from ensue.data.corpus.token_file import TokenFile
from ensue.engine import has_bfloat16
from ensue.models.build_text import build_language_model
from ensue.models.specification import ElmanEncoder, Encoder, GRUEncoder, LSTMEncoder, Tokens
from ensue.runs.directory import RunDirectory
from ensue.runs.reporter import Reporter
from ensue.tasks.language_modeling.recipe import LanguageModelingTrain
from ensue.tasks.language_modeling.task import LanguageModeling
from ensue.text.tokenizers import train_tokenizer
from ensue.training.device import Precision, Way, computing
from ensue.training.loop import Trainer
from ensue.training.machine import Profile, machine_profile
from ensue.training.workloads import MANY_WORDS, WIDE, Workload

SHAPES = [(1, 256, 32, 64, 65), (2, 512, 100, 100, 65), (2, 200, 20, 35, 10_000)]
"""Layers, features, rows, positions, vocabulary."""
CELLS: dict[str, tuple[type[Encoder], type[nn.RNNBase]]] = {
    "lstm": (LSTMEncoder, nn.LSTM),
    "gru": (GRUEncoder, nn.GRU),
    "elman": (ElmanEncoder, nn.RNN),
}
SEED = 0
SECONDS = 6.0
"""Spent on each pair of measurements, at least three rounds."""


class ByHand(nn.Module):
    """The model that a plain torch script has."""

    def __init__(self, cell: type[nn.RNNBase], layers: int, d: int, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, d)
        self.rnn = cell(d, d, layers, batch_first=True)
        self.softmax = nn.Linear(d, vocabulary)

    def forward(self, ids: torch.Tensor, state: object) -> tuple[torch.Tensor, object]:
        y, state = self.rnn(self.embedding(ids), state)
        return self.softmax(y), state


def by_hand(cell: type[nn.RNNBase], layers: int, d: int, rows: int, length: int, vocabulary: int) -> Callable[[], None]:
    model = ByHand(cell, layers, d, vocabulary)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    ids = torch.randint(vocabulary, (rows, length + 1))
    carried: list[object] = [None]

    def step() -> None:
        logits, state = model(ids[:, :-1], carried[0])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        carried[0] = tuple(s.detach() for s in state) if isinstance(state, tuple) else state.detach()  # type: ignore[attr-defined]

    return step


def by_ensue(
    cell: str, layers: int, d: int, rows: int, length: int, vocabulary: int, precision: Precision, folder: Path
) -> Callable[[], None]:
    encoder = CELLS[cell][0](kind=cell, d_model=d, num_layers=layers)  # type: ignore[call-arg]
    ids = np.random.default_rng(SEED).integers(vocabulary, size=rows * length * 20 + 1)
    recipe = LanguageModelingTrain(steps=10**9, batch_size=rows, segment_length=length, learning_rate=1e-3)
    batches = Segments(TokenFile(ids), batch_size=rows, segment_length=length, seed=SEED)
    tokenizer = train_tokenizer("bytes", [])
    task = LanguageModeling(batches, tokenizer=tokenizer, valid=None, segment_length=length)
    model = build_language_model(Tokens(d_embedding=d), encoder, vocabulary_size=vocabulary)  # type: ignore[arg-type]
    return Trainer(model, task, recipe, RunDirectory(folder), precision=precision, reporter=Reporter()).step


def as_configured(step: Callable[[], None], way: Way) -> Callable[[], None]:
    """The step with the kernels for products that a run takes on this machine."""

    def configured() -> None:
        with computing(way):
            step()

    return configured


def chosen(profile: Profile, precision: Precision, d: int, vocabulary: int) -> Way:
    """What the machine's profile has for a recurrent language model, in one thread."""
    workload: Workload = "words" if vocabulary >= MANY_WORDS else "wide" if d >= WIDE else "narrow"
    return profile.best(workload, precision=precision, threads=1)


def in_turns(steps: list[Callable[[], None]]) -> list[float]:
    """Median seconds of each, called one after another so that whatever else the machine does meets all alike."""
    seconds: list[list[float]] = [[] for _ in steps]
    for step in steps:
        step()
    begun = time.perf_counter()
    while time.perf_counter() - begun < SECONDS * len(steps) / 2 or len(seconds[0]) < 3:
        for step, found in zip(steps, seconds, strict=True):
            started = time.process_time()
            step()
            found.append(time.process_time() - started)
    return [statistics.median(found) for found in seconds]


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    print(describe_machine(seed=SEED))
    profile = machine_profile(print)
    precisions: list[Precision] = ["float32", "bfloat16"] if has_bfloat16() else ["float32"]
    ensue = "".join(f" ensue {precision} ms | ratio |" for precision in precisions)
    print(f"| cell | layers × d, B, T, V | torch.nn ms |{ensue}")
    print(f"|---|---|---|{'---|---|' * len(precisions)}")
    with tempfile.TemporaryDirectory() as folder:
        for layers, d, rows, length, vocabulary in SHAPES:
            for name, (_, cell) in CELLS.items():
                shape = (layers, d, rows, length, vocabulary)
                ours = [
                    as_configured(
                        by_ensue(name, *shape, precision, Path(folder)), chosen(profile, precision, d, vocabulary)
                    )
                    for precision in precisions
                ]
                theirs, *seconds = in_turns([by_hand(cell, *shape), *ours])
                found = "".join(f" {own * 1e3:.1f} | {theirs / own:.2f} × |" for own in seconds)
                print(
                    f"| {name} | {layers}×{d}, {rows}, {length}, {vocabulary:,} | {theirs * 1e3:.1f} |{found}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
