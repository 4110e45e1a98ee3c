"""Training speed beside torch.nn: a step from ids to updated weights, in turns in one process.

    python benchmarks/training_speed.py [--cells lstm gru elman transformer]

"torch.nn" is a plain script: Embedding, LSTM/GRU/RNN or TransformerEncoder, Linear, cross_entropy, clip_grad_norm_ and
AdamW(fused) with default settings, on batches in memory. "ensue" is the whole `Trainer.step`, which also reads the
batch, seeds the step and checks the loss. Both have the same sizes and no dropout. In bfloat16, torch.nn runs under
`torch.autocast`, and ensue with its setting of the precision; bfloat16 is measured if the processor multiplies in it.
Each ratio compares both sides in the same precision. Times are processor time of one thread.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import describe_machine
from timing import time_in_turns
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
"""The numbers of layers and features, rows and positions of a batch, and the size of the vocabulary."""
TRANSFORMER_SHAPES = [(4, 128, 12, 64, 65), (4, 256, 32, 128, 8_000), (4, 512, 8, 256, 8_000)]
"""The same sizes for Transformers."""
CELLS: dict[str, type[nn.RNNBase]] = {"lstm": nn.LSTM, "gru": nn.GRU, "elman": nn.RNN}
ENCODERS: dict[str, type[Encoder]] = {
    "lstm": LSTMEncoder, "gru": GRUEncoder, "elman": ElmanEncoder, "transformer": TransformerEncoder,
}  # fmt: skip
HEADS = 4
SEED = 0
SECONDS = 6.0
"""The minimum time of each pair of measurements."""


class TorchRNN(nn.Module):
    """The recurrent model of a plain script."""

    def __init__(self, cell: type[nn.RNNBase], layers: int, d: int, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, d)
        self.rnn = cell(d, d, layers, batch_first=True)
        self.softmax = nn.Linear(d, vocabulary)

    def forward(self, ids: torch.Tensor, state: Any) -> tuple[torch.Tensor, Any]:
        y, state = self.rnn(self.embedding(ids), state)
        return self.softmax(y), tuple(s.detach() for s in state) if isinstance(state, tuple) else state.detach()


class TorchTransformer(nn.Module):
    """The Transformer of a plain script."""

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


def torch_step(
    cell: str, layers: int, d: int, rows: int, length: int, vocabulary: int, precision: Precision
) -> Callable[[], None]:
    """Return a training step of a plain script."""
    is_transformer = cell == "transformer"
    model: Any = (
        TorchTransformer(layers, d, length, vocabulary)
        if is_transformer
        else TorchRNN(CELLS[cell], layers, d, vocabulary)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    ids = torch.randint(vocabulary, (rows, length + 1))
    state: Any = None

    def step() -> None:
        nonlocal state
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            logits, state = model(ids[:, :-1], state)
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def ensue_step(
    cell: str, layers: int, d: int, rows: int, length: int, vocabulary: int, precision: Precision, folder: Path
) -> Callable[[], None]:
    """Return the step of a trainer of ensue."""
    attention: dict[str, Any] = (
        {"num_heads": HEADS, "context": length, "positions": "learned"} if cell == "transformer" else {}
    )
    encoder = ENCODERS[cell](kind=cell, d_model=d, num_layers=layers, **attention)  # type: ignore[call-arg]
    ids = TokenFile(np.random.default_rng(SEED).integers(vocabulary, size=rows * length * 20 + 1))
    recipe = LanguageModelingTrain(steps=10**9, batch_size=rows, segment_length=length, learning_rate=1e-3)
    batches = (Blocks if attention else Segments)(ids, batch_size=rows, segment_length=length, seed=SEED)
    tokenizer = train_tokenizer("bytes", [])
    task = LanguageModeling(batches, tokenizer=tokenizer, valid=None, segment_length=length)
    model = build_language_model(Tokens(d_embedding=d), encoder, vocabulary_size=vocabulary)  # type: ignore[arg-type]
    return Trainer(model, task, recipe, RunDirectory(folder), precision=precision, reporter=Reporter()).step


def in_mode(step: Callable[[], None], mode: ComputeMode) -> Callable[[], None]:
    """Return a step with the kernels that a run uses on this machine."""

    def step_in_mode() -> None:
        with use_mode(mode):
            step()

    return step_in_mode


def best_mode(profile: Profile, precision: Precision, cell: str, d: int, vocabulary: int) -> ComputeMode:
    """Return the mode of a language model in the machine's profile, for one thread."""
    recurrent: Workload = (
        "words" if vocabulary >= MIN_WORDS_VOCABULARY else "wide" if d >= MIN_WIDE_D_MODEL else "narrow"
    )
    workload = "attention" if cell == "transformer" else recurrent
    return profile.best(workload, precision=precision, threads=1)


def in_turns(steps: list[Callable[[], None]]) -> list[float]:
    """Return the median seconds of each step over at least three turns."""
    seconds = time_in_turns(dict(enumerate(steps)), 3, seconds=SECONDS * len(steps) / 2, warm_up=1)
    return [statistics.median(values) for values in seconds.values()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", nargs="+", choices=ENCODERS, default=[*ENCODERS])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    print(describe_machine(seed=SEED))
    profile = machine_profile(print)
    precisions: list[Precision] = ["float32", "bfloat16"] if has_bfloat16() else ["float32"]
    columns = "".join(f" torch.nn {name} ms | ensue {name} ms | ratio |" for name in precisions)
    print(f"| cell | layers × d, B, T, V |{columns}\n|---|---|{'---|---|---|' * len(precisions)}")
    cells = {cell: TRANSFORMER_SHAPES if cell == "transformer" else SHAPES for cell in arguments.cells}
    with tempfile.TemporaryDirectory() as folder:
        for cell, shape in ((cell, shape) for cell, shapes in cells.items() for shape in shapes):
            layers, d, rows, length, vocabulary = shape
            steps = [torch_step(cell, *shape, precision) for precision in precisions]
            for precision in precisions:
                mode = best_mode(profile, precision, cell, d, vocabulary)
                steps.append(in_mode(ensue_step(cell, *shape, precision, Path(folder)), mode))
            seconds = in_turns(steps)
            pairs = zip(seconds[: len(precisions)], seconds[len(precisions) :], strict=True)
            results = "".join(f" {x * 1e3:.1f} | {y * 1e3:.1f} | {x / y:.2f} × |" for x, y in pairs)
            print(f"| {cell} | {layers}×{d}, {rows}, {length}, {vocabulary:,} |{results}", flush=True)


if __name__ == "__main__":
    main()
