"""Tensors and texts on disk, as files that are complete or absent. The manifest checks their content."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from ensue.errors import RunError, TrainingError
from ensue.runs.schema import DamagedError, told

IS_WINDOWS = os.name == "nt"


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Writes tensors to a file that is complete or absent."""
    contiguous = {  # copies: safetensors refuses tensors that share memory, as the parts of a state may
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()
    }
    with written_beside(path) as partial:
        partial.touch()
        mode = partial.stat().st_mode  # as the umask wants it; the library makes its files private
        with _system_errors(partial):
            save_file(contiguous, partial, metadata)
        partial.chmod(mode)


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
    """A file beside `path` to write to. At the end it is flushed and renamed to `path`; if writing fails, it is
    removed.
    """
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


@contextmanager
def _system_errors(path: Path) -> Iterator[None]:
    """Raises the system's error in place of the library's error that wraps it."""
    try:
        yield
    except SafetensorError as error:
        if (found := re.search(r"\(os error (\d+)\)", str(error))) is None:
            raise
        number = int(found[1])
        raise OSError(number, os.strerror(number), str(path)) from error


def load_parameters(model: nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Copies the tensors of `path` into the parameters of the same names. Raises RunError if a name
    or shape differs.
    """
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
def disk_errors_told(run: Path, message: Callable[[], str]) -> Iterator[None]:
    """Turns a full disk into a TrainingError with `message`, and any other error of the system in `run` into a
    RunError.
    """
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
