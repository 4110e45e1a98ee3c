"""The gradients of a step: a batch cut over processes and parts, whose losses and gradients are sums.

This is the place that knows which rows are whose, and it reads those that are here alone. The loss of any rows is
divided by the predictions of the whole batch, so that the sum of all gradients is that of the batch's mean loss,
however it is cut.

- The batch goes through in `parts`, one after the other, and each process takes its run of the rows of each part. Parts
  have random streams of their own, so that a process may have no row of one.
- An exact run cuts the batch into `SHARDS` runs of rows, whose gradients are added as a binary tree. Each process has a
  subtree, and two processes exchange what they have, then two pairs, and so on. So every number of processes that
  divides `SHARDS` adds the same numbers in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ensue.models.subword_encoder import SubwordEncoder
from ensue.nn.draws import PartOfBatch, drawing_for
from ensue.processor import Precision
from ensue.ranks import SHARDS, Ranks, cut
from ensue.tasks.contract.task import Cut, Task, UnreadBatch
from ensue.training.device import autocast, is_out_of_memory
from ensue.types import Loss, State, concatenate_rows, detach, map_state


class StepLoss(NamedTuple):
    """The loss of a batch, the state after it in the rows that are here, and whether a process was asked to stop."""

    loss: Loss
    state: State
    stop: bool


class OutOfMemory(Exception):
    """Memory did not suffice, in one process at least. There are no gradients."""


class Gradients:
    """Computes the gradients of batches of `task`, together with the other processes of `ranks`."""

    def __init__(
        self, model: nn.Module, task: Task[Any, Any], *, seed: int, precision: Precision, ranks: Ranks
    ) -> None:
        self.adversarial = 0.0
        """How far vectors move in a second pass, in their mean norms; 0: there is no second pass."""
        self.model, self.task, self.seed, self.precision, self.ranks = model, task, seed, precision, ranks
        self.form = model
        """A model of the same form, for what does not depend on the weights."""
        self.device = next(model.parameters()).device
        self.total = torch.zeros((), device=self.device)
        self.count = 0
        self.taken: list[bool] = []
        self._vector: Tensor | None = None
        """The gradients that processes add up on a CPU. It is kept, since a heap would find no place for it anew."""

    def of(self, batch: UnreadBatch[Any], state: State, *, step: int, parts: int, stop: bool = False) -> StepLoss:
        """Sets the gradients of the batch's mean loss. `state` has the local rows (`own_rows`). Raises OutOfMemory."""
        compute = self._exactly if self.ranks.exact else self._in_parts
        after, summed, failed = None, None, False
        try:
            seed_generators(self.device, step_seed(self.seed, step))  # a second attempt draws the same numbers
            own = None
            if self.ranks.size > 1:
                own = PartOfBatch(self.own_rows(batch.rows, parts).to(self.device), batch.rows)
            with drawing_for(own):
                before = self.task.carried(self.form, batch, state)
            if not self.model.training:  # it asks every part
                self.model.train()
            self.total, self.count, self.taken = torch.zeros((), device=self.device), 0, []
            summed, after = compute(batch, before, step, parts)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            failed = True
        stop = self._add(summed, failed=failed, stop=stop)
        return StepLoss(Loss(self.total, self.count), after, stop)

    def loss(self, batch: Any, state: State) -> tuple[Loss, State]:
        """The summed loss of a batch, and the state after it."""
        return self.task.loss(self.model, batch, state)

    def whole(self, model: nn.Module) -> nn.Module:
        """The model, or its average, in one piece; all processes call it."""
        return model

    def clip(self, most: float) -> float:
        """Scales the gradients so that their norm is `most` at most. Returns what it was."""
        return float(nn.utils.clip_grad_norm_(self.model.parameters(), most))

    def own_rows(self, rows: int, parts: int) -> Tensor:
        """The numbers of the rows of a batch that are worked on here, in their order."""
        return torch.cat([torch.arange(rows)[own] for _, own in self._runs(rows, parts)])

    def _runs(self, rows: int, parts: int) -> Iterator[tuple[slice, slice]]:
        """The parts of a batch as runs of rows, and which of their rows are worked on here."""
        if self.ranks.exact:
            for shard in range(SHARDS)[self.ranks.own(SHARDS)]:
                yield (run := cut(rows, shard, SHARDS)), run
            return
        size = math.ceil(rows / parts)
        for number, start in enumerate(range(0, rows, size)):
            run = slice(start, min(start + size, rows))
            turn = (self.ranks.rank + number) % self.ranks.size  # where a part has few rows, each process has some
            own = cut(run.stop - start, turn, self.ranks.size)
            yield run, slice(start + own.start, start + own.stop)

    def _in_parts(self, batch: UnreadBatch[Any], state: State, step: int, parts: int) -> tuple[None, State]:
        """The gradients of the rows that are here, and the state after them."""
        states: list[State] = []
        begin = 0
        for number, (run, own) in enumerate(self._runs(batch.rows, parts)):
            if number:
                seed_generators(self.device, step_seed(self.seed, step, number))
            end = begin + own.stop - own.start
            cut = Cut(run, slice(own.start - run.start, own.stop - run.start))
            if self.ranks.size == 1:
                states.append(self._backward(batch.read(cut), state, slice(begin, end), batch.count))
            elif begin < end:
                with drawing_for(PartOfBatch(cut.own, run.stop - run.start)):
                    states.append(self._backward(batch.read(cut), state, slice(begin, end), batch.count))
            else:
                self._without_rows(batch, run)
            begin = end
        return None, _joined(states)

    def _without_rows(self, batch: UnreadBatch[Any], run: slice) -> None:
        """Nothing: a run of rows of which none is here."""

    def _exactly(self, batch: UnreadBatch[Any], state: State, step: int, parts: int) -> tuple[Tensor, State]:
        """The sum of the shards that are here, and the state after them."""
        own, states = self.ranks.own(SHARDS), list[State]()
        first, pieces = cut(batch.rows, own.start, SHARDS).start, math.ceil(parts / SHARDS)

        def of_shard(shard: int) -> Tensor:
            run = cut(batch.rows, shard, SHARDS)
            seed_generators(self.device, step_seed(self.seed, step, shard + 1))
            for piece in (cut(run.stop - run.start, part, pieces) for part in range(pieces)):
                start, stop = run.start + piece.start, run.start + piece.stop
                if start < stop:
                    here = slice(start - first, stop - first)
                    states.append(self._backward(batch.read(Cut(slice(start, stop))), state, here, batch.count))
            return self._taken()

        return _tree(of_shard, own.start, own.stop), _joined(states)

    def _backward(self, batch: Any, state: State, rows: slice, count: int) -> State:
        """Adds the gradients of a batch, which are `rows` of the state; returns the state after it."""
        passes = self._two_passes if self.adversarial else self._pass
        loss, after = passes(batch, map_state(lambda leaf: leaf[rows], state), count)
        self.total, self.count = self.total + loss.total.detach(), self.count + loss.count
        return detach(after)

    def _pass(self, batch: Any, state: State, count: int) -> tuple[Loss, State]:
        with autocast(self.precision, self.device):
            loss, after = self.loss(batch, state)
        (loss.total / count).backward()  # type: ignore[no-untyped-call]
        return loss, after

    def _two_passes(self, batch: Any, state: State, count: int) -> tuple[Loss, State]:
        """In the second one the vectors of each row move to where its loss rises most (Miyato et al. 2017, (4))."""
        model, moves = cast("Any", self.model), list[Tensor]()
        vectors: nn.Module = (model.layers if isinstance(model.layers, SubwordEncoder) else model).features

        def stay(module: nn.Module, given: Any, x: Tensor) -> Tensor:
            moves.append(torch.zeros_like(x, requires_grad=True))
            return x + moves[-1]

        with vectors.register_forward_hook(stay):
            found = self._pass(batch, state, count)
        with vectors.register_forward_hook(lambda module, given, x: x + self.adversarial * _worst(x, moves.pop(0))):
            self._pass(batch, state, count)
        return found

    def _add(self, summed: Tensor | None, *, failed: bool, stop: bool) -> bool:
        """Adds up losses and gradients over the processes; returns whether one of them was asked to stop."""
        if self.ranks.size == 1 and failed:
            raise OutOfMemory
        if self.ranks.size == 1 and summed is None:
            return stop
        own = [self.count, failed, stop, *self._known()]
        count, lacking, stops, *known = self.ranks.add(torch.tensor(own, dtype=torch.float64)).tolist()
        if lacking:
            raise OutOfMemory
        if summed is None:
            found = self._taken(self._vector)
            summed, self._vector = found, found if self.device.type == "cpu" else None
        self._place(self.ranks.add(summed), known)
        self.count = int(count)
        return bool(stops)

    def _trained(self) -> list[nn.Parameter]:
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]

    def _known(self) -> list[bool]:
        """Of which parameters there are gradients, now or in what was taken."""
        now = [parameter.grad is not None for parameter in self._trained()]
        return [a or b for a, b in zip(now, self.taken, strict=True)] if self.taken else now

    def _taken(self, into: Tensor | None = None) -> Tensor:
        """Moves all gradients, and the loss behind them, into one vector (`into`, if it has the size)."""
        self.taken = self._known()
        found = []
        for parameter in self._trained():
            found.append(torch.zeros_like(parameter).flatten() if parameter.grad is None else parameter.grad.flatten())
            parameter.grad = None
        found.append(self.total.view(1))
        fits = into is not None and into.numel() == sum(part.numel() for part in found)
        vector = torch.cat(found, out=into if fits else None)
        self.total = torch.zeros_like(self.total)
        return vector

    def _place(self, vector: Tensor, known: list[float]) -> None:
        """Makes the vector the gradients and the loss."""
        parameters = self._trained()
        *gradients, total = torch.split(vector, [*(parameter.numel() for parameter in parameters), 1])
        for parameter, gradient, is_known in zip(parameters, gradients, known, strict=True):
            parameter.grad = gradient.view_as(parameter) if is_known else None
        self.total = total.squeeze(0)


def _worst(x: Tensor, move: Any) -> Tensor:
    """The direction (B, T, d) in which the loss of each row rises most, with the mean norm of its vectors in x."""
    gradient: Tensor = move.grad
    real = gradient.any(-1)  # the loss does not depend on padding
    norm: Tensor = (x.detach().norm(dim=-1) * real).sum(1) / real.sum(1).clamp_min(1)
    return F.normalize(gradient.flatten(1), eps=1e-30).view_as(gradient) * norm[:, None, None]


def _joined(states: list[State]) -> State:
    return states[0] if len(states) == 1 else concatenate_rows(states) if states else None


def _tree(leaf: Callable[[int], Tensor], first: int, last: int) -> Tensor:
    """The sum of the leaves from `first` to before `last`: that of the first half and that of the second."""
    if last - first == 1:
        return leaf(first)
    middle = (first + last) // 2
    left = _tree(leaf, first, middle)
    return left.add_(_tree(leaf, middle, last))


def seed_generators(device: torch.device, seed: int) -> None:
    """Seeds the generators of the CPU and of `device`; torch.manual_seed would also set up other GPUs."""
    torch.default_generator.manual_seed(seed)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(seed)


def step_seed(seed: int, step: int, shard: int = 0) -> int:
    """The seed of a step's random stream, from the run's seed, the step and the shard of the batch."""
    return int(np.random.SeedSequence((abs(seed), int(seed < 0), step, shard)).generate_state(1, np.uint64)[0] >> 1)
