"""Small sequence models on your own data: train them, use them, look inside.

    import ensue
    lm = ensue.train("char-lstm", train="book.txt", out="run")
    for piece in ensue.load("run").generate("Once"): print(piece, end="")

Names are imported at first use, so `import ensue` and `ensue --help` need no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ensue.version import VERSION as __version__

if TYPE_CHECKING:
    from ensue import nn
    from ensue.library import load, train

__all__ = ["__version__", "load", "nn", "train"]


def __getattr__(name: str) -> Any:
    if name == "nn":
        return importlib.import_module("ensue.nn")
    if name in ("load", "train"):
        return getattr(importlib.import_module("ensue.library"), name)
    raise AttributeError(f"module 'ensue' has no attribute {name!r}")
