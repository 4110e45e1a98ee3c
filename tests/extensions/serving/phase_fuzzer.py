"""Random clients: phases of requests, the sizes of pieces, and the times of disconnection are drawn.

`PYTHONPATH=tests python -m extensions.serving.phase_fuzzer RUN [SECONDS]` prints the table of docs/serving.md.
"""

import json
import random
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Event

RESET = struct.pack("ii", 1, 0)
MAX_SENT = 1 << 22
"""The maximum number of repeated bytes of a client."""
HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
PHASES: dict[str, bytes] = {  # the bytes that a client repeats in each phase
    "request line": b"a" * 64, "headers": b"a:b\r\n" * 16, "body": b" " * 4096, "chunk size": b"0" * 64,
    "chunk extension": b";a=" + b"b" * 64, "tiny chunks": b"1\r\n \r\n" * 16, "trailers": b"a:b\r\n" * 16,
    "behind a request": HEALTH * 8,
}  # fmt: skip


def completion(draw: random.Random, model: str) -> bytes:
    wishes = {"model": model, "prompt": "The sea" * draw.choice((1, 1, 40)), "max_tokens": draw.choice((1, 3, 4000))}
    return json.dumps({**wishes, "stream": draw.random() < 0.5, "n": draw.choice((1, 1, 8))}).encode()


def pieces(draw: random.Random, model: str, phase: str) -> Iterator[bytes]:
    """Yield valid requests, then a valid request up to a phase, then the repeated bytes of the phase."""
    for _ in range(draw.choice((0, 0, 1, 3))):
        yield HEALTH if draw.random() < 0.5 else head(draw, b"Content-Length: %d\r\n\r\n") + completion(draw, model)
    body = completion(draw, model)
    if phase == "request line":
        yield b"GET /"
    elif phase == "headers":
        yield head(draw, b"")
    elif phase == "body":
        yield head(draw, b"Content-Length: %d\r\n\r\n" % draw.choice((len(body), 4_000_000, 99_999_999))) + body
    elif phase == "behind a request":
        yield head(draw, b"Content-Length: %d\r\n\r\n" % len(body)) + body
    else:
        yield head(draw, b"Transfer-Encoding: chunked\r\n\r\n")
        if phase == "chunk extension":
            yield b"1"
        elif phase == "trailers":
            yield b"%x\r\n%b\r\n0\r\n" % (len(body), body)
    for _ in range(draw.choice((0, 1, 30, MAX_SENT // len(PHASES[phase])))):
        yield PHASES[phase]


def head(draw: random.Random, last: bytes) -> bytes:
    version = draw.choice((b"1.1", b"1.1", b"1.0"))
    return b"POST /v1/completions HTTP/%b\r\nHost: localhost\r\n" % version + last


def visit(port: int, model: str, phase: str, draw: random.Random) -> None:
    """Send a random request on a connection, and close the connection in a random way."""
    with socket.create_connection(("127.0.0.1", port), timeout=3) as client, suppress(OSError):
        size, sent = draw.choice((1, 7, 100, 5000, 1 << 18)), 0
        client.settimeout(draw.choice((0.01, 0.3, 3)))
        for piece in pieces(draw, model, phase):
            for start in range(0, len(piece), size):
                client.sendall(piece[start : start + size])
            sent += len(piece)
            if draw.random() < 0.001 or (size < 100 and sent > 2000):
                break
        end = draw.randrange(5)
        if end == 0:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        elif end == 1:
            client.shutdown(socket.SHUT_WR)
        elif end == 2:
            client.sendall(bytes(draw.randrange(256) for _ in range(99)))
        if end != 3:
            while client.recv(1 << 16) and draw.random() < 0.9:
                pass


def longest_health(port: int, over: Event) -> float:
    """Return the maximum seconds of an answer to /health, on one connection until `over` is set."""
    longest = 0.0
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        while not over.wait(0.02):
            start = time.perf_counter()
            client.sendall(HEALTH)
            assert b" 200 OK" in client.recv(1 << 16)
            longest = max(longest, time.perf_counter() - start)
    return longest


def fuzz(port: int, model: str, phases: list[str], seconds: float, seed: int, *, threads: int = 4) -> tuple[int, float]:
    """Return the number of visits in `seconds`, and the maximum seconds of concurrent answers to /health."""
    end, over = time.monotonic() + seconds, Event()

    def visits(number: int) -> int:
        draw, count = random.Random(f"{seed} {number}"), 0
        while time.monotonic() < end:
            visit(port, model, draw.choice(phases), draw)
            count += 1
        return count

    with ThreadPoolExecutor(threads + 1) as pool:
        health = pool.submit(longest_health, port, over)
        try:
            count = sum(pool.map(visits, range(threads)))
        finally:
            over.set()
        return count, health.result()


def main(run: Path, seconds: float, report: Callable[[str], object] = print) -> None:
    from extensions.serving.running import Running  # noqa: PLC0415  # torch takes seconds

    with Running(run) as server:
        for phase in ("behind a request", *PHASES):  # the first one warms up
            count, longest = fuzz(server.port, run.name, [phase], seconds / len(PHASES), seed=1)
            report(f"| {phase} | {count:,} | {1000 * longest:.0f} | {server.resident() >> 20} |")


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2] if len(sys.argv) > 2 else 600))
