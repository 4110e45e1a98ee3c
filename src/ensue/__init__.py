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
    from ensue.extensions.annotating.teachers import distill
    from ensue.extensions.experiments.comparison import compare
    from ensue.extensions.exporting.exporting import export_run
    from ensue.extensions.hub.pushing import push
    from ensue.extensions.importing.importing import import_run
    from ensue.library import load, train

__all__ = ["__version__", "compare", "distill", "export_run", "import_run", "load", "nn", "push", "train"]

MODULES = {
    "compare": "ensue.extensions.experiments.comparison",
    "distill": "ensue.extensions.annotating.teachers",
    "load": "ensue.library",
    "train": "ensue.library",
    "import_run": "ensue.extensions.importing.importing",
    "export_run": "ensue.extensions.exporting.exporting",
    "push": "ensue.extensions.hub.pushing",
}
"""For each function of the package, its module."""


def __dir__() -> list[str]:
    """Return the public names, for completion in a notebook or a shell."""
    return sorted({*globals(), *__all__})


if not TYPE_CHECKING:  # a type checker would take any name from __getattr__, a misspelled one as well

    def __getattr__(name: str) -> Any:
        if name == "nn":
            return importlib.import_module("ensue.nn")
        if name in MODULES:
            return getattr(importlib.import_module(MODULES[name]), name)
        raise AttributeError(f"module 'ensue' has no attribute {name!r}")
