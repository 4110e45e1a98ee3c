"""GloVe: counts of pairs of words to updates of the vectors.

    J = Σ_ij f(X_ij) (w_i·c_j + b_i + a_j - log X_ij)² / 2,   f(x) = min(1, (x / largest_count)^power)

by AdaGrad, pair by pair (Pennington et al. 2014). The sums of squares are the carried state; they begin at 1, as in the
published program, and are changed in place, since they are as large as the vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.models.word_vectors import CountedVectors
from ensue.tasks.contract.task import Batch, Scores, Task, UnreadBatch
from ensue.tasks.word_vectors import plain_updates
from ensue.tasks.word_vectors.compiled_updates import functions, step_on_counts
from ensue.tasks.word_vectors.sampled_task import say_slow
from ensue.types import Loss, State


@dataclass(frozen=True)
class Counts(Batch):
    """Pairs of words (n,) with the logarithms of their counts, and with the weights of these in the loss."""

    of: NDArray[np.int32]
    near: NDArray[np.int32]
    logarithms: NDArray[np.float32]
    weights: NDArray[np.float32]
    first: bool = field(default=False, kw_only=True)

    def columns(self) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32], NDArray[np.float32]]:
        """The words, the words near them, the logarithms, the weights."""
        return self.of, self.near, self.logarithms, self.weights


class Squares(NamedTuple):
    """The sums of squared gradients of each parameter of `CountedVectors`, in the order of `tables`."""

    vectors: Tensor
    contexts: Tensor
    biases: Tensor
    context_biases: Tensor


class CountedTask(Task[CountedVectors, Counts]):
    """GloVe on the counted `pairs`. `questions` scores a model; None: no validation, the last weights count."""

    def __init__(
        self, pairs: NDArray[np.void], *, batch_size: int, largest_count: float, power: float, words: int,
        questions: Callable[[CountedVectors], Scores] | None, judged_by: str,
    ) -> None:  # fmt: skip
        self.pairs, self.batch_size, self.largest_count, self.power = pairs, batch_size, largest_count, power
        self.questions, self.judged_by = questions, judged_by
        self.steps_per_epoch = -(-len(pairs) // batch_size)
        self.tokens_per_step = words / self.steps_per_epoch

    def batch(self, step: int, device: torch.device) -> Counts:
        start = step % self.steps_per_epoch * self.batch_size
        part = self.pairs[start : start + self.batch_size]
        counts = part["count"].astype(np.float64)
        weights = np.minimum(1, (counts / self.largest_count) ** self.power)
        of, near = (np.ascontiguousarray(part[name], np.int32) for name in ("of", "near"))
        return Counts(of, near, np.log(counts).astype(np.float32), weights.astype(np.float32))

    def initial_state(self, model: CountedVectors) -> Squares:
        return Squares(*map(torch.ones_like, model.tables()))

    def update(
        self, model: CountedVectors, batch: UnreadBatch[Counts], state: State, learning_rate: float
    ) -> tuple[Loss, State] | None:
        counts = batch.whole.columns()
        squares = self.initial_state(model) if state is None else state
        if functions(model.d_words, 0, model.vectors.dtype):
            loss = step_on_counts(counts, model.tables(), squares, learning_rate)
        else:
            say_slow()
            tables, sums = ([tensor.numpy() for tensor in group] for group in (model.tables(), squares))
            loss = plain_updates.step_on_counts(counts, tables, sums, learning_rate)
        return Loss(torch.tensor(loss), batch.count), squares

    def loss(self, model: CountedVectors, batch: Counts, state: State) -> tuple[Loss, State]:
        """The loss of all pairs at the weights of now; `update` follows its gradient, one by one."""
        of, near = (torch.from_numpy(array).long() for array in (batch.of, batch.near))
        products = (model.vectors[of] * model.contexts[near]).sum(1) + model.biases[of] + model.context_biases[near]
        differences = products - torch.from_numpy(batch.logarithms)
        return Loss((torch.from_numpy(batch.weights) * differences.square()).sum() / 2, batch.count), None

    def validate(self, model: CountedVectors) -> Scores | None:
        return None if self.questions is None else self.questions(model)
