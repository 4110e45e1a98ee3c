"""HTTP on a connection that may not take for ever: slow or long headers, and too many connections, end it."""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from itertools import chain
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ensue.serving.limits import BLOCK, Limits
from ensue.serving.refusal import Refusal
from ensue.serving.transport import CONNECTION, as_bytes

AT_ONCE = struct.pack("hh" if sys.platform == "win32" else "ii", 1, 0)
"""For a socket: its end drops what was not sent. The numbers of Windows are shorter."""
BAD_REQUEST = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
)


class PatientProtocol(HttpToolsProtocol):
    """Uvicorn's protocol has no limit on headers; its own answer to what is no HTTP is plain text."""

    limits: ClassVar[Limits] = Limits()
    _waiting: asyncio.TimerHandle | None = None
    _header_bytes = 0
    _in_headers = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Waits for headers, unless there are too many connections."""
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            transport.close()
            return
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Waits on while headers are incomplete."""
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._wait()
        else:
            self._have_headers()
        if self._in_headers:
            self._header_bytes += len(data)
            if self._header_bytes > self.limits.header_bytes and not self.transport.is_closing():
                self.send_400_response("")

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for any more."""
        self._have_headers()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """A new request, of which there is nothing yet."""
        super().on_message_begin()
        self._header_bytes, self._in_headers = 0, True

    def on_headers_complete(self) -> None:
        """The body comes next. Raises ValueError, which the parser takes for bad HTTP, for too long headers."""
        if sum(map(len, chain((self.url,), *self.headers))) > self.limits.header_bytes:
            raise ValueError("too many bytes of headers")
        super().on_headers_complete()
        extensions: Any = {CONNECTION: self}
        self.scope["extensions"] = extensions  # the application begins after this
        self._in_headers = False

    async def sent(self) -> None:
        """Returns when this system has taken in all that was written."""
        if self.transport.get_write_buffer_size():
            self.transport.set_write_buffer_limits(0)
            await self.flow.drain()
            self.transport.set_write_buffer_limits(BLOCK)

    def abort(self) -> None:
        """Ends the connection at once; what was not sent is dropped, by the system too."""
        self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
        self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Answers what is no HTTP."""
        body = as_bytes(Refusal(400, "this is no HTTP request", code="invalid_http").body())
        self.transport.write(BAD_REQUEST % len(body) + body)
        self.transport.close()

    def _wait(self) -> None:
        if self._waiting is None:
            self._waiting = self.loop.call_later(self.limits.headers_seconds, self._too_slow)

    def _have_headers(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _too_slow(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
