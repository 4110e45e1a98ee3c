"""Training speed of a masked language model beside transformers' BertForMaskedLM of the same shape, in turns.

    python benchmarks/masked_language_model.py [--steps 6] [--dropout 0.1] [--layers 2] [--size 128]

One thread, float32, AdamW, clipped gradients; the same blocks with the same hidden tokens for both. A step is whole:
the examples, the masks, the loss, the gradients and the update. Ratios are of processor time. Needs transformers, which
ensue does not: install it elsewhere and add its folder to PYTHONPATH.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from ensue.data.corpus.examples import NOT_HIDDEN, Frame, FramedBlocks, Masking
from ensue.data.mapped_file import TokenFile
from ensue.models.build_text import build_masked_language_model
from ensue.models.modules import count_parameters
from ensue.models.specification import TransformerEncoder
from ensue.tasks.masked_language_modeling.task import MaskedLanguageModeling

SPECIAL, ROWS, POSITIONS = 5, 32, 128


def main() -> None:
    options = argparse.ArgumentParser()
    for name, default in (("steps", 6), ("layers", 2), ("size", 128), ("vocabulary", 8192)):
        options.add_argument(f"--{name}", type=int, default=default)
    options.add_argument("--dropout", type=float, default=0.1)
    given = options.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    torch.manual_seed(0)
    task = make_task(given.vocabulary)
    both = {"ensue": ours(task, given), "transformers": theirs(task, given)}
    seconds: dict[str, list[float]] = {name: [] for name in both}
    for step in range(given.steps + 1):
        for name, run in both.items():
            before = time.process_time()
            run(step)
            if step:  # the first warms up
                seconds[name].append(time.process_time() - before)
    tokens = ROWS * POSITIONS
    for name, some in seconds.items():
        print(f"{name:>13}: {tokens / statistics.median(some):9,.0f} tokens/s (median of {len(some)} steps)")
    ratios = [b / a for a, b in zip(*seconds.values(), strict=True)]
    print(f"ratio: median {statistics.median(ratios):.2f}, from {min(ratios):.2f} to {max(ratios):.2f}")


def make_task(vocabulary: int) -> MaskedLanguageModeling:
    """The task of ensue on random ids; its batches are for both."""
    ids = np.random.default_rng(0).integers(SPECIAL, vocabulary, 1_000_000)
    blocks = FramedBlocks(TokenFile(ids), length=POSITIONS - 2, frame=Frame(2, 3, 0), seed=0)
    masking = Masking(4, np.arange(SPECIAL, vocabulary), np.arange(vocabulary) >= SPECIAL)
    return MaskedLanguageModeling(
        blocks, masking, batch_size=ROWS, block_tokens=POSITIONS, valid=None, sample=lambda *_: ""
    )


def ours(task: MaskedLanguageModeling, given: argparse.Namespace) -> Callable[[int], None]:
    encoder = TransformerEncoder(
        kind="transformer", d_model=given.size, num_layers=given.layers, num_heads=given.size // 64,
        context=POSITIONS, positions="learned", norm="post", norm_input=True, norm_epsilon=1e-12, dropout=given.dropout,
    )  # fmt: skip
    model = build_masked_language_model(encoder, vocabulary_size=given.vocabulary, num_segments=2).train()
    print(f"{count_parameters(model):,} parameters")

    def loss(step: int) -> torch.Tensor:
        batch = task.batch(step, torch.device("cpu"))
        return task.loss(model, batch, None)[0].total / batch.count

    return training(model, loss)


def theirs(task: MaskedLanguageModeling, given: argparse.Namespace) -> Callable[[int], None]:
    import transformers  # noqa: PLC0415

    config = transformers.BertConfig(
        vocab_size=given.vocabulary, hidden_size=given.size, num_hidden_layers=given.layers,
        num_attention_heads=given.size // 64, intermediate_size=4 * given.size, max_position_embeddings=POSITIONS,
        hidden_dropout_prob=given.dropout, attention_probs_dropout_prob=given.dropout,
    )  # fmt: skip
    model = transformers.BertForMaskedLM(config).train()
    print(f"transformers {transformers.__version__}, {count_parameters(model):,} parameters")

    def loss(step: int) -> torch.Tensor:
        batch = task.batch(step, torch.device("cpu"))
        labels = batch.targets.masked_fill(batch.targets == NOT_HIDDEN, -100)
        found: torch.Tensor = model(input_ids=batch.ids, labels=labels).loss
        return found

    return training(model, loss)


def training(model: nn.Module, loss: Callable[[int], torch.Tensor]) -> Callable[[int], None]:
    """A whole step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def step(number: int) -> None:
        loss(number).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


if __name__ == "__main__":
    main()
