"""A client of an ASGI application in the same process."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

PART_BYTES = 1 << 16
"""The maximum number of bytes of a body in one message."""
MAX_SECONDS = 30.0
"""The time after which a request without an answer fails its test, a tenth of the default timeout of the server."""


@dataclass
class Answer:
    """The response of an application."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    parts: list[bytes] = field(default_factory=list)

    @property
    def body(self) -> bytes:
        return b"".join(self.parts)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> Any:
        return self.json["error"]

    @property
    def events(self) -> list[Any]:
        """The events of a stream, without the last one, "[DONE]"."""
        lines = [line.removeprefix("data: ") for line in self.body.decode().split("\n\n") if line]
        return [json.loads(line) for line in lines if line != "[DONE]"]


class Client:
    """Sends requests to `app`."""

    def __init__(self, app: Any) -> None:
        self.app = app

    def get(self, path: str, **headers: str) -> Answer:
        return asyncio.run(self.ask(path, None, **headers))

    def post(self, path: str, content: Any, **headers: str) -> Answer:
        return asyncio.run(self.ask(path, content, **headers))

    def all(self, path: str, contents: Sequence[Any]) -> list[Answer]:
        """Return the answers to concurrent requests."""

        async def gather_answers() -> list[Answer]:
            return list(await asyncio.gather(*(self.ask(path, content) for content in contents)))

        return asyncio.run(gather_answers())

    async def ask(
        self, path: str, content: Any, *, leaves_after: int | None = None, leaves_in: float | None = None,
        reads: bool = True, more: Sequence[tuple[str, str]] = (), **headers: str,
    ) -> Answer:  # fmt: skip
        """Send one request, with the further headers `more`.

        The client disconnects after `leaves_after` parts of the answer, or after `leaves_in` seconds. If `reads` is
        false, sending the head of the answer blocks.
        """
        body = content if isinstance(content, bytes) else b"" if content is None else json.dumps(content).encode()
        all_headers = {"host": "localhost", **{name.replace("_", "-"): value for name, value in headers.items()}}
        scope = {
            "type": "http", "method": "GET" if content is None else "POST", "path": path, "raw_path": path.encode(),
            "root_path": "", "query_string": b"", "http_version": "1.1", "scheme": "http", "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80), "asgi": {"version": "3.0", "spec_version": "2.3"},
            "headers": [(name.encode(), value.encode()) for name, value in (*all_headers.items(), *more)],
        }  # fmt: skip
        answer, left = Answer(), asyncio.Event()
        parts = iter([body[start : start + PART_BYTES] for start in range(0, len(body), PART_BYTES)] or [b""])
        unread_bytes = [len(body)]

        async def receive() -> dict[str, Any]:
            if (part := next(parts, None)) is not None:
                unread_bytes[0] -= len(part)
                await asyncio.sleep(0)
                return {"type": "http.request", "body": part, "more_body": unread_bytes[0] > 0}
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                answer.headers = {name.decode(): value.decode() for name, value in message["headers"]}
                if not reads:
                    await asyncio.Event().wait()
                return
            answer.parts.append(message.get("body", b""))
            if leaves_after is not None and len(answer.parts) >= leaves_after:
                left.set()

        if leaves_in is not None:
            asyncio.get_running_loop().call_later(leaves_in, left.set)
        async with asyncio.timeout(MAX_SECONDS):
            await self.app(scope, receive, send)
        return answer
