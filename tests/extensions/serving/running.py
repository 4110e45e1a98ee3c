"""Real servers: `ensue serve` in a process of its own, and small runs for it."""

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
    """A run of a language model that was trained for a moment."""
    text = path.parent / f"{path.name}.txt"
    text.write_text(TEXT, encoding="utf-8")
    train_run(tiny(read_recipe(recipe, {"data.train": str(text)})), path, threads=1)
    return path


class Running:
    """A server of `runs` on a free port, ready at the beginning of a `with` block and ended at its end."""

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
        """Until it is ready."""
        end = time.monotonic() + seconds
        while self.status("/ready") != 200:
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < end
            time.sleep(0.05)

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str, float]:
        """Its exit status after a signal, what it wrote to stderr, and the seconds that it took."""
        start = time.monotonic()
        self.process.send_signal(number)
        status = self.process.wait(timeout=60)
        return status, self.said(), time.monotonic() - start

    def said(self) -> str:
        """What it has written to stderr."""
        self.log.seek(0)
        return self.log.read()

    def status(self, path: str) -> int:
        """The status of a GET."""
        try:
            with urlopen(self.url + path, timeout=30) as answer:
                return int(answer.status)
        except HTTPError as error:
            error.close()
            return error.code

    def post(self, path: str, content: Any, **headers: str) -> Any:
        """The answer to a POST, an error's body too."""
        request = Request(self.url + path, json.dumps(content).encode(), headers)
        try:
            with urlopen(request, timeout=60) as answer:
                return json.load(answer)
        except HTTPError as error:
            with error:
                return json.load(error)

    def connected(self) -> socket.socket:
        """A connection to it."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def resident(self) -> int:
        """Its bytes in memory; 0 where the system does not say."""
        file = Path(f"/proc/{self.process.pid}/statm")
        return int(file.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if file.exists() else 0

    def descriptors(self) -> int:
        """The number of files that it has open; 0 where the system does not say."""
        folder = f"/proc/{self.process.pid}/fd"
        return len(os.listdir(folder)) if os.path.isdir(folder) else 0
