"""Training speed beside torch.nn: one whole step, from ids to updated weights, in turns in one process.

    python benchmarks/training_speed.py [--cells lstm gru elman transformer]

"torch.nn" is what one writes by hand: Embedding, LSTM/GRU/RNN or TransformerEncoder, Linear, cross_entropy,
clip_grad_norm_, AdamW(fused) with torch's defaults, on batches that lie ready. "ensue" is `Trainer.step` with
everything it does: reading the batch, seeding the step, checking the loss. Both have the same shapes and no dropout.
bfloat16 is `torch.autocast`, and a setting of the trainer, measured where the processor multiplies in it. Each ratio
is to torch.nn in the same type. Seconds are of processor time, in one thread.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from machine import describe_machine
from torch import nn

from ensue.data.corpus.batches import Blocks, Segments
from ensue.data.mapped_file import TokenFile
from ensue.engine import has_bfloat16
from ensue.models.build_text import build_language_model
from ensue.models.specification import ElmanEncoder, Encoder, GRUEncoder, LSTMEncoder, Tokens, TransformerEncoder
from ensue.processor import Precision
from ensue.runs.directory import RunDirectory
from ensue.runs.reporter import Reporter
from ensue.tasks.language_modeling.job import LanguageModeling
from ensue.tasks.language_modeling.recipe import LanguageModelingTrain
from ensue.text.tokenizers import train_tokenizer
from ensue.training.device import ComputeMode, use_mode
from ensue.training.loop import Trainer
from ensue.training.machine import MIN_WIDE_D_MODEL, MIN_WORDS_VOCABULARY, Profile, Workload, machine_profile

SHAPES = [(1, 256, 32, 64, 65), (2, 512, 100, 100, 65), (2, 200, 20, 35, 10_000)]
"""Layers, features, rows, positions, vocabulary."""
ATTENDING = [(4, 128, 12, 64, 65), (4, 256, 32, 128, 8_000), (4, 512, 8, 256, 8_000)]
"""The same of Transformers."""
CELLS: dict[str, type[nn.RNNBase]] = {"lstm": nn.LSTM, "gru": nn.GRU, "elman": nn.RNN}
ENCODERS: dict[str, type[Encoder]] = {
    "lstm": LSTMEncoder, "gru": GRUEncoder, "elman": ElmanEncoder, "transformer": TransformerEncoder,
}  # fmt: skip
HEADS = 4
SEED = 0
SECONDS = 6.0
"""Spent on each pair of measurements, at least three rounds."""


class ByHand(nn.Module):
    """The recurrent model that a plain torch script has."""

    def __init__(self, cell: type[nn.RNNBase], layers: int, d: int, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, d)
        self.rnn = cell(d, d, layers, batch_first=True)
        self.softmax = nn.Linear(d, vocabulary)

    def forward(self, ids: torch.Tensor, state: object) -> tuple[torch.Tensor, object]:
        y, state = self.rnn(self.embedding(ids), state)
        return self.softmax(y), tuple(s.detach() for s in state) if isinstance(state, tuple) else state.detach()


class AttendingByHand(nn.Module):
    """The Transformer that a plain torch script has."""

    def __init__(self, layers: int, d: int, length: int, vocabulary: int) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(vocabulary, d), nn.Parameter(0.02 * torch.randn(length, d))
        layer = nn.TransformerEncoderLayer(
            d, HEADS, 4 * d, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, layers, norm=nn.LayerNorm(d), enable_nested_tensor=False)
        self.softmax = nn.Linear(d, vocabulary)
        self.mask = nn.Transformer.generate_square_subsequent_mask(length)

    def forward(self, ids: torch.Tensor, state: None) -> tuple[torch.Tensor, None]:
        y = self.layers(self.embedding(ids) + self.positions, self.mask, is_causal=True)
        return self.softmax(y), None


def by_hand(
    cell: str, layers: int, d: int, rows: int, length: int, vocabulary: int, precision: Precision
) -> Callable[[], None]:
    attends = cell == "transformer"
    model = AttendingByHand(layers, d, length, vocabulary) if attends else ByHand(CELLS[cell], layers, d, vocabulary)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    ids = torch.randint(vocabulary, (rows, length + 1))
    carried: list[object] = [None]

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            logits, carried[0] = model(ids[:, :-1], carried[0])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def by_ensue(
    cell: str, layers: int, d: int, rows: int, length: int, vocabulary: int, precision: Precision, folder: Path
) -> Callable[[], None]:
    attends = {"num_heads": HEADS, "context": length, "positions": "learned"} if cell == "transformer" else {}
    encoder = ENCODERS[cell](kind=cell, d_model=d, num_layers=layers, **attends)  # type: ignore[call-arg]
    ids = TokenFile(np.random.default_rng(SEED).integers(vocabulary, size=rows * length * 20 + 1))
    recipe = LanguageModelingTrain(steps=10**9, batch_size=rows, segment_length=length, learning_rate=1e-3)
    batches = (Blocks if attends else Segments)(ids, batch_size=rows, segment_length=length, seed=SEED)
    tokenizer = train_tokenizer("bytes", [])
    task = LanguageModeling(batches, tokenizer=tokenizer, valid=None, segment_length=length)
    model = build_language_model(Tokens(d_embedding=d), encoder, vocabulary_size=vocabulary)  # type: ignore[arg-type]
    return Trainer(model, task, recipe, RunDirectory(folder), precision=precision, reporter=Reporter()).step


def as_configured(step: Callable[[], None], way: ComputeMode) -> Callable[[], None]:
    """The step with the kernels for products that a run takes on this machine."""

    def configured() -> None:
        with use_mode(way):
            step()

    return configured


def chosen(profile: Profile, precision: Precision, cell: str, d: int, vocabulary: int) -> ComputeMode:
    """What the machine's profile has for a language model, in one thread."""
    recurrent: Workload = (
        "words" if vocabulary >= MIN_WORDS_VOCABULARY else "wide" if d >= MIN_WIDE_D_MODEL else "narrow"
    )
    workload = "attention" if cell == "transformer" else recurrent
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", nargs="+", choices=ENCODERS, default=[*ENCODERS])
    asked = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    print(describe_machine(seed=SEED))
    profile = machine_profile(print)
    precisions: list[Precision] = ["float32", "bfloat16"] if has_bfloat16() else ["float32"]
    columns = "".join(f" torch.nn {each} ms | ensue {each} ms | ratio |" for each in precisions)
    print(f"| cell | layers × d, B, T, V |{columns}\n|---|---|{'---|---|---|' * len(precisions)}")
    cells = {cell: ATTENDING if cell == "transformer" else SHAPES for cell in asked.cells}
    with tempfile.TemporaryDirectory() as folder:
        for cell, shape in ((cell, shape) for cell, shapes in cells.items() for shape in shapes):
            layers, d, rows, length, vocabulary = shape
            steps = [by_hand(cell, *shape, precision) for precision in precisions]
            for precision in precisions:
                way = chosen(profile, precision, cell, d, vocabulary)
                steps.append(as_configured(by_ensue(cell, *shape, precision, Path(folder)), way))
            seconds = in_turns(steps)
            pairs = zip(seconds[: len(precisions)], seconds[len(precisions) :], strict=True)
            found = "".join(f" {x * 1e3:.1f} | {own * 1e3:.1f} | {x / own:.2f} × |" for x, own in pairs)
            print(f"| {cell} | {layers}×{d}, {rows}, {length}, {vocabulary:,} |{found}", flush=True)


if __name__ == "__main__":
    main()
