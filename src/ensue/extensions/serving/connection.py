"""An HTTP/1.1 connection with the parser h11, for one request at a time, with bounds on headers and framing.

The head of a request is parsed on arrival, and the body while the application awaits it. Other bytes are buffered, and
reading from the socket is paused while the buffer has more than `BLOCK_BYTES`.
"""

import asyncio
import re
import socket
import struct
import sys
from collections.abc import Callable, MutableSet
from email.utils import formatdate
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

import h11
from starlette.types import ASGIApp, Message

from ensue.extensions.serving.api import APIError
from ensue.extensions.serving.limits import BLOCK_BYTES, Limits
from ensue.extensions.serving.transport import CONNECTION, json_bytes

RESET_ON_CLOSE = struct.pack("hh" if sys.platform == "win32" else "ii", 1, 0)
"""The value of SO_LINGER with which closing a socket drops unsent data: two integers, on Windows of 16 bits."""
BAD_REQUEST = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
)
ORIGIN = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://[^/]*")
"""The scheme and authority of a request target in absolute form."""
PARSE_BYTES, MAX_CHUNKS, MAX_FIELDS = 1 << 12, 64, 1_000
"""The number of bytes passed to h11 at a time, and the maximum numbers of chunks and header fields in a callback."""


class Connection(asyncio.Protocol):
    """The connection of a client to the ASGI application `app`; a member of `connections` while it is open."""

    transport: asyncio.Transport

    def __init__(self, app: ASGIApp, limits: Limits, connections: "MutableSet[Connection]") -> None:
        self.app, self.limits, self.connections = app, limits, connections
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.header_bytes)
        self._unread = bytearray()
        self._overhead = self._body_bytes = 0
        """The bytes of the current head or body: framing (head, chunk sizes, extensions, trailers), and content."""
        self._task: asyncio.Task[None] | None = None
        """The request in progress."""
        self._arrived, self._writable = asyncio.Event(), asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._head = b""
        self._is_read = self._is_paused = self._is_closing = self._is_last = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request, or close the connection if there are too many connections."""
        self.transport = transport
        self.connections.add(self)
        transport.set_write_buffer_limits(BLOCK_BYTES)
        self._writable.set()
        if len(self.connections) > self.limits.connections:
            transport.close()
        self._call_later(self.limits.headers_seconds, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify the request in progress that its client has disconnected."""
        self.connections.discard(self)
        self._call_later()
        self._is_closing = True
        self._arrived.set()
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        """Parse the head of a request, or buffer bytes for the application. Drop bytes after the last response."""
        if self._is_closing:
            return
        self._unread += data
        if self._task is None:
            self._read_head()
        self._arrived.set()
        self._pause()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    async def receive(self) -> Message:
        """Return the next bytes of the body as an ASGI message; after the body, wait for the disconnect message."""
        if self._http.they_are_waiting_for_100_continue and not self._is_closing:
            self.transport.write(self._http.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
        while not self._is_closing:
            self._arrived.clear()
            body = self._read_body()
            if body or (self._is_body_complete and not self._is_read):
                self._is_read = self._is_body_complete
                await asyncio.sleep(0)  # give other connections a turn, and notice a disconnect
                if self.transport.is_closing():
                    break
                return {"type": "http.request", "body": body, "more_body": not self._is_read}
            await self._arrived.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Write an ASGI message, and return when the write buffer has room."""
        if self._is_closing:
            return
        if message["type"] == "http.response.start":
            self._head = self._start_response(message)
            return
        data, head = message.get("body", b""), self._head
        if data and self._method != b"HEAD":
            head += self._http.send(h11.Data(data=data)) or b""
        if not message.get("more_body", False):
            head += self._http.send(h11.EndOfMessage()) or b""
        self._head = b""
        self.transport.write(head)
        await self._writable.wait()

    async def flush(self) -> None:
        """Return when the operating system has accepted all written bytes."""
        if not self._is_closing and self.transport.get_write_buffer_size():
            self.transport.set_write_buffer_limits(0)
            await self._writable.wait()
            self.transport.set_write_buffer_limits(BLOCK_BYTES)

    def abort(self) -> None:
        """Reset the connection. Unsent data is dropped, including data in the buffers of the operating system."""
        self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        self.transport.abort()

    def shut_down(self) -> None:
        """Close the connection after the current response."""
        self._is_last = True
        if self._task is None:
            self.transport.close()

    @property
    def _is_body_complete(self) -> bool:
        return self._http.their_state is not h11.SEND_BODY

    def _next_event(self) -> Any:
        while True:
            event = self._http.next_event()
            if isinstance(event, h11.Data):
                self._body_bytes += len(event.data)
                self._overhead -= len(event.data)
                return event
            num_unparsed = 0 if event is h11.NEED_DATA else len(self._http.trailing_data[0])
            num_fields = self._http.trailing_data[0].count(b"\n") if event is h11.NEED_DATA else 0
            max_overhead = self.limits.header_bytes + self._body_bytes // 8
            if num_fields > MAX_FIELDS or self._overhead - num_unparsed > max_overhead:
                raise h11.RemoteProtocolError("too large headers, chunk sizes, chunk extensions or trailers")
            if event is not h11.NEED_DATA:
                self._overhead, self._body_bytes = num_unparsed, 0
            if event is not h11.NEED_DATA or not self._unread:
                return event
            data = bytes(self._unread[:PARSE_BYTES])
            del self._unread[:PARSE_BYTES]
            self._http.receive_data(data)
            self._overhead += len(data)

    def _read_head(self) -> None:
        try:
            event = self._next_event()
        except h11.RemoteProtocolError:
            self._refuse()
            return
        if not isinstance(event, h11.Request):
            return
        self._watch_pause()
        self._is_read, self._method = False, event.method
        self._task = asyncio.get_running_loop().create_task(self.app(self._scope(event), self.receive, self.send))  # type: ignore[arg-type]
        self._task.add_done_callback(self._end_request)

    def _scope(self, request: h11.Request) -> dict[str, Any]:
        path, _, query = request.target.partition(b"?")
        path = ORIGIN.sub(b"", path, count=1) or b"/"
        return {
            "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "scheme": "http", "root_path": "",
            "http_version": request.http_version.decode(), "method": request.method.decode(), "raw_path": path,
            "path": unquote(path.decode("ascii")), "query_string": query, "headers": list(request.headers),
            "extensions": {CONNECTION: self},
        }  # fmt: skip

    def _read_body(self) -> bytes:
        """Return the buffered bytes of the body, up to MAX_CHUNKS chunks. Refuse a malformed body."""
        chunks = list[bytes]()
        try:
            while not self._is_body_complete and len(chunks) < MAX_CHUNKS:
                event = self._next_event()
                if not isinstance(event, h11.Data):
                    break
                chunks.append(event.data)
        except h11.RemoteProtocolError:
            self._refuse()
        self._pause()
        return b"".join(chunks)

    def _start_response(self, message: Message) -> bytes:
        self._read_body()
        if self._is_closing:
            return b""
        headers = [*message["headers"], (b"date", formatdate(usegmt=True).encode())]
        if not self._is_body_complete or self._is_last:
            headers.append((b"connection", b"close"))
        status = message["status"]
        reason = HTTPStatus(status).phrase.encode()
        return self._http.send(h11.Response(status_code=status, headers=headers, reason=reason)) or b""

    def _end_request(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if self._is_closing:
            return
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
            self._call_later(self.limits.headers_seconds, self.transport.close)
            self._read_head()
            self._pause()
        elif self._http.our_state in (h11.DONE, h11.MUST_CLOSE):
            self._close()
        else:
            self.abort()

    def _refuse(self) -> None:
        """Respond with status 400 to malformed or oversized HTTP, unless a response has begun, and close."""
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.abort()
            return
        body = json_bytes(APIError(400, "malformed HTTP request", code="invalid_http").body())
        self.transport.write(BAD_REQUEST % len(body) + body)
        self._close()

    def _close(self) -> None:
        """Drop further bytes, and close the connection after `linger_seconds`, so that the client can read."""
        self._is_closing = True
        self._unread.clear()
        self._arrived.set()
        self._pause()
        if self.transport.can_write_eof():
            self.transport.write_eof()
            self._call_later(self.limits.linger_seconds, self.transport.abort)
        else:
            self.transport.close()

    def _pause(self) -> None:
        """Pause reading while many bytes are buffered, or resume it. A pause of `linger_seconds` aborts a request."""
        is_paused = len(self._unread) > BLOCK_BYTES
        if self.transport.is_closing() or is_paused == self._is_paused:
            return
        self._is_paused = is_paused
        if is_paused:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()
        if self._task is not None:
            self._watch_pause()

    def _watch_pause(self) -> None:
        self._call_later(self.limits.linger_seconds, self.abort if self._is_paused else None)

    def _call_later(self, seconds: float = 0.0, end: Callable[[], None] | None = None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if end is None else asyncio.get_running_loop().call_later(seconds, end)
