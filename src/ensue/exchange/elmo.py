"""ELMo (Peters et al. 2018): the arrays of an hdf5 file, and options.json beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ensue.errors import DataError, EnsueError
from ensue.exchange.imported import Imported
from ensue.exchange.weight_files import read_json_file
from ensue.tasks.bidirectional_language_modeling.elmo import from_elmo

SUFFIXES = (".hdf5", ".h5")
SIGN = b"\x89HDF\r\n\x1a\n"
MOST_BYTES = 1 << 32
"""The most bytes of all arrays; the largest published ELMo has less than a tenth."""


def weights_of(path: Path) -> Path | None:
    """The hdf5 file that a path names, or the only weights in a directory with options; None for no ELMo."""
    if path.is_file():
        return path if path.suffix in SUFFIXES else None
    found = sorted(file for suffix in SUFFIXES for file in path.glob(f"*weights*{suffix}"))
    return found[0] if len(found) == 1 and options_of(found[0]) else None


def options_of(weights: Path) -> Path | None:
    """The options beside the weights: of the same name, or the only ones."""
    named = weights.with_name(weights.name.replace("weights", "options")).with_suffix(".json")
    found = [named] if named.exists() else sorted(weights.parent.glob("*options*.json"))
    return found[0] if len(found) == 1 else None


def import_elmo(path: Path, weights: Path) -> Imported:
    """A published ELMo. Raises DataError without its options, and for a file that is cut off or of another kind."""
    options = options_of(weights)
    if options is None:
        raise DataError("no options.json beside it, which says how the arrays belong together", weights)
    elmo = from_elmo(_arrays(weights), read_json_file(options))
    recipe = elmo.recipe.model_copy(update={"about": f"imported from {path.name}"})
    config = {"vocabulary_size": elmo.parts.vocabulary_size}
    return Imported(path, (weights, options), "ELMo", recipe, elmo.parts, config, dict(elmo.weights))


def _arrays(path: Path) -> dict[str, NDArray[np.floating[Any]]]:
    """The arrays by their paths in the file. Their sizes are compared with the file's before one is read."""
    try:
        import h5py  # noqa: PLC0415 (an extra)
    except ImportError:
        raise EnsueError('reading hdf5 needs h5py: pip install "ensue[elmo]"') from None
    with path.open("rb") as file:
        if file.read(len(SIGN)) != SIGN:
            raise DataError("no hdf5 file", path)
    found: dict[str, Any] = {}
    try:
        with h5py.File(path, "r") as content:
            datasets: dict[str, Any] = {}
            content.visititems(lambda name, item: datasets.update({name: item} if hasattr(item, "shape") else {}))
            size = sum(int(np.prod(item.shape, dtype=object)) * item.dtype.itemsize for item in datasets.values())
            if size > min(MOST_BYTES, 4 * path.stat().st_size):
                raise DataError(f"cut off or altered: arrays of {size:,} bytes in {path.stat().st_size:,}", path)
            for name, item in datasets.items():
                found[name] = np.asarray(item[()])
    except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:
        raise DataError(f"cannot be read: cut off, altered or no hdf5 ({error})", path) from None
    return found
