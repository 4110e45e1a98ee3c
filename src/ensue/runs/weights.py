"""Atomic writing of tensors and texts, and reading of tensors. The manifest has checksums of the files.

Sharded tensors are gathered and written one by one, so that no rank needs memory for the full model.
"""

import errno
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from ensue.errors import RunError, TrainingError
from ensue.ranks import process_group
from ensue.runs.schema import DamagedError, convert_read_errors
from ensue.types import change_temporarily

IS_WINDOWS = os.name == "nt"
DTYPE_NAMES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.bool: "BOOL",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8",
}  # fmt: skip
"""The names of data types in safetensors."""
SCALES_SUFFIX = ":scales"
"""The end of the name of the scales of an int8 tensor, which has one scale per row (its first dimension)."""


def in_float32() -> AbstractContextManager[None]:
    """Create tensors in float32 during a `with` block, if no type is given, as in a program with torch's defaults."""
    return change_temporarily(torch.set_default_dtype, torch.float32, torch.get_default_dtype())


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write tensors to a file that is complete or absent. If tensors are sharded, other ranks must call `serialize`."""
    with replace_atomically(path) as partial:
        try:
            with partial.open("wb") as file:
                file.writelines(serialize(tensors, metadata))
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(partial)) from error  # writelines does not name the file


def serialize(tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> Iterator[bytes | memoryview]:
    """Yield the bytes of a safetensors file: the header, then one full tensor at a time.

    If tensors are sharded, all ranks must iterate over the result, since each tensor is gathered when it is yielded.
    """
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))  # aligns each tensor
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    end = 0
    for name, tensor in ordered:
        start, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": DTYPE_NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for _, tensor in ordered:
        yield bytes_of(process_group().full_tensor(tensor.detach()))


def bytes_of(tensor: Tensor) -> memoryview:
    """Return the bytes of a tensor."""
    return tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().data


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a file; int8 tensors with scales are float32. Raises RunError if the file is damaged."""
    with convert_read_errors(path):
        path.open("rb").close()  # safetensors reports a file without read permission as missing
        try:
            with safe_open(path, framework="pt") as file:
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        except SafetensorError as error:
            raise DamagedError(f"{path}: damaged (cut off or altered): {error}") from None
    for name in [name for name in tensors if name.endswith(SCALES_SUFFIX)]:
        scales, rounded = tensors.pop(name), tensors.get(name.removesuffix(SCALES_SUFFIX))
        if rounded is None or scales.shape != rounded.shape[:1]:
            raise DamagedError(f"{path}: damaged: {name} is not the scale of each row of a tensor")
        tensors[name.removesuffix(SCALES_SUFFIX)] = rounded.float() * scales.reshape(-1, *[1] * (rounded.dim() - 1))
    return tensors


def write_text(path: Path, text: str) -> None:
    """Write a text file that is complete or absent. Lone surrogates are escaped as in JSON."""
    with replace_atomically(path) as partial:
        partial.write_text(text, encoding="utf-8", errors="backslashreplace")


@contextmanager
def replace_atomically(path: Path) -> Iterator[Path]:
    """Yield a temporary path. At the end of a `with` block its file replaces `path`; after an error it is removed."""
    partial = partial_path(path)
    try:
        yield partial
        flush(partial)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    flush(path.parent)


def partial_path(path: Path) -> Path:
    """Return the path of the temporary file that will replace `path`."""
    return path.with_name(f"{path.name}.partial")


def load_parameters(model: nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Copy tensors of a file, or this rank's shards, into a model. Raises RunError if names, shapes or types differ."""
    parameters = dict(model.named_parameters())
    if parameters.keys() != tensors.keys():
        name = min(parameters.keys() ^ tensors.keys())
        missing = "file" if name in parameters else "model"
        raise RunError(f"{path}: not the weights of this model: {name} is missing in the {missing}")
    with torch.no_grad():
        for name, parameter in parameters.items():
            if parameter.shape != tensors[name].shape:
                expected, actual = tuple(parameter.shape), tuple(tensors[name].shape)
                raise RunError(f"{path}: not the weights of this model: {name} should be {expected}, is {actual}")
            if parameter.dtype != tensors[name].dtype:
                raise RunError(f"{path}: altered: {name} should be {parameter.dtype}, is {tensors[name].dtype}")
            process_group().copy_shard(parameter, tensors[name])


@contextmanager
def convert_disk_errors(run: Path, message: Callable[[], str]) -> Iterator[None]:
    """Raise TrainingError with `message` if the disk is full, and RunError for other system errors in `run`."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise TrainingError(message()) from error
        if not str(error.filename or "").startswith(str(run)):
            raise
        raise RunError(f"{error.filename}: cannot be written ({error.strerror})") from error


def flush(path: Path) -> None:
    """Write a file, or the entries of a directory, from the cache of the operating system to the disk (fsync)."""
    if IS_WINDOWS and path.is_dir():  # Windows cannot open directories
        return
    descriptor = os.open(path, os.O_RDWR if IS_WINDOWS else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
