"""The files of a model in C, without those of a run."""

from ensue.extensions.exporting.c.precision import F32
from ensue.extensions.exporting.c.printing import Weights
from ensue.extensions.exporting.c.writing import INTERFACES, assemble
from ensue.tasks.contract.description import ModelDescription


def files_of(
    description: ModelDescription, name: str, *, embed: bool = False, precision: str = F32
) -> dict[str, bytes]:
    """Return the files without README.md."""
    weights = Weights(precision=precision)
    return assemble(INTERFACES[description.kinds].source(description, weights), weights, name, embed=embed)
