"""`ensue serve` in a separate process, and small runs to serve."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from ensue.recipe import read_recipe
from ensue.training.run import train_run
from page_data import tiny

TEXT = "The sea was calm.\nNobody spoke, and the sea was calm: nothing ended.\n" * 40


def language_run(path: Path, recipe: str = "char-lstm") -> Path:
    """Train a language model briefly. Return its run."""
    text = path.parent / f"{path.name}.txt"
    text.write_text(TEXT, encoding="utf-8")
    train_run(tiny(read_recipe(recipe, {"data.train": str(text)})), path, threads=1)
    return path


class Running:
    """A server of `runs` on a free port during a `with` block, which waits until the server is ready if `waits`."""

    def __init__(
        self, *runs: Path, options: tuple[str, ...] = (), waits: bool = True, python: str = sys.executable
    ) -> None:
        self.arguments, self.waits, self.python = [*map(str, runs), "--port", "0", *options], waits, python

    def __enter__(self) -> Running:
        command = [self.python, "-m", "ensue", "serve", *self.arguments]
        self.log = tempfile.TemporaryFile("w+", encoding="utf-8")
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self.log, text=True, start_new_session=True
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        self.port = int(self.url.rpartition(":")[2] or 0)
        if self.waits:
            self.wait()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(timeout=30)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.log.close()

    def wait(self, seconds: float = 60) -> None:
        """Wait until the server is ready."""
        end = time.monotonic() + seconds
        while self.status("/ready") != 200:
            assert self.process.poll() is None, self.log_text()
            assert time.monotonic() < end
            time.sleep(0.05)

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str, float]:
        """Send a signal. Return the exit status, the text of stderr, and the seconds until the exit."""
        start = time.monotonic()
        self.process.send_signal(number)
        status = self.process.wait(timeout=60)
        return status, self.log_text(), time.monotonic() - start

    def log_text(self) -> str:
        """Return the text that the server has written to stderr."""
        self.log.seek(0)
        return self.log.read()

    def status(self, path: str) -> int:
        """Return the status of a GET request."""
        try:
            with urlopen(self.url + path, timeout=30) as answer:
                return int(answer.status)
        except HTTPError as error:
            error.close()
            return error.code

    def post(self, path: str, content: Any, **headers: str) -> Any:
        """Return the JSON answer to a POST request, also of an error."""
        request = Request(self.url + path, json.dumps(content).encode(), headers)
        try:
            with urlopen(request, timeout=60) as answer:
                return json.load(answer)
        except HTTPError as error:
            with error:
                return json.load(error)

    def connect(self) -> socket.socket:
        """Return a connection to the server."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def resident(self) -> int:
        """Return the resident memory in bytes; 0 without /proc."""
        file = Path(f"/proc/{self.process.pid}/statm")
        return int(file.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if file.exists() else 0

    def descriptors(self) -> int:
        """Return the number of open files; 0 without /proc."""
        folder = f"/proc/{self.process.pid}/fd"
        return len(os.listdir(folder)) if os.path.isdir(folder) else 0
