"""The training loop: steps, validations and checkpoints over a budget, for any task.

A step depends on the weights, the carried state, the optimizer's moments, the batch and the random stream. Batch and
stream are functions of the seed and the step's number. The rest is in every checkpoint. So a run that was killed and
resumed ends in the same bits (on the same machine, with the same number of threads).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from ensue.errors import EnsueError, RunError, TrainingError
from ensue.metrics.confusion import brief
from ensue.nn.draws import RowSlice
from ensue.processor import Precision
from ensue.ranks import local_part, ranks
from ensue.recipe import TrainRecipe
from ensue.runs.checkpoint import AVERAGE, BEST, complete_checkpoints, give_parts, load_checkpoint, save_checkpoint
from ensue.runs.directory import RunDirectory
from ensue.runs.manifest import Manifest
from ensue.runs.reporter import MetricsLog, Reporter, StepReport, Validation
from ensue.runs.schema import DamagedError, Progress
from ensue.runs.weights import disk_errors_told
from ensue.tasks.contract.task import Scores, Task, UnreadBatch
from ensue.training.device import autocast
from ensue.training.gradients import Gradients, OutOfMemory, step_seed
from ensue.training.optimizer import Average, Budget, Tuning, build_optimizer, learning_rate
from ensue.types import Loss, State, leaves, map_state

MOST_FOR_VALIDATION, LEAST_SAID = 0.1, 0.02
"""The shares of a budget of seconds that validation may take, and from which on its time is worth a note."""
REPORTS = 200
"""The number of training lines in metrics.jsonl over a whole budget."""


class Trainer:
    """Trains `model` on `task` into `run`. After each step `interrupted` tells whether to stop."""

    def __init__(
        self, model: nn.Module, task: Task[Any, Any], recipe: TrainRecipe, run: RunDirectory, *, precision: Precision,
        reporter: Reporter, interrupted: Callable[[], bool] = lambda: False, tuning: Tuning | None = None,
        computed: Gradients | None = None,
    ) -> None:  # fmt: skip
        self.model, self.task, self.recipe, self.run = model, task, recipe, run
        self.precision, self.reporter, self.interrupted = precision, reporter, interrupted
        self.device = next(model.parameters()).device
        self.tuning = tuning or Tuning(model)
        self.optimizer = build_optimizer(model, recipe, self.tuning)
        self.budget = Budget.of(recipe, steps_per_epoch=task.steps_per_epoch, tokens_per_step=task.tokens_per_step)
        self.log = MetricsLog(run.metrics)
        self.progress = Progress(parts=recipe.accumulate)
        self.ranks = ranks()
        self.computed = computed or Gradients(model, task, seed=recipe.seed, precision=precision, ranks=self.ranks)
        self.computed.adversarial = getattr(recipe, "adversarial", 0.0)
        self.average = Average(model, recipe.average, form=self.computed.form) if recipe.average else None
        self.averaged = None if self.average is None else self.average.model
        self.state: State = None
        """The carried state of the local rows."""
        self.stop = False
        """Whether a rank was asked to stop."""
        self.saved: int | None = None
        """The step of the newest checkpoint."""
        self.validations = 0
        """How many there are in a budget of seconds, by the time that the first one took; 0: as the recipe says."""

    def resume(self) -> bool:
        """Loads the newest checkpoint; returns False if there is none."""
        checkpoints = complete_checkpoints(self.run.checkpoints)
        if not checkpoints:
            if self.ranks.is_first:
                self.log.rewind(None)
            return False
        newest = checkpoints[-1]
        try:
            initial = self.task.initial_state(self.computed.form)
            state, self.progress = load_checkpoint(newest, self.model, self.optimizer, initial, average=self.averaged)
            best = Manifest(newest).check(BEST) if self.progress.best_step else None
        except DamagedError as error:
            before = f" to go on from {checkpoints[-2].name}" if len(checkpoints) > 1 else ""
            raise RunError(f"{error}; or remove {newest}{before}") from None
        self.state, self.saved = self.local_state(state), self.progress.step
        if self.ranks.is_first:
            self.log.rewind(Manifest(newest).content().log)
            if best is not None:  # a kill may have come before these were, or another checkpoint may have known better
                self.run.publish(best)
        return True

    def train(self) -> str:
        """Trains until the budget is used; returns "finished", "stopped early" or "interrupted"."""
        while self._share() < 1:
            if self.recipe.patience and self.progress.stale >= self.recipe.patience:
                return "stopped early"
            if self.reporter.is_enough():
                return "stopped early"
            before = self._share()
            self.step()
            if self._passes(before, self.validations or self.recipe.validations):
                self._validate_in_time()
                self.save()
            elif (
                self._passes(before, self.recipe.validations) or self.progress.step % self.recipe.checkpoint_every == 0
            ):
                self.save()
            if self._share() < 1 and (self.stop or (self.ranks.size == 1 and self.interrupted())):
                self.save()
                return "interrupted"
        if not self.progress.best_step:  # taken up again with a budget that was used already
            self.validate()
            self.save()
        return "finished"

    def step(self) -> None:
        """One optimizer step: read a batch, compute gradients, check, clip, step, average, count."""
        started = time.perf_counter()
        step, share = self.progress.step, self._share()
        is_only = self.budget.steps == 1  # a warm-up begins with the rate 0, and would end with nothing trained
        rate = learning_rate(self.recipe, self.recipe.warmup if is_only else share)
        self.tuning.begin_step(self.optimizer, rate, share)
        batch = self.task.unread(step, self.device)
        updated = self.task.update(self.model, batch, self.state, rate)
        if updated is not None:
            loss, self.state = updated
        else:
            loss = self.gradients(batch, step)
        nats = self._nats(loss, step)
        if updated is None:
            self.tuning.hold_old_rows(share)
            norm = self.computed.clip(self.recipe.clip or math.inf)
            if not math.isfinite(norm):
                raise TrainingError(self._not_finite(step, "the gradient is not finite"))
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            if self.average is not None:
                self.average.add(self.model, step + 1)
        self._count(loss, nats, self._seconds_of_first(time.perf_counter() - started))
        if self._passes(share, REPORTS):
            self._log_training(rate)

    def _seconds_of_first(self, seconds: float) -> float:
        """The seconds of the first rank, if the budget is one of seconds."""
        if self.budget.seconds is None or self.ranks.size == 1:
            return seconds
        return float(self.ranks.add(torch.tensor([seconds * self.ranks.is_first], dtype=torch.float64)))

    def _nats(self, loss: Loss, step: int) -> float:
        """The mean loss. Raises TrainingError if it is not finite."""
        if not math.isfinite(nats := float(loss.mean)):
            raise TrainingError(self._not_finite(step, f"the loss is not finite ({nats})"))
        return nats

    def gradients(self, batch: UnreadBatch[Any], step: int) -> Loss:
        """Compute the gradients of the batch's mean loss. Out of memory, micro-batches are halved from now on."""
        while True:
            micro_batches, stop = self.progress.parts, self.interrupted()
            with suppress(OutOfMemory):
                loss, self.state, self.stop = self.computed.of(
                    batch, self.state, step=step, micro_batches=micro_batches, stop=stop
                )
                return loss
            if micro_batches >= batch.rows:
                raise TrainingError(self._too_long(step))
            self.model.zero_grad(set_to_none=True)
            full = self.full_state()
            self.progress.parts *= 2
            self.state = self.local_state(full)
            self.reporter.noted(
                f"out of memory at step {step + 1}: batches go through in {self.progress.parts} parts from now on"
            )

    def full_state(self) -> State:
        """The carried state of all rows, gathered from the ranks."""
        if self.ranks.size == 1:
            return self.state
        by_rank = [state for state in self.ranks.gathered([leaf.cpu() for leaf in leaves(self.state)]) if state]
        if not by_rank:
            return None
        rows = self.computed.local_rows(sum(len(state[0]) for state in by_rank), self.progress.parts)
        order = torch.cat(self.ranks.gathered(rows)).argsort()
        full = iter([torch.cat(shards)[order].to(self.device) for shards in zip(*by_rank, strict=True)])
        return map_state(lambda leaf: next(full), self.task.initial_state(self.computed.form))

    def local_state(self, full: State) -> State:
        """The rows of this rank of a carried state."""
        if self.ranks.size == 1 or full is None:
            return full
        rows = self.computed.local_rows(len(next(leaves(full))), self.progress.parts)
        return map_state(lambda leaf: leaf[rows.to(leaf.device)], full)

    def _validate_in_time(self) -> None:
        """Validates. In a budget of seconds the first time says how long all take beside it, and leaves some out where
        that would be more than a tenth of the budget; the last one is always made.
        """
        started = time.perf_counter()
        self.validate()
        if self.budget.seconds is None or self.validations:
            return
        seconds = self._seconds_of_first(time.perf_counter() - started)
        wanted = self.recipe.validations
        left = int(MOST_FOR_VALIDATION * self.budget.seconds / seconds) - 1  # this one is over
        self.validations = wanted if wanted <= left + 1 else max(1, left)
        total = seconds * (wanted if self.validations == wanted else self.validations + 1)
        if self._share() < 1 and total > LEAST_SAID * self.budget.seconds:
            fewer = "" if self.validations == wanted else f"; {self.validations + 1} of {wanted} are made"
            self.reporter.noted(
                f"a validation takes {seconds:.1f} s, all together {total:,.0f} s beside the training{fewer}"
            )

    def validate(self) -> None:
        """Scores the validation data; the weights are the best so far if their score is, or if there are no data."""
        self._check_weights()
        self._check_loss()
        judged = self.computed.full(self.model if self.averaged is None else self.averaged)
        scores = self.task.validate(judged)
        if scores is None:
            self.progress.best_step = self.progress.step
            return
        score = self.task.selection(scores)
        if not math.isfinite(score):
            raise TrainingError(self._not_finite(self.progress.step - 1, f"the scores are not finite ({score})"))
        best = self.progress.best is None or score < self.progress.best
        if best:
            self.progress.best, self.progress.best_step, self.progress.stale = score, self.progress.step, 0
        else:
            self.progress.stale += 1
        if self.ranks.is_first:
            self._report_validation(scores, score, judged, is_best=best)

    def _report_validation(self, scores: Scores, score: float, judged: nn.Module, *, is_best: bool) -> None:
        try:
            sample = self.task.sample(judged, seed=step_seed(self.recipe.seed, self.progress.step))
        except EnsueError:
            raise TrainingError(
                self._not_finite(self.progress.step - 1, "the sample's scores are not finite")
            ) from None
        validation = Validation(
            self.progress.step, self.progress.seconds, brief(scores.as_json()), scores.summary(), is_best, sample, score
        )
        self.log.append("valid", **asdict(validation))
        self.reporter.validated(validation)

    def save(self) -> None:
        """Writes a checkpoint, and then the best weights to the file that `ensue.load` reads."""
        self._check_weights()
        if self.saved != self.progress.step:
            self._save()
            self.saved = self.progress.step
        if self.ranks.is_first and self.progress.best_step == self.progress.step:
            name = "model.safetensors" if self.average is None else AVERAGE
            self._write(lambda: self.run.publish(self.run.checkpoints / f"step-{self.saved}" / name))

    def _save(self) -> None:
        state = self.full_state()
        if not self.ranks.is_first:
            give_parts(self.model, self.optimizer, average=self.averaged)
            return
        self._write(
            lambda: save_checkpoint(
                self.run.checkpoints, self.model, self.optimizer, state, self.progress,
                best=self.run.weights, log=self.log.entry(), average=self.averaged,
            )
        )  # fmt: skip

    def _count(self, loss: Loss, nats: float, seconds: float) -> None:
        progress = self.progress
        progress.step += 1
        progress.seconds += seconds
        progress.tokens += loss.count
        progress.total_nats += nats * loss.count
        progress.predictions += loss.count
        share = self._share()
        self.reporter.stepped(
            StepReport(
                step=progress.step,
                share=share,
                seconds_left=progress.seconds / share * (1 - share) if share else math.inf,
                loss=nats,
                speed=loss.count / seconds,
            )
        )

    def _log_training(self, learning_rate: float) -> None:
        progress = self.progress
        if not self.ranks.is_first:
            return
        self.log.append(
            "train", step=progress.step, seconds=round(progress.seconds, 3), tokens=progress.tokens,
            loss=progress.total_nats / progress.predictions, learning_rate=learning_rate,
        )  # fmt: skip
        progress.total_nats, progress.predictions = 0.0, 0

    def _share(self) -> float:
        return self.budget.progress(self.progress.step, self.progress.seconds)

    def _passes(self, before: float, times: int) -> bool:
        """Whether the last step, which began at the share `before`, ended one of `times` equal parts of the budget."""
        return math.floor(self._share() * times + 1e-9) > math.floor(before * times + 1e-9)

    def _check_weights(self) -> None:
        """Raises TrainingError for weights that are not finite, which the last step may have left without a sign."""
        if not all(_is_finite(parameter.detach()) for _, parameter in self._trained()):
            raise TrainingError(self._not_finite(self.progress.step - 1, "the weights are not finite"))

    def _check_loss(self) -> None:
        """Raises TrainingError for a loss that is not finite, which finite weights can give and scores may hide."""
        batch = self.task.unread(self.progress.step - 1, self.device)  # for which there was room
        size = math.ceil(batch.rows / (self.progress.parts * self.ranks.num_shards))
        self.model.train()
        with torch.no_grad(), autocast(self.precision, self.device):
            loss, _ = self.computed.loss(batch.read(RowSlice(total=size)), None)
        self._nats(loss, self.progress.step - 1)

    def _trained(self) -> Iterator[tuple[str, nn.Parameter]]:
        """The parameters that gradients change. Others need not be finite; illegal transitions are -inf."""
        return ((name, p) for name, p in self.model.named_parameters() if p.requires_grad)

    def _not_finite(self, step: int, what: str) -> str:
        """The message for `what` is not finite: step, batch, the first parameter concerned, what was saved."""
        parameters = list(self._trained())
        values = [name for name, p in parameters if not _is_finite(p.detach())]
        gradients = [f"{name} (its gradient)" for name, p in parameters if not _is_finite(p.grad)]
        offender = f"first parameter that is not finite: {found[0]}; " if (found := values + gradients) else ""
        epoch, batch = divmod(step, self.task.steps_per_epoch)
        checkpoints = complete_checkpoints(self.run.checkpoints)
        kept = f"the last good checkpoint is {checkpoints[-1]}" if checkpoints else "no checkpoint had been written"
        return (
            f"{what} at step {step + 1} (epoch {epoch + 1}, batch {batch + 1}); {offender}{kept}; "
            "try a smaller train.learning_rate"
        )

    def _too_long(self, step: int) -> str:
        checkpoints = complete_checkpoints(self.run.checkpoints)
        kept = f"; the last checkpoint is {checkpoints[-1]}" if checkpoints else ""
        return (
            f"out of memory at step {step + 1} with a single row{kept}; try a smaller encoder.d_model or shorter texts"
        )

    def _write(self, write: Callable[[], object]) -> None:
        """Runs something that saves a step. A full disk is one line that names the checkpoint which is whole."""
        with disk_errors_told(self.run.path, self._disk_full):
            write()

    def _disk_full(self) -> str:
        checkpoints = complete_checkpoints(self.run.checkpoints)
        kept = (
            f"{checkpoints[-1]} is whole; free some space and go on with --resume" if checkpoints else "free some space"
        )
        return f"{self.run.path}: the disk is full while saving step {self.progress.step}; {kept}"


def _is_finite(found: Tensor | None) -> bool:
    """Whether what is here of a tensor is finite."""
    part = None if found is None else local_part(found)
    return part is None or not part.numel() or bool(torch.stack(torch.aminmax(part)).isfinite().all())
