"""stdout and stderr, also where they cannot be written (full disk, closed stream, reader gone); notices and errors."""

from __future__ import annotations

import gc
import os
import re
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


_NO_TEXT = re.compile("[^\\s\"']*[\ud800-\udfff][^\\s\"']*")
"""Matches a word with surrogates, which stand for bytes that are not UTF-8."""
_BYTES = re.compile(r"allocate (\d+) bytes")


def mistake(error: BaseException) -> str | None:
    """The message for a mistake of the user or the system; None for a bug, whose traceback is shown.

    It may have several lines: `ensue.errors.in_one_line`.
    """
    match error:
        case EnsueError():
            return error.in_options()
        case OSError():
            reason = error.strerror or str(error)
            return reason if error.filename is None else f"{error.filename}: {reason}"
        case UnicodeEncodeError() if found := _NO_TEXT.search(error.object):
            return f"{ascii(found[0])[1:-1]}: not UTF-8"
        case MemoryError() | RuntimeError() if _is_out_of_memory(error):
            wanted = _BYTES.search(str(error))
            return "not enough memory" + (f": {int(wanted[1]):,} more bytes were asked for" if wanted else "")
    return None


def _is_out_of_memory(error: MemoryError | RuntimeError) -> bool:
    if isinstance(error, MemoryError):
        return True
    if "torch" not in sys.modules:
        return False
    from ensue.training.device import is_out_of_memory  # noqa: PLC0415  # imports torch

    return is_out_of_memory(error)


@contextmanager
def importing_torch() -> Iterator[None]:
    """Imports without searches for garbage, in a `with` block.

    An import of torch makes a million objects, and all of them stay. Searches for garbage would take a third of its
    time. The objects are left out of all later searches too.
    """
    if "torch" in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
