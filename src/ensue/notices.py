"""Notices: warnings about slow execution, a missing cache or unreliable results.

A notice is a warning, since the library does not print: `warnings.filterwarnings` silences it or turns it into an
error. The command line writes it as a line on stderr.
"""

import sys
import warnings

from ensue.errors import UserMessage


class Notice(UserMessage, UserWarning):
    """A warning of one line, such as a warning about slow execution or unreliable results."""


MAX_TOPICS = 1 << 12
"""The maximum number of stored topics, which bounds the memory of a process that reads many files."""
_topics: set[str] = set()


def warn_once(topic: str, message: str) -> None:
    """Warn with `message`, unless this process has warned about the `topic` before."""
    if topic not in _topics:
        if len(_topics) >= MAX_TOPICS:
            _topics.clear()
        _topics.add(topic)
        frame = sys._getframe(1)
        while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == "ensue":
            frame = frame.f_back  # ends at the program that calls the library
        text, file, module = " ".join(message.split()), frame.f_code.co_filename, frame.f_globals.get("__name__", "")
        warnings.warn_explicit(text, Notice, file, frame.f_lineno, module, {})  # {}: Python's registry is unbounded


def warn_of_texts(count: int, location: str, states: tuple[str, str], quality: str) -> None:
    """Warn that the predictions for `count` texts are "unreliable" or "meaningless" (`quality`).

    `states` is the reason: a predicate for a single text, such as "is empty", and a predicate for several texts.
    """
    if count:
        texts = f"a text {states[0]}" if count == 1 else f"{count:,} texts {states[1]}"
        warn_once(f"{quality} {location}", f"{location}: {texts}; predictions for them are {quality}")
