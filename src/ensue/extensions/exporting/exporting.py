"""Runs as directories for other programs, by the exporters of extensions.

An exporter is a function (run, description, out, *, overwrite, **options) that returns lines about its files.
"""

from __future__ import annotations

from inspect import signature
from pathlib import Path
from types import FunctionType
from typing import Any

import torch

from ensue.arguments import check_path, check_type
from ensue.errors import EnsueError, nearest
from ensue.extension import entries, loadable_entries
from ensue.extensions.exporting.c.precision import F32, PRECISIONS
from ensue.outputs import check_outputs
from ensue.runs.directory import RunDirectory
from ensue.training.device import process_restored


@process_restored()
def export_run(
    run: str | Path,
    out: str | Path,
    format: str = "huggingface",
    *,
    int8: bool = False,
    embed: bool = False,
    precision: str = F32,
    overwrite: bool = False,
) -> list[str]:
    """Write a run as a directory for other programs.

    Args:
        run: The run directory.
        out: The directory to write.
        format: "huggingface" is what transformers loads: config.json, model.safetensors, and the tokenizer's files.
            "sentence-transformers" has its files beside them, for a model that gives vectors of texts. "onnx" are
            graphs, settings and a program that uses them. "c" is a file of C with its weights. "web" is this file in
            WebAssembly, as a page and as a module of JavaScript. Other packages may have other formats.
        int8: Of "onnx": whether matrices have eight bits.
        embed: Of "c": whether the weights are inside of the C file.
        precision: Of "c" and "web": "f32", "f16" or "int8" numbers of matrices.
        overwrite: Whether files that ensue did not write may be replaced.

    Returns:
        Lines about the files.

    Raises:
        EnsueError: The format cannot express the model, or `out` has files that ensue did not write.
        DataError: The directory has other files.
    """
    check_path("the run", run)
    check_path("out", out)
    check_type("the format", format, str, "a name")
    check_type("the precision", precision, str, "a name")
    for what, value in (("int8", int8), ("embed", embed), ("overwrite", overwrite)):
        check_type(what, value, bool, "True or False")
    exporters = entries("exporter")
    if format not in exporters:
        known = ", ".join(exporters)
        raise EnsueError(f'no format "{format}"{nearest(format, exporters)}; known for this model: {known}')
    options: dict[str, Any] = {"int8": int8, "embed": embed, "precision": precision}
    options = {name: value for name, value in options.items() if value not in (False, F32)}
    exporter = exporters[format].load(FunctionType)
    for name in (name for name in options if not _takes(exporter, name)):
        loaded = loadable_entries("exporter", FunctionType)
        others = [other for other, function in loaded.items() if _takes(function, name)]
        raise EnsueError(f"{name} is for the format{'s' * (len(others) > 1)} {' and '.join(others)}")
    if precision not in PRECISIONS:
        raise EnsueError(f'no precision "{precision}"; expected one of {", ".join(PRECISIONS)}')
    directory, place = RunDirectory(run), Path(out)
    check_outputs([directory.path], folders=[place])
    description = directory.entry.pipeline_class.of(directory, torch.device("cpu")).describe()
    lines: list[str] = exporter(directory, description, place, overwrite=overwrite, **options)
    return lines


def _takes(exporter: FunctionType, option: str) -> bool:
    """Return whether an exporter has an option."""
    parameters = signature(exporter).parameters
    return option in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values())
