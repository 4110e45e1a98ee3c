"""Errors of the user or the system as one line for the command line."""

from __future__ import annotations

import re
import sys

from ensue.errors import EnsueError

_NO_TEXT = re.compile("[^\\s\"']*[\ud800-\udfff][^\\s\"']*")
"""Matches a word with surrogates, which stand for bytes that are not UTF-8."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
LONGEST = 5000
"""The most characters of the line. A path can have 4,096; other arguments can have any number."""
_BYTES = re.compile(r"allocate (\d+) bytes")


def in_one_line(text: str) -> str:
    """The text in one line: without line ends, with control characters escaped, and without the middle if it is very
    long.
    """
    line = _CONTROL.sub(lambda found: repr(found[0])[1:-1], " ".join(text.split()))
    return line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} … {line[-LONGEST // 2 :]}"


def mistake(error: BaseException) -> str | None:
    """The message for a mistake of the user or the system; None for a bug, whose traceback is shown."""
    match error:
        case EnsueError():
            return str(error)
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
