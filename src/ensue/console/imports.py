"""A quick import of torch for the command line."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing_torch() -> Iterator[None]:
    """Inside, imports are not searched for garbage: of their million objects all stay to the end.

    Nor are they ever after, the end included. The searches take a third of an import of torch.
    """
    if "torch" in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
