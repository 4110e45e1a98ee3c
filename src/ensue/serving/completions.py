"""The route that writes: prompts to rows of the loop, and what these write to the answer or the stream of the API."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from ensue.errors import EnsueError
from ensue.serving.api import CompletionRequest
from ensue.serving.asked import Asked, Given, encoded, wrong
from ensue.serving.limits import BLOCK, CHARACTERS_AT_ONCE, TOKENS_AT_ONCE
from ensue.serving.logprobs import shown_tokens, tokens_of_prompt
from ensue.serving.refusal import Refusal, bug
from ensue.serving.row import Kept, Row, TokenInfo
from ensue.serving.served import Served
from ensue.serving.service import Service
from ensue.serving.stopping import Stops
from ensue.serving.transport import Answer, EventStream, as_text, event, received, unless_left, worked_out
from ensue.serving.writing import Prompt, Writing
from ensue.version import VERSION

BETWEEN_PIECES, FOR_EACH_ROW = 0.02, 0.001
"""The fewest seconds between two pieces of a stream, and what each row that is written adds. Under load a piece has
several tokens, so that sending them does not take the time of computing them.
"""


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
        completion = await self._begun(request)
        end = self._ending(request, completion)
        if completion.asked.wishes.stream:
            return EventStream(self._pieces(completion), end)
        try:
            return await unless_left(request.receive, self._whole(completion, Answer(request.scope["ticket"])))
        finally:
            end()

    async def _begun(self, request: Request) -> Completion:
        limits = self.service.limits
        wishes, model = await received(CompletionRequest, request, self.service)
        (asked,) = await worked_out(map(Asked.of, [wishes], [limits]), 1, request, self.service)
        request.scope["ticket"].reserve(
            places=max(0, asked.places - 1), tokens=asked.most_tokens, answers=asked.most_bytes
        )
        pipeline = model.pipeline
        choosing = asked.choosing(pipeline.model)
        read = (encoded(prompt, pipeline.tokenizer, limits, pipeline.model.context) for prompt in asked.prompts)
        if sum(map(len, asked.prompts)) <= CHARACTERS_AT_ONCE:
            given = list(read)
        else:
            given = await unless_left(request.receive, self.service.reader.computed(read, len(asked.prompts)))
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
        asked, wishes, last = completion.asked, completion.asked.wishes, given.ids[-1:].tolist()
        return Row(
            choosing, seed=asked.seed, index=index, tokens=asked.max_tokens,
            decoder=completion.model.pipeline.decoder_after(last), stops=Stops(asked.stops), logprobs=wishes.logprobs,
            offset=len(given.text) if wishes.echo else 0, sums=asked.best_of > asked.n,
        )  # fmt: skip

    def _ending(self, request: Request, completion: Completion) -> Callable[[], None]:
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

        return end

    async def _whole(self, completion: Completion, answer: Answer) -> Answer:
        while completion.writing.left:
            await completion.writing.end.heard()
            _check(completion.writing)
        asked = completion.asked
        answer.add(f'{as_text(completion.head())[:-1]},"choices":')
        for number, prompt in enumerate(completion.writing.prompts):
            rows = list(prompt.rows)
            if asked.best_of > asked.n:
                rows = sorted(rows, key=lambda row: -row.mean_log_p)[: asked.n]
            for n, row in enumerate(rows):
                index = number * asked.n + n
                answer.add("," if index else "[")
                await _write(answer, _news(completion, index, row, finish=row.finish, begins=True))
        answer.add(f'],"usage":{as_text(completion.usage())}}}')
        return answer.end()

    async def _pieces(self, completion: Completion) -> AsyncIterator[bytes]:
        head, rows, loop = completion.head(), completion.rows, completion.model.loop
        assert loop is not None
        options = completion.asked.wishes.stream_options
        counts = options is not None and options.include_usage
        more = {"usage": None} if counts else {}
        begun, open_rows, start = [False] * len(rows), set(range(len(rows))), time.perf_counter()
        while open_rows:
            if not any(rows[n].finish or rows[n].pieces for n in open_rows):
                await completion.writing.news.heard()
            _check(completion.writing)
            parts, size = [], 0
            for n in sorted(open_rows):
                finish = rows[n].finish  # before the pieces: then they are all that will come
                if not (finish or rows[n].pieces):
                    continue
                for choice in _news(completion, n, rows[n], finish=finish, begins=not begun[n]):
                    parts.append(event({**head, "choices": [choice], **more}))
                    if (size := size + len(parts[-1])) > BLOCK:
                        yield b"".join(parts)
                        await asyncio.sleep(0)
                        parts, size = [], 0
                begun[n] = True
                if finish is not None:
                    open_rows.discard(n)
            if start and any(begun):
                self.service.metrics.first.labels(completion.model.name).observe(time.perf_counter() - start)
                start = 0.0
            if parts:
                yield b"".join(parts)
            if open_rows:
                await completion.writing.end.heard(within=BETWEEN_PIECES + FOR_EACH_ROW * loop.num_live)
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


def _news(
    completion: Completion, index: int, row: Row, *, finish: str | None, begins: bool
) -> Iterator[dict[str, Any]]:
    """What is new of a choice, in parts of some tokens; the text is in the first. With its beginning comes the prompt,
    if it is to be repeated.
    """
    number, tokenizer = index // completion.asked.n, completion.model.pipeline.tokenizer
    text, given = row.text(), completion.given[number]
    infos: Iterator[TokenInfo] = row.shown()
    if begins and completion.asked.wishes.echo:
        text = given.text + text
        looked = completion.writing.prompts[number].looked
        infos = chain(tokens_of_prompt(tokenizer, given.ids.tolist(), looked), infos)
    if row.logprobs is None:
        yield {"index": index, "text": text, "logprobs": None, "finish_reason": finish}
        return
    some = list(islice(infos, TOKENS_AT_ONCE))
    while True:
        following = list(islice(infos, TOKENS_AT_ONCE))
        shown = shown_tokens(tokenizer, some, row.logprobs)
        yield {"index": index, "text": text, "logprobs": shown, "finish_reason": None if following else finish}
        if not following:
            return
        some, text = following, ""


async def _write(answer: Answer, news: Iterator[dict[str, Any]]) -> None:
    """Writes a choice to JSON; others are answered between its parts."""
    whole, columns = next(news), dict[str, list[str]]()
    for one in chain([whole], news):
        for key, values in (one["logprobs"] or {}).items():
            columns.setdefault(key, []).append("" if values is None else as_text(values)[1:-1])
        if one is not whole:
            whole["finish_reason"] = one["finish_reason"]
            await asyncio.sleep(0)
    answer.add(f'{as_text({"index": whole["index"], "text": whole["text"]})[:-1]},"logprobs":')
    for number, (key, parts) in enumerate(columns.items()):
        answer.add(f'{"," if number else "{"}"{key}":')
        if whole["logprobs"][key] is None:
            answer.add("null")
            continue
        for n, part in enumerate(parts):
            answer.add(f"{',' if n else '['}{part}")
        answer.add("]")
    answer.add(f'{"}" if columns else "null"},"finish_reason":{as_text(whole["finish_reason"])}}}')
    await asyncio.sleep(0)
