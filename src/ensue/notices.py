"""What the library has to say without being asked: something works, but slower, or without what was kept.

It is a warning, since the library does not print: Python shows it, `warnings.filterwarnings` silences it or makes an
error of it, and the command line writes it as a line on stderr.
"""

from __future__ import annotations

import warnings


class Notice(UserWarning):
    """Nothing failed; a line for whoever can mend what stands behind it."""


_said: set[str] = set()


def say_once(topic: str, message: str) -> None:
    """`message`, unless something was said of the `topic` in this process before."""
    if topic not in _said:
        _said.add(topic)
        warnings.warn(" ".join(message.split()), Notice, stacklevel=3)


def forget_what_was_said() -> None:
    """As in a new process; for tests."""
    _said.clear()
