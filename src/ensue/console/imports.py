"""A quick import of torch for the command line."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing_torch() -> Iterator[None]:
    """Imports without searches for garbage, in a `with` block.

    An import of torch makes a million objects, and all of them stay. Searches for garbage would take a third of its
    time. The objects are left out of all later searches too.
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
