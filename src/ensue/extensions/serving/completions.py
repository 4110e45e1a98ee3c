"""The route that writes: prompts to rows of the loop, and what these write to the answer or the stream of the API."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np
import torch
from starlette.requests import Request
from starlette.responses import Response

from ensue.errors import EnsueError
from ensue.extensions.serving import api
from ensue.extensions.serving.api import CompletionRequest
from ensue.extensions.serving.limits import BLOCK, CHARACTERS_AT_ONCE, TOKENS_AT_ONCE
from ensue.extensions.serving.refusal import Refusal, bug, wrong
from ensue.extensions.serving.row import Finish, Logprob, Row, SessionState, TokenInfo
from ensue.extensions.serving.served import Served
from ensue.extensions.serving.service import Service
from ensue.extensions.serving.transport import (
    Answer,
    EventStream,
    around,
    as_text,
    event,
    received,
    unless_left,
    worked_out,
)
from ensue.extensions.serving.writing import EncodedPrompt, Prompt, Writing, encoded
from ensue.models.modules import device_of
from ensue.text.tokenizer import Tokenizer
from ensue.version import VERSION

BETWEEN_PIECES, FOR_EACH_ROW = 0.02, 0.001
"""The fewest seconds between two pieces of a stream, and what each row that is written adds. Under load a piece has
several tokens, so that sending them does not take the time of computing them.
"""


@dataclass
class Completion:
    """A request that is being answered."""

    request: CompletionRequest
    model: Served
    writing: Writing
    prompts: Sequence[EncodedPrompt]
    id: str
    created: int

    @property
    def rows(self) -> list[Row]:
        """All rows, in the order of prompts."""
        return [row for prompt in self.writing.prompts for row in prompt.rows]

    def answer(self, **fields: Any) -> api.Completion:
        """The answer, or a piece of a stream, with no choices yet."""
        return api.Completion(
            id=self.id, object="text_completion", created=self.created, model=self.model.name,
            system_fingerprint=f"ensue-{VERSION}", choices=[], **fields,
        )  # fmt: skip

    def usage(self) -> api.Usage:
        """The numbers of tokens, of choices that are not returned too."""
        read, written = sum(len(prompt.ids) for prompt in self.prompts), sum(row.written for row in self.rows)
        return api.Usage(prompt_tokens=read, completion_tokens=written, total_tokens=read + written)


async def complete(service: Service, request: Request) -> Response:
    """POST /v1/completions: the answer, or a stream of its pieces."""
    completion = await _begun(service, request)
    end = _ending(request, completion)
    if completion.request.stream:
        return EventStream(_pieces(service, completion), end)
    try:
        return await unless_left(request.receive, _whole(completion, Answer(request.scope["ticket"])))
    finally:
        end()


async def _begun(service: Service, request: Request) -> Completion:
    limits = service.limits
    asked, model = await received(CompletionRequest, request, service)
    await worked_out(map(asked.checked, [limits]), 1, request, service)
    request.scope["ticket"].reserve(places=max(0, asked.places - 1), tokens=asked.most_tokens, answers=asked.most_bytes)
    pipeline = model.pipeline
    tokenizer, context, bias = pipeline.tokenizer, pipeline.model.context, _bias(asked.logit_bias, pipeline.model)
    read = (encoded(prompt, tokenizer, limits, context) for prompt in asked.prompts)
    is_light = sum(map(len, asked.prompts)) <= CHARACTERS_AT_ONCE
    prompts = await worked_out(read, len(asked.prompts), request, service, is_light=is_light)
    writing = Writing(is_streamed=asked.stream, has_session=asked.session is not None)
    completion = Completion(asked, model, writing, prompts, f"cmpl-{request.scope['request_id']}", int(time.time()))
    indices = iter(range(asked.places))
    rows = [
        [
            Row(
                asked, index=next(indices), decoder=pipeline.decoder_after(prompt.ids[-1:].tolist()), bias=bias,
                offset=len(prompt.text) if asked.echo else 0,
            )
            for _ in range(asked.num_rows)
        ]
        for prompt in prompts
    ]  # fmt: skip
    state = _session_state(service, completion)  # last, since from here on the session is in use
    for prompt, its_rows in zip(prompts, rows, strict=True):
        before, ids = _beginning(prompt, state, tokenizer.start_id, context)
        num_top = asked.logprobs if asked.echo else None
        writing.add(Prompt(writing, ids, its_rows, state=before, num_top=num_top))
    assert model.loop is not None
    model.loop.submit(writing)
    return completion


def _session_state(service: Service, completion: Completion) -> SessionState | None:
    name = completion.request.session
    if name is None:
        return None
    if not service.has_sessions:
        raise wrong("session", "a server of several processes keeps no sessions", "unsupported_parameter")
    return completion.model.sessions.begin(name, completion.request.undo)


def _ending(request: Request, completion: Completion) -> Callable[[], None]:
    """The function that is called once when a request ends, however it does."""

    def end() -> None:
        writing, loop = completion.writing, completion.model.loop
        is_done = writing.error is None and writing.left == 0
        writing.has_left = True
        if loop is not None and not is_done:
            loop.wake()
        if (name := completion.request.session) is not None:
            completion.model.sessions.end(name, writing.session_state if is_done else None)
        usage = completion.usage()
        request.scope["noted"].update(prompt_tokens=usage.prompt_tokens, completion_tokens=usage.completion_tokens)

    return end


async def _whole(completion: Completion, answer: Answer) -> Answer:
    while completion.writing.left:
        await completion.writing.end.wait()
        _check(completion.writing)
    asked = completion.request
    begin, end = around(completion.answer(usage=completion.usage()), "choices")
    answer.add(begin)
    for number, prompt in enumerate(completion.writing.prompts):
        rows = list(prompt.rows)
        if asked.num_rows > asked.n:
            rows = sorted(rows, key=lambda row: -row.mean_log_p)[: asked.n]
        for n, row in enumerate(rows):
            index = number * asked.n + n
            answer.add("," if index else "")
            await _write(answer, _news(completion, index, row, finish=row.finish, begins=True))
    answer.add(end)
    return answer.end()


async def _pieces(service: Service, completion: Completion) -> AsyncIterator[bytes]:
    rows, loop = completion.rows, completion.model.loop
    assert loop is not None
    options = completion.request.stream_options
    counts = options is not None and options.include_usage
    empty = completion.answer(usage=None) if counts else completion.answer()
    begun, open_rows, start = [False] * len(rows), set(range(len(rows))), time.perf_counter()
    while open_rows:
        if not any(rows[n].finish or rows[n].pieces for n in open_rows):
            await completion.writing.news.wait()
        _check(completion.writing)
        parts, size = [], 0
        for n in sorted(open_rows):
            finish = rows[n].finish  # before the pieces: then they are all that will come
            if not (finish or rows[n].pieces):
                continue
            for choice in _news(completion, n, rows[n], finish=finish, begins=not begun[n]):
                parts.append(event(empty.model_copy(update={"choices": [choice]})))
                if (size := size + len(parts[-1])) > BLOCK:
                    yield b"".join(parts)
                    await asyncio.sleep(0)
                    parts, size = [], 0
            begun[n] = True
            if finish is not None:
                open_rows.discard(n)
        if start and any(begun):
            service.metrics.first.labels(completion.model.name).observe(time.perf_counter() - start)
            start = 0.0
        if parts:
            yield b"".join(parts)
        if open_rows:
            await completion.writing.end.wait(within=BETWEEN_PIECES + FOR_EACH_ROW * loop.num_live)
    if counts:
        yield event(empty.model_copy(update={"usage": completion.usage()}))


def _check(writing: Writing) -> None:
    if writing.error is not None:
        raise Refusal(500, str(writing.error)) if isinstance(writing.error, EnsueError) else bug()


def _beginning(
    prompt: EncodedPrompt, session: SessionState | None, start_id: int, context: int | None
) -> tuple[Any, Any]:
    """The state to go on from, and the ids to read: those of the prompt, after what a session has not read yet.

    If a context would be too full, it begins anew with its last half.
    """
    if session is None:
        is_full = len(prompt.ids) == context
        return None, prompt.ids if is_full else np.concatenate(([start_id], prompt.ids))
    if context is None or len(session.ids) + len(prompt.ids) <= context:
        return session.state, np.concatenate((session.ids[-1:], prompt.ids))
    ids = np.concatenate((session.ids, prompt.ids))
    return None, ids[-max(1, context // 2, len(prompt.ids)) :]


def _news(completion: Completion, index: int, row: Row, *, finish: Finish | None, begins: bool) -> Iterator[api.Choice]:
    """The new part of a choice in pieces of tokens: the text in the first, after the prompt if it is echoed."""
    number, tokenizer = index // completion.request.n, completion.model.pipeline.tokenizer
    text, prompt = row.text(), completion.prompts[number]
    infos: Iterator[TokenInfo] = row.shown()
    if begins and completion.request.echo:
        text = prompt.text + text
        logprobs = completion.writing.prompts[number].logprobs
        infos = chain(_tokens_of_prompt(tokenizer, prompt.ids.tolist(), logprobs), infos)
    if row.request.logprobs is None:
        yield api.Choice(index=index, text=text, logprobs=None, finish_reason=finish)
        return
    some = list(islice(infos, TOKENS_AT_ONCE))
    while True:
        following = list(islice(infos, TOKENS_AT_ONCE))
        shown = _shown(tokenizer, some, row.request.logprobs)
        yield api.Choice(index=index, text=text, logprobs=shown, finish_reason=None if following else finish)
        if not following:
            return
        some, text = following, ""


async def _write(answer: Answer, news: Iterator[api.Choice]) -> None:
    """Writes a choice to JSON; others are answered between its parts."""
    whole, columns, finish = next(news), dict[str, list[str]](), None
    for one in chain([whole], news):
        for key, values in one.logprobs or ():
            columns.setdefault(key, []).append("" if values is None else as_text(values)[1:-1])
        finish = one.finish_reason
        if one is not whole:
            await asyncio.sleep(0)
    answer.add(f'{as_text({"index": whole.index, "text": whole.text})[:-1]},"logprobs":')
    for number, (key, parts) in enumerate(columns.items()):
        answer.add(f'{"," if number else "{"}"{key}":')
        if getattr(whole.logprobs, key) is None:
            answer.add("null")
            continue
        for n, part in enumerate(parts):
            answer.add(f"{',' if n else '['}{part}")
        answer.add("]")
    answer.add(f'{"}" if columns else "null"},"finish_reason":{as_text(finish)}}}')
    await asyncio.sleep(0)


def _shown(tokenizer: Tokenizer, infos: Sequence[TokenInfo], num_top: int) -> api.Logprobs:
    """Tokens with, if `num_top` is not 0, the most probable ones in their places."""
    return api.Logprobs(
        tokens=[tokenizer.symbol(info.id) for info in infos],
        token_logprobs=[info.log_p for info in infos],
        top_logprobs=[_top(tokenizer, info) for info in infos] if num_top else None,
        text_offset=[info.offset for info in infos],
    )


def _tokens_of_prompt(tokenizer: Tokenizer, ids: Sequence[int], logprobs: Sequence[Logprob]) -> Iterator[TokenInfo]:
    """The tokens of a prompt that is repeated. The API has nothing of the first one."""
    decoder, offset = tokenizer.decoder(), 0
    first = len(logprobs) - len(ids)  # -1 for a prompt that is read without a start symbol, else 0
    for place, id in enumerate(ids):
        found = logprobs[first + place] if place else (None, None)
        yield TokenInfo(id, offset, *found)
        offset += len(decoder.feed(id))


def _top(tokenizer: Tokenizer, info: TokenInfo) -> dict[str, float] | None:
    if info.top is None or info.log_p is None:
        return None
    found: dict[str, float] = {}
    for id, log_p in (*info.top, (info.id, info.log_p)):
        found.setdefault(tokenizer.symbol(id), log_p)
    return found


def _bias(given: Any, model: Any) -> torch.Tensor | None:
    if not given:
        return None
    size = model.vocabulary_size
    if not isinstance(given, dict):
        raise wrong("logit_bias", "expected a table of ids and numbers")
    bias = np.zeros(size, np.float32)
    for name, value in given.items():
        if not (name.isascii() and name.isdigit() and len(name) < 10 and int(name) < size):
            raise wrong("logit_bias", f"expected ids from 0 to {size - 1}")
        if type(value) not in (int, float) or not -100 <= value <= 100:
            raise wrong("logit_bias", "expected numbers from -100 to 100")
        bias[int(name)] = value
    return torch.from_numpy(bias).to(device_of(model))
