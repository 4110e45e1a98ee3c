"""A run as a directory of ONNX graphs, with tokenizers, settings and a program that uses them."""

from __future__ import annotations

import json
import re
import shlex
from importlib.resources import files
from pathlib import Path
from typing import Any

import onnx
import torch
from torch import nn

from ensue.errors import EnsueError
from ensue.exchange.onnx.checking import check, differences
from ensue.exchange.onnx.functions import traced
from ensue.exchange.onnx.graph import Unexportable
from ensue.exchange.places import new_directory
from ensue.exchange.tokenizer_export import library_files
from ensue.runs.directory import RunDirectory
from ensue.tasks.contract.portable import Portable, PortableFunction

PROGRAM, SETTINGS, REQUIREMENTS = "predict.py", "config.json", "requirements.txt"
_IMPORTED = re.compile(r"^(?:import|from) (numpy|onnxruntime|tokenizers)\b", re.MULTILINE)


def export_onnx(run: RunDirectory, out: Path, *, int8: bool = False) -> list[str]:
    """Writes a run as ONNX, and returns a line about each graph, and one about what the program needs.

    Each is compared with the model, at several sizes, before anything is written. With `int8`, the matrices are whole
    numbers of eight bits. Raises EnsueError for a model that cannot be exported, and DataError for a directory with
    other files.
    """
    portable = run.entry.pipeline_class.of(run, torch.device("cpu")).portable()
    notes = []
    try:
        graphs = {f"{part.name}.onnx": _graph(portable.model, part, int8=int8) for part in portable.functions}
    except Unexportable as reason:
        raise EnsueError(f"{run.path}: this {run.entry.what} cannot be exported to ONNX: {reason}") from None
    texts = _texts(portable)
    with new_directory(out, {*graphs, *texts}):
        for name, text in texts.items():
            (out / name).write_text(text, encoding="utf-8")
        for name, (graph, difference) in graphs.items():
            onnx.save(graph, out / name)
            size = (out / name).stat().st_size
            notes.append(f"{out / name}: {size:,} bytes; at most {difference:.1g} from the model's numbers")
    packages = " ".join(texts[REQUIREMENTS].split())
    return [*notes, f"{out / PROGRAM} needs {packages}: pip install -r {shlex.quote(str(out / REQUIREMENTS))}"]


def _graph(model: nn.Module, part: PortableFunction, *, int8: bool) -> tuple[onnx.ModelProto, float]:
    """The graph, and its largest difference from the model."""
    graph = traced(model, part.function, part.inputs, name=part.name)
    found = differences(graph, model, part)
    check(found)
    if int8:
        from ensue.exchange.onnx.integers import in_eight_bits  # noqa: PLC0415 (it takes a while)

        graph = in_eight_bits(graph)
        found = differences(graph, model, part)
    return graph, max(difference.found for difference in found if difference.bound)


def _texts(portable: Portable) -> dict[str, str]:
    content: dict[str, Any] = {SETTINGS: dict(portable.settings)}
    for name, tokenizer in portable.tokenizers.items():
        content[name] = library_files(tokenizer)
    written = {name: json.dumps(value, ensure_ascii=False) + "\n" for name, value in content.items()}
    for place, name in enumerate(portable.programs):
        program = files("ensue.exchange.onnx") / "programs" / f"{name}.py"
        written[f"{name}.py" if place else PROGRAM] = program.read_text(encoding="utf-8")
    needed = sorted({name for text in written.values() for name in _IMPORTED.findall(text)})
    return written | {REQUIREMENTS: "".join(f"{name}\n" for name in needed)}
