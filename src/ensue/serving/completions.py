"""The route that writes: prompts to rows of the loop, and what these write to the answer or the stream of the API."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from ensue.errors import EnsueError
from ensue.serving.admission import Amounts, Ticket
from ensue.serving.api import CompletionRequest, parsed
from ensue.serving.asked import Asked, Given, encoded, wrong
from ensue.serving.logprobs import shown_tokens, tokens_of_prompt
from ensue.serving.refusal import Refusal, bug
from ensue.serving.row import Kept, Row
from ensue.serving.served import Served
from ensue.serving.service import Service
from ensue.serving.stopping import Stops
from ensue.serving.transport import EventStream, answered, event, read_body, unless_left
from ensue.serving.writing import Prompt, Writing
from ensue.version import VERSION

BETWEEN_PIECES, FOR_EACH_REQUEST = 0.02, 0.001
"""The fewest seconds between two pieces of a stream, and what each open request adds. Under load a piece has several
tokens, so that sending them does not take the time of computing them.
"""
FEW_CHARACTERS = 2048
"""A text up to this length is tokenized at once; a longer one in a thread, so that others are answered meanwhile."""


@dataclass
class Completion:
    """A request that is being answered."""

    asked: Asked
    model: Served
    writing: Writing
    given: Sequence[Given]
    id: str
    created: int

    @property
    def rows(self) -> list[Row]:
        """All rows, in the order of prompts."""
        return [row for prompt in self.writing.prompts for row in prompt.rows]

    def head(self) -> dict[str, Any]:
        """What every answer and every piece of a stream begins with."""
        return {
            "id": self.id, "object": "text_completion", "created": self.created, "model": self.model.name,
            "system_fingerprint": f"ensue-{VERSION}",
        }  # fmt: skip

    def usage(self) -> dict[str, int]:
        """The numbers of tokens, of choices that are not returned too."""
        read, written = sum(len(given.ids) for given in self.given), sum(row.written for row in self.rows)
        return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


class Completions:
    """POST /v1/completions."""

    def __init__(self, service: Service) -> None:
        self.service = service

    async def __call__(self, request: Request) -> Response:
        """The answer, or a stream of its pieces."""
        self.service.check_open()
        ticket = self.service.admission.ticket()
        try:
            completion = await self._begun(request, ticket)
        except BaseException:
            ticket.give_back()
            raise
        end = self._ending(request, completion, ticket)
        if completion.asked.wishes.stream:
            return EventStream(self._pieces(completion), end)
        try:
            return answered(await unless_left(request.receive, self._whole(completion)))
        finally:
            end()

    async def _begun(self, request: Request, ticket: Ticket) -> Completion:
        limits = self.service.limits
        ticket.reserve(Amounts(places=1))
        wishes = parsed(CompletionRequest, await read_body(request, ticket, limits))
        model = self.service.model(wishes.model, request.url.path)
        asked = Asked.of(wishes, limits)
        asked.check(limits)
        ticket.reserve(Amounts(places=asked.places - 1, tokens=asked.most_tokens))
        pipeline, given = model.pipeline, []
        choosing = asked.choosing(pipeline.model)
        for prompt in asked.prompts:
            call = (prompt, pipeline.tokenizer, limits, pipeline.model.context)
            given.append(encoded(*call) if len(prompt) <= FEW_CHARACTERS else await asyncio.to_thread(encoded, *call))
        writing = Writing(is_streamed=bool(wishes.stream), keeps=wishes.session is not None)
        completion = Completion(asked, model, writing, given, f"cmpl-{request.scope['request_id']}", int(time.time()))
        several = [
            [self._row(completion, choosing, number * asked.best_of + n, one) for n in range(asked.best_of)]
            for number, one in enumerate(given)
        ]
        looks = wishes.logprobs if wishes.echo else None
        kept = self._kept(completion)  # last, since from here on the session is in use
        for one, rows in zip(given, several, strict=True):
            state, ids = _beginning(one, kept, pipeline.tokenizer.start_id, pipeline.model.context)
            writing.add(Prompt(writing, ids, rows, state=state, logprobs=looks))
        assert model.loop is not None
        request.scope["noted"].update(model=model.name)
        model.loop.submit(writing)
        return completion

    def _kept(self, completion: Completion) -> Kept | None:
        name = completion.asked.wishes.session
        if name is None:
            return None
        if not self.service.has_sessions:
            raise wrong("session", "a server of several processes keeps no sessions", "unsupported_parameter")
        return completion.model.sessions.begin(name)

    def _row(self, completion: Completion, choosing: Any, index: int, given: Given) -> Row:
        asked, wishes, ids = completion.asked, completion.asked.wishes, given.ids.tolist()
        return Row(
            choosing, seed=asked.seed, index=index, tokens=asked.max_tokens,
            decoder=completion.model.pipeline.decoder_after(ids), stops=Stops(asked.stops), logprobs=wishes.logprobs,
            offset=len(given.text) if wishes.echo else 0, sums=asked.best_of > asked.n,
        )  # fmt: skip

    def _ending(self, request: Request, completion: Completion, ticket: Ticket) -> Callable[[], None]:
        """What has to happen once when a request ends, however it does."""

        def end() -> None:
            writing, loop = completion.writing, completion.model.loop
            is_done = writing.error is None and writing.left == 0
            writing.has_left = True
            if loop is not None and not is_done:
                loop.wake()
            if completion.asked.wishes.session is not None:
                completion.model.sessions.end(completion.asked.wishes.session, writing.kept if is_done else None)
            usage = completion.usage()
            request.scope["noted"].update(
                prompt_tokens=usage["prompt_tokens"], completion_tokens=usage["completion_tokens"]
            )
            ticket.give_back()

        return end

    async def _whole(self, completion: Completion) -> dict[str, Any]:
        while completion.writing.left:
            await completion.writing.end.heard()
            _check(completion.writing)
        choices = []
        for number, prompt in enumerate(completion.writing.prompts):
            rows = list(prompt.rows)
            if completion.asked.best_of > completion.asked.n:
                rows = sorted(rows, key=lambda row: -row.mean_log_p)[: completion.asked.n]
            for n, row in enumerate(rows):
                choices.append(
                    _choice(completion, number * completion.asked.n + n, row, finish=row.finish, begins=True)
                )
        return {**completion.head(), "choices": choices, "usage": completion.usage()}

    async def _pieces(self, completion: Completion) -> AsyncIterator[bytes]:
        head, rows = completion.head(), completion.rows
        options = completion.asked.wishes.stream_options
        counts = options is not None and options.include_usage
        more = {"usage": None} if counts else {}
        begun, open_rows, start = [False] * len(rows), set(range(len(rows))), time.perf_counter()
        while open_rows:
            if not any(rows[n].finish or rows[n].pieces for n in open_rows):
                await completion.writing.news.heard()
            _check(completion.writing)
            parts = []
            for n in sorted(open_rows):
                finish = rows[n].finish  # before the pieces: then they are all that will come
                if not (finish or rows[n].pieces):
                    continue
                choice = _choice(completion, n, rows[n], finish=finish, begins=not begun[n])
                begun[n] = True
                parts.append(event({**head, "choices": [choice], **more}))
                if finish is not None:
                    open_rows.discard(n)
            if parts:
                if start:
                    self.service.metrics.first.labels(completion.model.name).observe(time.perf_counter() - start)
                    start = 0.0
                yield b"".join(parts)
                if open_rows:
                    await completion.writing.end.heard(
                        within=BETWEEN_PIECES + FOR_EACH_REQUEST * len(self.service.live)
                    )
        if counts:
            yield event({**head, "choices": [], "usage": completion.usage()})


def _check(writing: Writing) -> None:
    if writing.error is not None:
        raise Refusal(500, str(writing.error)) if isinstance(writing.error, EnsueError) else bug()


def _beginning(given: Given, kept: Kept | None, start_id: int, context: int | None) -> tuple[Any, Any]:
    """The state to go on from, and the ids to read: those of the prompt, after what a session has not read yet.

    If a context would be too full, it begins anew with its last half.
    """
    if kept is None:
        is_full = len(given.ids) == context
        return None, given.ids if is_full else np.concatenate(([start_id], given.ids))
    if context is None or len(kept.ids) + len(given.ids) <= context:
        return kept.state, np.concatenate((kept.ids[-1:], given.ids))
    ids = np.concatenate((kept.ids, given.ids))
    return None, ids[-max(1, context // 2, len(given.ids)) :]


def _choice(completion: Completion, index: int, row: Row, *, finish: str | None, begins: bool) -> dict[str, Any]:
    """What is new of a choice. With its beginning comes the prompt, if it is to be repeated."""
    number, tokenizer = index // completion.asked.n, completion.model.pipeline.tokenizer
    text, before, given = row.text(), [], completion.given[number]
    if begins and completion.asked.wishes.echo:
        text = given.text + text
        if row.logprobs is not None:
            before = tokens_of_prompt(tokenizer, given.ids.tolist(), completion.writing.prompts[number].looked)
    shown = shown_tokens(tokenizer, row, before)
    return {"index": index, "text": text, "logprobs": shown, "finish_reason": finish}
