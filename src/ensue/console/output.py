"""Handling of failures of stdout and stderr (full disk, closed stream or pipe), and display of notices and errors."""

import gc
import os
import re
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Timer
from typing import Any, TextIO

from ensue.data.decoding import check_encoding
from ensue.errors import EnsueError
from ensue.notices import Notice


@contextmanager
def replace_streams() -> Iterator[None]:
    """Replace `sys.stdout` and `sys.stderr` by `Results` and `Diagnostics` in a `with` block."""
    # otherwise the next opened files would get the numbers of closed descriptors
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDONLY)  # opens the lowest free descriptor
    original = sys.stdout, sys.stderr
    sys.stdout = Results(original[0] or _open_descriptor(1))  # type: ignore[assignment]
    sys.stderr = Diagnostics(original[1] or _open_descriptor(2))  # type: ignore[assignment]
    try:
        yield
    finally:
        sys.stdout, sys.stderr = original


def _open_descriptor(descriptor: int) -> TextIO:
    return open(descriptor, "w", encoding="utf-8", closefd=False)


class Diagnostics:
    """The stream stderr. A failed write does not end the command. Characters that the encoding lacks are escaped."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._error: OSError | None = None
        encoding = None if stream.isatty() else "utf-8"  # files and pipes do not depend on the locale
        stream.reconfigure(encoding=encoding, errors="backslashreplace")  # type: ignore[attr-defined]

    def write(self, text: str) -> int:
        show_notices()
        self._try(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        self._try(self._stream.flush)

    def _handle_failure(self, error: OSError) -> None:
        """Handle a failure, and each later attempt to write."""

    def _try(self, write: Callable[[], object]) -> None:
        try:
            write()
        except OSError as error:
            self._error = self._error or error
            with suppress(OSError, ValueError):  # Python flushes the buffer again when it exits
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, self._stream.fileno())
                os.close(null)
        if self._error is not None:
            self._handle_failure(self._error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Results(Diagnostics):
    """The stream stdout. If writing fails, the command ends; a closed pipe (`| head`) causes no message."""

    def _handle_failure(self, error: OSError) -> None:
        if isinstance(error, BrokenPipeError):
            sys.exit(0)
        raise EnsueError(f"stdout cannot be written to ({error.strerror})") from None


@contextmanager
def encode_stdout(encoding: str | None) -> Iterator[None]:
    """Set the encoding of stdout in a `with` block. Raises EnsueError if it is unknown or lacks a character."""
    if encoding:
        sys.stdout.reconfigure(encoding=check_encoding(encoding), errors="strict")  # type: ignore[union-attr]
    try:
        yield
    except UnicodeEncodeError as error:
        character = error.object[error.start]
        raise EnsueError(
            f'the output: {encoding} lacks the character "{character}" (U+{ord(character):04X}) of a line; '
            "expected an encoding that has it, such as --output-encoding utf-8-sig"
        ) from None


_pending: deque[str] = deque()
"""Notices that are shown before the next output. An error message replaces them."""
MAX_DELAY_SECONDS = 5.0
"""The time after which a notice is shown if there is no other output."""


def show_notices() -> None:
    """Show the pending notices. Thread-safe."""
    notices = []
    with suppress(IndexError):
        while True:
            notices.append(_pending.popleft())
    if notices:
        sys.stderr.write("".join(notices))
        sys.stderr.flush()


def drop_notices() -> None:
    """Remove the pending notices."""
    _pending.clear()


@contextmanager
def show_notices_as_lines() -> Iterator[None]:
    """Show each notice as a line in a `with` block. Python shows other warnings."""
    original = warnings.showwarning

    def show(
        message: Warning | str, category: type[Warning], filename: str, lineno: int,
        file: TextIO | None = None, line: str | None = None,
    ) -> None:  # fmt: skip
        if not isinstance(message, Notice):
            original(message, category, filename, lineno, file, line)
        else:
            _pending.append(f"ensue: {message.in_options()}\n")
            timer = Timer(MAX_DELAY_SECONDS, show_notices)
            timer.daemon = True
            timer.start()

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = original
        show_notices()


_SURROGATES = re.compile("[^\\s\"']*[\ud800-\udfff][^\\s\"']*")
"""Matches a word with surrogates, by which Python represents bytes that are not UTF-8."""
_BYTES = re.compile(r"allocate (\d+) bytes")


def user_message(error: BaseException) -> str | None:
    """Return the message for an error of the user or the system; None for a bug."""
    match error:
        case EnsueError():
            return error.in_options()
        case OSError():
            reason = error.strerror or str(error)
            return reason if error.filename is None else f"{error.filename}: {reason}"
        case UnicodeEncodeError() if match := _SURROGATES.search(error.object):
            return f"{ascii(match[0])[1:-1]}: not UTF-8"
        case MemoryError() | RuntimeError() if _is_out_of_memory(error):
            requested = _BYTES.search(str(error))
            return "not enough memory" + (f": {int(requested[1]):,} more bytes were requested" if requested else "")
    return None


def _is_out_of_memory(error: MemoryError | RuntimeError) -> bool:
    if isinstance(error, MemoryError):
        return True
    if "torch" not in sys.modules:
        return False
    from ensue.training.device import is_out_of_memory  # noqa: PLC0415  # imports torch

    return is_out_of_memory(error)


@contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Disable garbage collection in a `with` block that imports torch.

    The import creates a million permanent objects. Collections would take a third of the import's time. Afterwards the
    objects are frozen, so that later collections skip them.
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
