"""Tensors and texts on disk, as files that are complete or absent. The manifest checks their content.

Tensors are written one after the other, so that what several processes have in parts is never in one place as a whole.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from ensue.errors import RunError, TrainingError
from ensue.ranks import ranks
from ensue.runs.schema import DamagedError, told

IS_WINDOWS = os.name == "nt"
NAMES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.bool: "BOOL",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8",
}  # fmt: skip
"""The names of types in safetensors."""


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Writes tensors to a file, completely or not at all. Other processes that hold shards call `serialized`."""
    with written_beside(path) as partial:
        _write(partial, serialized(tensors, metadata))


def serialized(tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> Iterator[bytes | memoryview]:
    """The bytes of a file of safetensors: a header, then tensor by tensor. What several processes have in parts is put
    together for as long as it is asked for, so all of them go through this at the same time.
    """
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))  # so that each is aligned
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    end = 0
    for name, tensor in ordered:
        start, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for _, tensor in ordered:
        yield bytes_of(ranks().whole(tensor.detach()))


def bytes_of(tensor: Tensor) -> memoryview:
    """The content of a tensor."""
    return tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().data


def _write(path: Path, pieces: Iterable[bytes | memoryview]) -> None:
    try:
        with path.open("wb") as file:
            file.writelines(pieces)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error  # writing leaves out which file it was


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file. Raises RunError if it cannot be read."""
    with told(path):
        path.open("rb").close()  # the library says that a file is missing if it may not read it
        try:
            with safe_open(path, framework="pt") as file:
                return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        except SafetensorError as error:
            raise DamagedError(f"{path}: damaged (cut off or altered): {error}") from None


def write_text(path: Path, text: str) -> None:
    """Writes a text file that is complete or absent. Lone surrogates are written as in JSON."""
    with written_beside(path) as partial:
        partial.write_text(text, encoding="utf-8", errors="backslashreplace")


@contextmanager
def written_beside(path: Path) -> Iterator[Path]:
    """A file beside `path` to write to. At the end it is flushed and renamed; if writing fails, it is removed."""
    partial = partial_of(path)
    try:
        yield partial
        flush(partial)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    flush(path.parent)


def partial_of(path: Path) -> Path:
    """The name under which `path` is written before it is renamed."""
    return path.with_name(f"{path.name}.partial")


def load_parameters(model: nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Copies this process's shards of tensors of `path`. Raises RunError if a name, shape or type differs."""
    parameters = dict(model.named_parameters())
    if parameters.keys() != tensors.keys():
        wrong = sorted(parameters.keys() ^ tensors.keys())[0]
        raise RunError(f"{path}: not the weights of this model: {wrong} is on one side only")
    with torch.no_grad():
        for name, parameter in parameters.items():
            if parameter.shape != tensors[name].shape:
                expected, found = tuple(parameter.shape), tuple(tensors[name].shape)
                raise RunError(f"{path}: not the weights of this model: {name} should be {expected}, is {found}")
            if parameter.dtype != tensors[name].dtype:
                raise RunError(f"{path}: altered: {name} should be {parameter.dtype}, is {tensors[name].dtype}")
            ranks().take(parameter, tensors[name])


@contextmanager
def disk_errors_told(run: Path, message: Callable[[], str]) -> Iterator[None]:
    """Turns a full disk into a TrainingError with `message`, and other system errors in `run` into a RunError."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise TrainingError(message()) from error
        if not str(error.filename or "").startswith(str(run)):
            raise
        raise RunError(f"{error.filename}: cannot be written ({error.strerror})") from error


def flush(path: Path) -> None:
    """Waits until a file, or a directory's list of names, is on the disk."""
    if IS_WINDOWS and path.is_dir():  # opens no directories
        return
    descriptor = os.open(path, os.O_RDWR if IS_WINDOWS else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
