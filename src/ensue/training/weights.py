"""Tensors on disk: safetensors files that are complete or absent, and whose content is what was written."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from ensue.errors import RunError, TrainingError

CHECKSUM = "sha256"
IS_WINDOWS = os.name == "nt"


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write beside, flush to the disk, rename into place. The file's header holds a checksum of the content."""
    contiguous = {  # copies: safetensors refuses tensors that share memory, as the parts of a state may
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()
    }
    partial = path.with_name(f"{path.name}.partial")
    try:
        save_file(contiguous, partial, metadata={CHECKSUM: _checksum(contiguous)})
        flush(partial)
        partial.rename(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    flush(path.parent)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file. A missing, cut or altered one is a `RunError`."""
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
            expected = (file.metadata() or {}).get(CHECKSUM)
    except FileNotFoundError:
        raise RunError(f"{path}: no such file; was the run interrupted before its first validation?") from None
    except (SafetensorError, OSError) as error:
        raise RunError(f"{path}: damaged (cut off or altered): {error}") from None
    if expected != _checksum(tensors):
        raise RunError(f"{path}: altered since it was written: its checksum does not match its content")
    return tensors


def write_text(path: Path, text: str) -> None:
    """Write a small text file so that it is complete or absent."""
    partial = path.with_name(f"{path.name}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        flush(partial)
        partial.rename(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def load_parameters(model: nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Copy the tensors of `path` into the parameters of the same names; every name and shape must agree."""
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
            parameter.copy_(tensors[name])


@contextmanager
def full_disk_told(message: Callable[[], str]) -> Iterator[None]:
    """Writing that fails because the disk is full is a `TrainingError` with that message."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise TrainingError(message()) from error
    except SafetensorError as error:  # wraps the system's error in its own
        if "os error 28" not in str(error).lower() and "no space left" not in str(error).lower():
            raise
        raise TrainingError(message()) from error


def flush(path: Path) -> None:
    """Wait until a file, or a directory's list of names, is on the disk."""
    if IS_WINDOWS and path.is_dir():  # opens no directories
        return
    descriptor = os.open(path, os.O_RDWR if IS_WINDOWS else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _checksum(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name, data in _bytes(tensors):
        digest.update(name.encode())
        digest.update(data)
    return digest.hexdigest()


def _bytes(tensors: Mapping[str, Tensor]) -> Iterable[tuple[str, bytes]]:
    for name in sorted(tensors):
        flat = tensors[name].contiguous().reshape(-1)
        yield name, flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
