"""The copy task: a few symbols, many blanks, and at a cue the symbols again; with a network that learns it.

Hochreiter & Schmidhuber 1997 and Arjovsky et al. 2016 have tasks of this kind. It asks for nothing but memory: whoever
forgets guesses, with a loss of log(`ALPHABET`) nats per symbol.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from ensue.errors import TrainingError
from ensue.nn import SequenceLayer

ALPHABET = 8
SYMBOLS = 3
"""Symbols to remember; fewer in a sequence of fewer positions."""
D_INPUT = ALPHABET + 2
"""A symbol, a blank or a cue, as one number that is 1 among zeros."""
BATCH_SIZE = 16
LEARNING_RATE = 1e-2
CLIP_NORM = 1.0
TEST_ROWS = 256


class Examples(NamedTuple):
    """Inputs, and the symbols to predict at the last positions."""

    x: Float[Tensor, "B T d_in"]
    symbols: Int[Tensor, "B K"]


class Copier(nn.Module):
    """A layer and a linear map from its output at a position to the symbols."""

    def __init__(self, layer: SequenceLayer) -> None:
        super().__init__()
        self.layer, self.readout = layer, nn.Linear(layer.d_out, ALPHABET)

    def logits(self, y: Float[Tensor, "B T d"], num_symbols: int) -> Float[Tensor, "B K symbols"]:
        """The logits at the last positions, from the layer's output `y`."""
        logits: Tensor = self.readout(y[:, -num_symbols:])
        return logits

    def losses(self, y: Float[Tensor, "B T d"], symbols: Int[Tensor, "B K"]) -> Float[Tensor, " B"]:
        """Nats per symbol of each row."""
        logits = self.logits(y, symbols.shape[1])
        return F.cross_entropy(logits.transpose(1, 2), symbols, reduction="none").mean(1)


def draw_examples(rows: int, positions: int, generator: torch.Generator) -> Examples:
    """Random examples: `positions` before the first cue, with those of the symbols, and a cue for each symbol."""
    K = min(SYMBOLS, positions)
    symbols = torch.randint(ALPHABET, (rows, K), generator=generator)
    ids = torch.full((rows, positions + K), ALPHABET)
    ids[:, :K], ids[:, positions:] = symbols, ALPHABET + 1
    return Examples(F.one_hot(ids, D_INPUT).float(), symbols)


def train_copier(
    copier: Copier, *, positions: int, steps: int, generator: torch.Generator, stepped: Callable[[int, float], None]
) -> None:
    """Trains for `steps` steps of Adam with clipped gradients. `stepped` is called with each step and its loss.

    The length of each step is drawn log-uniformly up to `positions`: a task that no gradient reaches over the whole
    length is learned over a short one first. Raises `TrainingError` if the loss is not finite.
    """
    optimizer = torch.optim.Adam(copier.parameters(), lr=LEARNING_RATE)
    shortest = min(SYMBOLS, positions)
    for step in range(1, steps + 1):
        share = float(torch.rand((), generator=generator))
        length = round(shortest * (positions / shortest) ** share)
        x, symbols = draw_examples(BATCH_SIZE, length, generator)
        loss = copier.losses(copier.layer(x)[0], symbols).mean()
        if not loss.isfinite():
            raise TrainingError(f"the loss is not finite at step {step}")
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(copier.parameters(), CLIP_NORM)
        optimizer.step()
        stepped(step, loss.item())


@torch.no_grad()
def score_copier(copier: Copier, positions: int, generator: torch.Generator) -> tuple[float, float]:
    """Nats per symbol and the share of symbols that are predicted right, over the whole length."""
    x, symbols = draw_examples(TEST_ROWS, positions, generator)
    y, _ = copier.layer(x)
    right = copier.logits(y, symbols.shape[1]).argmax(-1) == symbols
    return float(copier.losses(y, symbols).mean()), float(right.float().mean())
