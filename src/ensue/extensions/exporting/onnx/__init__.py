"""Export to ONNX graphs, for programs without torch and ensue. `export_onnx` imports the optional packages."""

from importlib.util import find_spec
from pathlib import Path

from ensue.errors import EnsueError
from ensue.runs.directory import RunDirectory
from ensue.tasks.contract.description import ModelDescription


def export_onnx(
    run: RunDirectory, description: ModelDescription, out: Path, *, int8: bool = False, overwrite: bool = False
) -> list[str]:
    """Write a model by `write_onnx`. Raises EnsueError if a package is missing."""
    for name in ("onnx", "onnxruntime"):
        if find_spec(name) is None:
            raise EnsueError(f'ONNX needs the package {name}, which is not installed: pip install "ensue[onnx]"')
    from ensue.extensions.exporting.onnx.writing import write_onnx  # noqa: PLC0415 (an extra)

    return write_onnx(run, description, out, int8=int8, overwrite=overwrite)
