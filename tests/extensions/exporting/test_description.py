"""One description of a model for all exporters: a new exporter is one folder, and unknown options are reported."""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import pytest

import ensue
from ensue.decode.sampling import Sampling
from ensue.decode.search import BeamSearch
from ensue.errors import EnsueError
from ensue.extensions.exporting.c.writing import print_c
from ensue.extensions.exporting.web.writing import page_files
from ensue.runs.directory import RunDirectory
from ensue.tasks import task_entries
from kept_runs.make import unpacked
from source_imports import compiled, strings

TOY = """
import json
from dataclasses import fields, is_dataclass

def plain(value):
    if hasattr(value, "to_json"):
        return value.to_json()
    if is_dataclass(value):
        return {"kind": type(value).__name__} | {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if hasattr(value, "named_parameters"):
        return {name: list(parameter.shape) for name, parameter in value.named_parameters()}
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, (tuple, list, frozenset)):
        return [plain(part) for part in value]
    return value if isinstance(value, (str, int, float, type(None))) else str(value)

def write(run, description, out, *, overwrite=False):
    out.mkdir()
    (out / "model.json").write_text(json.dumps(plain(description)))
    return [f"{run.path.name} as JSON"]
"""
DECLARED = """
from ensue.extension import Extension
EXTENSION = Extension(name="toy", exporters={"json": "toy_exporter.writing:write"})
"""


@pytest.fixture
def _toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install a package with an exporter in a temporary folder."""
    for folder in ("toy_exporter", "toy_exporter-0.1.dist-info"):
        (tmp_path / folder).mkdir()
    (tmp_path / "toy_exporter" / "__init__.py").write_text(DECLARED)
    (tmp_path / "toy_exporter" / "writing.py").write_text(TOY)
    metadata = tmp_path / "toy_exporter-0.1.dist-info"
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-exporter\nVersion: 0.1\n")
    (metadata / "entry_points.txt").write_text("[ensue.extensions]\ntoy = toy_exporter:EXTENSION\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in ("toy_exporter", "toy_exporter.writing"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("_toy")
@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("char-lstm", ("TokenInput", "TokenOutput")),
        ("tag-lstm-crf", ("WordInput", "TagOutput")),
        ("classify-lstm", ("WordInput", "ClassOutput")),
        ("translate-lstm", ("SourceInput", "TextOutput")),
        ("tag-frames", ("SeriesInput", "TagOutput")),
    ],
)
def test_a_new_exporter_needs_only_the_description(name: str, kinds: tuple[str, str], tmp_path: Path) -> None:
    unpacked(name, tmp_path)
    assert ensue.export_run(tmp_path / name, tmp_path / "out", "json") == [f"{name} as JSON"]
    document = json.loads((tmp_path / "out" / "model.json").read_text())
    assert (document["input"]["kind"], document["output"]["kind"]) == kinds
    pipeline = ensue.load(tmp_path / name, device="cpu")
    assert document["model"].keys() == dict(pipeline.model.named_parameters()).keys()
    assert all(function["inputs"] for function in document["functions"])
    if kinds[1] == "TagOutput":
        assert document["output"]["labels"] == pipeline.labels.to_json()
    if kinds[1] == "TextOutput":
        assert document["output"]["search"]["width"] == [pipeline.search.width, BeamSearch.width]
    with pytest.raises(EnsueError, match="int8 is for the format onnx"):
        ensue.export_run(tmp_path / name, tmp_path / "out", "json", int8=True)


@dataclass(frozen=True)
class PlantedSearch(BeamSearch):
    diversity: float = 0.0


def test_an_unknown_option_of_a_search_is_refused_if_it_has_an_effect(tmp_path: Path) -> None:
    unpacked("transduce-lstm", tmp_path)
    run = RunDirectory(tmp_path / "transduce-lstm")
    pipeline: Any = ensue.load(run.path, device="cpu")
    settings = {each.name: getattr(pipeline.search, each.name) for each in fields(pipeline.search)}
    pipeline.search = PlantedSearch(**settings)
    description = pipeline.describe()
    assert print_c(run, description, "model")[2] == ["C has no option diversity."]
    pipeline.search = PlantedSearch(**settings, diversity=0.5)
    description = pipeline.describe()
    for write in (print_c, lambda *arguments: page_files(*arguments, lambda *_: b"")):
        with pytest.raises(EnsueError, match=r"C has no option diversity, which is 0\.5;"):
            write(run, description, "model")
    pipeline.search = replace(BeamSearch(**settings), coverage_penalty=0.2)
    with pytest.raises(EnsueError, match=r"C has no option coverage_penalty, which is 0\.2;"):
        print_c(run, pipeline.describe(), "model")


@dataclass(frozen=True)
class PlantedSampling(Sampling):
    typical_p: float | None = None


def test_an_unknown_filter_of_sampling_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ensue.tasks.language_modeling.pipeline.Sampling", PlantedSampling)
    unpacked("char-lstm", tmp_path)
    note, _ = ensue.export_run(tmp_path / "char-lstm", tmp_path / "out", "c")
    assert note == "C has no option typical_p."
    assert note in (tmp_path / "out" / "README.md").read_text()


def test_no_exporter_names_a_task() -> None:
    folder = Path(ensue.__file__).parent / "extensions" / "exporting"
    names = {*task_entries()}
    assert [path for path in folder.rglob("*.py") if names.intersection(strings(compiled(path)))] == []
