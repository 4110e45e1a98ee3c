"""Weights in fewer bits, and what that does to a language model."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ensue.engine.c_library import compiler, compiler_flags
from ensue.errors import DataError
from ensue.runs.directory import RunDirectory

F32 = "f32"
PRECISIONS = {F32: 32, "f16": 16, "int8": 8}
"""The bits of each number of a matrix."""
CHARACTERS = 20_000
"""So much of the validation text is read."""


def stored(matrix: Tensor, precision: str, axis: int) -> bytes:
    """A matrix (rows, columns) as products.h reads it. Before whole numbers there is a factor for each column (axis 0),
    or for each row (axis 1). Raises ValueError for numbers that this cannot hold.
    """
    numbers: NDArray[np.float32] = matrix.detach().cpu().float().numpy()
    if precision == F32:
        return numbers.astype(np.dtype("<f4")).tobytes()
    with np.errstate(over="ignore", invalid="ignore"):
        halves: NDArray[np.float16] = numbers.astype("<f2")
    if not np.isfinite(halves).all():
        raise ValueError(f"a weight is {np.abs(numbers).max():,.6g}, too large for {precision}")
    if PRECISIONS[precision] == 16:
        return halves.tobytes()
    largest = np.abs(numbers).max(axis, keepdims=True, initial=0)
    factors: NDArray[np.float32] = np.where(largest > 0, largest / 127, 1).astype("<f4")
    whole: NDArray[np.int8] = np.rint(numbers / factors).astype(np.int8)
    return factors.tobytes() + whole.tobytes()


def measured(run: RunDirectory, pipeline: Any, files: dict[str, bytes], name: str, precision: str) -> str:
    """A sentence on the nats of validation text in this precision, beside ensue's. `files` are compiled and run."""
    here = f"The matrices are {precision}. "
    command, text = compiler(), _validation_text(run)
    if command is None or not text:
        why = "there is no validation text" if command else "there is no C compiler"
        return f"{here}What that changes was not measured: {why}."
    options = [flag for flag in compiler_flags() if flag not in ("-shared", "-fPIC")]
    with tempfile.TemporaryDirectory() as folder:
        for file, content in files.items():
            Path(folder, file).write_bytes(content)
        compiling = [*command, *options, "-o", "program", "example.c", f"{name}.c", "-lm"]
        try:
            subprocess.run(compiling, cwd=folder, capture_output=True, check=True)
            found = subprocess.run([f"{folder}/program"], input=text.encode(), capture_output=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError):
            return f"{here}What that changes was not measured: the C compiler failed."
    fewer = np.mean([float(line.split()[0]) for line in found.splitlines()])
    before = np.mean([token.nats for token in pipeline.score(text)])
    return (
        f"{here}The first {len(text):,} characters of the validation text have {fewer:.4f} nats per token, and "
        f"{before:.4f} with numbers of 32 bits ({round(fewer / before - 1, 4) + 0:+.2%})."
    )


def _validation_text(run: RunDirectory) -> str:
    """The beginning of the validation text, or "" if the run has none, or if it is not there."""
    from ensue.data.sources import TextSource  # noqa: PLC0415
    from ensue.tasks.texts.corpus import training_characters, training_source  # noqa: PLC0415

    data: Any = run.recipe.data
    try:
        if data.valid:
            source, start = TextSource(data.valid, encoding=data.encoding), 0
        elif data.valid_fraction:
            source = training_source(data)
            start = training_characters(source.count_characters(), data, run) or 0
        else:
            return ""
        return "".join(source.chunks(start, start + CHARACTERS))
    except DataError:
        return ""
