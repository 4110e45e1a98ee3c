"""Notices: something works, but more slowly, or without the cache.

A notice is a warning, since the library does not print. Python shows it, and `warnings.filterwarnings` silences it or
turns it into an error. The command line writes it as a line on stderr.
"""

from __future__ import annotations

import sys
import warnings


class Notice(UserWarning):
    """Nothing failed; the message is one line that says what could be improved."""


MOST_TOPICS = 1 << 12
"""When there were notices on so many topics, all are forgotten: a process may read any number of files."""
_said: set[str] = set()


def say_once(topic: str, message: str) -> None:
    """Warns with `message`, unless there was a notice on this `topic` in the process before."""
    if topic not in _said:
        if len(_said) >= MOST_TOPICS:
            _said.clear()
        _said.add(topic)
        place = sys._getframe(2)  # that of the caller's caller
        text, file, module = " ".join(message.split()), place.f_code.co_filename, place.f_globals.get("__name__", "")
        warnings.warn_explicit(text, Notice, file, place.f_lineno, module, {})  # Python's own memory grows without end


def say_empty(count: int, location: str) -> None:
    """Warns of texts without a word, for which an answer says nothing, where there are any."""
    if count:
        texts = "a text is" if count == 1 else f"{count:,} texts are"
        say_once(f"empty {location}", f"{location}: {texts} empty; what is predicted there means nothing")


def say_unknown(count: int, location: str) -> None:
    """Warns of texts all of whose words are new to a model, where there are any."""
    if count:
        texts = "a text has" if count == 1 else f"{count:,} texts have"
        say_once(f"unknown {location}", f"{location}: {texts} no word of the training data; do not trust the answer")
