"""A server in a thread of this process, and raw connections to it."""

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Thread
from typing import Any

from ensue.extensions.serving.application import Application
from ensue.extensions.serving.connection import Connection
from ensue.extensions.serving.server import event_loop
from ensue.extensions.serving.service import Service


class Listening:
    """A server of `service` on a free port, and its open connections."""

    def __init__(self, service: Service, kind: type[Connection] = Connection) -> None:
        self.service, self.kind = service, kind
        self.connections = set[Connection]()
        self.port: Future[int] = Future()

    async def run(self) -> None:
        self.loop, self.end = asyncio.get_running_loop(), asyncio.Event()
        app, limits = Application(self.service), self.service.limits
        server = await self.loop.create_server(
            lambda: self.kind(app, limits, self.connections), "127.0.0.1", 0, backlog=1024
        )
        self.port.set_result(server.sockets[0].getsockname()[1])
        await self.end.wait()
        server.close()
        for connection in list(self.connections):
            connection.transport.abort()
        await asyncio.sleep(0.01)

    def connect(self, seconds: float = 20) -> socket.socket:
        """Return a connection to the server."""
        return socket.create_connection(("127.0.0.1", self.port.result(10)), timeout=seconds)

    def exchange(self, *sent: bytes) -> bytes:
        """Send bytes on a new connection. Return all bytes of the response."""
        with self.connect() as connection:
            for piece in sent:
                connection.sendall(piece)
            return rest(connection)

    def open_answers(self) -> int:
        """Return the number of requests without a complete answer."""
        return sum(connection._task is not None for connection in list(self.connections))


@contextmanager
def listening(
    service: Service, kind: type[Connection] = Connection, loop: Callable[[], asyncio.AbstractEventLoop] = event_loop
) -> Iterator[Listening]:
    """Run a server during the `with` block."""
    server = Listening(service, kind)

    def run() -> None:
        with asyncio.Runner(loop_factory=loop) as runner:
            runner.run(server.run())

    thread = Thread(target=run)
    thread.start()
    try:
        server.port.result(10)
        yield server
    finally:
        server.loop.call_soon_threadsafe(server.end.set)
        thread.join(10)


def request(method: str, path: str, body: bytes | None = None, *headers: str, version: str = "1.1") -> bytes:
    """Return the bytes of a request. A body that is not chunked has the header Content-Length."""
    lines = [f"{method} {path} HTTP/{version}", "Host: localhost", *headers]
    if body is not None and not any(line.lower().startswith("transfer-encoding") for line in headers):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + (body or b"")


def rest(connection: socket.socket) -> bytes:
    """Return the bytes until the end of the connection, or until a reset."""
    parts: list[Any] = []
    try:
        while part := connection.recv(1 << 16):
            parts.append(part)
    except (ConnectionResetError, BrokenPipeError):
        pass
    return b"".join(parts)


def until(holds: Callable[[], bool], seconds: float = 40) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)
