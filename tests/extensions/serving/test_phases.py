"""Phases of a connection: each has a maximum of bytes, requests are answered one by one, and leaving ends them."""

import asyncio
import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from select import select
from typing import Any

import pytest

from ensue.extensions.serving.connection import Connection
from ensue.extensions.serving.limits import BLOCK_BYTES
from ensue.extensions.serving.service import Resources
from extensions.serving.conftest import language_pipeline
from extensions.serving.listening import Listening, listening, request, rest, until
from extensions.serving.phase_fuzzer import PHASES as PHASES_TO_DRAW
from extensions.serving.phase_fuzzer import fuzz
from extensions.serving.running import Running, language_run
from extensions.serving.watchdog import MAX_CALLBACK_SECONDS, watched

CHUNKED = request("POST", "/v1/completions", b"", "Transfer-Encoding: chunked")
HEALTH = request("GET", "/health")
LIMITS: dict[str, Any] = {
    "header_bytes": 8192, "headers_seconds": 1.5, "body_seconds": 1.5, "linger_seconds": 0.05, "body_bytes": 1 << 17,
}  # fmt: skip
MAX_UNPARSED = BLOCK_BYTES + (1 << 18)
"""The maximum number of unparsed bytes of a connection in memory: the buffer, and one read of the socket."""


@pytest.fixture(scope="module")
def server(serve: Any) -> Iterator[Listening]:
    _, service = serve({"lstm": language_pipeline()}, **LIMITS)
    with listening(service) as running:
        yield running


def completion(**fields: object) -> bytes:
    return request("POST", "/v1/completions", json.dumps({"model": "lstm", "prompt": "a", **fields}).encode())


FIELD = b"a:" + b"b" * 100 + b"\r\n"
PHASES = {  # bytes before, bytes that are repeated, and the statuses that may be answered
    "no HTTP": (b"\x16\x03\x01 hello\r\n\r\n", b"a" * 100, {400}),
    "request line": (b"GET /", b"a" * 100, {400}),
    "header": (b"GET / HTTP/1.1\r\nHost: a\r\nx: ", b"a" * 100, {400}),
    "headers": (b"GET / HTTP/1.1\r\nHost: a\r\n", FIELD * 20, {400}),
    "empty lines before a request": (b"", b"\r\n" * 50, {400}),
    "chunk size": (CHUNKED, b"0" * 100, {400}),
    "chunk extension": (CHUNKED, b"1;a=" + b"b" * 100, {400}),
    "chunk extensions": (CHUNKED, b"1;a=" + b"b" * 100 + b"\r\n \r\n", {400}),
    "tiny chunks": (CHUNKED, b"1\r\n \r\n" * 20, {400}),
    "large chunks": (CHUNKED, b"400\r\n" + b" " * 1024 + b"\r\n", {413}),
    "a long body": (request("POST", "/v1/completions", None, "Content-Length: 99999999"), b" " * 100, {413}),
    "a body that no route reads": (request("GET", "/health", None, "Content-Length: 99999999"), b" " * 100, {200}),
    "a trailer": (CHUNKED + b"2\r\n{}\r\n0\r\na:", b"b" * 100, {400}),
    "trailers": (CHUNKED + b"2\r\n{}\r\n0\r\n", FIELD * 20, {400}),
    "requests behind an answer": (completion(max_tokens=60_000), HEALTH, set()),
    "behind the last answer": (request("GET", "/health", None, "Connection: close"), b"a" * 100, {200}),
}  # fmt: skip


@pytest.mark.parametrize("phase", PHASES)
def test_each_phase_has_a_maximum_number_of_bytes(server: Listening, phase: str) -> None:
    check_bound(server, phase)


def check_bound(server: Listening, phase: str, seconds: float = 10) -> None:
    before, endless, statuses = PHASES[phase]
    blocks, sent, largest = endless * (1 + BLOCK_BYTES // len(endless)), 0, 0
    with server.connect() as client:
        client.sendall(before)
        deadline = time.monotonic() + seconds
        try:
            while time.monotonic() < deadline:
                sent += client.send(blocks)
                largest = max([largest, *(len(one._unread) for one in list(server.connections))])
                if select([client], [], [], 0)[0]:
                    time.sleep(0.01)  # the answer has been sent, and further bytes are dropped
        except OSError:
            pass
        assert time.monotonic() < deadline, f"{sent} bytes were taken"
        answer = rest(client)
    assert largest <= MAX_UNPARSED
    received = {int(answer[9:12])} if answer else set()  # a reset may overtake an answer
    assert received <= statuses, answer[:200]
    assert received != {400} or json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "invalid_http"
    until(lambda: not server.connections and server.service.admission.reserved == Resources())


LEAVES: dict[str, Callable[[socket.socket], None]] = {
    "closes": lambda client: client.close(),
    "resets": lambda client: (
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0"), client.close()
    )[1],
    "sends no more": lambda client: client.shutdown(socket.SHUT_WR),
}  # fmt: skip
BEHIND = {
    "nothing": b"", "a request": HEALTH, "half a request": HEALTH[:20], "what is not HTTP": b"\0" * 99,
    "another completion": completion(max_tokens=60_000), "a hundred requests": HEALTH * 100,
    "more than is read": HEALTH * 20_000,
}  # fmt: skip


@pytest.mark.sampled(21)
@pytest.mark.parametrize("behind", BEHIND)
@pytest.mark.parametrize("leave", LEAVES)
@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_client_that_leaves_frees_its_place(
    server: Listening, behind: str, leave: str, is_streamed: bool, bugs: list[BaseException]
) -> None:
    for before in (b"", HEALTH + completion(max_tokens=1)):
        check_leaving(server, before, leave, BEHIND[behind], is_streamed=is_streamed)


def check_leaving(
    server: Listening, before: bytes, leave: str, behind: bytes, seconds: float = 10, *, is_streamed: bool = False
) -> None:
    client = server.connect()
    client.sendall(before + completion(max_tokens=60_000, stream=is_streamed, n=2))
    until(lambda: server.service.admission.reserved.places == 2)
    client.settimeout(0.05)
    with suppress(OSError):
        client.sendall(behind)
    LEAVES[leave](client)
    until(lambda: server.service.admission.reserved == Resources() and not server.connections, seconds)
    client.close()


def test_requests_on_a_connection_are_answered_in_order(server: Listening, bugs: list[BaseException]) -> None:
    """One at a time, for each size of the pieces in which they are sent."""
    requests = [completion(prompt="The sea" * n, max_tokens=n % 3, echo=True) for n in range(20)]
    chunked = request("POST", "/v1/completions", b"", "Transfer-Encoding: chunked")
    body = json.dumps({"model": "lstm", "prompt": "chunks", "max_tokens": 0, "echo": True}).encode()
    pieces = b"".join(b"%x;a=b\r\n%b\r\n" % (len(body[n : n + 7]), body[n : n + 7]) for n in range(0, len(body), 7))
    sent = (
        b"".join(requests)
        + chunked
        + pieces
        + b"0\r\nx: y\r\n\r\n"
        + request("GET", "/health", None, "Connection: close")
    )
    for size in (1, 7, 1000, len(sent)):
        with server.connect() as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for start in range(0, len(sent), size):
                client.sendall(sent[start : start + size])
                assert server.open_answers() <= 1
            answers = rest(client).split(b"HTTP/1.1 200 ")[1:]
        bodies = [json.loads(answer.partition(b"\r\n\r\n")[2]) for answer in answers]
        assert [len(body["choices"][0]["text"]) // 7 for body in bodies[:20]] == list(range(20))
        assert bodies[20]["choices"][0]["text"] == "chunks"
        assert bodies[21] == {"status": "ok"}


def test_hundreds_of_pipelined_requests_are_all_answered(server: Listening) -> None:
    assert server.exchange(HEALTH * 500 + request("GET", "/health", None, "Connection: close")).count(b" 200 OK") == 501


def test_http_versions_expectations_and_methods_are_supported(server: Listening) -> None:
    old = server.exchange(request("GET", "/health", version="1.0"))
    assert (old[:15], b"connection: close" in old.lower()) == (b"HTTP/1.1 200 OK", True)
    stream = server.exchange(
        request("POST", "/v1/completions", completion(stream=True).partition(b"\r\n\r\n")[2], version="1.0")
    )
    assert stream.endswith(b"data: [DONE]\n\n")
    assert b"chunked" not in stream
    with server.connect() as client:
        head, _, body = completion(max_tokens=1).partition(b"\r\n\r\n")
        client.sendall(head + b"\r\nExpect: 100-continue\r\n\r\n")
        assert client.recv(1000).startswith(b"HTTP/1.1 100 ")
        client.sendall(body)
        assert b" 200 OK" in client.recv(1000)
    assert server.exchange(request("GET", "http://localhost/health?a=%20", None, "Connection: close")).endswith(
        b'{"status":"ok"}'
    )
    head = server.exchange(request("HEAD", "/health", None, "Connection: close"))
    assert (b" 200 OK" in head, head.endswith(b"\r\n\r\n")) == (True, True)
    upgrade = server.exchange(request("GET", "/health", None, "Upgrade: h2c", "Connection: upgrade, close"))
    assert b" 200 OK" in upgrade
    assert b" 404 " in server.exchange(request("CONNECT", "host:443", None, "Connection: close"))


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + b"a:b\r\n" * 900 + b"\r\n",
        CHUNKED + b"1\r\n \r\n" * 5000 + b"0\r\n\r\n" + request("GET", "/health", None, "Connection: close"),
        CHUNKED + b"0\r\n" + b"a:b\r\n" * 900 + b"\r\n" + request("GET", "/health", None, "Connection: close"),
        HEALTH * 1000 + request("GET", "/health", None, "Connection: close"),
    ],
    ids=["headers", "tiny chunks", "trailers", "requests"],
)
def test_no_phase_blocks_the_event_loop(serve: Any, sent: bytes) -> None:
    _, service = serve({"lstm": language_pipeline()})
    for _ in range(3):
        with watched() as callbacks, listening(service, loop=asyncio.new_event_loop) as server:
            assert server.exchange(sent).endswith(b'{"status":"ok"}')
        if max(callbacks)[0] < MAX_CALLBACK_SECONDS:
            break
    assert max(callbacks)[0] < MAX_CALLBACK_SECONDS, max(callbacks)


@pytest.mark.parametrize("before", [b"GET /health HTTP/1.1\r\nHost: localhost\r\n", CHUNKED + b"0\r\n"])
@pytest.mark.parametrize(("fields", "status"), [(900, b" 200 OK"), (2_500, b" 400 ")])
def test_header_fields_and_trailers_are_counted(serve: Any, before: bytes, fields: int, status: bytes) -> None:
    """h11 parses all fields in one callback, so the number of fields needs a bound besides the bytes."""
    _, service = serve({"lstm": language_pipeline()})
    with listening(service, loop=asyncio.new_event_loop) as server:
        answer = server.exchange(
            before + b"a:b\r\n" * fields + b"\r\n" + request("GET", "/health", None, "Connection: close")
        )
    assert status in answer


def test_nothing_is_computed_for_a_client_that_left_before(server: Listening) -> None:
    def tokens() -> float:
        lines = server.service.metrics.text().splitlines()
        return sum(float(line.split()[1]) for line in lines if line.startswith(b"ensue_prompt_tokens_total"))

    before = tokens()
    for _ in range(20):
        client = server.connect()
        client.sendall(completion(max_tokens=9, prompt="The sea was calm."))
        LEAVES["resets"](client)
    until(lambda: not server.connections)
    assert tokens() - before < 10 * 17  # a few may have begun before the client left


def test_random_clients_do_not_delay_health_checks(server: Listening, bugs: list[BaseException]) -> None:
    """A sample of the slow test, which takes `FUZZ_SECONDS`."""
    _, longest = fuzz(server.port.result(), "lstm", list(PHASES_TO_DRAW), 0.4, seed=int(time.time()))
    assert longest < 1  # 50 ms on an idle machine; other tests may run at the same time
    until(lambda: not server.connections and server.service.admission.reserved == Resources(), 20)


@pytest.mark.slow
def test_a_minute_of_random_clients_does_not_delay_health_checks(tmp_path: Path) -> None:
    seconds = float(os.environ.get("FUZZ_SECONDS", "60"))
    with Running(language_run(tmp_path / "lstm")) as server:
        fuzz(server.port, "lstm", list(PHASES_TO_DRAW), min(30, seconds / 4), seed=0)
        before = server.resident()
        _, longest = fuzz(server.port, "lstm", list(PHASES_TO_DRAW), seconds, seed=int(time.time()))
        assert longest < 0.5
        assert server.resident() < before + (64 << 20)
        until(lambda: b'places"} 0.0' in get(server, "/metrics"), 30)
        assert '"bug"' not in server.log_text()


def get(server: Running, path: str) -> bytes:
    with server.connect() as client:
        client.sendall(request("GET", path, None, "Connection: close"))
        return rest(client)


class Unbounded(Connection):
    """A planted bug: bytes and events are not counted."""

    def _next_event(self) -> Any:
        self._overhead, self._http._max_incomplete_event_size = -(1 << 40), 1 << 40
        return super()._next_event()


class ReadsOn(Connection):
    """A planted bug: reading is never paused."""

    def _pause(self) -> None:
        pass


class TellsNobody(Connection):
    """A planted bug: requests are not canceled if the client leaves."""

    def connection_lost(self, exc: Exception | None) -> None:
        self.connections.discard(self)


class Forgets(Connection):
    """A planted bug: the second request of a connection is not canceled if the client leaves."""

    def connection_lost(self, exc: Exception | None) -> None:
        if self._count < 2:
            super().connection_lost(exc)
        self.connections.discard(self)

    def _scope(self, head: Any) -> dict[str, Any]:
        self._count = getattr(self, "_count", 0) + 1
        return super()._scope(head)


@pytest.mark.parametrize(
    ("kind", "law"),
    [
        (Unbounded, lambda server: check_bound(server, "a trailer", 0.1)),
        (Unbounded, lambda server: check_bound(server, "chunk extensions", 0.1)),
        (ReadsOn, lambda server: check_bound(server, "requests behind an answer", 0.1)),
        (TellsNobody, lambda server: check_leaving(server, b"", "closes", b"", 0.1)),
        (Forgets, lambda server: check_leaving(server, HEALTH, "closes", b"", 0.1)),
    ],
)
def test_planted_bugs_are_caught(serve: Any, kind: type[Connection], law: Callable[[Listening], None]) -> None:
    _, service = serve({"lstm": language_pipeline()}, **LIMITS | {"linger_seconds": 5.0})
    with listening(service, kind) as server, pytest.raises(AssertionError):
        law(server)
    service.models["lstm"].close()  # some of the bugs compute on
