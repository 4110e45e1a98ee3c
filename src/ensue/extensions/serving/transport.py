"""One request and its answer: the body read and parsed within limits, a client that leaves noticed, an answer sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, Self, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ensue.extensions.serving.api import ModelRequest
from ensue.extensions.serving.limits import BLOCK, KEY_VALUES, LIGHT, VALUE_BYTES, Limits
from ensue.extensions.serving.refusal import Refusal, of_validation
from ensue.extensions.serving.service import Service, Ticket
from ensue.parsing import YIELDING, ParseError, parse_json

if TYPE_CHECKING:
    from ensue.extensions.serving.served import Served

Result = TypeVar("Result")
SomeRequest = TypeVar("SomeRequest", bound=ModelRequest)
STREAM = b"text/event-stream; charset=utf-8"
DONE = b"data: [DONE]\n\n"
CONNECTION = "ensue.connection"
"""The extension of a request's scope that has its connection."""


class HasLeft(Exception):
    """The client has closed its connection."""


async def received(kind: type[SomeRequest], request: Request, service: Service) -> tuple[SomeRequest, Served]:
    """The request, and the model it names. Its ticket holds its place and its memory from here on."""
    service.check_open()
    ticket: Ticket = request.scope["ticket"]
    ticket.reserve(places=1)
    body = await _body(request, ticket, service.limits)
    (asked,) = await worked_out(map(parsed, [kind], [body]), 1, request, service)
    model = service.model(asked.model)
    model.check_route(request.scope["path"])
    request.scope["noted"]["model"] = model.name
    return asked, model


async def worked_out(
    works: Iterator[Result], count: int, request: Request, service: Service, *, is_light: bool | None = None
) -> list[Result]:
    """Return `count` results that depend on the request alone; unless they are light, a thread computes them.

    By default they are light if the body is.
    """
    if request.scope["ticket"].held.bytes <= LIGHT if is_light is None else is_light:
        return list(works)
    return await unless_left(request.receive, service.reader.computed(works, count))


async def _body(request: Request, ticket: Ticket, limits: Limits) -> bytes:
    """The whole body, counted as it comes. Raises Refusal for too long (413) or too slow a one (408), and HasLeft."""
    said = request.headers.get("content-length", "0")
    if not said.isdecimal() or len(said) > 15 or int(said) > limits.body_bytes:
        raise _too_large(limits.body_bytes, "bytes")
    parts, size, values = list[bytes](), 0, 0
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for part in request.stream():
                size += len(part)
                if size > limits.body_bytes:
                    raise _too_large(limits.body_bytes, "bytes")
                values += (more := num_values(part))
                if values > limits.body_values:
                    raise _too_large(limits.body_values, "values")
                ticket.reserve(bytes=len(part) + VALUE_BYTES * more)
                parts.append(part)
    except TimeoutError:
        raise Refusal(408, "the body did not come in time", code="body_too_slow") from None
    except ClientDisconnect:
        raise HasLeft from None
    return b"".join(parts)


def num_values(part: bytes) -> int:
    """No fewer than the values in a part of a body: its commas, brackets and braces, those in texts too.

    A key takes long to read, so it counts as `KEY_VALUES`: a colon behind a quote, a blank or the end of another part.
    """
    keys = 0
    if b":" in part:
        keys = part.startswith(b":") + sum(map(part.count, (b'":', b" :", b"\t:", b"\n:", b"\r:")))
    return len(part) - len(part.translate(None, b",[{")) + KEY_VALUES * keys


def parsed(kind: type[SomeRequest], body: bytes) -> SomeRequest:
    """The request in a body; raises Refusal if there is none of this kind."""
    try:
        value = parse_json(body, YIELDING)
    except ParseError as error:
        raise Refusal(400, f"the body is {error}", code="invalid_json") from None
    if not isinstance(value, dict):
        raise Refusal(400, "the body is no JSON object", code="invalid_json")
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise of_validation(error) from None


def _too_large(most: int, what: str) -> Refusal:
    return Refusal(413, f"the body has more than {most:,} {what}", code="body_too_large")


async def unless_left(receive: Receive, work: Awaitable[Result]) -> Result:
    """The result of `work`, which is cancelled if the client leaves before; then HasLeft is raised."""
    task = asyncio.current_task()
    assert task is not None
    left = asyncio.ensure_future(_left(receive))

    def cancel(_: object) -> None:
        task.cancel()

    left.add_done_callback(cancel)
    try:
        return await work
    except asyncio.CancelledError:
        if not left.done() or left.cancelled():
            raise
        task.uncancel()
        raise HasLeft from None
    finally:
        left.remove_done_callback(cancel)
        left.cancel()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class Answer(Response):
    """JSON that is made in pieces, by any thread, in memory that `ticket` holds; at most `most` bytes."""

    def __init__(self, ticket: Ticket, most: int | None = None) -> None:
        super().__init__(media_type="application/json")
        self.ticket, self.most = ticket, most
        self.blocks: list[bytes] = []
        self.size = 0
        self._open: list[str] = []
        self._open_size = 0

    def add(self, text: str) -> None:
        """Goes on with this text. Raises Refusal for too long an answer (400), and for a full server (429)."""
        self._open.append(text)
        self._open_size += len(text)
        if self._open_size >= BLOCK:
            self._close_block()

    def end(self) -> Self:
        """The whole answer."""
        self._close_block()
        self.headers["content-length"] = str(self.size)
        return self

    def _close_block(self) -> None:
        block = _encoded("".join(self._open))
        self._open, self._open_size = [], 0
        self.size += len(block)
        if self.most is not None:
            self.ticket.reserve(answers=len(block))
            if self.size > self.most:
                said = f"the answer has more than {self.most:,} bytes; ask for fewer or shorter texts, or less of each"
                raise Refusal(400, said, code="answer_too_large")
        self.blocks.append(block)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for block in self.blocks:
            await send({"type": "http.response.body", "body": block, "more_body": True})
        await send({"type": "http.response.body"})


def answered(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON answer."""
    return Response(as_bytes(value), status, headers, media_type="application/json")


def as_bytes(value: Any) -> bytes:
    """JSON in UTF-8. A lone surrogate becomes a question mark."""
    return _encoded(as_text(value))


def as_text(value: Any) -> str:
    """JSON without blanks; of a typed answer, the fields that are set."""
    if isinstance(value, BaseModel):
        value = value.model_dump(exclude_unset=True)
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def around(answer: BaseModel, field: str) -> tuple[str, str]:
    """The JSON of an answer before and behind the items of `field`, which is an empty list."""
    before, items, behind = as_text(answer).partition(f'"{field}":[]')
    return before + items[:-1], "]" + behind


def event(value: Any) -> bytes:
    """A server-sent event."""
    return b"data: " + as_bytes(value) + b"\n\n"


class EventStream(Response):
    """Sends pieces as they come. It ends when the client leaves, with HasLeft.

    `end` is called once, however it ends: also if no piece was asked for.
    """

    def __init__(self, pieces: AsyncIterator[bytes], end: Callable[[], None]) -> None:
        self.pieces, self.end = pieces, end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", STREAM), (b"cache-control", b"no-store"), (b"x-accel-buffering", b"no")]
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await unless_left(receive, self._sent(send))
        finally:
            self.end()  # before the client hears of the end, so that its next request finds all in order
        await send({"type": "http.response.body", "body": DONE})

    async def _sent(self, send: Send) -> None:
        async for piece in self.pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
