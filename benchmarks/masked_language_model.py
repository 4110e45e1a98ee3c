"""Training speed of a masked language model beside BertForMaskedLM of transformers with equal sizes, in turns.

    python benchmarks/masked_language_model.py [--steps 6] [--dropout 0.1] [--layers 2] [--size 128] [--vocabulary 8192]

Both train in one thread and float32 with AdamW and clipped gradients, on the same blocks with the same masked tokens. A
step consists of the batch, the masks, the loss, the gradients and the update. Ratios are of processor time. The script
needs transformers, which ensue does not need; install transformers in another folder and add it to PYTHONPATH.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from itertools import count

import numpy as np
import torch
from machine import describe_machine
from timing import ratios, time_in_turns
from torch import nn

from ensue.data.corpus.examples import NOT_HIDDEN, Frame, FramedBlocks, Masking
from ensue.data.mapped_file import TokenFile
from ensue.models.build_text import build_masked_language_model
from ensue.models.modules import count_parameters
from ensue.models.specification import TransformerEncoder
from ensue.tasks.masked_language_modeling.task import MaskedLanguageModeling

NUM_SPECIAL_TOKENS, NUM_ROWS, NUM_POSITIONS = 5, 32, 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("steps", 6), ("layers", 2), ("size", 128), ("vocabulary", 8192)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--dropout", type=float, default=0.1)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    torch.manual_seed(0)
    task = make_task(arguments.vocabulary)
    print(describe_machine(seed=0))
    steps = {"ensue": ensue_step(task, arguments), "transformers": transformers_step(task, arguments)}
    seconds = time_in_turns(steps, arguments.steps, warm_up=1)
    tokens = NUM_ROWS * NUM_POSITIONS
    for name, values in seconds.items():
        print(f"{name:>13}: {tokens / statistics.median(values):9,.0f} tokens/s (median of {len(values)} steps)")
    turns = ratios(seconds["transformers"], seconds["ensue"])
    print(f"ratio: median {statistics.median(turns):.2f}, from {min(turns):.2f} to {max(turns):.2f}")


def make_task(vocabulary: int) -> MaskedLanguageModeling:
    """Return a task of ensue on random ids; both sides use its batches."""
    ids = np.random.default_rng(0).integers(NUM_SPECIAL_TOKENS, vocabulary, 1_000_000)
    blocks = FramedBlocks(TokenFile(ids), length=NUM_POSITIONS - 2, frame=Frame(2, 3, 0), seed=0)
    masking = Masking(4, np.arange(NUM_SPECIAL_TOKENS, vocabulary), np.arange(vocabulary) >= NUM_SPECIAL_TOKENS)
    return MaskedLanguageModeling(
        blocks, masking, batch_size=NUM_ROWS, block_tokens=NUM_POSITIONS, valid=None, sample=lambda *_: ""
    )


def ensue_step(task: MaskedLanguageModeling, arguments: argparse.Namespace) -> Callable[[], None]:
    """Return a training step of ensue."""
    encoder = TransformerEncoder(
        kind="transformer", d_model=arguments.size, num_layers=arguments.layers, num_heads=arguments.size // 64,
        context=NUM_POSITIONS, positions="learned", norm="post", norm_input=True, norm_epsilon=1e-12,
        dropout=arguments.dropout,
    )  # fmt: skip
    model = build_masked_language_model(encoder, vocabulary_size=arguments.vocabulary, num_segments=2).train()
    print(f"{count_parameters(model):,} parameters")

    def loss(step: int) -> torch.Tensor:
        batch = task.batch(step, torch.device("cpu"))
        return task.loss(model, batch, None)[0].total / batch.count

    return training_step(model, loss)


def transformers_step(task: MaskedLanguageModeling, arguments: argparse.Namespace) -> Callable[[], None]:
    """Return a training step of transformers."""
    import transformers  # noqa: PLC0415

    config = transformers.BertConfig(
        vocab_size=arguments.vocabulary, hidden_size=arguments.size, num_hidden_layers=arguments.layers,
        num_attention_heads=arguments.size // 64, intermediate_size=4 * arguments.size,
        max_position_embeddings=NUM_POSITIONS,
        hidden_dropout_prob=arguments.dropout, attention_probs_dropout_prob=arguments.dropout,
    )  # fmt: skip
    model = transformers.BertForMaskedLM(config).train()
    print(f"transformers {transformers.__version__}, {count_parameters(model):,} parameters")

    def loss(step: int) -> torch.Tensor:
        batch = task.batch(step, torch.device("cpu"))
        labels = batch.targets.masked_fill(batch.targets == NOT_HIDDEN, -100)
        output: torch.Tensor = model(input_ids=batch.ids, labels=labels).loss
        return output

    return training_step(model, loss)


def training_step(model: nn.Module, loss: Callable[[int], torch.Tensor]) -> Callable[[], None]:
    """Return a training step. Each call has the next batch."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    numbers = count()

    def step() -> None:
        loss(next(numbers)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


if __name__ == "__main__":
    main()
