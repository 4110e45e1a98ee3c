"""`ensue serve` in a separate process: start and end, slow clients, clients that leave, several processes."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from urllib.request import urlopen

import pytest

from ensue.extensions.serving.processes import MIN_LIFETIME_SECONDS
from extensions.serving.listening import until
from extensions.serving.running import Running, language_run

pytestmark = pytest.mark.slow
WISHES = {"model": "run", "prompt": "The sea", "max_tokens": 8, "seed": 1}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return language_run(tmp_path_factory.mktemp("serving") / "run")


def completion(**wishes: object) -> bytes:
    body = json.dumps({**WISHES, **wishes}).encode()
    return b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def test_a_server_answers_while_it_loads(run: Path) -> None:
    with Running(run, waits=False) as server:
        until(lambda: server.status("/health") == 200)
        assert server.status("/ready") in (200, 503)
        answer = server.post("/v1/completions", WISHES)
        assert answer.get("choices") or answer["error"]["code"] == "server_loading"
        server.wait()
        assert server.post("/v1/completions", WISHES)["choices"]


def test_sigterm_lets_answers_finish_and_then_ends(run: Path) -> None:
    with Running(run, options=("--drain-seconds", "20")) as server:
        answers: list[object] = []
        asking = threading.Thread(
            target=lambda: answers.append(server.post("/v1/completions", WISHES | {"max_tokens": 3000}))
        )
        asking.start()
        time.sleep(0.3)
        status, log, seconds = server.end()
        asking.join()
    assert status == 0
    assert answers[0]["usage"]["completion_tokens"] == 3000  # type: ignore[index]
    assert seconds < 20
    events = [json.loads(line) for line in log.splitlines()]
    assert {"ready", "draining", "request"} <= {event["event"] for event in events}
    assert "The sea" not in log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_server_ends_at_once(run: Path, number: int) -> None:
    with Running(run) as server:
        status, _, seconds = server.end(number)
    assert (status, seconds < 15) == (0, True)  # python and torch take a while to end


def test_a_second_server_on_a_port_is_refused(run: Path) -> None:
    with Running(run) as server:
        command = [sys.executable, "-m", "ensue", "serve", str(run), "--port", str(server.port)]
        second = subprocess.run(command, capture_output=True, text=True, check=False)
    assert second.returncode == 2
    assert second.stderr.startswith(f"ensue: 127.0.0.1:{server.port}: cannot listen")
    assert second.stderr.count("\n") == 1


def test_a_run_that_cannot_be_loaded_ends_the_server(run: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    for name in ("config.json", "recipe.toml"):
        (tmp_path / "other" / name).write_bytes((run / name).read_bytes())
    for runs in (
        [run, tmp_path / "nothing"],
        [run, tmp_path / "other"],
        [run, run.parent / ".." / run.parent.name / "run"],
    ):
        command = [sys.executable, "-m", "ensue", "serve", *map(str, runs), "--port", "0"]
        completed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert completed.returncode == 2
        last = completed.stderr.splitlines()[-1]
        assert last.startswith("ensue: "), completed.stderr


def test_slow_headers_and_endless_bodies_are_closed(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Running(run) as server:
        start = time.monotonic()
        with server.connect() as slow, server.connect() as endless, server.connect() as empty:
            slow.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: lo")
            endless.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
            for _ in range(80):  # a body without end
                try:
                    endless.sendall(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
                except (BrokenPipeError, ConnectionResetError):
                    break
            assert b" 413 " in _received(endless)
            assert slow.recv(10) == b""
            assert empty.recv(10) == b""
        assert 8 < time.monotonic() - start < 20
        assert server.post("/v1/completions", WISHES)["choices"]


def _received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(4096)
    except ConnectionResetError:
        return b" 413 "  # the server closed the connection during sending


def test_memory_does_not_grow_with_any_kind_of_client(run: Path) -> None:
    """A short form of `benchmarks/serving.py soak`: valid requests, abandoned streams, and bodies that are too long."""

    def leave() -> None:
        with server.connect() as connection:
            connection.sendall(completion(max_tokens=60_000, stream=True))
            connection.recv(100)

    def send_too_much() -> None:
        with server.connect() as connection:
            connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n")
            assert b" 413 " in _received(connection)

    def ask() -> None:
        assert server.post("/v1/completions", WISHES)["choices"] == expected

    with Running(run) as server:
        expected, sizes = server.post("/v1/completions", WISHES)["choices"], []
        for _ in range(3):
            for _ in range(60):
                for client in (ask, leave, send_too_much):
                    client()
            until(lambda: 'ensue_live_rows{model="run"} 0.0' in metrics(server))
            sizes.append(server.resident())
        reserved = [line for line in metrics(server).splitlines() if line.startswith("ensue_held{")]
        assert all(line.endswith(" 0.0") for line in reserved)
    assert sizes[2] <= sizes[0] + (8 << 20)


def metrics(server: Running) -> str:
    with urlopen(server.url + "/metrics", timeout=10) as answer:
        return str(answer.read().decode())


def test_several_processes_answer_alike(run: Path) -> None:
    with Running(run, options=("--processes", "2")) as server:
        until(lambda: server.log_text().count('"ready"') == 2)
        answers = [server.post("/v1/completions", WISHES)["choices"] for _ in range(8)]
        assert all(answer == answers[0] for answer in answers)
        assert server.post("/v1/completions", WISHES | {"session": "a"})["error"]["param"] == "session"
        counted = 'ensue_requests_total{route="/v1/completions",status="200"} 8.0'
        until(lambda: counted in metrics(server))  # a request is counted once its answer is sent
        status, log, _ = server.end()
    assert status == 0
    assert log.count('"draining"') == 2


def test_a_process_that_is_killed_is_replaced_and_none_outlives_the_parent(run: Path) -> None:
    with Running(run, options=("--processes", "2")) as server:
        until(lambda: server.log_text().count('"ready"') == 2)
        time.sleep(MIN_LIFETIME_SECONDS)
        parent = server.process.pid
        first, _ = children = children_of(parent)
        os.kill(first, signal.SIGKILL)
        until(lambda: server.log_text().count('"ready"') == 3)
        assert len(children_of(parent) - children) == 1
        children = children_of(parent)
        os.kill(parent, signal.SIGKILL)
        until(lambda: not any(Path(f"/proc/{child}/cmdline").exists() for child in children))


def children_of(parent: int) -> set[int]:
    path = Path(f"/proc/{parent}/task/{parent}/children")
    if not path.exists():
        pytest.skip("needs /proc/PID/task/PID/children")
    return set(map(int, path.read_text().split()))


def test_the_key_is_read_from_the_environment(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENSUE_KEY", "secret")
    with Running(run) as server:
        assert server.post("/v1/completions", WISHES)["error"]["code"] == "invalid_api_key"
        assert server.post("/v1/completions", WISHES, Authorization="Bearer secret")["choices"]
        assert server.status("/ready") == 200


def test_a_client_that_does_not_read_is_disconnected(run: Path) -> None:
    """Until the timeout its answers and streams hold their places and little memory, and afterwards nothing."""
    echo = completion(prompt="The sea was calm. " * 1800, max_tokens=0, echo=True, logprobs=5)
    with Running(run, options=("--request-seconds", "20")) as server, ExitStack() as stack:
        before = server.resident()
        unread = [stack.enter_context(server.connect()) for _ in range(4)]
        for number, connection in enumerate(unread):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.sendall(echo if number == 0 else completion(max_tokens=60_000, stream=True))
            if number == 0:  # a long request waits while others arrive, so its answer is awaited
                assert connection.recv(1, socket.MSG_PEEK)
        until(lambda: 'ensue_held{what="places"} 4.0' in metrics(server))
        until(lambda: 'ensue_held{what="places"} 0.0' in metrics(server), 40)
        assert 'ensue_held{what="answers"} 0.0' in metrics(server)
        assert server.resident() < before + (300 << 20)
        assert was_reset(unread[0]), server.log_text()  # Linux takes in up to 4 MB of an answer, this one has 5.6
        assert '"level": "ERROR"' not in server.log_text()
        assert server.post("/v1/completions", WISHES)["choices"]


def was_reset(connection: socket.socket) -> bool:
    try:
        while connection.recv(1 << 20):
            pass
    except ConnectionResetError:
        return True
    return False
