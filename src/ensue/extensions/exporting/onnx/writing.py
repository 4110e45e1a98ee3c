"""Export of a run to a directory of ONNX graphs, with tokenizers, settings, and a program that uses them."""

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
from ensue.extensions.exporting.exporting import write_directory
from ensue.extensions.exporting.huggingface.tokenizer_export import library_files
from ensue.extensions.exporting.onnx.functions import trace_function
from ensue.extensions.exporting.onnx.graph import Unexportable
from ensue.runs.directory import RunDirectory
from ensue.tasks.contract.description import ModelDescription, TensorFunction
from ensue.version import package_file, package_text

TEST_SIZES = ((1, 1), (7, 1), (1, 4), (7, 5), (7, 13))
"""The numbers of rows and positions of the inputs for which graph and model are compared."""
TOLERANCE = 1e-5
"""The maximum difference, relative to the largest number of an output if this number is above 1."""


def create_session(model: onnx.ModelProto, *, threads: int = 1) -> onnxruntime.InferenceSession:
    """Return a session of onnxruntime on the CPU."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


class Difference(NamedTuple):
    """The maximum difference between an output of a graph and of the model, and the allowed difference."""

    output: str
    size: float
    bound: float


def check_differences(differences: Iterable[Difference]) -> None:
    """Raise Unexportable for a difference above its bound."""
    for output, size, bound in differences:
        if not size <= bound:
            raise Unexportable(f"{output} differs by {size:.2g} from the output of the model")


@torch.inference_mode()
def measure_differences(graph: onnx.ModelProto, model: nn.Module, function: TensorFunction) -> list[Difference]:
    """Return the difference of each output at each of TEST_SIZES. Raises Unexportable for an unexpected shape."""
    graph_session, result = create_session(graph), []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for rows, positions in TEST_SIZES:
            inputs = function.sample(rows, positions)
            outputs = function.function(model, **inputs)
            arrays = graph_session.run(list(outputs), {name: inputs[name].numpy() for name in function.inputs})
            for (name, tensor), array in zip(outputs.items(), arrays, strict=True):
                output, expected = f"{function.name}: {name} of {rows} rows of {positions} positions", tensor.numpy()
                if array.shape != expected.shape or array.dtype != expected.dtype:
                    problem = f"is {array.dtype} {array.shape}, not {expected.dtype} {expected.shape}"
                    raise Unexportable(f"{output} {problem}")
                result.append(_compare(output, array, expected))
    return result


def _compare(output: str, actual: NDArray[Any], expected: NDArray[Any]) -> Difference:
    differs = actual != expected
    with np.errstate(invalid="ignore"):
        size = np.abs(actual[differs].astype(np.float64) - expected[differs]).max(initial=0.0)
    if expected.dtype.kind != "f":
        return Difference(output, float(size), 0.0)
    largest = float(np.abs(expected[np.isfinite(expected)]).max(initial=0.0))
    return Difference(output, float(size), TOLERANCE * max(1.0, largest))


PREPROCESSED = {"onnx.quant.pre_process": "onnxruntime.quant"}
"""The property of a graph with folded constants. Without it, `quantize_dynamic` warns."""


def quantize(graph: onnx.ModelProto) -> onnx.ModelProto:
    """Return a graph with int8 matrices of products, LSTMs and embeddings. Inputs are quantized at run time.

    Constants are folded first, since onnxruntime quantizes only initializers, and skips other constants without notice.
    """
    with TemporaryDirectory() as folder:
        original, folded, quantized = (Path(folder) / f"{name}.onnx" for name in ("original", "folded", "quantized"))
        onnx.save(graph, original)
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(folded)
        options.log_severity_level = 3
        onnxruntime.InferenceSession(str(original), options, providers=["CPUExecutionProvider"])
        prepared = onnx.load(folded)
        onnx.helper.set_model_props(prepared, PREPROCESSED)
        quantize_dynamic(prepared, quantized, weight_type=QuantType.QInt8)
        return onnx.load(quantized)


PROGRAM, SETTINGS, REQUIREMENTS = "predict.py", "config.json", "requirements.txt"
MODULES_FOLDER = "ensue_modules"
"""The folder with copies of the modules of ensue that the program imports."""
_ENSUE_IMPORT = re.compile(r"^( *)(from|import) ensue(?=\.)", re.MULTILINE)
_PACKAGE_IMPORT = re.compile(r"^(?:import|from) (numpy|onnxruntime|tokenizers)\b", re.MULTILINE)


def write_onnx(
    run: RunDirectory, description: ModelDescription, out: Path, *, int8: bool = False, overwrite: bool = False
) -> list[str]:
    """Write a model as ONNX graphs, which are compared with the model at several sizes. Options are as in `export_run`.

    Raises EnsueError for a model that cannot be exported.
    """
    model, notes = description.function_model, []
    try:
        graphs = {f"{function.name}.onnx": _trace(model, function, int8=int8) for function in description.functions}
    except Unexportable as reason:
        raise EnsueError(f"{run.path}: this {run.entry.what} cannot be exported to ONNX: {reason}") from None
    texts = _make_text_files(description)
    contents: dict[str, Any] = {name: text.encode() for name, text in texts.items()}
    contents |= {name: partial(onnx.save, graph) for name, (graph, _) in graphs.items()}
    write_directory(out, contents, overwrite=overwrite)
    for name, (_, difference) in graphs.items():
        size = (out / name).stat().st_size
        notes.append(f"{out / name}: {size:,} bytes; maximum difference from the model {difference:.1g}")
    packages = " ".join(texts[REQUIREMENTS].split())
    return [*notes, f"{out / PROGRAM} needs {packages}: pip install -r {shlex.quote(str(out / REQUIREMENTS))}"]


def _trace(model: nn.Module, function: TensorFunction, *, int8: bool) -> tuple[onnx.ModelProto, float]:
    """Return the graph of a function, and its maximum difference from the model."""
    graph = trace_function(model, function.function, function.inputs, name=function.name)
    compared = measure_differences(graph, model, function)
    check_differences(compared)
    if int8:
        graph = quantize(graph)
        compared = measure_differences(graph, model, function)
    return graph, max((difference.size for difference in compared if difference.bound), default=0.0)


def _make_text_files(description: ModelDescription) -> dict[str, str]:
    contents: dict[str, Any] = {SETTINGS: dict(description.settings)}
    contents |= {name: library_files(tokenizer) for name, tokenizer in description.tokenizers.items()}
    files = {name: json.dumps(content, ensure_ascii=False) + "\n" for name, content in contents.items()}
    files |= program_files(description.programs)
    packages = sorted({name for text in files.values() for name in _PACKAGE_IMPORT.findall(text)})
    return files | {REQUIREMENTS: "".join(f"{name}\n" for name in packages)}


def program_files(programs: Sequence[str]) -> dict[str, str]:
    """Return the files of the main program, of its other modules, and of all modules of ensue that these import.

    A name with dots is a module of ensue, and a name without dots is a module in the folder `programs`.
    """
    files, unread = {}, []
    for index, name in enumerate(programs):
        module = name if "." in name else f"ensue.extensions.exporting.onnx.programs.{name}"
        text = package_text(module.removeprefix("ensue.").replace(".", "/") + ".py")
        files[f"{name.rpartition('.')[2]}.py" if index else PROGRAM] = text
        unread.append(text)
    while unread:
        for path in _find_imports(unread.pop()):
            if (name := f"{MODULES_FOLDER}/{path}") not in files:
                files[name] = package_text(path)
                unread.append(files[name])
    return {name: _ENSUE_IMPORT.sub(rf"\1\2 {MODULES_FOLDER}", text) for name, text in files.items()}


def _find_imports(text: str) -> Iterator[str]:
    """Yield the paths of the modules of ensue that a program imports by `from`."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "ensue":
            package = str(node.module).split(".")[1:]
            submodules = ["/".join([*package, alias.name]) + ".py" for alias in node.names]
            paths = [path for path in submodules if package_file(path).is_file()]
            yield from paths or ["/".join(package) + ".py"]
