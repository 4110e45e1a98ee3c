"""Reading of published weights: safetensors in one file, or in shards with an index."""

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
OTHER_FILES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5", "flax_model.msgpack", "model.pt")
CONVERSION = '{1}.from_pretrained("{0}").save_pretrained("{0}", safe_serialization=True)'


def check_contained(folder: Path) -> None:
    """Raise DataError unless a folder has only plain files, folders, and links to files in the folder.

    A link to another place could lead to a private file of the user, which an import would copy into a run, and a push
    would upload. In the cache of the Hugging Face Hub, links from `snapshots/COMMIT` to `blobs` are allowed.
    """
    root = Path(os.path.realpath(folder))
    root = root.parents[1] if root.parent.name == "snapshots" else root
    for parent, folders, names in os.walk(folder):
        for path in map(Path(parent).joinpath, [*folders, *names]):
            if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(root):
                raise DataError("a link to a path outside the folder; expected plain files", path)
            if not (path.is_file() or path.is_dir()):
                raise DataError("neither a file nor a folder", path)


def read_json_object(path: Path) -> dict[str, Any]:
    """Read a JSON object. Raises DataError like `read_json_file`, and for another JSON value."""
    content = read_json_file(path)
    if not isinstance(content, dict):
        raise DataError("expected a JSON object", path)
    return content


def weight_files(directory: Path, model_class: str = "AutoModel") -> list[Path]:
    """Return the paths of the safetensors of a directory. Raises DataError for missing or pickled weights.

    `model_class` is the class of transformers that converts pickled weights, for the message about such weights.
    """
    if (directory / FILE).is_file():  # not exists(): reading a named pipe would block
        return [directory / FILE]
    if (directory / INDEX).exists():
        names = shard_names(directory / INDEX)
        if missing := [name for name in names if not (directory / name).is_file()]:
            raise DataError(f"{len(missing)} of {len(names)} files of weights are missing: {missing[0]}", directory)
        return [directory / name for name in names]
    if path := next((directory / name for name in OTHER_FILES if (directory / name).exists()), None):
        conversion = CONVERSION.format(directory, model_class)
        message = f"pickled weights can run code and are not read; transformers converts them: {conversion}"
        raise DataError(message, path)
    raise DataError(f"no weights: expected {FILE}", directory)


def shard_names(index: Path) -> list[str]:
    """Return the file names of the shards in an index. Raises DataError for a name with a folder."""
    files = read_json_object(index).get("weight_map")
    if not isinstance(files, dict) or not files or not all(isinstance(name, str) for name in files.values()):
        raise DataError("expected a weight_map of tensors and files", index)
    names = sorted(set(files.values()))
    if invalid := next((name for name in names if Path(name).name != name), None):
        raise DataError(f"expected file names without folders, found {invalid!r:.80}", index)
    return names


def read_weights(files: list[Path]) -> dict[str, Tensor]:
    """Read all tensors by name, floating-point numbers as float32. Raises DataError for a damaged file.

    The library compares the header with the size of the file before it reads a tensor.
    """
    tensors: dict[str, Tensor] = {}
    for path in files:
        try:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118 (not a dict)
                    tensor = file.get_tensor(name)
                    tensors[name] = tensor.float() if tensor.is_floating_point() else tensor
        except (SafetensorError, OSError) as error:
            raise DataError(f"cannot be read: truncated, damaged or not safetensors ({error})", path) from None
    return tensors


def check_finite(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Raise DataError for weights with a number that is not finite."""
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise DataError(f"{name} has a number that is not finite", path)
