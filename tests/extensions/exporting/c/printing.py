"""Return the files of a model in C without a run on disk."""

from typing import Any

from ensue.extensions.exporting.c.precision import F32
from ensue.extensions.exporting.c.printing import Weights
from ensue.extensions.exporting.c.writing import INTERFACES, assemble


def files_of(pipeline: Any, name: str, *, embed: bool = False, precision: str = F32) -> dict[str, bytes]:
    """Return the files without README.md."""
    description, weights = pipeline.describe(), Weights(precision=precision)
    return assemble(INTERFACES[description.kinds].source(description, weights), weights, name, embed=embed)
