"""The generation loop, which reads prompts in chunks, and steps all live rows of a model as one batch.

A row enters the batch after its prompt is read, if the batch has room. It leaves the batch with its last token, or when
its client disconnects. While requests wait, a request with many rows gets only its share of the batch.

The output of a row does not depend on other rows. Each prompt is read in its own chunks, which begin at multiples of
`CHUNK_TOKENS`, and `LiveBatch` computes each row as in a batch of one row. A row with a full context leaves the batch,
and enters again after the last half of its context is read as a new prompt, as in `ensue.decode.generation.Reader`.
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial
from threading import Condition, Thread
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from ensue.engine import CachedWeights
from ensue.extensions.serving.generation import Generation, Prompt
from ensue.extensions.serving.metrics import Metrics
from ensue.extensions.serving.row import Row, RowSampler, SessionState, TokenLogprob, token_logprobs
from ensue.models.modules import device_of, evaluating
from ensue.nn.attention.multi_head import row_by_row
from ensue.types import State, compacted, concatenate_rows, narrow, select_rows

CHUNK_TOKENS = 256
"""The size of a chunk of a prompt, and the number of prompt tokens after which the live rows take a step."""


class GenerationLoop:
    """A thread that generates with a model. `submit` and `wake` may be called from any thread."""

    def __init__(
        self, model: Any, *, rows: int, weights: CachedWeights, metrics: Metrics, name: str,
        report: Callable[[BaseException], None],
    ) -> None:  # fmt: skip
        self.model, self.max_rows, self.weights = model, rows, weights
        self.metrics, self.name, self.report = metrics, name, report
        metrics.rows.labels(name).set(0)
        self.context: int | None = getattr(model, "context", None)
        self.adapts = getattr(model, "adapts", False)
        self._submitted: deque[Generation] = deque()
        self._reading: deque[Generation] = deque()
        """The requests with unread prompts, in round-robin order."""
        self._waiting: deque[Generation] = deque()
        """The requests with rows that wait for room, in round-robin order."""
        self._live: list[tuple[Row, Generation]] = []
        self._pause_seconds = 0.0
        """The time for steps of the live rows before the next chunk of a long prompt is read."""
        self._batch, self._sampler = LiveBatch(model), RowSampler([], device_of(model))
        self._awake, self._has_ended = Condition(), False
        self._thread = Thread(target=self._run, name=f"loop of {name}", daemon=True)
        self._thread.start()

    def submit(self, generation: Generation) -> None:
        self._submitted.append(generation)
        self.wake()

    def wake(self) -> None:
        """Wake the thread after a change, such as a client that has disconnected."""
        with self._awake:
            self._awake.notify()

    def close(self) -> None:
        self._has_ended = True
        self.wake()
        self._thread.join()

    @property
    def num_live(self) -> int:
        return len(self._live)

    @property
    def waiting(self) -> int:
        """The number of unread prompts and of rows that wait for room."""
        num_unread = sum(len(generation.unread) for generation in (*list(self._submitted), *list(self._reading)))
        return num_unread + self._num_ready

    @property
    def _num_ready(self) -> int:
        return sum(len(generation.ready) for generation in list(self._waiting))

    @torch.inference_mode()
    def _run(self) -> None:
        with evaluating(self.model), self.weights.used():
            while True:
                with self._awake:
                    while not (self._has_ended or self._submitted or self._reading or self._waiting or self._live):
                        self._awake.wait()
                    if self._has_ended:
                        return
                try:
                    self._iterate()
                except Exception as error:  # an error in a request must not end the loop
                    self.report(error)
                    self._fail_all(error)

    def _iterate(self) -> None:
        while self._submitted:
            self._reading.append(self._submitted.popleft())
        self._read_prompts()
        self._update_rows()
        if self._live:
            self._step()

    def _read_prompts(self) -> None:
        """Read short prompts in one chunk. While rows are live, longer prompts take a quarter of the time."""
        remaining, postponed = CHUNK_TOKENS, []
        while self._reading and remaining > 0:
            generation = self._reading.popleft()
            if generation.is_over:
                continue
            prompt = generation.unread[0]
            is_long = len(prompt.ids) > CHUNK_TOKENS
            if not self._has_room_for(generation) or (is_long and self._live and self._pause_seconds > 0):
                postponed.append(generation)
                continue
            start = time.perf_counter()
            try:
                remaining -= self._read_chunk(prompt)
                if prompt.is_read:
                    generation.unread.popleft()
                    self._queue_rows(prompt)
            except Exception as error:
                self._fail_request(generation, error)
                continue
            if is_long:
                self._pause_seconds = 3 * (time.perf_counter() - start)
            if generation.unread:
                self._reading.append(generation)  # to the end of the queue: a long prompt must not delay other requests
        self._reading.extend(postponed)

    def _has_room_for(self, generation: Generation) -> bool:
        """Return whether to read a prompt for another row. A request without rows may always read a prompt for one row.

        Models whose rows may have copies of all weights (`adapts`) have at most `max_rows` requests in progress.
        """
        has_no_row = not generation.ready and all(live is not generation for _, live in self._live)
        if has_no_row and self.adapts and not generation.unread[0].read:
            num_started = sum(other.unread[0].read > 0 for other in self._reading)
            return num_started + len({*self._waiting, *(live for _, live in self._live)}) < self.max_rows
        return has_no_row or len(self._live) + self._num_ready < self.max_rows

    def _read_chunk(self, prompt: Prompt) -> int:
        ids = prompt.next_chunk(CHUNK_TOKENS)
        if not len(ids):
            return 1
        rows = torch.from_numpy(ids)[None].to(device_of(self.model))
        if prompt.num_top is None:
            _, prompt.state = self.model.read(rows, prompt.state)
        else:
            logits, prompt.state = self.model(rows, prompt.state)
            targets = prompt.ids[prompt.read - len(ids) + 1 : prompt.read + 1].tolist()
            prompt.logprobs += token_logprobs(logits[0], targets, prompt.num_top)
        self.metrics.prompt_tokens.labels(self.name).inc(len(ids))
        return len(ids)

    def _queue_rows(self, prompt: Prompt) -> None:
        state = self.model.init_state(1) if prompt.state is None else prompt.state
        if self.adapts:
            state = self.model.finish_segments(state, torch.from_numpy(prompt.ids[-1:]).to(device_of(self.model)))
        for row in prompt.rows:
            row.last, row.ids = int(prompt.ids[-1]), prompt.ids if self.context is not None else prompt.ids[-1:]
            if row.remaining > 0:
                self._queue_row(prompt.generation, row, state)
            else:
                row.end("", "length")
                self._finish(row, prompt.generation, lambda: state)

    def _queue_row(self, generation: Generation, row: Row, state: State) -> None:
        if not generation.ready:
            self._waiting.append(generation)
        generation.ready.append((row, state))

    def _update_rows(self) -> None:
        """Remove rows that have finished from the batch, and add waiting rows."""
        staying: list[int] = []
        for index, (row, generation) in enumerate(self._live):
            if row.finish is not None or generation.is_over:
                continue
            if self.context is not None and len(row.ids) > self.context:
                generation.unread.appendleft(Prompt(generation, row.ids[-max(1, self.context // 2) :], [row]))
                if generation not in self._reading:
                    self._reading.appendleft(generation)
            else:
                staying.append(index)
        entering = self._admit_rows(staying) if self._waiting else []
        if len(staying) < len(self._live) or entering:
            self._live = [self._live[index] for index in staying] + [(row, request) for row, request, _ in entering]
            self._batch.change(staying, [state for _, _, state in entering])
            self._sampler = RowSampler([row for row, _ in self._live], device_of(self.model))
            self.metrics.rows.labels(self.name).set(len(self._live))

    def _admit_rows(self, staying: list[int]) -> list[tuple[Row, Generation, State]]:
        """Return the rows to add to the batch, in round-robin order of their requests.

        While requests wait, a request gets at most its share of the batch. Long requests together get an eighth of the
        batch while others generate. Surplus rows are removed from `staying` and queued.
        """
        self._waiting = deque(generation for generation in self._waiting if not generation.is_over)
        counts = Counter(self._live[index][1] for index in staying)
        generations = {*counts, *self._waiting}
        long = {generation for generation in generations if generation.is_long}
        long = long if len(long) < len(generations) else set()
        share = dict.fromkeys(generations, max(1, self.max_rows // max(1, len(generations))))
        share |= dict.fromkeys(long, max(1, self.max_rows // 8 // max(1, len(long))))
        num_needed = sum(
            min(len(generation.ready), max(0, share[generation] - counts[generation])) for generation in self._waiting
        )
        for index in reversed(staying):
            row, generation = self._live[index]
            is_needed = generation in long or self.max_rows - len(staying) < num_needed
            if is_needed and counts[generation] > share[generation]:
                staying.remove(index)
                counts[generation] -= 1
                self._queue_row(generation, row, self._batch.state_of(index))
        entering: list[tuple[Row, Generation, State]] = []
        served: deque[Generation] = deque()
        """The requests that have their share, and get further rows only after all waiting requests."""
        served_long: list[Generation] = []
        """The long requests that have their share, and get no further rows."""
        while len(staying) + len(entering) < self.max_rows and (self._waiting or served):
            generation = (self._waiting or served).popleft()
            if counts[generation] >= share[generation] and (generation in long or self._waiting):
                (served_long if generation in long else served).append(generation)
                continue
            row, state = generation.ready.popleft()
            entering.append((row, generation, state))
            counts[generation] += 1
            if generation.ready:
                (self._waiting if counts[generation] < share[generation] else served).append(generation)
        self._waiting.extend((*served, *served_long))
        return entering

    def _step(self) -> None:
        start = time.perf_counter()
        logits = self._compute_logits()
        if logits is None:
            return
        try:
            ids, logprobs = self._sampler.next(logits)
        except Exception:  # the error is in one row, and the other rows continue unchanged
            ids, logprobs = self._choose_per_row(logits)
        for index, (row, generation) in enumerate(self._live):
            if generation.is_over:
                continue
            generation.tokens += 1
            logprob = logprobs.get(index)
            try:
                row.append(ids[index]) if logprob is None else row.append(ids[index], logprob.log_p, logprob.top)
                if self.context is not None:
                    row.ids = np.append(row.ids, ids[index])
                if row.finish is not None:
                    self._finish(row, generation, partial(self._batch.state_of, index))
                else:
                    generation.notify()
            except Exception as error:
                self._fail_request(generation, error)
        seconds = time.perf_counter() - start
        self._pause_seconds -= seconds
        self.metrics.tokens.labels(self.name).inc(len(ids))
        self.metrics.steps.labels(self.name).observe(seconds)

    def _compute_logits(self) -> Tensor | None:
        """Return the next logits. If the step fails, end the requests whose rows fail in a single-row batch."""
        try:
            return self._batch.step([row.last for row, _ in self._live])
        except Exception as error:
            for index, (row, generation) in enumerate(self._live):
                batch = LiveBatch(self.model)
                try:
                    batch.change([], [self._batch.state_of(index)])
                    batch.step([row.last])
                except Exception as row_error:
                    self._fail_request(generation, row_error)
            if not any(generation.is_over for _, generation in self._live):
                raise error from None
            return None

    def _choose_per_row(self, logits: Tensor) -> tuple[list[int], dict[int, TokenLogprob]]:
        """Return the result of `RowSampler.next`, computed row by row, and end the requests whose rows fail."""
        ids, logprobs = [0] * len(self._live), dict[int, TokenLogprob]()
        for index, (row, generation) in enumerate(self._live):
            try:
                (ids[index],), row_logprobs = RowSampler([row], logits.device).next(logits[index, None])
                logprobs.update((index, logprob) for logprob in row_logprobs.values())
            except Exception as error:
                self._fail_request(generation, error)
        return ids, logprobs

    def _finish(self, row: Row, generation: Generation, state: Callable[[], State]) -> None:
        if generation.has_session:
            ids: NDArray[np.int64] = row.ids if self.context is not None else np.array([row.last])
            generation.session_state = SessionState(state(), ids)
        generation.num_open -= 1
        generation.notify()

    def _fail_request(self, generation: Generation, error: Exception) -> None:
        self.report(error)
        generation.fail(error)

    def _fail_all(self, error: Exception) -> None:
        generations = {*self._reading, *self._waiting, *(generation for _, generation in self._live)}
        self._live, self._batch = [], LiveBatch(self.model)
        self._waiting.clear()
        self._reading.clear()
        for generation in generations:
            generation.fail(error)


ROW_MULTIPLE = 16
"""The number of rows of a batch is a multiple of this number. For 16, 32, 48, ... rows, matrix products compute each
row with the same bits, and vectorized pointwise functions have no remainder.
"""


class LiveBatch:
    """The states of the live rows of a model in evaluation mode, without gradients.

    Other rows of a batch can change a result only by rounding: the kernels of matrix products depend on the number of
    rows, and padding changes the order of sums in attention. Therefore the batch is padded with copies of the first row
    to a multiple of `ROW_MULTIPLE` rows, and attention reads each row without its padding (`row_by_row`). On a CPU the
    results then have the same bits, except after matrix products of unusual sizes.
    """

    def __init__(self, model: Any) -> None:
        self.model, self.count, self._state = model, 0, None

    def change(self, staying: Sequence[int], entering: Sequence[State] = ()) -> None:
        """Keep the rows `staying` in this order, and append the rows of the states `entering`."""
        remaining = [select_rows(self._state, self._to_tensor(staying))] if staying else []
        self.count = len(staying) + len(entering)
        self._state = None
        if self.count:
            state = concatenate_rows([*remaining, *entering])
            filled = [*range(self.count), *[0] * (-self.count % ROW_MULTIPLE)]
            self._state = narrow(compacted(select_rows(state, self._to_tensor(filled))))

    def step(self, ids: Sequence[int]) -> Float[Tensor, "R V"]:
        """Read one token in each row. Return the logits of the next token."""
        rows = torch.tensor([*ids, *[ids[0]] * (-self.count % ROW_MULTIPLE)], device=device_of(self.model))
        with row_by_row(self.count):
            logits, self._state = self.model.step(rows, self._state)
        return logits[: self.count]

    def state_of(self, row: int) -> State:
        """Return the state of a row."""
        return narrow(compacted(select_rows(self._state, self._to_tensor([row]))))

    def _to_tensor(self, numbers: Sequence[int]) -> Tensor:
        return torch.tensor(numbers, device=device_of(self.model))
