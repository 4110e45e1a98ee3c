"""Functions that read requests within limits, cancel them when the client disconnects, and write JSON responses."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, Self, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ensue.extensions.serving.api import APIError, ModelRequest, from_validation_error
from ensue.extensions.serving.limits import BLOCK_BYTES, BYTES_PER_VALUE, MAX_LIGHT_BYTES, VALUES_PER_KEY, Limits
from ensue.extensions.serving.service import Reservation, Service
from ensue.parsing import YIELDING, ParseError, parse_json

if TYPE_CHECKING:
    from ensue.extensions.serving.served_model import ServedModel

ResultType = TypeVar("ResultType")
RequestType = TypeVar("RequestType", bound=ModelRequest)
STREAM = b"text/event-stream; charset=utf-8"
DONE = b"data: [DONE]\n\n"
CONNECTION = "ensue.connection"
"""The key of the connection in the extensions of an ASGI scope."""


class ClientDisconnected(Exception):
    """The exception for a client that has closed its connection."""


async def receive_request(
    kind: type[RequestType], request: Request, service: Service
) -> "tuple[RequestType, ServedModel]":
    """Return the parsed request and its model. Reserve the place of one text, and the memory of the body."""
    service.check_ready()
    reservation: Reservation = request.scope["reservation"]
    reservation.reserve(places=1)
    body = await _read_body(request, reservation, service.limits)
    (parsed,) = await compute(map(parse_request, [kind], [body]), 1, request, service)
    model = service.model(parsed.model)
    model.check_route(request.scope["path"])
    request.scope["log"]["model"] = model.name
    return parsed, model


async def compute(
    items: Iterator[ResultType], count: int, request: Request, service: Service, *, is_light: bool | None = None
) -> list[ResultType]:
    """Compute `count` items, in the event loop if they are light, else in a thread.

    By default, the items of a request with a small body are light.
    """
    if request.scope["reservation"].reserved.bytes <= MAX_LIGHT_BYTES if is_light is None else is_light:
        return list(items)
    return await cancel_on_disconnect(request.receive, service.parsing_worker.compute(items, count))


async def _read_body(request: Request, reservation: Reservation, limits: Limits) -> bytes:
    """Return the body. Raises APIError if the body is too large (413) or too slow (408), or ClientDisconnected."""
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or len(length) > 15 or int(length) > limits.body_bytes:
        raise _refuse_size(limits.body_bytes, "bytes")
    chunks, size, num_values = list[bytes](), 0, 0
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for chunk in request.stream():
                size += len(chunk)
                if size > limits.body_bytes:
                    raise _refuse_size(limits.body_bytes, "bytes")
                num_values += (count := count_values(chunk))
                if num_values > limits.body_values:
                    raise _refuse_size(limits.body_values, "values")
                reservation.reserve(bytes=len(chunk) + BYTES_PER_VALUE * count)
                chunks.append(chunk)
    except TimeoutError:
        raise APIError(408, "the body did not arrive in time", code="body_too_slow") from None
    except ClientDisconnect:
        raise ClientDisconnected from None
    return b"".join(chunks)


def count_values(chunk: bytes) -> int:
    """Return an upper bound of the number of JSON values in a chunk of a body: commas, brackets and braces.

    A key counts as VALUES_PER_KEY, since keys are slow to parse. The end of a key is a colon after a quote or a blank,
    or at the start of the chunk.
    """
    num_keys = 0
    if b":" in chunk:
        num_keys = chunk.startswith(b":") + sum(map(chunk.count, (b'":', b" :", b"\t:", b"\n:", b"\r:")))
    return len(chunk) - len(chunk.translate(None, b",[{")) + VALUES_PER_KEY * num_keys


def parse_request(kind: type[RequestType], body: bytes) -> RequestType:
    """Return the request in a body. Raises APIError for an invalid body."""
    try:
        value = parse_json(body, YIELDING)
    except ParseError as error:
        raise APIError(400, f"the body is {error}", code="invalid_json") from None
    if not isinstance(value, dict):
        raise APIError(400, "the body is not a JSON object", code="invalid_json")
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise from_validation_error(error) from None


def _refuse_size(limit: int, unit: str) -> APIError:
    return APIError(413, f"the body has more than {limit:,} {unit}", code="body_too_large")


async def cancel_on_disconnect(receive: Receive, computation: Awaitable[ResultType]) -> ResultType:
    """Return the result of a computation, or cancel it and raise ClientDisconnected if the client disconnects first."""
    task = asyncio.current_task()
    assert task is not None
    disconnect = asyncio.ensure_future(_await_disconnect(receive))

    def cancel(_: object) -> None:
        task.cancel()

    disconnect.add_done_callback(cancel)
    try:
        return await computation
    except asyncio.CancelledError:
        if not disconnect.done() or disconnect.cancelled():
            raise
        task.uncancel()
        raise ClientDisconnected from None
    finally:
        disconnect.remove_done_callback(cancel)
        disconnect.cancel()


async def _await_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class Answer(Response):
    """A JSON response of at most `max_bytes` bytes, to which any thread may append text."""

    def __init__(self, reservation: Reservation, max_bytes: int | None = None) -> None:
        super().__init__(media_type="application/json")
        self.reservation, self.max_bytes = reservation, max_bytes
        self.blocks: list[bytes] = []
        self.size = 0
        self._open: list[str] = []
        self._open_size = 0

    def add(self, text: str) -> None:
        """Append text. Raises APIError for a response above `max_bytes` (400), or if the server is full (429)."""
        self._open.append(text)
        self._open_size += len(text)
        if self._open_size >= BLOCK_BYTES:
            self._close_block()

    def end(self) -> Self:
        """Return the finished response."""
        self._close_block()
        self.headers["content-length"] = str(self.size)
        return self

    def _close_block(self) -> None:
        block = "".join(self._open).encode("utf-8", "replace")
        self._open, self._open_size = [], 0
        self.size += len(block)
        if self.max_bytes is not None:
            self.reservation.reserve(answers=len(block))
            if self.size > self.max_bytes:
                size = f"the answer has more than {self.max_bytes:,} bytes; send fewer or shorter texts"
                raise APIError(400, size, code="answer_too_large")
        self.blocks.append(block)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for block in self.blocks:
            await send({"type": "http.response.body", "body": block, "more_body": True})
        await send({"type": "http.response.body"})


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(json_bytes(value), status, headers, media_type="application/json")


def json_bytes(value: Any) -> bytes:
    """Return JSON in UTF-8, with question marks for lone surrogates."""
    return json_text(value).encode("utf-8", "replace")


def json_text(value: Any) -> str:
    """Return JSON without blanks. The JSON of a pydantic model has only the fields that are set."""
    if isinstance(value, BaseModel):
        value = value.model_dump(exclude_unset=True)
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def split_around(answer: BaseModel, field: str) -> tuple[str, str]:
    """Return the JSON of a response in two parts, before and after the items of the empty list `field`."""
    before, items, after = json_text(answer).partition(f'"{field}":[]')
    return before + items[:-1], "]" + after


def event(value: Any) -> bytes:
    """Return a server-sent event with JSON."""
    return b"data: " + json_bytes(value) + b"\n\n"


class EventStream(Response):
    """A response that streams events, and raises ClientDisconnected if the client disconnects.

    `end` is called once, also after an error, and if no event was requested.
    """

    def __init__(self, events: AsyncIterator[bytes], end: Callable[[], None]) -> None:
        self.events, self.end = events, end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", STREAM), (b"cache-control", b"no-store"), (b"x-accel-buffering", b"no")]
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await cancel_on_disconnect(receive, self._send_events(send))
        finally:
            self.end()  # before the last bytes are sent, so that the session is unlocked for the client's next request
        await send({"type": "http.response.body", "body": DONE})

    async def _send_events(self, send: Send) -> None:
        async for events in self.events:
            await send({"type": "http.response.body", "body": events, "more_body": True})
