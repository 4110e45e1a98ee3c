"""The loop that writes: it reads prompts in pieces, and steps all live rows of a model together.

A request enters when its prompt is read and there is room, and leaves with its last token, or when its client has left.
While others wait, a request of many rows has no more than its share of the room.
What a row gets does not depend on the others: a prompt is read alone, in pieces that begin at multiples of `PIECE`, and
`Lanes` steps each row as if it were alone. A row whose context is full leaves, is read again from the last half of its
context, and enters again, as `Reader` has it.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from threading import Condition, Thread
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ensue.decode.lanes import Lanes
from ensue.engine import CachedWeights
from ensue.extensions.serving.metrics import Metrics
from ensue.extensions.serving.row import Chooser, Logprob, Row, SessionState, logprobs_of
from ensue.extensions.serving.writing import Prompt, Writing
from ensue.models.modules import device_of, evaluating
from ensue.types import State

PIECE = 256
"""The tokens of prompts that are read between two steps of the live rows."""


class Loop:
    """A thread that steps `model`. `submit` may be called from any thread."""

    def __init__(
        self, model: Any, *, rows: int, weights: CachedWeights, metrics: Metrics, name: str,
        report: Callable[[BaseException], None],
    ) -> None:  # fmt: skip
        self.model, self.most, self.weights = model, rows, weights
        self.metrics, self.name, self.report = metrics, name, report
        metrics.rows.labels(name).set(0)
        self.context: int | None = getattr(model, "context", None)
        self.reads_alone = getattr(model, "reads_alone", False)
        self._new: deque[Writing] = deque()
        self._reading: deque[Writing] = deque()
        """Requests with prompts to read, and with rows that wait for room; each takes its turn."""
        self._waiting: deque[Writing] = deque()
        self._live: list[tuple[Row, Writing]] = []
        self._owed = 0.0
        """The seconds of steps before a piece of a long prompt is read again."""
        self._lanes, self._chooser = Lanes(model), Chooser([], device_of(model))
        self._awake, self._has_ended = Condition(), False
        self._thread = Thread(target=self._run, name=f"loop of {name}", daemon=True)
        self._thread.start()

    def submit(self, writing: Writing) -> None:
        """Begins to answer a writing."""
        with self._awake:
            self._new.append(writing)
            self._awake.notify()

    def wake(self) -> None:
        """Looks again, since a client has left."""
        with self._awake:
            self._awake.notify()

    def close(self) -> None:
        """Ends the thread after the present step."""
        with self._awake:
            self._has_ended = True
            self._awake.notify()
        self._thread.join()

    @property
    def num_live(self) -> int:
        """The rows that are stepped together."""
        return len(self._live)

    @property
    def waiting(self) -> int:
        """The prompts that are not read yet, and the rows for which there is no room."""
        new = sum(len(writing.unread) for writing in (*list(self._new), *list(self._reading)))
        return new + self._num_ready

    @property
    def _num_ready(self) -> int:
        return sum(len(writing.ready) for writing in list(self._waiting))

    @torch.inference_mode()
    def _run(self) -> None:
        with evaluating(self.model), self.weights.used():
            while True:
                with self._awake:
                    while not (self._has_ended or self._new or self._reading or self._waiting or self._live):
                        self._awake.wait()
                    if self._has_ended:
                        return
                try:
                    self._turn()
                except Exception as error:  # no request may end the loop for all others
                    self.report(error)
                    self._fail(error)

    def _turn(self) -> None:
        """Reads some of the prompts, and steps the live rows once."""
        while self._new:
            self._reading.append(self._new.popleft())
        self._read_some()
        self._change()
        if self._live:
            self._step()

    def _read_some(self) -> None:
        """Reads prompts, those of one piece at once. A longer one takes a quarter of the time if rows are live."""
        left, full = PIECE, []
        while self._reading and left > 0:
            writing = self._reading.popleft()
            if writing.is_over:
                continue
            prompt = writing.unread[0]
            is_long = len(prompt.ids) > PIECE
            if not self._may_read(writing) or (is_long and self._live and self._owed > 0):
                full.append(writing)
                continue
            start = time.perf_counter()
            try:
                left -= self._read_piece(prompt)
                if prompt.is_read:
                    writing.unread.popleft()
                    self._begin(prompt)
            except Exception as error:
                self._end(writing, error)
                continue
            if is_long:
                self._owed = 3 * (time.perf_counter() - start)
            if writing.unread:
                self._reading.append(writing)  # others come first, so that a long one does not hold them up
        self._reading.extend(full)

    def _may_read(self, writing: Writing) -> bool:
        """Whether there will be room for a row: of any writing, or at least for one of each."""
        has_none = not writing.ready and all(one is not writing for _, one in self._live)
        if has_none and self.reads_alone and not writing.unread[0].read:  # a row may hold a copy of all weights
            begun = sum(one.unread[0].read > 0 for one in self._reading)
            return begun + len({*self._waiting, *(one for _, one in self._live)}) < self.most
        return has_none or len(self._live) + self._num_ready < self.most

    def _read_piece(self, prompt: Prompt) -> int:
        """Reads the next piece and returns the number of its tokens."""
        ids = prompt.next_piece(PIECE)
        if not len(ids):
            return 1
        rows = torch.from_numpy(ids)[None].to(device_of(self.model))
        if prompt.num_top is None:
            _, prompt.state = self.model.read(rows, prompt.state)
        else:
            logits, prompt.state = self.model(rows, prompt.state)
            targets = prompt.ids[prompt.read - len(ids) + 1 : prompt.read + 1].tolist()
            prompt.logprobs += logprobs_of(logits[0], targets, prompt.num_top)
        self.metrics.prompt_tokens.labels(self.name).inc(len(ids))
        return len(ids)

    def _begin(self, prompt: Prompt) -> None:
        """The rows of a prompt that is read wait for room."""
        state = self.model.init_state(1) if prompt.state is None else prompt.state
        if self.reads_alone:
            state = self.model.settled(state, torch.from_numpy(prompt.ids[-1:]).to(device_of(self.model)))
        for row in prompt.rows:
            row.last, row.ids = int(prompt.ids[-1]), prompt.ids if self.context is not None else prompt.ids[-1:]
            if row.left > 0:
                self._wait(prompt.writing, row, state)
            else:
                row.end("", "length")
                self._finish(row, prompt.writing, lambda: state)

    def _wait(self, writing: Writing, row: Row, state: State) -> None:
        if not writing.ready:
            self._waiting.append(writing)
        writing.ready.append((row, state))

    def _change(self) -> None:
        """Rows leave that have ended, are full or are not wanted any more; others enter."""
        staying: list[int] = []
        for place, (row, writing) in enumerate(self._live):
            if row.finish is not None or writing.is_over:
                continue
            if self.context is not None and len(row.ids) > self.context:
                self._read_again(row, writing)
            else:
                staying.append(place)
        entering = self._entering(staying) if self._waiting else []
        if len(staying) < len(self._live) or entering:
            self._live = [self._live[place] for place in staying] + [(row, writing) for row, writing, _ in entering]
            self._lanes.change(staying, [state for _, _, state in entering])
            self._chooser = Chooser([row for row, _ in self._live], device_of(self.model))
            self.metrics.rows.labels(self.name).set(len(self._live))

    def _entering(self, staying: list[int]) -> list[tuple[Row, Writing, State]]:
        """The rows that enter, each writing in its turn. While others wait, none has more than its share, and while
        others write, the long ones have no more than an eighth: their rows beyond leave `staying`, and wait with their
        states.
        """
        self._waiting = deque(writing for writing in self._waiting if not writing.is_over)
        counts = Counter(self._live[place][1] for place in staying)
        writings = {*counts, *self._waiting}
        bounded = {writing for writing in writings if writing.is_long}
        bounded = bounded if len(bounded) < len(writings) else set()
        share = dict.fromkeys(writings, max(1, self.most // max(1, len(writings))))
        share |= dict.fromkeys(bounded, max(1, self.most // 8 // max(1, len(bounded))))
        wanted = sum(min(len(writing.ready), max(0, share[writing] - counts[writing])) for writing in self._waiting)
        for place in reversed(staying):
            row, writing = self._live[place]
            is_needed = writing in bounded or self.most - len(staying) < wanted
            if is_needed and counts[writing] > share[writing]:
                staying.remove(place)
                counts[writing] -= 1
                self._wait(writing, row, self._lanes.state_of(place))
        entering: list[tuple[Row, Writing, State]] = []
        have_share: deque[Writing] = deque()
        have_all: list[Writing] = []
        while len(staying) + len(entering) < self.most and (self._waiting or have_share):
            writing = (self._waiting or have_share).popleft()
            if counts[writing] >= share[writing] and (writing in bounded or self._waiting):
                (have_all if writing in bounded else have_share).append(writing)
                continue
            entering.append((writing.ready[0][0], writing, writing.ready.popleft()[1]))
            counts[writing] += 1
            if writing.ready:
                (self._waiting if counts[writing] < share[writing] else have_share).append(writing)
        self._waiting.extend((*have_share, *have_all))
        return entering

    def _read_again(self, row: Row, writing: Writing) -> None:
        assert self.context is not None
        writing.unread.appendleft(Prompt(writing, row.ids[-max(1, self.context // 2) :], [row]))
        if writing not in self._reading:
            self._reading.appendleft(writing)

    def _step(self) -> None:
        start = time.perf_counter()
        logits = self._logits()
        if logits is None:
            return
        try:
            ids, logprobs = self._chooser.next(logits)
        except Exception:  # of one row; each of the others gets what it would have got
            ids, logprobs = self._next_of_each(logits)
        for place, (row, writing) in enumerate(self._live):
            if writing.is_over:
                continue
            writing.tokens += 1
            found = logprobs.get(place)
            try:
                row.take(ids[place]) if found is None else row.take(ids[place], found.log_p, found.top)
                if self.context is not None:
                    row.ids = np.append(row.ids, ids[place])
                if row.finish is not None:
                    self._finish(row, writing, partial(self._lanes.state_of, place))
                else:
                    writing.tell()
            except Exception as error:
                self._end(writing, error)
        took = time.perf_counter() - start
        self._owed -= took
        self.metrics.tokens.labels(self.name).inc(len(ids))
        self.metrics.steps.labels(self.name).observe(took)

    def _logits(self) -> Tensor | None:
        """Return the next logits; None if the model fails: the requests whose rows fail alone have then ended."""
        try:
            return self._lanes.step([row.last for row, _ in self._live])
        except Exception as error:
            live = self._live
            for place, (row, writing) in enumerate(live):
                alone = Lanes(self.model)
                try:
                    alone.change([], [self._lanes.state_of(place)])
                    alone.step([row.last])
                except Exception as its_error:
                    self._end(writing, its_error)
            if not any(writing.is_over for _, writing in live):
                raise error from None
            return None

    def _next_of_each(self, logits: Tensor) -> tuple[list[int], dict[int, Logprob]]:
        """Return the tokens of `Chooser.next`, with 0 for rows on which it fails; the requests of these rows end."""
        ids, logprobs = [0] * len(self._live), dict[int, Logprob]()
        for place, (row, writing) in enumerate(self._live):
            try:
                (ids[place],), found = Chooser([row], logits.device).next(logits[place, None])
                logprobs.update((place, one) for one in found.values())
            except Exception as error:
                self._end(writing, error)
        return ids, logprobs

    def _finish(self, row: Row, writing: Writing, state: Callable[[], State]) -> None:
        if writing.has_session:
            ids: NDArray[np.int64] = row.ids if self.context is not None else np.array([row.last])
            writing.session_state = SessionState(state(), ids)
        writing.left -= 1
        writing.tell()

    def _end(self, writing: Writing, error: Exception) -> None:
        """A request ends with an error; the others go on."""
        self.report(error)
        writing.fail(error)

    def _fail(self, error: Exception) -> None:
        """Every writing that is begun ends with an error; what was computed is dropped."""
        writings = {*self._reading, *self._waiting, *(writing for _, writing in self._live)}
        self._live, self._lanes = [], Lanes(self.model)
        self._waiting.clear()
        self._reading.clear()
        for writing in writings:
            writing.fail(error)
