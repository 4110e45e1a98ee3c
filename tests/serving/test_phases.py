"""Phases of a connection: each has a bound of its bytes, one request is answered at a time, and leaving ends it."""

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from ensue.serving.admission import Amounts
from ensue.serving.limits import BLOCK
from serving.conftest import language_pipeline
from serving.listening import Listening, listening, request, rest

CHUNKED = request("POST", "/v1/completions", b"", "Transfer-Encoding: chunked")
HEALTH = request("GET", "/health")
MAX_UNPARSED = BLOCK + (1 << 18)
"""The most bytes of a connection in memory that are not parsed: those that wait, and one read of the socket."""


@pytest.fixture(scope="module")
def server(serve: Any) -> Iterator[Listening]:
    limits = {"headers_seconds": 1.5, "body_seconds": 1.5, "farewell_seconds": 0.2, "body_bytes": 1 << 17}
    _, service = serve({"lstm": language_pipeline()}, header_bytes=8192, **limits)
    with listening(service) as found:
        yield found


def until(holds: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def completion(**wishes: object) -> bytes:
    return request("POST", "/v1/completions", json.dumps({"model": "lstm", "prompt": "a", **wishes}).encode())


PHASES = {  # what comes before, what comes without end, and statuses of the answers that may come
    "request line": (b"GET /", b"a" * 100, {400}),
    "header": (b"GET / HTTP/1.1\r\nHost: a\r\nx: ", b"a" * 100, {400}),
    "headers": (b"GET / HTTP/1.1\r\nHost: a\r\n", b"a:b\r\n" * 20, {400}),
    "empty lines before a request": (b"", b"\r\n" * 50, {400}),
    "chunk size": (CHUNKED, b"0" * 100, {400}),
    "chunk extension": (CHUNKED, b"1;a=" + b"b" * 100, {400}),
    "chunk extensions": (CHUNKED, b"1;a=" + b"b" * 100 + b"\r\n \r\n", {400}),
    "tiny chunks": (CHUNKED, b"1\r\n \r\n" * 20, {400}),
    "large chunks": (CHUNKED, b"400\r\n" + b" " * 1024 + b"\r\n", {413}),
    "a long body": (request("POST", "/v1/completions", None, "Content-Length: 99999999"), b" " * 100, {413}),
    "a body that no route reads": (request("GET", "/health", None, "Content-Length: 99999999"), b" " * 100, {200}),
    "a trailer": (CHUNKED + b"2\r\n{}\r\n0\r\na:", b"b" * 100, {400}),
    "trailers": (CHUNKED + b"2\r\n{}\r\n0\r\n", b"a:b\r\n" * 20, {400}),
    "requests behind an answer": (completion(max_tokens=60_000), HEALTH, set()),
    "behind the last answer": (request("GET", "/health", None, "Connection: close"), b"a" * 100, {200}),
}  # fmt: skip


@pytest.mark.parametrize("phase", PHASES)
def test_each_phase_has_a_bound(server: Listening, phase: str) -> None:
    before, endless, statuses = PHASES[phase]
    blocks, sent, largest = endless * (1 + BLOCK // len(endless)), 0, 0
    with server.connected() as client:
        client.sendall(before)
        deadline = time.monotonic() + 10
        try:
            while time.monotonic() < deadline:
                sent += client.send(blocks)
                largest = max([largest, *(len(one._unread) for one in list(server.connections))])
        except OSError:
            pass
        answer = rest(client)
    assert time.monotonic() < deadline, f"{sent} bytes were taken"
    assert largest <= MAX_UNPARSED
    found = {int(answer[9:12])} if answer else set()  # a reset may overtake an answer
    assert found <= statuses, answer[:200]
    until(lambda: not server.connections)
    assert server.service.admission.held == Amounts()


LEAVES: dict[str, Callable[[socket.socket], None]] = {
    "closes": lambda client: client.close(),
    "resets": lambda client: (
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0"), client.close()
    )[1],
    "sends no more": lambda client: client.shutdown(socket.SHUT_WR),
}  # fmt: skip
BEHIND = {
    "nothing": b"", "a request": HEALTH, "half a request": HEALTH[:20], "what is no HTTP": b"\0" * 99,
    "another completion": completion(max_tokens=60_000), "a hundred requests": HEALTH * 100,
    "more than is read": HEALTH * 40_000,
}  # fmt: skip


@pytest.mark.parametrize("behind", BEHIND)
@pytest.mark.parametrize("leave", LEAVES)
@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_client_that_leaves_frees_its_place(
    server: Listening, behind: str, leave: str, is_streamed: bool, bugs: list[BaseException]
) -> None:
    for before in (b"", HEALTH + completion(max_tokens=1)):
        client = server.connected()
        client.sendall(before + completion(max_tokens=60_000, stream=is_streamed, n=2))
        until(lambda: server.service.admission.held.places == 2)
        client.settimeout(0.05)
        with suppress(OSError):
            client.sendall(BEHIND[behind])
        LEAVES[leave](client)
        until(lambda: server.service.admission.held == Amounts() and not server.connections)
        client.close()


def test_requests_on_a_connection_are_answered_in_order(server: Listening, bugs: list[BaseException]) -> None:
    """However they are cut into pieces, and one at a time."""
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
        with server.connected() as client:
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
    assert server.asked(HEALTH * 500 + request("GET", "/health", None, "Connection: close")).count(b" 200 OK") == 501


def test_versions_and_expectations(server: Listening) -> None:
    old = server.asked(request("GET", "/health", version="1.0"))
    assert (old[:15], b"connection: close" in old.lower()) == (b"HTTP/1.1 200 OK", True)
    stream = server.asked(
        request("POST", "/v1/completions", completion(stream=True).partition(b"\r\n\r\n")[2], version="1.0")
    )
    assert stream.endswith(b"data: [DONE]\n\n")
    assert b"chunked" not in stream
    with server.connected() as client:
        head, _, body = completion(max_tokens=1).partition(b"\r\n\r\n")
        client.sendall(head + b"\r\nExpect: 100-continue\r\n\r\n")
        assert client.recv(1000).startswith(b"HTTP/1.1 100 ")
        client.sendall(body)
        assert b" 200 OK" in client.recv(1000)
    assert server.asked(request("GET", "http://localhost/health?a=%20", None, "Connection: close")).endswith(
        b'{"status":"ok"}'
    )
    head = server.asked(request("HEAD", "/health", None, "Connection: close"))
    assert (b" 200 OK" in head, head.endswith(b"\r\n\r\n")) == (True, True)
    upgrade = server.asked(request("GET", "/health", None, "Upgrade: h2c", "Connection: upgrade, close"))
    assert b" 200 OK" in upgrade
    assert b" 404 " in server.asked(request("CONNECT", "host:443", None, "Connection: close"))
