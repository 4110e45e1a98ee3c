"""The folders in which ensue keeps what it can make again."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

from ensue.notices import say_once


def cache_directory() -> Path:
    """`$ENSUE_CACHE`, else `$XDG_CACHE_HOME/ensue`, else `~/.cache/ensue`; without a home a temporary folder."""
    if own := os.environ.get("ENSUE_CACHE"):
        return Path(own)
    if caches := os.environ.get("XDG_CACHE_HOME"):
        return Path(caches) / "ensue"
    try:
        return Path.home() / ".cache" / "ensue"
    except RuntimeError:
        say_once("cache", "there is no home directory: nothing is kept; ENSUE_CACHE names a folder for what is")
        return temporary_directory()


def cells_directory() -> Path:
    """The folder of compiled cells: `$ENSUE_CELLS`, else `cells` in the cache."""
    own = os.environ.get("ENSUE_CELLS")
    return Path(own) if own else cache_directory() / "cells"


@cache
def temporary_directory() -> Path:
    """A folder of this process that no other user may enter, removed at its end. Raises OSError if that fails."""
    path, process = Path(tempfile.mkdtemp(prefix="ensue-")), os.getpid()

    def remove() -> None:
        if os.getpid() == process:  # and not a fork of it
            shutil.rmtree(path, ignore_errors=True)

    atexit.register(remove)
    return path
