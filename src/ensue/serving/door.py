"""What every request passes: hosts, origins, keys, time, one error body for all that goes wrong, and the log."""

from __future__ import annotations

import asyncio
import time
from random import getrandbits
from typing import Any

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ensue.serving.inspector import inspector
from ensue.serving.limits import BLOCK
from ensue.serving.openapi import OPERATIONS
from ensue.serving.refusal import Refusal, bug
from ensue.serving.service import Service
from ensue.serving.transport import CONNECTION, STREAM, HasLeft, answered, event

PROBES = ("/health", "/ready")
"""What looks after a server asks these, often and without a key."""
OPEN = ("/", *PROBES)
"""Paths that need no key, and no model."""
LEFT = 499
"""The status in the log for a client that left."""


PATHS = frozenset(one.path for one in OPERATIONS)
"""Those that the log and the numbers name."""


class Door:
    """An ASGI application before another one, `app`, which is there when the models are.

    It answers by itself whether the process lives and takes requests. It needs no torch, so that it answers at once.
    """

    def __init__(self, service: Service, app: ASGIApp | None = None) -> None:
        self.service, self.app = service, app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        task = asyncio.current_task()
        assert task is not None
        visit = Visit(self.service, scope, send)
        if scope["path"].startswith("/v1/"):
            self.service.live.add(task)
        try:
            with visit.ticket:
                await self._answer(visit, receive)
        finally:
            self.service.live.discard(task)
            self._log(visit)

    async def _answer(self, visit: Visit, receive: Receive) -> None:
        try:
            self._check(visit)
            async with asyncio.timeout(self.service.limits.request_seconds):
                await self._way(visit.scope)(visit.scope, receive, visit.send)
                await visit.sent()
        except Refusal as refusal:
            await visit.refuse(refusal)
        except HTTPException as error:
            said = {404: "there is no such path", 405: "this path has no such method"}
            await visit.refuse(Refusal(error.status_code, said.get(error.status_code, "not possible")))
        except TimeoutError:
            took = "the answer took too long"
            await visit.refuse(Refusal(503, took, code="timeout", headers={"x-should-retry": "false"}))
        except HasLeft:
            visit.status = LEFT
            self.service.metrics.left.inc()
        except asyncio.CancelledError:
            if self.service.state != "draining":
                raise
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()
            await visit.refuse(Refusal(503, "the server is draining", code="server_draining"))
        except Exception as error:  # no request may end the server
            self.service.report(error)
            await visit.refuse(bug())

    def _way(self, scope: Scope) -> ASGIApp:
        return self._closed if self.app is None or scope["path"] in OPEN else self.app

    async def _closed(self, scope: Scope, receive: Receive, send: Send) -> None:
        state = self.service.state
        if scope["path"] not in OPEN:
            self.service.check_open()
        elif scope["method"] not in ("GET", "HEAD"):
            raise HTTPException(405)
        if scope["path"] == "/":
            await inspector()(scope, receive, send)
            return
        is_well = scope["path"] == "/health" or state == "ready"
        said = "ok" if scope["path"] == "/health" else state
        await answered({"status": said}, 200 if is_well else 503)(scope, receive, send)

    def _check(self, visit: Visit) -> None:
        headers = Headers(scope=visit.scope)
        self.service.check_origin(headers.getlist("host"), headers.get("origin"))
        if visit.scope["path"] not in OPEN:
            self.service.check_key(headers.get("authorization", "").encode("latin-1"))

    def _log(self, visit: Visit) -> None:
        scope, seconds = visit.scope, time.perf_counter() - visit.start
        path = scope["path"] if scope["path"] in PATHS else "other"
        self.service.metrics.requests.labels(path, str(visit.status)).inc()
        self.service.metrics.seconds.labels(path).observe(seconds)
        if path not in PROBES:
            self.service.log(
                "request", id=visit.id, method=scope["method"][:16], path=path, status=visit.status,
                ms=round(1000 * seconds, 2), **scope["noted"],
            )  # fmt: skip


class Visit:
    """A request on its way: what was sent of its answer, and the ticket for what it holds meanwhile. `scope["noted"]`
    is what the log says of it beside.
    """

    def __init__(self, service: Service, scope: Scope, send: Send) -> None:
        self.service, self._send, self.start, self.id = service, send, time.perf_counter(), f"{getrandbits(128):032x}"
        self.ticket = service.admission.ticket()
        self.scope: dict[str, Any] = {
            **scope, "app": self, "noted": {}, "request_id": self.id, "ticket": self.ticket,
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
        """Says why: as the answer, or at the end of a stream that has begun. A connection ends whose client does not
        take that in, or has a part of an answer.
        """
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
