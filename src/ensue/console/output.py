"""stdout and stderr, if they cannot be written as well: full disk, closed stream, reader gone; notices on stderr."""

from __future__ import annotations

import os
import sys
import warnings
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Timer
from typing import Any, TextIO

from ensue.errors import EnsueError
from ensue.notices import Notice


@contextmanager
def streams() -> Iterator[None]:
    """Sends all output through `Results` and `Complaints`, in a `with` block; that of libraries too."""
    _fill_descriptors()
    usual = sys.stdout, sys.stderr
    sys.stdout = Results(usual[0] or _opened(1))  # type: ignore[assignment]
    sys.stderr = Complaints(usual[1] or _opened(2))  # type: ignore[assignment]
    try:
        yield
    finally:
        sys.stdout, sys.stderr = usual


def _fill_descriptors() -> None:
    """Opens the null device for descriptors that are closed. If it did not, the next file would get one of them."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDONLY)  # takes the lowest that is free


def _opened(descriptor: int) -> TextIO:
    return open(descriptor, "w", encoding="utf-8", closefd=False)


class _Stream(ABC):
    """A text stream whose `_failed` decides what a failure does. Characters that a terminal cannot show are escaped."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._error: OSError | None = None
        encoding = None if stream.isatty() else "utf-8"  # files and pipes do not depend on the locale
        stream.reconfigure(encoding=encoding, errors="backslashreplace")  # type: ignore[attr-defined]

    def write(self, text: str) -> int:
        show_waiting()
        self._try(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        self._try(self._stream.flush)

    @abstractmethod
    def _failed(self, error: OSError) -> None:
        """Called for a failure, and at each later attempt to write."""

    def _try(self, write: Callable[[], object]) -> None:
        try:
            write()
        except OSError as error:
            self._error = self._error or error
            with suppress(OSError, ValueError):  # Python writes what is left once more at its end
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, self._stream.fileno())
                os.close(nowhere)
        if self._error is not None:
            self._failed(self._error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Results(_Stream):
    """stdout. If a result cannot be written, the command ends; without a message if the reader is gone (`| head`)."""

    def _failed(self, error: OSError) -> None:
        if isinstance(error, BrokenPipeError):
            sys.exit(0)
        raise EnsueError(f"stdout cannot be written to ({error.strerror})") from None


class Complaints(_Stream):
    """stderr. If progress cannot be written, the command goes on."""

    def _failed(self, error: OSError) -> None:
        pass


_waiting: deque[str] = deque()
"""Notices that are shown before whatever is written next. A mistake is one line, so that it takes their place."""
SECONDS = 5.0
"""The longest time that a notice waits."""


def show_waiting() -> None:
    """Shows the notices that wait. Any thread may call it."""
    notices = []
    with suppress(IndexError):
        while True:
            notices.append(_waiting.popleft())
    if notices:
        sys.stderr.write("".join(notices))
        sys.stderr.flush()


def drop_waiting() -> None:
    """Forgets the notices that wait."""
    _waiting.clear()


@contextmanager
def notices_shown() -> Iterator[None]:
    """Shows notices as one line, in a `with` block. Other warnings are shown as Python does."""
    usual = warnings.showwarning

    def show(
        message: Warning | str, category: type[Warning], filename: str, lineno: int,
        file: TextIO | None = None, line: str | None = None,
    ) -> None:  # fmt: skip
        if not issubclass(category, Notice):
            usual(message, category, filename, lineno, file, line)
        else:
            _waiting.append(f"ensue: {message}\n")
            timer = Timer(SECONDS, show_waiting)
            timer.daemon = True
            timer.start()

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = usual
        show_waiting()
