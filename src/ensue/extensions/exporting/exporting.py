"""The function `export_run`, and functions that exporters share.

An exporter is a function (run, description, out, *, overwrite, **options) that returns notes about the written files.
"""

from collections.abc import Callable, Collection, Mapping
from inspect import signature
from pathlib import Path
from types import FunctionType
from typing import Any

import torch

from ensue.errors import DataError, EnsueError, check_path, check_type, nearest
from ensue.extension import entries, loadable_entries
from ensue.extensions.exporting.c.precision import F32, PRECISIONS
from ensue.outputs import atomic_output, check_new, check_outputs
from ensue.runs.directory import RunDirectory
from ensue.tasks.contract.description import OptionValue
from ensue.training.device import restore_process


@restore_process()
def export_run(
    run: str | Path, out: str | Path, format: str = "huggingface", *, int8: bool = False, embed: bool = False,
    precision: str = F32, overwrite: bool = False,
) -> list[str]:  # fmt: skip
    """Write a run as a directory for other programs.

    Args:
        run: The run directory.
        out: The directory to write.
        format: "huggingface" writes a directory for transformers, and "sentence-transformers" for sentence vectors.
            "onnx" writes graphs, settings, and a program that uses them. "c" writes C code and weights, and "web" the
            same code as WebAssembly, in a page and a JavaScript module. Other packages may add formats.
        int8: Whether "onnx" writes matrices as int8.
        embed: Whether "c" writes the weights into the C file.
        precision: The type of matrices for "c" and "web": "f32", "f16" or "int8".
        overwrite: Whether to replace files that ensue did not write.

    Returns:
        Notes about the written files.

    Raises:
        EnsueError: The format cannot express the model, or a file that ensue did not write would be replaced.
        DataError: The directory has files with other names, or cannot be written.
    """
    check_path("the run", run)
    check_path("out", out)
    check_type("the format", format, str, "a name")
    check_type("the precision", precision, str, "a name")
    for name, value in (("int8", int8), ("embed", embed), ("overwrite", overwrite)):
        check_type(name, value, bool, "True or False")
    exporters = entries("exporter")
    if format not in exporters:
        known = ", ".join(exporters)
        raise EnsueError(f'no format "{format}"{nearest(format, exporters)}; known: {known}')
    options: dict[str, Any] = {"int8": int8, "embed": embed, "precision": precision}
    options = {name: value for name, value in options.items() if value not in (False, F32)}
    exporter = exporters[format].load(FunctionType)
    for name in (name for name in options if not _has_option(exporter, name)):
        loaded = loadable_entries("exporter", FunctionType)
        formats = [key for key, function in loaded.items() if _has_option(function, name)]
        raise EnsueError(f"{name} is for the format{'s' * (len(formats) > 1)} {' and '.join(formats)}")
    if precision not in PRECISIONS:
        raise EnsueError(f'no precision "{precision}"; expected one of {", ".join(PRECISIONS)}')
    directory, folder = RunDirectory(run), Path(out)
    check_outputs([directory.path], folders=[folder])
    description = directory.entry.pipeline_class.of(directory, torch.device("cpu")).describe()
    return exporter(directory, description, folder, overwrite=overwrite, **options)


def _has_option(exporter: FunctionType, option: str) -> bool:
    parameters = signature(exporter).parameters
    return option in parameters or any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())


def missing_options(
    settings: Mapping[str, OptionValue], supported: Collection[str], without_note: Collection[str] = ()
) -> list[str]:
    """Return notes about the options that C does not have. Raises ValueError if such an option is set."""
    missing = {name: setting for name, setting in settings.items() if name not in supported}
    for name, setting in missing.items():
        if setting.value != setting.default:
            raise ValueError(f"C has no option {name}, which is {setting.value}")
    return [f"C has no option {name}." for name in missing if name not in without_note]


def write_directory(
    directory: Path, contents: Mapping[str, bytes | Callable[[Path], object]], *, overwrite: bool = False
) -> None:
    """Write files to a directory.

    `contents` maps a file name to its content, or to a function that writes the file to a path. Raises DataError if the
    directory has other files or cannot be written, and without `overwrite` EnsueError if it would replace a file that
    ensue did not write.
    """
    names = {name.partition("/")[0] for name in contents}
    try:
        if directory.exists() and not directory.is_dir():
            raise DataError("is a file; --out names a directory", directory)
        existing = sorted(entry.name for entry in directory.iterdir()) if directory.is_dir() else []
        if other := next((name for name in existing if name not in names), None):
            raise DataError(f"not empty (found {other}); choose another --out", directory)
        for name in contents:
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            check_new(directory / name, overwrite=overwrite)
    except OSError as error:
        raise DataError(f"cannot be written ({error.strerror})", directory) from None
    for name, content in contents.items():
        with atomic_output(directory / name) as partial:
            partial.write_bytes(content) if isinstance(content, bytes) else content(partial)
