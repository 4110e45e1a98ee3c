"""Models whose scores depend on all tokens, through every leaf of their state."""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ensue.types import State

SIZE = 997


class Read(NamedTuple):
    """A state: a number of all ids, all ids, and a vector that each id rotates."""

    number: Tensor
    ids: Tensor
    vector: Tensor


class Toy(nn.Module):
    """A model with scores from random tables. The initial `number` of its state is the input."""

    def __init__(self, vocabulary_size: int, seed: int, *, spread: float = 2.0, levels: int = 0) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.vocabulary_size = vocabulary_size
        self.tables = torch.randn(2, SIZE, vocabulary_size, generator=generator) * spread
        if levels:  # few different scores: many ties
            self.tables = (self.tables * levels / spread / 2).round()
        self.turns = torch.randn(vocabulary_size, 4, 4, generator=generator, dtype=torch.float64)
        self.levels = levels

    def init_state(self, inputs: list[int]) -> Read:
        number = torch.tensor(inputs)
        return Read(number, number.new_zeros(len(number), 0), torch.ones(len(number), 4, dtype=torch.float64))

    def step(self, ids_t: Tensor, state: Read) -> tuple[Tensor, Read]:
        number = (state.number * 31 + ids_t * 7 + 1) % SIZE
        ids = torch.cat((state.ids, ids_t.unsqueeze(1)), 1)
        vector = torch.tanh((self.turns[ids_t] @ state.vector.unsqueeze(2)).squeeze(2) + 0.1)
        positions = torch.arange(1, ids.shape[1] + 1)
        all_read = ((ids + 1) * positions * positions).sum(1) * 13 % SIZE
        scores = self.tables[0, number] + self.tables[1, all_read]
        if not self.levels:
            scores = scores + 2 * vector.sum(1, keepdim=True).mul(torch.arange(self.vocabulary_size)).sin()
        return scores.float(), Read(number, ids, vector)

    def log_p(self, start: int, input: int) -> Callable[[tuple[int, ...]], list[float]]:
        """Return a function from tokens to log-probabilities, without a batch."""

        @cache
        def read(ids: tuple[int, ...]) -> tuple[Tensor, State]:
            before = read(ids[:-1])[1] if ids else self.init_state([input])
            return self.step(torch.tensor([ids[-1] if ids else start]), before)

        return cache(lambda ids: read(ids)[0][0].log_softmax(-1).tolist())
