"""The route POST /v1/completions: conversion of a request to rows of the generation loop, and of rows to a response."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Any

import numpy as np
import torch
from starlette.requests import Request
from starlette.responses import Response

from ensue.errors import EnsueError
from ensue.extensions.serving import api, transport
from ensue.extensions.serving.api import APIError, CompletionRequest, internal_error, reject
from ensue.extensions.serving.generation import EncodedPrompt, Generation, Prompt, encode_prompt
from ensue.extensions.serving.limits import BLOCK_BYTES, MAX_INLINE_CHARACTERS, MAX_INLINE_TOKENS
from ensue.extensions.serving.row import FinishReason, Row, SessionState, TokenInfo, TokenLogprob
from ensue.extensions.serving.served_model import ServedModel
from ensue.extensions.serving.service import Service
from ensue.models.modules import device_of
from ensue.text.tokenizer import Tokenizer
from ensue.version import VERSION

MIN_EVENT_SECONDS, EVENT_SECONDS_PER_ROW = 0.02, 0.001
"""The minimum time between two writes of a stream is MIN_EVENT_SECONDS + EVENT_SECONDS_PER_ROW · live rows.

Under load, a write has several tokens, since a write for each token would take longer than its computation.
"""


@dataclass
class Completion:
    """A completion request in progress."""

    request: CompletionRequest
    model: ServedModel
    generation: Generation
    prompts: Sequence[EncodedPrompt]
    id: str
    created: int

    @property
    def rows(self) -> list[Row]:
        return [row for prompt in self.generation.prompts for row in prompt.rows]

    def response(self, **fields: Any) -> api.Completion:
        """Return a response without choices."""
        return api.Completion(
            id=self.id, object="text_completion", created=self.created, model=self.model.name,
            system_fingerprint=f"ensue-{VERSION}", choices=[], **fields,
        )  # fmt: skip

    def usage(self) -> api.Usage:
        """Return the token counts, including choices that `best_of` discards."""
        read, written = sum(len(prompt.ids) for prompt in self.prompts), sum(row.num_tokens for row in self.rows)
        return api.Usage(prompt_tokens=read, completion_tokens=written, total_tokens=read + written)


async def complete(service: Service, request: Request) -> Response:
    """POST /v1/completions: return a response or a stream."""
    completion = await _start_generation(service, request)
    end = partial(_finish_request, request, completion)
    if completion.request.stream:
        return transport.EventStream(_stream_events(service, completion), end)
    try:
        response = _write_response(completion, transport.Answer(request.scope["reservation"]))
        return await transport.cancel_on_disconnect(request.receive, response)
    finally:
        end()


async def _start_generation(service: Service, request: Request) -> Completion:
    """Encode the prompts, submit them to the generation loop, and return the request in progress."""
    limits = service.limits
    body, model = await transport.receive_request(CompletionRequest, request, service)
    await transport.compute(map(body.check, [limits]), 1, request, service)
    request.scope["reservation"].reserve(
        places=max(0, body.places - 1), tokens=body.max_total_tokens, answers=body.max_answer_bytes
    )
    pipeline = model.pipeline
    tokenizer, context, bias = pipeline.tokenizer, pipeline.model.context, _make_bias(body.logit_bias, pipeline.model)
    encoded = (encode_prompt(prompt, tokenizer, limits, context) for prompt in body.prompts)
    is_light = sum(map(len, body.prompts)) <= MAX_INLINE_CHARACTERS
    prompts = await transport.compute(encoded, len(body.prompts), request, service, is_light=is_light)
    generation = Generation(is_streamed=body.stream, has_session=body.session is not None)
    completion = Completion(body, model, generation, prompts, f"cmpl-{request.scope['request_id']}", int(time.time()))
    indices = iter(range(body.places))
    rows = [
        [
            Row(
                body, index=next(indices), decoder=pipeline.decoder_after(prompt.ids[-1:].tolist()), bias=bias,
                offset=len(prompt.text) if body.echo else 0,
            )
            for _ in range(body.num_rows)
        ]
        for prompt in prompts
    ]  # fmt: skip
    session: SessionState | None = None
    if body.session is not None:  # after all checks, since it locks the session
        if not service.has_sessions:
            raise reject("session", "a server of several processes has no sessions", "unsupported_parameter")
        session = model.sessions.begin(body.session, body.undo)
    for prompt, prompt_rows in zip(prompts, rows, strict=True):
        state, ids = _make_initial_state(prompt, session, tokenizer.start_id, context)
        generation.add(Prompt(generation, ids, prompt_rows, state=state, num_top=body.logprobs if body.echo else None))
    assert model.loop is not None
    model.loop.submit(generation)
    return completion


def _finish_request(request: Request, completion: Completion) -> None:
    """Cancel the rows that are not finished, unlock the session, and log the token counts."""
    generation, loop = completion.generation, completion.model.loop
    is_done = generation.error is None and generation.num_open == 0
    generation.is_cancelled = True
    if loop is not None and not is_done:
        loop.wake()
    if (name := completion.request.session) is not None:
        completion.model.sessions.end(name, generation.session_state if is_done else None)
    usage = completion.usage()
    request.scope["log"].update(prompt_tokens=usage.prompt_tokens, completion_tokens=usage.completion_tokens)


async def _write_response(completion: Completion, answer: transport.Answer) -> transport.Answer:
    """Wait for all rows, and write the best choices of each prompt."""
    while completion.generation.num_open:
        await completion.generation.end.wait()
        _raise_error(completion.generation)
    body = completion.request
    begin, end = transport.split_around(completion.response(usage=completion.usage()), "choices")
    answer.add(begin)
    for number, prompt in enumerate(completion.generation.prompts):
        rows = list(prompt.rows)
        if body.num_rows > body.n:
            rows = sorted(rows, key=lambda row: -row.log_p / max(1, row.num_tokens))[: body.n]
        for n, row in enumerate(rows):
            index = number * body.n + n
            answer.add("," if index else "")
            await _write_choice(answer, _take_choices(completion, index, row, finish=row.finish, begins=True))
    answer.add(end)
    return answer.end()


async def _stream_events(service: Service, completion: Completion) -> AsyncIterator[bytes]:
    """Yield events with the new text of the rows, until all rows have finished."""
    rows, loop = completion.rows, completion.model.loop
    assert loop is not None
    options = completion.request.stream_options
    has_usage = options is not None and options.include_usage
    empty = completion.response(usage=None) if has_usage else completion.response()
    has_begun, open_rows, start = [False] * len(rows), set(range(len(rows))), time.perf_counter()
    while open_rows:
        if not any(rows[n].finish or rows[n].pieces for n in open_rows):
            await completion.generation.progress.wait()
        _raise_error(completion.generation)
        events, size = [], 0
        for n in sorted(open_rows):
            finish = rows[n].finish  # read before `pieces`, since no pieces are added after `finish` is set
            if not (finish or rows[n].pieces):
                continue
            for choice in _take_choices(completion, n, rows[n], finish=finish, begins=not has_begun[n]):
                events.append(transport.event(empty.model_copy(update={"choices": [choice]})))
                if (size := size + len(events[-1])) > BLOCK_BYTES:
                    yield b"".join(events)
                    await asyncio.sleep(0)
                    events, size = [], 0
            has_begun[n] = True
            if finish is not None:
                open_rows.discard(n)
        if start and any(has_begun):
            service.metrics.first.labels(completion.model.name).observe(time.perf_counter() - start)
            start = 0.0
        if events:
            yield b"".join(events)
        if open_rows:
            await completion.generation.end.wait(within=MIN_EVENT_SECONDS + EVENT_SECONDS_PER_ROW * loop.num_live)
    if has_usage:
        yield transport.event(empty.model_copy(update={"usage": completion.usage()}))


def _raise_error(generation: Generation) -> None:
    if generation.error is not None:
        raise APIError(500, str(generation.error)) if isinstance(generation.error, EnsueError) else internal_error()


def _make_initial_state(
    prompt: EncodedPrompt, session: SessionState | None, start_id: int, context: int | None
) -> tuple[Any, Any]:
    """Return the initial state and the ids to read: the start id, or the last id of the session, and the prompt."""
    if session is None:
        is_full = len(prompt.ids) == context
        return None, prompt.ids if is_full else np.concatenate(([start_id], prompt.ids))
    if context is None or len(session.ids) + len(prompt.ids) <= context:
        return session.state, np.concatenate((session.ids[-1:], prompt.ids))
    return None, np.concatenate((session.ids, prompt.ids))[-max(1, context // 2, len(prompt.ids)) :]


def _take_choices(
    completion: Completion, index: int, row: Row, *, finish: FinishReason | None, begins: bool
) -> Iterator[api.Choice]:
    """Yield the new tokens of a choice in chunks. The first chunk has the complete new text, after the echo if any."""
    number, tokenizer = index // completion.request.n, completion.model.pipeline.tokenizer
    text, prompt = row.take_text(), completion.prompts[number]
    infos: Iterator[TokenInfo] = row.take_infos()
    if begins and completion.request.echo:
        text = prompt.text + text
        logprobs = completion.generation.prompts[number].logprobs
        infos = chain(_prompt_infos(tokenizer, prompt.ids.tolist(), logprobs), infos)
    if row.request.logprobs is None:
        yield api.Choice(index=index, text=text, logprobs=None, finish_reason=finish)
        return
    chunk = list(islice(infos, MAX_INLINE_TOKENS))
    while True:
        following = list(islice(infos, MAX_INLINE_TOKENS))
        logprobs_field = api.Logprobs(
            tokens=[tokenizer.symbol(info.id) for info in chunk],
            token_logprobs=[info.log_p for info in chunk],
            top_logprobs=[_make_top_logprobs(tokenizer, info) for info in chunk] if row.request.logprobs else None,
            text_offset=[info.offset for info in chunk],
        )
        yield api.Choice(index=index, text=text, logprobs=logprobs_field, finish_reason=None if following else finish)
        if not following:
            return
        chunk, text = following, ""


async def _write_choice(answer: transport.Answer, choices: Iterator[api.Choice]) -> None:
    """Write the chunks of a choice as one JSON object."""
    first, columns, finish = next(choices), dict[str, list[str]](), None
    for choice in chain([first], choices):
        for key, values in choice.logprobs or ():
            columns.setdefault(key, []).append("" if values is None else transport.json_text(values)[1:-1])
        finish = choice.finish_reason
        if choice is not first:
            await asyncio.sleep(0)
    answer.add(f'{transport.json_text({"index": first.index, "text": first.text})[:-1]},"logprobs":')
    for number, (key, chunks) in enumerate(columns.items()):
        answer.add(f'{"," if number else "{"}"{key}":')
        if getattr(first.logprobs, key) is None:
            answer.add("null")
            continue
        for n, chunk in enumerate(chunks):
            answer.add(f"{',' if n else '['}{chunk}")
        answer.add("]")
    answer.add(f'{"}" if columns else "null"},"finish_reason":{transport.json_text(finish)}}}')
    await asyncio.sleep(0)


def _prompt_infos(tokenizer: Tokenizer, ids: Sequence[int], logprobs: Sequence[TokenLogprob]) -> Iterator[TokenInfo]:
    decoder, offset = tokenizer.decoder(), 0
    first = len(logprobs) - len(ids)  # 0, or -1 if the first id has no entry, since no start symbol was read before
    for index, id in enumerate(ids):
        entry = logprobs[first + index] if index else (None, None)
        yield TokenInfo(id, offset, *entry)
        offset += len(decoder.feed(id))


def _make_top_logprobs(tokenizer: Tokenizer, info: TokenInfo) -> dict[str, float] | None:
    if info.top is None or info.log_p is None:
        return None
    log_probs: dict[str, float] = {}
    for id, log_p in (*info.top, (info.id, info.log_p)):
        log_probs.setdefault(tokenizer.symbol(id), log_p)
    return log_probs


def _make_bias(logit_bias: Any, model: Any) -> torch.Tensor | None:
    if not logit_bias:
        return None
    size = model.vocabulary_size
    if not isinstance(logit_bias, dict):
        raise reject("logit_bias", "expected an object of ids and numbers")
    bias = np.zeros(size, np.float32)
    for name, value in logit_bias.items():
        if not (name.isascii() and name.isdigit() and len(name) < 10 and int(name) < size):
            raise reject("logit_bias", f"expected ids from 0 to {size - 1}")
        if type(value) not in (int, float) or not -100 <= value <= 100:
            raise reject("logit_bias", "expected numbers from -100 to 100")
        bias[int(name)] = value
    return torch.from_numpy(bias).to(device_of(model))
