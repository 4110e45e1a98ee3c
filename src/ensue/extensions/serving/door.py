"""The checks that every request passes: hosts, origins, keys, time; one error body for all mistakes, and the log."""

from __future__ import annotations

import asyncio
import time
from random import getrandbits
from typing import Any

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from ensue.extensions.serving.limits import BLOCK
from ensue.extensions.serving.refusal import Refusal, bug
from ensue.extensions.serving.routes import route_of
from ensue.extensions.serving.service import Service, Ticket
from ensue.extensions.serving.transport import CONNECTION, STREAM, HasLeft, answered, event

PROBES = ("/health", "/ready")
"""Paths that programs watching a server ask often; they are not logged."""
LEFT = 499
"""The status in the log for a client that left."""


class Door:
    """The ASGI application of a server. It needs no torch, so that it answers while models are loaded."""

    def __init__(self, service: Service) -> None:
        self.service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        task = asyncio.current_task()
        assert task is not None
        cycle = Cycle(self.service, scope, send)
        if scope["path"].startswith("/v1/"):
            self.service.live.add(task)
            self.service.traffic.came()
        try:
            with cycle.ticket:
                await self._answer(cycle, receive)
        finally:
            self.service.live.discard(task)
            self._log(cycle)

    async def _answer(self, cycle: Cycle, receive: Receive) -> None:
        try:
            async with asyncio.timeout(self.service.limits.request_seconds):
                response = await self._handled(cycle, receive)
                await response(cycle.scope, receive, cycle.send)
                await cycle.sent()
        except Refusal as refusal:
            await cycle.refuse(refusal)
        except TimeoutError:
            took = "the answer took too long"
            await cycle.refuse(Refusal(503, took, code="timeout", headers={"x-should-retry": "false"}))
        except HasLeft:
            cycle.status = LEFT
            self.service.metrics.left.inc()
        except asyncio.CancelledError:
            if self.service.state != "draining":
                raise
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()
            await cycle.refuse(Refusal(503, "the server is draining", code="server_draining"))
        except Exception as error:  # no request may end the server
            self.service.report(error)
            await cycle.refuse(bug())

    async def _handled(self, cycle: Cycle, receive: Receive) -> Response:
        headers, route = Headers(scope=cycle.scope), cycle.route
        self.service.check_origin(headers.getlist("host"), headers.get("origin"))
        if route is None or not route.is_open:
            self.service.check_key(headers.get("authorization", "").encode("latin-1"))
            if self.service.state == "loading":
                self.service.check_open()
        if route is None:
            raise Refusal(404, "there is no such path")
        if cycle.scope["method"] not in ((route.method, "HEAD") if route.method == "GET" else (route.method,)):
            raise Refusal(405, "this path has no such method")
        return await route.handler(self.service, Request(cycle.scope, receive))

    def _log(self, cycle: Cycle) -> None:
        scope, seconds = cycle.scope, time.perf_counter() - cycle.start
        path = "other" if cycle.route is None else cycle.route.path
        self.service.metrics.requests.labels(path, str(cycle.status)).inc()
        self.service.metrics.seconds.labels(path).observe(seconds)
        if path not in PROBES:
            self.service.log(
                "request", id=cycle.id, method=scope["method"][:16], path=path, status=cycle.status,
                ms=round(1000 * seconds, 2), **scope["noted"],
            )  # fmt: skip


class Cycle:
    """A request and its answer: what was sent, and its ticket. `scope["noted"]` are further fields for the log."""

    def __init__(self, service: Service, scope: Scope, send: Send) -> None:
        self.service, self._send, self.start, self.id = service, send, time.perf_counter(), f"{getrandbits(128):032x}"
        self.ticket = Ticket(service.admission)
        self.route, parameters = route_of(scope["path"])
        self.scope: dict[str, Any] = {
            **scope, "path_params": parameters, "noted": {}, "request_id": self.id, "ticket": self.ticket,
        }  # fmt: skip
        self.connection = scope.get("extensions", {}).get(CONNECTION)
        self.status, self.is_stream, self.is_complete = 0, False, False

    async def send(self, message: Message) -> None:
        """Sends, long bodies in blocks, and remembers what was sent."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.is_stream = (b"content-type", STREAM) in message["headers"]
            message["headers"] = [*message["headers"], (b"x-request-id", self.id.encode())]
            await self._send(message)
            return
        body = message.get("body", b"")
        while len(body) > BLOCK:
            await self._send({"type": "http.response.body", "body": body[:BLOCK], "more_body": True})
            await asyncio.sleep(0)
            body = memoryview(body)[BLOCK:]
        self.is_complete = not message.get("more_body", False)
        await self._send({"type": "http.response.body", "body": bytes(body), "more_body": not self.is_complete})

    async def sent(self) -> None:
        """Returns when nothing waits to be sent."""
        if self.connection is not None:
            await self.connection.sent()

    async def refuse(self, refusal: Refusal) -> None:
        """Send the reason as the answer or at the end of a stream; abort the connection if the answer is incomplete."""
        self.service.metrics.refused.labels(refusal.code or str(refusal.status)).inc()
        try:
            async with asyncio.timeout(self.service.limits.farewell_seconds):
                if not self.status:
                    await answered(refusal.body(), refusal.status, dict(refusal.headers))(
                        self.scope, _nothing, self.send
                    )
                elif self.is_stream and not self.is_complete:
                    await self.send({"type": "http.response.body", "body": event(refusal.body())})
                await self.sent()
        except TimeoutError:
            self.is_complete = False
        if not self.is_complete and self.connection is not None:
            self.connection.abort()
            await asyncio.sleep(0)  # the connection hears of its end, before the request ends


async def _nothing() -> Message:
    return {"type": "http.disconnect"}
