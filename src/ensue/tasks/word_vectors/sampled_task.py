"""Word vectors by negative sampling: words and their contexts to updates of the vectors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ensue.data.compact_texts import Ragged
from ensue.models.word_vectors import SampledVectors
from ensue.notices import say_once
from ensue.tasks.contract.task import Scores, Task, UnreadBatch
from ensue.tasks.word_vectors import plain_updates
from ensue.tasks.word_vectors.compiled_updates import CompiledSampling, functions
from ensue.tasks.word_vectors.examples import NegativeSampling, WordContexts, WordExamples
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
            nats = self._compiled_for(model).sample(examples, vectors, outputs, learning_rate)
        else:
            say_slow()
            nats = plain_updates.sample(self._plan(model), examples, vectors.numpy(), outputs.numpy(), learning_rate)
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

    def _compiled_for(self, model: SampledVectors) -> CompiledSampling:
        if self._compiled is None:
            rows, dimension = model.vectors.shape
            self._compiled = CompiledSampling(
                self._plan(model),
                words=model.vocabulary_size,
                rows=rows,
                dimension=dimension,
                dtype=model.vectors.dtype,
            )
        return self._compiled
