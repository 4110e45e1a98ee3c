"""The weights of a published model: safetensors, in one file or in several that an index lists."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ensue.errors import DataError
from ensue.training.imported import read_json_file

FILE, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5", "flax_model.msgpack", "model.pt")
CONVERT = '{1}.from_pretrained("{0}").save_pretrained("{0}", safe_serialization=True)'


def check_contained(folder: Path) -> None:
    """Raise DataError if a folder made by somebody else has anything but plain files, folders, and links within it.

    A link out of the folder could name any file of the user, which an import would copy into a run and a push upload.
    The links of a hub's cache, from `snapshots/COMMIT` to `blobs`, stay within the repository's folder.
    """
    root = Path(os.path.realpath(folder))
    root = root.parents[1] if root.parent.name == "snapshots" else root
    for parent, folders, names in os.walk(folder):
        for path in map(Path(parent).joinpath, [*folders, *names]):
            if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(root):
                raise DataError("a link out of the folder; expected plain files", path)
            if not (path.is_file() or path.is_dir()):
                raise DataError("neither a file nor a folder", path)


def read_json_object(path: Path) -> dict[str, Any]:
    """The object of a JSON file. Raises DataError like `read_json_file`, and for another value."""
    found = read_json_file(path)
    if not isinstance(found, dict):
        raise DataError("expected a JSON object", path)
    return found


def weight_files(directory: Path, theirs: str = "AutoModel") -> list[Path]:
    """The files of the weights. Raises DataError if one is missing or pickled, which the class `theirs` converts."""
    if (directory / FILE).is_file():  # a pipe would be waited for
        return [directory / FILE]
    if (directory / INDEX).exists():
        return _shards(directory)
    for name in PICKLED:
        if (directory / name).exists():
            convert = CONVERT.format(directory, theirs)
            raise DataError(f"pickled weights can run code and are not read; transformers converts them: {convert}",
                            directory / name)  # fmt: skip
    raise DataError(f"no weights: expected {FILE}", directory)


def shard_names(index: Path) -> list[str]:
    """The names of the files of weights that an index lists. Raises DataError for names that are not beside it."""
    places = read_json_object(index).get("weight_map")
    if not isinstance(places, dict) or not places or not all(isinstance(name, str) for name in places.values()):
        raise DataError("expected a weight_map of tensors and files", index)
    names = sorted(set(places.values()))
    if odd := next((name for name in names if Path(name).name != name), None):
        raise DataError(f"expected names of files beside it, found {odd!r:.80}", index)
    return names


def _shards(directory: Path) -> list[Path]:
    names = shard_names(directory / INDEX)
    if missing := [name for name in names if not (directory / name).is_file()]:
        raise DataError(f"{len(missing)} of {len(names)} files of weights are missing: {missing[0]}", directory)
    return [directory / name for name in names]


def read_weights(files: list[Path]) -> dict[str, Tensor]:
    """All tensors of these files by name, real numbers as float32. Raises DataError for a file that is damaged.

    The library compares the header with the size of the file before it reads a tensor.
    """
    found: dict[str, Tensor] = {}
    for path in files:
        try:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118 (not a dict)
                    found[name] = _float32(file.get_tensor(name))
        except (SafetensorError, OSError) as error:
            raise DataError(f"cannot be read: cut off, altered or no safetensors ({error})", path) from None
    return found


def _float32(tensor: Tensor) -> Tensor:
    return tensor.to(torch.float32) if tensor.is_floating_point() else tensor


def check_finite(tensors: Mapping[str, Tensor], place: Path) -> None:
    """Raises DataError for weights with a number that is not finite."""
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise DataError(f"{name} has a number that is not finite", place)
