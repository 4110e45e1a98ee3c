"""HTTP on a connection that may not take for ever: headers that come too slowly, and too many connections, end it."""

from __future__ import annotations

import asyncio
from typing import ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from ensue.serving.exchange import as_bytes
from ensue.serving.limits import Limits
from ensue.serving.refusal import Refusal


class PatientProtocol(H11Protocol):
    """Uvicorn's protocol has no limit on the time of headers; its own answer to what is no HTTP is plain text."""

    limits: ClassVar[Limits] = Limits()
    _waiting: asyncio.TimerHandle | None = None

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

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for any more."""
        self._have_headers()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answers what is no HTTP."""
        body = as_bytes(Refusal(400, "this is no HTTP request", code="invalid_http").body())
        headers = [("content-type", "application/json"), ("content-length", str(len(body))), ("connection", "close")]
        output = self.conn.send(h11.Response(status_code=400, headers=headers, reason=b"Bad Request"))
        for part in (output, self.conn.send(h11.Data(data=body)), self.conn.send(h11.EndOfMessage())):
            self.transport.write(part or b"")
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
