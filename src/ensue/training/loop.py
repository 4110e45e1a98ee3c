"""The training loop: steps, validations and checkpoints over a budget, for any task.

A step depends on the weights, the carried state, the optimizer's moments, the batch and the random stream. Batch and
random stream are functions of the seed and the step's number, and each checkpoint has the other values. So a run that
was killed and resumed ends with the same weights, to the bit, on the same machine with the same number of threads.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from ensue.errors import EnsueError, RunError, TrainingError
from ensue.metrics.confusion import limit_labels
from ensue.nn.draws import RowSlice
from ensue.processor import Precision
from ensue.ranks import ProcessGroup, local_shard, process_group, use_process_group
from ensue.recipe import TrainRecipe
from ensue.runs.checkpoint import AVERAGE, BEST, complete_checkpoints, gather_shards, load_checkpoint, save_checkpoint
from ensue.runs.directory import RunDirectory
from ensue.runs.manifest import Manifest
from ensue.runs.reporter import MetricsLog, Reporter, StepReport, Validation
from ensue.runs.schema import DamagedError, Progress
from ensue.runs.weights import convert_disk_errors
from ensue.tasks.contract.job import HeldOut, Job
from ensue.tasks.contract.task import LazyBatch, Task
from ensue.training.device import autocast
from ensue.training.gradients import Gradients, OutOfMemory, step_seed
from ensue.training.optimizer import Average, Tuning, build_optimizer, learning_rate, num_steps
from ensue.types import Loss, State, leaves, map_state

MAX_VALIDATION, MAX_TEST, MAX_VALIDATIONS, MIN_TRAINING = 0.1, 0.2, 0.2, 0.25
"""Shares of the budget: the maximum of a validation, of the test and of all validations, the minimum of training."""
MARGIN, MAX_SAMPLE = 0.75, 0.02
"""The share of a time limit to use for scoring, and the maximum share of the budget for scoring a sample."""
CLOSING_SECONDS = 1.0
"""The time for loading the best weights, drawing the curve and writing the card."""
DECAY = 0.2
"""The steps of a decay that finishes an interrupted run, as a share of the steps before the decay (docs/log)."""
NUM_REPORTS = 200
"""The number of training lines in metrics.jsonl over a budget."""


class TimePlan:
    """The division of the budget `train.seconds` of a job among preparation, training, validations, the test and the
    card. The budget begins at the time `started`. `share` is the used share of the time before the last validation.
    With several processes, all use the clock of rank 0.

    Before the first step, samples of the validation and test data are scored. The time of all data is extrapolated from
    the last two samples. If it is above the limit, only a random part of the data, drawn by the seed, is scored.
    """

    def __init__(self, job: Job[Any], started: float) -> None:
        self.job, self.started, self.budget = job, started, job.recipe.train.seconds or 0.0
        self.group, self.share, self.validations = process_group(), 0.0, job.recipe.train.validations
        self.lines: list[str] = []
        """The description of the division, and of the parts of the data that are scored."""

    def begin(self, progress: Progress, model: nn.Module) -> None:
        """Divide the budget before the first step. A resumed run keeps its parts of the data."""
        self.progress, is_new, finishing = progress, not progress.preparation_seconds, self.job.finishing_validations
        used, available = progress.seconds + progress.overhead_seconds, max(0.5, 1 - self._elapsed() / self.budget)
        limits: dict[HeldOut, float] = {"test": MAX_TEST}
        limits["valid"] = min(MAX_VALIDATION, MAX_VALIDATIONS / (1 + finishing))
        for name, limit in limits.items():
            if (data := self.job.held_out(name)) is None:
                continue
            if is_new:
                seconds = available * limit * self.budget
                count, progress.scoring_seconds[name] = self._choose_part(name, data, seconds, model)
                progress.drawn[name] = count / len(data)
            count = round(progress.drawn.get(name, 1.0) * len(data))
            self.job.use_part(name, data if count == len(data) else self.job.draw(data, count))
            if count < len(data):
                noun = "validation" if name == "valid" else "test"
                self.lines.append(f"{noun} on {count:,} of {len(data):,} {self.job.examples}, for lack of time")
        self.started -= used
        if is_new:
            progress.preparation_seconds = self._elapsed() - used
        requested, of_validation, validations = self.validations, progress.scoring_seconds.get("valid", 0.0), ""
        if of_validation:
            affordable = int(MAX_VALIDATIONS * self.budget / of_validation) - finishing
            self.validations = max(1, min(requested, affordable))
            of_requested = f" of {requested:,}" if self.validations < requested else ""
            validations = f", {self.validations:,}{of_requested} validations of {of_validation:.1f} s"
        self._divide()
        self.read_clock()
        total = progress.preparation_seconds + self.window + progress.reserved_seconds
        training = self.window - (self.validations - 1) * of_validation
        closing = progress.reserved_seconds - of_validation
        purpose = "the test and card" if "test" in progress.drawn else "the card"
        self.lines.insert(
            0,
            f"about {total:,.0f} s: {progress.preparation_seconds:,.1f} s of preparation, {training:,.1f} s of training"
            f"{validations}, {closing:,.1f} s for {purpose}",
        )

    def read_clock(self) -> None:
        """Update the used share and `overhead_seconds`."""
        elapsed = self._elapsed()
        self.progress.overhead_seconds = max(0.0, elapsed - self.progress.seconds)
        self.share = min(1.0, max(self.share, (elapsed - self.progress.preparation_seconds) / self.window))

    def add_validation(self, seconds: float) -> None:
        """Update the division by the time of a validation with its checkpoint."""
        self.progress.scoring_seconds["valid"] = self._broadcast(seconds)
        self._divide()
        self.read_clock()

    def _choose_part(self, name: HeldOut, data: Any, limit: float, model: nn.Module) -> tuple[int, float]:
        """Return the number of examples to score, and the time that scoring takes. A sample is enlarged until its time
        is `MAX_SAMPLE` of the budget, since a long text may take hardly more time than a short text.
        """

        def measure(count: int) -> float:
            self.job.use_part(name, self.job.draw(data, count))
            started = time.perf_counter()
            with suppress(EnsueError):  # a sample may have nothing to score
                self._score(name, model)
            return max(1e-6, self._broadcast(time.perf_counter() - started))

        size, count = len(data), min(len(data), self.job.sample_size)
        measure(count)  # compiles layers
        points = [(0, 0.0), (count, measure(count))]
        while count < size and (growth := min(8.0, MAX_SAMPLE * self.budget / points[-1][1])) >= 2:
            count = min(size, int(growth * count))
            points.append((count, measure(count)))
        (before, seconds_before), (count, seconds) = points[-2:]
        slope = max(0.0, (seconds - seconds_before) / (count - before))
        fixed = max(0.0, seconds - slope * count)
        if fixed + slope * size > limit:
            size = max(1, int((MARGIN * limit - fixed) / slope)) if slope else 1
        return size, fixed + slope * size

    def _score(self, name: HeldOut, model: nn.Module) -> None:
        if name == "valid":
            self.job.task.validate(model)
            self.job.task.sample(model, seed=0)
        else:
            with use_process_group(ProcessGroup()):
                self.job.test(model)

    def _divide(self) -> None:
        """Set `window`, the time for training and for all validations but the last."""
        progress, valid = self.progress, self.progress.scoring_seconds.get("valid", 0.0)
        closing = CLOSING_SECONDS + progress.scoring_seconds.get("test", 0.0)
        progress.reserved_seconds = closing + (1 + self.job.finishing_validations) * valid
        minimum = MIN_TRAINING * self.budget + (self.validations - 1) * valid
        self.window = max(minimum, self.budget - progress.preparation_seconds - progress.reserved_seconds)

    def _elapsed(self) -> float:
        return self._broadcast(time.perf_counter() - self.started)

    def _broadcast(self, seconds: float) -> float:
        """Return the number of rank 0."""
        return float(self.group.all_reduce(torch.tensor([seconds * self.group.is_first], dtype=torch.float64)))


class Trainer:
    """The training loop of a run. When `interrupted` returns True, the loop saves a checkpoint and ends."""

    def __init__(
        self, model: nn.Module, task: Task[Any, Any], recipe: TrainRecipe, run: RunDirectory, *, precision: Precision,
        reporter: Reporter, interrupted: Callable[[], bool] = lambda: False, tuning: Tuning | None = None,
        gradients: Gradients | None = None, plan: TimePlan | None = None,
    ) -> None:  # fmt: skip
        self.model, self.task, self.recipe, self.run = model, task, recipe, run
        task.report = reporter.working
        self.plan = plan
        self.precision, self.reporter, self.interrupted = precision, reporter, interrupted
        self.device = next(model.parameters()).device
        self.tuning = tuning or Tuning(model)
        self.optimizer = build_optimizer(model, recipe, self.tuning)
        self.num_steps = num_steps(recipe, steps_per_epoch=task.steps_per_epoch, tokens_per_step=task.tokens_per_step)
        self.log = MetricsLog(run.metrics)
        self.progress = Progress(parts=recipe.accumulate)
        self.group = process_group()
        self.gradients = gradients or Gradients(model, task, seed=recipe.seed, precision=precision, group=self.group)
        self.gradients.adversarial = getattr(recipe, "adversarial", 0.0)
        self.average = Average(model, recipe.average, skeleton=self.gradients.skeleton) if recipe.average else None
        self.averaged = None if self.average is None else self.average.model
        self.state: State = None
        """The carried state of the local rows."""
        self.stop = False
        """Whether a rank was asked to stop."""
        self.saved: int | None = None
        """The step of the newest checkpoint."""

    def resume(self) -> bool:
        """Load the newest checkpoint. Returns False if the run has no checkpoint."""
        checkpoints = complete_checkpoints(self.run.checkpoints)
        if not checkpoints:
            if self.group.is_first:
                self.log.rewind(None)
            return False
        newest = checkpoints[-1]
        try:
            initial = self.task.initial_state(self.gradients.skeleton)
            state, self.progress = load_checkpoint(newest, self.model, self.optimizer, initial, average=self.averaged)
            best = Manifest(newest).check(BEST) if self.progress.best_step else None
        except DamagedError as error:
            remedy = f" to continue from {checkpoints[-2].name}" if len(checkpoints) > 1 else ""
            raise RunError(f"{error}; or remove {newest}{remedy}") from None
        self.state, self.saved = self.local_state(state), self.progress.step
        if self.group.is_first:
            self.log.rewind(Manifest(newest).content().log)
            if best is not None:  # the process may have been killed after the checkpoint and before the publication
                self.run.publish(best)
        return True

    def train(self) -> str:
        """Train until the budget is used. Returns "finished", "stopped early" or "interrupted"."""
        if self.plan is not None:
            self.plan.begin(self.progress, self._evaluated())
            for line in self.plan.lines:
                self.reporter.noted(line)
        while self._share() < 1:
            is_enough = self.group.size == 1 and self.reporter.is_enough()  # only rank 0 has the reporter
            if is_enough or (self.recipe.patience and self.progress.stale >= self.recipe.patience):
                return "stopped early"
            previous = self._share()
            self.step()
            started = time.perf_counter()
            is_due = self.progress.step % self.recipe.checkpoint_every == 0
            if self._ends_interval(previous, self.recipe.validations if self.plan is None else self.plan.validations):
                self.validate()
                self.save()
                if self.plan is not None:
                    self.plan.add_validation(time.perf_counter() - started)
            elif is_due or self._ends_interval(previous, self.recipe.validations):
                self.save()
            if self._share() < 1 and (self.stop or (self.group.size == 1 and self.interrupted())):
                self.save()
                return "interrupted"
        if not self.progress.best_step:  # resumed after the budget was exhausted
            self.validate()
            self.save()
        return "finished"

    def steps_with_decay(self) -> int:
        """Return the budget in steps with which a resumed run would decay its learning rate to zero, in `DECAY` of its
        steps so far. Return 0 if the schedule does not end at zero, or if the run would end sooner without this decay.
        """
        is_shorter = self._share() * (1 + DECAY) < 1 and self.recipe.schedule in ("linear", "cosine")
        return math.ceil(self.progress.step * (1 + DECAY)) if is_shorter else 0

    def step(self) -> None:
        """Take one optimizer step: read a batch, compute gradients, clip them, descend, average, count."""
        started = time.perf_counter()
        step, share = self.progress.step, self._share()
        is_only_step = self.num_steps == 1  # the first learning rate of the warm-up is 0
        rate = learning_rate(self.recipe, self.recipe.warmup if is_only_step else share)
        self.tuning.begin_step(self.optimizer, rate, share)
        batch = self.task.lazy_batch(step, self.device)
        updated = self.task.update(self.model, batch, self.state, rate)
        if updated is not None:  # the task has updated the model without gradients
            loss, self.state = updated
            nats = self._mean_loss(loss, step)
        else:
            loss = self._compute_gradients(batch, step)
            nats = self._mean_loss(loss, step)
            self.tuning.freeze_inherited_rows(share)
            norm = self.gradients.clip(self.recipe.clip or math.inf)
            if not math.isfinite(norm):
                raise self._nan_error(step, "the gradient is not finite")
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            if self.average is not None:
                self.average.add(self.model, step + 1)
        self._count(loss, nats, time.perf_counter() - started)
        if self._ends_interval(share, NUM_REPORTS):
            self._log_training(rate)

    def _mean_loss(self, loss: Loss, step: int) -> float:
        if not math.isfinite(nats := float(loss.mean)):
            raise self._nan_error(step, f"the loss is not finite ({nats})")
        return nats

    def _compute_gradients(self, batch: LazyBatch[Any], step: int) -> Loss:
        """Compute the gradients of the batch's mean loss. When memory is exhausted, halve all later micro-batches."""
        while True:
            micro_batches, stop = self.progress.parts, self.interrupted()
            with suppress(OutOfMemory):
                loss, self.state, self.stop = self.gradients.compute(
                    batch, self.state, step=step, micro_batches=micro_batches, stop=stop
                )
                return loss
            if micro_batches >= batch.rows:
                checkpoint = self._newest_checkpoint("; the last checkpoint is {}")
                problem = f"out of memory at step {step + 1} with a single row{checkpoint}"
                raise TrainingError(f"{problem}; try a smaller encoder.d_model or shorter texts")
            self.model.zero_grad(set_to_none=True)
            full = self.full_state()
            self.progress.parts *= 2
            self.state = self.local_state(full)
            self.reporter.noted(
                f"out of memory at step {step + 1}: {self.progress.parts} micro-batches per batch from now on"
            )

    def full_state(self) -> State:
        """Return the carried state of all rows, gathered from the ranks."""
        if self.group.size == 1:
            return self.state
        by_rank = [state for state in self.group.all_gather([leaf.cpu() for leaf in leaves(self.state)]) if state]
        if not by_rank:
            return None
        rows = self.gradients.local_rows(sum(len(state[0]) for state in by_rank), self.progress.parts)
        order = torch.cat(self.group.all_gather(rows)).argsort()
        full = iter([torch.cat(shards)[order].to(self.device) for shards in zip(*by_rank, strict=True)])
        return map_state(lambda leaf: next(full), self.task.initial_state(self.gradients.skeleton))

    def local_state(self, full: State) -> State:
        """Return the rows of this rank in the carried state of all rows."""
        if self.group.size == 1 or full is None:
            return full
        rows = self.gradients.local_rows(len(next(leaves(full))), self.progress.parts)
        return map_state(lambda leaf: leaf[rows.to(leaf.device)], full)

    def validate(self) -> None:
        """Score the validation data and record the best step. Without validation data, the last step is the best."""
        self._check_weights()
        self._check_loss()
        evaluated = self._evaluated()
        scores = self.task.validate(evaluated)
        if scores is None:
            self.progress.best_step = self.progress.step
            return
        score = self.task.selection(scores)
        if not math.isfinite(score):
            raise self._nan_error(self.progress.step - 1, f"the scores are not finite ({score})")
        is_best = self.progress.best is None or score < self.progress.best
        if is_best:
            self.progress.best, self.progress.best_step, self.progress.stale = score, self.progress.step, 0
        else:
            self.progress.stale += 1
        if self.group.is_first:
            try:
                sample = self.task.sample(evaluated, seed=step_seed(self.recipe.seed, self.progress.step))
            except EnsueError:
                raise self._nan_error(self.progress.step - 1, "the sample's scores are not finite") from None
            step, seconds = self.progress.step, self.progress.seconds
            validation = Validation(
                step, seconds, limit_labels(scores.as_json()), scores.summary(), is_best, sample, score
            )
            self.log.append("valid", **asdict(validation))
            self.reporter.validated(validation)

    def _evaluated(self) -> nn.Module:
        return self.gradients.gather_parameters(self.model if self.averaged is None else self.averaged)

    def save(self) -> None:
        """Write a checkpoint, and copy the best weights to the file that `ensue.load` reads."""
        self._check_weights()
        if self.saved != self.progress.step:
            self._save_checkpoint()
            self.saved = self.progress.step
        if self.group.is_first and self.progress.best_step == self.progress.step:
            name = "model.safetensors" if self.average is None else AVERAGE
            with convert_disk_errors(self.run.path, self._disk_full):
                self.run.publish(self.run.checkpoints / f"step-{self.saved}" / name)

    def _save_checkpoint(self) -> None:
        state = self.full_state()
        if not self.group.is_first:
            gather_shards(self.model, self.optimizer, average=self.averaged)
            return
        with convert_disk_errors(self.run.path, self._disk_full):
            save_checkpoint(
                self.run.checkpoints, self.model, self.optimizer, state, self.progress,
                best=self.run.weights, log=self.log.entry(), average=self.averaged,
            )  # fmt: skip

    def _count(self, loss: Loss, nats: float, seconds: float) -> None:
        progress = self.progress
        progress.step += 1
        progress.seconds += seconds
        progress.tokens += loss.count
        progress.total_nats += nats * loss.count
        progress.predictions += loss.count
        if self.plan is not None:
            self.plan.read_clock()
        share = self._share()
        total = progress.seconds / share if share else math.inf
        seconds_left, speed = total * (1 - share), loss.count / seconds
        self.reporter.stepped(StepReport(progress.step, share, seconds_left=seconds_left, loss=nats, speed=speed))

    def _log_training(self, learning_rate: float) -> None:
        progress = self.progress
        if not self.group.is_first:
            return
        self.log.append(
            "train", step=progress.step, seconds=round(progress.seconds, 3), tokens=progress.tokens,
            loss=progress.total_nats / progress.predictions, learning_rate=learning_rate,
        )  # fmt: skip
        progress.total_nats, progress.predictions = 0.0, 0

    def _share(self) -> float:
        return min(1.0, self.progress.step / (self.num_steps or 1)) if self.plan is None else self.plan.share

    def _ends_interval(self, previous: float, intervals: int) -> bool:
        """Return whether the budget's used share has passed the end of one of equal intervals since `previous`."""
        return math.floor(self._share() * intervals + 1e-9) > math.floor(previous * intervals + 1e-9)

    def _check_weights(self) -> None:
        """Raise TrainingError if weights are not finite."""
        if not all(_is_finite(parameter.detach()) for _, parameter in self._trained_parameters()):
            raise self._nan_error(self.progress.step - 1, "the weights are not finite")

    def _check_loss(self) -> None:
        """Raise TrainingError if the loss is not finite. Finite scores do not imply a finite loss."""
        batch = self.task.lazy_batch(self.progress.step - 1, self.device)  # the last batch, which fitted into memory
        size = math.ceil(batch.rows / (self.progress.parts * self.group.num_shards))
        self.model.train()
        with torch.no_grad(), autocast(self.precision, self.device):
            loss, _ = self.gradients.loss(batch.read(RowSlice(total=size)), None)
        self._mean_loss(loss, self.progress.step - 1)

    def _trained_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield the trained parameters. Other parameters may be infinite: scores of illegal transitions are -inf."""
        return ((name, p) for name, p in self.model.named_parameters() if p.requires_grad)

    def _nan_error(self, step: int, problem: str) -> TrainingError:
        """Return an error with the step, the batch, the first parameter that is not finite, and a checkpoint."""
        parameters = list(self._trained_parameters())
        names = [name for name, p in parameters if not _is_finite(p.detach())]
        names += [f"{name} (its gradient)" for name, p in parameters if not _is_finite(p.grad)]
        first = f"first parameter that is not finite: {names[0]}; " if names else ""
        epoch, batch = divmod(step, self.task.steps_per_epoch)
        checkpoint = self._newest_checkpoint("the last good checkpoint is {}") or "no checkpoint had been written"
        place = f"step {step + 1} (epoch {epoch + 1}, batch {batch + 1})"
        return TrainingError(f"{problem} at {place}; {first}{checkpoint}; try a smaller train.learning_rate")

    def _disk_full(self) -> str:
        resume = self._newest_checkpoint("{} is complete; free some space and continue with --resume")
        problem = f"the disk is full while saving step {self.progress.step}"
        return f"{self.run.path}: {problem}; {resume or 'free some space'}"

    def _newest_checkpoint(self, template: str) -> str:
        """Return the template with the path of the newest checkpoint; "" if there is none."""
        checkpoints = complete_checkpoints(self.run.checkpoints)
        return template.format(checkpoints[-1]) if checkpoints else ""


def _is_finite(tensor: Tensor | None) -> bool:
    values = None if tensor is None else local_shard(tensor)
    return values is None or not values.numel() or bool(torch.stack(torch.aminmax(values)).isfinite().all())
