"""Notices of the library as lines on stderr."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from ensue.notices import Notice


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
            print(f"ensue: {message}", file=sys.stderr, flush=True)

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = usual
