"""Word vectors: words and their contexts to updates of the vectors by negative sampling, or counts of pairs by GloVe.

    J = Σ_ij f(X_ij) (w_i·c_j + b_i + a_j - log X_ij)² / 2,   f(x) = min(1, (x / largest_count)^power)

GloVe takes AdaGrad, pair by pair (Pennington et al. 2014). The sums of squares are the carried state. They begin at 1,
as in the published program, and are changed in place, since they are as large as the vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from ensue.data.compact_texts import Ragged
from ensue.models.word_vectors import CountedVectors, SampledVectors
from ensue.notices import say_once
from ensue.tasks.contract.task import Batch, Scores, Task, UnreadBatch
from ensue.tasks.word_vectors.examples import NegativeSampling, WordContexts, WordExamples
from ensue.tasks.word_vectors.updates import (
    CompiledSampling,
    functions,
    sample_in_numpy,
    step_on_counts,
    step_on_counts_in_numpy,
)
from ensue.types import Loss, State

SLOW = "no C compiler: word vectors are trained in numpy, eighty times as slowly; `pip install ziglang` installs one"


def say_slow() -> None:
    """Says once that there is no compiler."""
    say_once("word vectors", SLOW)


class SampledTask(Task[SampledVectors, WordExamples]):
    """Negative sampling on the `contexts`. `questions` scores a model; None: no validation, the last weights count."""

    def __init__(
        self,
        contexts: WordContexts,
        plan: NegativeSampling,
        *,
        questions: Callable[[SampledVectors], Scores] | None,
        judged_by: str,
    ) -> None:
        self.contexts, self.plan, self.questions, self.judged_by = contexts, plan, questions, judged_by
        self.steps_per_epoch = contexts.steps_per_epoch
        self.tokens_per_step = len(contexts.tokens) / contexts.steps_per_epoch
        self._compiled: CompiledSampling | None = None

    def _plan(self, model: SampledVectors) -> NegativeSampling:
        """The plan with the n-grams of the model's words."""
        if self.plan.subwords is not model.subwords:
            self.plan = replace(self.plan, subwords=model.subwords)
        return self.plan

    def batch(self, step: int, device: torch.device) -> WordExamples:
        return self.contexts.examples(step)

    def update(
        self, model: SampledVectors, batch: UnreadBatch[WordExamples], state: State, learning_rate: float
    ) -> tuple[Loss, State] | None:
        examples, vectors, outputs = batch.whole, model.vectors.data, model.outputs.data
        if functions(model.d_words, self.plan.negatives, vectors.dtype):
            if self._compiled is None:
                sizes = {"words": model.vocabulary_size, "rows": len(vectors), "dimension": vectors.shape[1]}
                self._compiled = CompiledSampling(self._plan(model), **sizes, dtype=vectors.dtype)
            nats = self._compiled.sample(examples, vectors, outputs, learning_rate)
        else:
            say_slow()
            nats = sample_in_numpy(self._plan(model), examples, vectors.numpy(), outputs.numpy(), learning_rate)
        return Loss(torch.tensor(nats), max(1, examples.count)), None

    def loss(self, model: SampledVectors, batch: WordExamples, state: State) -> tuple[Loss, State]:
        """The loss of all examples at the weights of now, in nats; `update` follows its gradient, one by one."""
        plan, (centers, others) = self._plan(model), batch.pairs()
        if not len(centers):
            return Loss(model.vectors.sum() * 0, max(1, batch.count)), None
        targets, places = batch.ids[others], plan.places(centers, others)
        if plan.kind == "cbow":
            first = np.flatnonzero(np.diff(centers, prepend=-1))
            reads = Ragged(batch.ids[others], np.append(first, len(others)))
            targets, owners, places = batch.ids[centers[first]], np.arange(len(first)), centers[first]
        else:
            reads, owners = Ragged(batch.ids, np.arange(len(batch.ids) + 1)), centers
        h = self._means(model, reads)[torch.from_numpy(owners)]
        drawn = plan.noise.draw(batch.key, places[:, None] * plan.negatives + np.arange(plan.negatives))
        counts = torch.from_numpy(drawn != targets[:, None])
        right = (model.outputs[torch.from_numpy(targets).long()] * h).sum(1)
        wrong = (model.outputs[torch.from_numpy(drawn).long()] * h.unsqueeze(1)).sum(2)
        total = -F.logsigmoid(right).sum() - (F.logsigmoid(-wrong) * counts).sum()
        return Loss(total, max(1, batch.count)), None

    def _means(self, model: SampledVectors, words: Ragged) -> Tensor:
        """The mean of the rows of all words in each row of `words`."""
        rows = [np.concatenate([self.plan.rows(word) for word in words.values[a:b]]) for a, b in pairwise(words.starts)]
        offsets = torch.from_numpy(np.cumsum([0, *map(len, rows)])[:-1])
        return F.embedding_bag(torch.from_numpy(np.concatenate(rows)).long(), model.vectors, offsets, mode="mean")

    def validate(self, model: SampledVectors) -> Scores | None:
        return None if self.questions is None else self.questions(model)


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
            loss = step_on_counts_in_numpy(counts, tables, sums, learning_rate)
        return Loss(torch.tensor(loss), batch.count), squares

    def loss(self, model: CountedVectors, batch: Counts, state: State) -> tuple[Loss, State]:
        """The loss of all pairs at the weights of now; `update` follows its gradient, one by one."""
        of, near = (torch.from_numpy(array).long() for array in (batch.of, batch.near))
        products = (model.vectors[of] * model.contexts[near]).sum(1) + model.biases[of] + model.context_biases[near]
        differences = products - torch.from_numpy(batch.logarithms)
        return Loss((torch.from_numpy(batch.weights) * differences.square()).sum() / 2, batch.count), None

    def validate(self, model: CountedVectors) -> Scores | None:
        return None if self.questions is None else self.questions(model)
