"""The ASGI application: checks of host, origin, key and time limit, error responses, and the log of requests."""

import asyncio
import time
from random import getrandbits
from typing import Any

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from ensue.extensions.serving.api import APIError, internal_error
from ensue.extensions.serving.limits import BLOCK_BYTES
from ensue.extensions.serving.routes import find_route
from ensue.extensions.serving.service import Reservation, Service
from ensue.extensions.serving.transport import CONNECTION, STREAM, ClientDisconnected, event, json_response

PROBE_PATHS = ("/health", "/ready")
"""The paths of frequent requests of monitoring, which are not logged."""
CLIENT_CLOSED_STATUS = 499
"""The status in the log if the client closed the connection."""


class Application:
    """The ASGI application of a server. This module does not import torch, so it responds while models are loading."""

    def __init__(self, service: Service) -> None:
        self.service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        task = asyncio.current_task()
        assert task is not None
        exchange = Exchange(self.service, scope, send)
        if scope["path"].startswith("/v1/"):
            self.service.open_tasks.add(task)
            self.service.traffic.record_request()
        try:
            with exchange.reservation:
                await self._respond(exchange, receive)
        finally:
            self.service.open_tasks.discard(task)
            self._log(exchange)

    async def _respond(self, exchange: "Exchange", receive: Receive) -> None:
        try:
            async with asyncio.timeout(self.service.limits.request_seconds):
                response = await self._dispatch(exchange, receive)
                await response(exchange.scope, receive, exchange.send)
                await exchange.flush()
        except APIError as error:
            await exchange.send_error(error)
        except TimeoutError:
            headers = {"x-should-retry": "false"}
            await exchange.send_error(APIError(503, "the request took too long", code="timeout", headers=headers))
        except ClientDisconnected:
            exchange.status = CLIENT_CLOSED_STATUS
            self.service.metrics.left.inc()
        except asyncio.CancelledError:
            if self.service.state != "draining":
                raise
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()
            await exchange.send_error(APIError(503, "the server is draining", code="server_draining"))
        except Exception as error:  # an error in a request must not stop the server
            self.service.report(error)
            await exchange.send_error(internal_error())

    async def _dispatch(self, exchange: "Exchange", receive: Receive) -> Response:
        headers, route = Headers(scope=exchange.scope), exchange.route
        self.service.check_origin(headers.getlist("host"), headers.get("origin"))
        if route is None or not route.is_open:
            self.service.check_key(headers.get("authorization", "").encode("latin-1"))
            if self.service.state == "loading":
                self.service.check_ready()
        if route is None:
            raise APIError(404, "unknown path")
        if exchange.scope["method"] not in ((route.method, "HEAD") if route.method == "GET" else (route.method,)):
            raise APIError(405, f"expected {route.method}")
        return await route.handler(self.service, Request(exchange.scope, receive))

    def _log(self, exchange: "Exchange") -> None:
        scope, seconds = exchange.scope, time.perf_counter() - exchange.start
        path = "other" if exchange.route is None else exchange.route.path
        self.service.metrics.requests.labels(path, str(exchange.status)).inc()
        self.service.metrics.seconds.labels(path).observe(seconds)
        if path not in PROBE_PATHS:
            self.service.log(
                "request", id=exchange.id, method=scope["method"][:16], path=path, status=exchange.status,
                ms=round(1000 * seconds, 2), **scope["log"],
            )  # fmt: skip


class Exchange:
    """A request and its response. Handlers add fields for the log to `scope["log"]`."""

    def __init__(self, service: Service, scope: Scope, send: Send) -> None:
        self.service, self._send, self.start, self.id = service, send, time.perf_counter(), f"{getrandbits(128):032x}"
        self.reservation = Reservation(service.admission)
        self.route, parameters = find_route(scope["path"])
        self.scope: dict[str, Any] = {
            **scope, "path_params": parameters, "log": {}, "request_id": self.id, "reservation": self.reservation,
        }  # fmt: skip
        self.connection = scope.get("extensions", {}).get(CONNECTION)
        self.status, self.is_stream, self.is_complete = 0, False, False

    async def send(self, message: Message) -> None:
        """Send a message in blocks, and record the status and whether the response is complete."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.is_stream = (b"content-type", STREAM) in message["headers"]
            message["headers"] = [*message["headers"], (b"x-request-id", self.id.encode())]
            await self._send(message)
            return
        body = message.get("body", b"")
        while len(body) > BLOCK_BYTES:
            await self._send({"type": "http.response.body", "body": body[:BLOCK_BYTES], "more_body": True})
            await asyncio.sleep(0)
            body = memoryview(body)[BLOCK_BYTES:]
        self.is_complete = not message.get("more_body", False)
        await self._send({"type": "http.response.body", "body": bytes(body), "more_body": not self.is_complete})

    async def flush(self) -> None:
        """Return when the operating system has accepted the response."""
        if self.connection is not None:
            await self.connection.flush()

    async def send_error(self, error: APIError) -> None:
        """Send an error as the response, or as the last event of a stream. Abort any other partial response."""
        self.service.metrics.refused.labels(error.code or str(error.status)).inc()
        try:
            async with asyncio.timeout(self.service.limits.linger_seconds):
                if not self.status:
                    await json_response(error.body(), error.status, dict(error.headers))(
                        self.scope, _receive_disconnect, self.send
                    )
                elif self.is_stream and not self.is_complete:
                    await self.send({"type": "http.response.body", "body": event(error.body())})
                await self.flush()
        except TimeoutError:
            self.is_complete = False
        if not self.is_complete and self.connection is not None:
            self.connection.abort()
            await asyncio.sleep(0)  # let connection_lost run before the request ends


async def _receive_disconnect() -> Message:
    return {"type": "http.disconnect"}
