"""One request and its answer: the body read within limits, a client that leaves noticed, an answer or a stream sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ensue.serving.admission import Amounts, Ticket
from ensue.serving.limits import Limits
from ensue.serving.refusal import Refusal

Result = TypeVar("Result")
STREAM = b"text/event-stream; charset=utf-8"
DONE = b"data: [DONE]\n\n"


class HasLeft(Exception):
    """The client has closed its connection."""


async def read_body(request: Request, ticket: Ticket, limits: Limits) -> bytes:
    """The whole body. Raises Refusal for one that is too long (413) or too slow (408), and HasLeft."""
    too_long = Refusal(413, f"the body has more than {limits.body_bytes:,} bytes", code="body_too_large")
    said = request.headers.get("content-length", "0")
    if not said.isdecimal() or len(said) > 15 or int(said) > limits.body_bytes:
        raise too_long
    parts, size = [], 0
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for part in request.stream():
                size += len(part)
                if size > limits.body_bytes:
                    raise too_long
                ticket.reserve(Amounts(bytes=len(part)))
                parts.append(part)
    except TimeoutError:
        raise Refusal(408, "the body did not come in time", code="body_too_slow") from None
    except ClientDisconnect:
        raise HasLeft from None
    return b"".join(parts)


async def unless_left(receive: Receive, work: Awaitable[Result]) -> Result:
    """The result of `work`, which is cancelled if the client leaves before; then HasLeft is raised."""
    task = asyncio.current_task()
    assert task is not None
    left = asyncio.ensure_future(_left(receive))
    cancel = partial(_cancel, task)
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


def _cancel(task: asyncio.Task[Any], left: asyncio.Future[None]) -> None:
    task.cancel()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def answered(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A JSON answer."""
    return Response(as_bytes(value), status, headers, media_type="application/json")


def as_bytes(value: Any) -> bytes:
    """JSON in UTF-8. A lone surrogate, which a name may have that is repeated in an error, becomes a question mark."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "replace")


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
