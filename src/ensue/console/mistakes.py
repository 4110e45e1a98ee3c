"""Errors of the user or the system as one line for the command line."""

from __future__ import annotations

import re
import sys

from ensue.errors import EnsueError

_NO_TEXT = re.compile("[^\\s\"']*[\ud800-\udfff][^\\s\"']*")
"""A word with bytes that are not UTF-8, as Python holds them."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
LONGEST = 5000
"""Characters of the line: a path can have 4,096, and what else was given may have any number."""
_BYTES = re.compile(r"allocate (\d+) bytes")


def in_one_line(text: str) -> str:
    """The text without line ends, without what would move a terminal's cursor or change its colors, and
    without the middle of what is very long.
    """
    line = _CONTROL.sub(lambda found: repr(found[0])[1:-1], " ".join(text.split()))
    return line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} … {line[-LONGEST // 2 :]}"


def mistake(error: BaseException) -> str | None:
    """What to say; None for whatever is no mistake but a defect, of which the traceback is to be seen."""
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
