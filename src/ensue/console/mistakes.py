"""Errors of the user or the system as one line for the command line."""

from __future__ import annotations

import re
import sys

from ensue.errors import EnsueError

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
