"""Where ensue keeps what it has made once and can make again."""

from __future__ import annotations

import os
from pathlib import Path


def cache_directory() -> Path:
    """`$ENSUE_CACHE`, else `$XDG_CACHE_HOME/ensue`, else `~/.cache/ensue`."""
    if own := os.environ.get("ENSUE_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ensue"
