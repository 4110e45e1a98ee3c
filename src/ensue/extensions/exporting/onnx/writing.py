"""A run as a directory of ONNX graphs, with tokenizers, settings and a program that uses them."""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
import torch
from numpy.typing import NDArray
from onnxruntime.quantization import QuantType, quantize_dynamic
from torch import nn

from ensue.errors import EnsueError
from ensue.extensions.exporting.exported import write_directory
from ensue.extensions.exporting.huggingface.tokenizer_export import library_files
from ensue.extensions.exporting.onnx.functions import traced
from ensue.extensions.exporting.onnx.graph import Unexportable
from ensue.runs.directory import RunDirectory
from ensue.tasks.contract.description import ModelDescription, TensorFunction
from ensue.version import package_file, package_text

SIZES = ((1, 1), (7, 1), (1, 4), (7, 5), (7, 13))
"""Rows and positions of the inputs that are compared."""
TOLERANCE = 1e-5
"""The largest difference, relative to the largest number of an output if that is above 1."""


def session(model: onnx.ModelProto, *, threads: int = 1) -> onnxruntime.InferenceSession:
    """Return a session of onnxruntime for a graph."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


class Difference(NamedTuple):
    """The largest difference of an output of a graph from the model's at some size, and the bound of it."""

    where: str
    size: float
    bound: float


def check(differences: Iterable[Difference]) -> None:
    """Raise Unexportable for a difference above its bound."""
    for where, size, bound in differences:
        if not size <= bound:
            raise Unexportable(f"{where} differs by {size:.2g} from the model's")


@torch.inference_mode()
def differences(graph: onnx.ModelProto, model: nn.Module, part: TensorFunction) -> list[Difference]:
    """Return the differences of each output at each of `SIZES`. Raises Unexportable for an output of another shape."""
    running, listed = session(graph), []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for rows, positions in SIZES:
            inputs = part.sample(rows, positions)
            wanted = part.function(model, **inputs)
            arrays = running.run(list(wanted), {name: inputs[name].numpy() for name in part.inputs})
            for (name, tensor), array in zip(wanted.items(), arrays, strict=True):
                where, expected = f"{part.name}: {name} of {rows} rows of {positions} positions", tensor.numpy()
                if array.shape != expected.shape or array.dtype != expected.dtype:
                    raise Unexportable(f"{where} is {array.dtype} {array.shape}, not {expected.dtype} {expected.shape}")
                listed.append(Difference(where, _largest(array, expected), _bound(expected)))
    return listed


def _largest(actual: NDArray[Any], expected: NDArray[Any]) -> float:
    """Return the largest difference; equal infinities do not differ."""
    differ = actual != expected
    with np.errstate(invalid="ignore"):
        return float(np.abs(actual[differ].astype(np.float64) - expected[differ]).max(initial=0.0))


def _bound(expected: NDArray[Any]) -> float:
    """Return the bound of the difference."""
    if expected.dtype.kind != "f":
        return 0.0
    return TOLERANCE * max(1.0, float(np.abs(expected[np.isfinite(expected)]).max(initial=0.0)))


PREPARED = {"onnx.quant.pre_process": "onnxruntime.quant"}
"""The property of a graph whose constants are folded."""


def in_eight_bits(graph: onnx.ModelProto) -> onnx.ModelProto:
    """Return a graph with int8 matrices of products, LSTMs and embeddings; their inputs are quantized at run time.

    Constants are folded first, since onnxruntime quantizes initializers alone, and does not report the other ones.
    """
    with TemporaryDirectory() as folder:
        plain, folded, small = (Path(folder) / name for name in ("plain.onnx", "folded.onnx", "small.onnx"))
        onnx.save(graph, plain)
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(folded)
        options.log_severity_level = 3
        onnxruntime.InferenceSession(str(plain), options, providers=["CPUExecutionProvider"])
        prepared = onnx.load(folded)
        onnx.helper.set_model_props(prepared, PREPARED)
        quantize_dynamic(prepared, small, weight_type=QuantType.QInt8)
        return onnx.load(small)


PROGRAM, SETTINGS, REQUIREMENTS = "predict.py", "config.json", "requirements.txt"
CARRIED = "ensue_modules"
"""The folder of the modules of ensue that the program imports."""
_OURS = re.compile(r"^( *)(from|import) ensue(?=\.)", re.MULTILINE)
_IMPORTED = re.compile(r"^(?:import|from) (numpy|onnxruntime|tokenizers)\b", re.MULTILINE)


def write_onnx(
    run: RunDirectory, description: ModelDescription, out: Path, *, int8: bool = False, overwrite: bool = False
) -> list[str]:
    """Write a model as ONNX, after each graph was compared with the model at several sizes. The options are those of
    `export_run`. Raises EnsueError for a model that cannot be exported.
    """
    model, notes = description.function_model, []
    try:
        graphs = {f"{part.name}.onnx": _graph(model, part, int8=int8) for part in description.functions}
    except Unexportable as reason:
        raise EnsueError(f"{run.path}: this {run.entry.what} cannot be exported to ONNX: {reason}") from None
    texts = _texts(description)
    contents: dict[str, Any] = {name: text.encode() for name, text in texts.items()}
    contents |= {name: partial(onnx.save, graph) for name, (graph, _) in graphs.items()}
    write_directory(out, contents, overwrite=overwrite)
    for name, (_, difference) in graphs.items():
        size = (out / name).stat().st_size
        notes.append(f"{out / name}: {size:,} bytes; at most {difference:.1g} from the model's numbers")
    packages = " ".join(texts[REQUIREMENTS].split())
    return [*notes, f"{out / PROGRAM} needs {packages}: pip install -r {shlex.quote(str(out / REQUIREMENTS))}"]


def _graph(model: nn.Module, part: TensorFunction, *, int8: bool) -> tuple[onnx.ModelProto, float]:
    """Return the graph, and its largest difference from the model."""
    graph = traced(model, part.function, part.inputs, name=part.name)
    compared = differences(graph, model, part)
    check(compared)
    if int8:
        graph = in_eight_bits(graph)
        compared = differences(graph, model, part)
    return graph, max((difference.size for difference in compared if difference.bound), default=0.0)


def _texts(description: ModelDescription) -> dict[str, str]:
    content: dict[str, Any] = {SETTINGS: dict(description.settings)}
    for name, tokenizer in description.tokenizers.items():
        content[name] = library_files(tokenizer)
    written = {name: json.dumps(value, ensure_ascii=False) + "\n" for name, value in content.items()}
    written |= program_files(description.programs)
    needed = sorted({name for text in written.values() for name in _IMPORTED.findall(text)})
    return written | {REQUIREMENTS: "".join(f"{name}\n" for name in needed)}


def program_files(programs: Sequence[str]) -> dict[str, str]:
    """Return a program and its neighbors by their files, and in `CARRIED` all modules of ensue that they import.

    A name with dots is that of a module of ensue; others are those of the folder `programs`.
    """
    files, left = {}, []
    for place, name in enumerate(programs):
        module = name if "." in name else f"ensue.extensions.exporting.onnx.programs.{name}"
        text = package_text(module.removeprefix("ensue.").replace(".", "/") + ".py")
        files[f"{name.rpartition('.')[2]}.py" if place else PROGRAM] = text
        left.append(text)
    while left:
        for path in _modules(left.pop()):
            if (name := f"{CARRIED}/{path}") not in files:
                files[name] = package_text(path)
                left.append(files[name])
    return {name: _OURS.sub(rf"\1\2 {CARRIED}", text) for name, text in files.items()}


def _modules(text: str) -> Iterator[str]:
    """Return the files of the modules of ensue that a module imports."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "ensue":
            above = str(node.module).split(".")[1:]
            inside = ["/".join([*above, alias.name]) + ".py" for alias in node.names]
            modules = [path for path in inside if package_file(path).is_file()]
            yield from modules or ["/".join(above) + ".py"]
