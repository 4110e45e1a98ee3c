"""The log of a server: a JSON object on each line, and never a text of a request."""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
from typing import Any


def log(what: str, **values: Any) -> None:
    """Writes a line to stderr."""
    now = time.time()
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"
    sys.stderr.write(json.dumps({"time": stamp, "event": what, **values}) + "\n")
    sys.stderr.flush()


def report(error: BaseException) -> None:
    """Writes what is needed to find a bug: where it happened. The message is left out, since it may quote a text."""
    frames = traceback.extract_tb(error.__traceback__)
    log("bug", kind=type(error).__name__, trace=[f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames])


class Lines(logging.Handler):
    """What the web server says, as lines of the log."""

    def emit(self, record: logging.LogRecord) -> None:
        """Writes one record, without its arguments, which may be of a request."""
        log("server", level=record.levelname, message=str(record.msg)[:200])
        if record.exc_info and record.exc_info[1]:
            report(record.exc_info[1])
