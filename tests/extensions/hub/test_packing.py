"""Wheels of runs, and the use of installed models by their names."""

import base64
import csv
import hashlib
import json
import runpy
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import PathDistribution
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from command_fixtures import Ensue
from ensue import load
from ensue.cli import program
from ensue.errors import EnsueError, RunError
from ensue.extension import installed_models, local_run
from ensue.runs.directory import RunDirectory
from ensue.runs.weights import SCALES_SUFFIX, read_tensors
from kept_runs.make import ARCHIVES, unpacked
from pages import REPOSITORY

TEXTS = ["Anna Novak sees Lima.", "The boat of Paul"]
ARCHIVED_RUNS = sorted(path.name.removesuffix(".tar.xz") for path in ARCHIVES.iterdir())
PACKING = REPOSITORY / "models" / "packing"


def pack(*arguments: Any, **options: Any) -> Path:
    file: Path = import_module("ensue_packing.packing").pack(*arguments, **options)
    return file


@pytest.fixture(autouse=True)
def packing(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the package ensue-packing importable with its metadata, as if it were installed."""
    project = tomllib.loads((PACKING / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    facts = tmp_path_factory.mktemp("packing") / f"ensue_packing-{project['version']}.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: ensue-packing\nVersion: {project['version']}\n")
    ((group, points),) = project["entry-points"].items()
    lines = [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
    (facts / "entry_points.txt").write_text("\n".join(lines))
    for folder in (PACKING, facts.parent):
        monkeypatch.syspath_prepend(folder)


def test_the_module_reports_errors_as_the_command_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["ensue_packing", "nowhere", "--wheel", "x"])
    monkeypatch.setattr(program, "COMMANDS", program.COMMANDS)
    with pytest.raises(SystemExit, match="2"):
        runpy.run_module("ensue_packing")
    assert capsys.readouterr().err == "ensue: nowhere: no such run directory\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with the runs "tag-lstm-crf", "cut-lstm" and "tag-columns"."""
    monkeypatch.chdir(tmp_path)
    for name in ("tag-lstm-crf", "cut-lstm", "tag-columns"):
        unpacked(name, tmp_path)
    return tmp_path


@pytest.fixture
def install(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], Path]:
    """A function that unpacks a wheel into a folder on `sys.path`."""

    def installed(wheel: Path) -> Path:
        place = tmp_path_factory.mktemp("site")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(place)
        monkeypatch.syspath_prepend(place)
        return place

    return installed


def test_a_wheel_has_the_files_of_the_run_and_their_checksums(folder: Path) -> None:
    (folder / "LICENSE.txt").write_text("Thanks to all.\n")
    options: dict[str, Any] = {"license": "CC-BY-SA-4.0", "license_file": "LICENSE.txt", "version": "1.2"}
    wheel = pack("tag-lstm-crf", "en-names", **options)
    assert wheel == Path("ensue_en_names-1.2-py3-none-any.whl")
    (folder / "again").mkdir()
    assert pack(folder / "tag-lstm-crf", "en-names", "again", **options).read_bytes() == wheel.read_bytes()
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
        archive.extractall(folder / "site")
    facts = "ensue_en_names-1.2.dist-info/"
    digests = {
        name: "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        for name, content in files.items()
    }
    rows = [*csv.reader(files[f"{facts}RECORD"].decode().splitlines())]
    assert rows.pop() == [f"{facts}RECORD", "", ""]
    assert {name: (digest, int(size)) for name, digest, size in rows} == {
        name: (digests[name], len(content)) for name, content in files.items() if name != f"{facts}RECORD"
    }
    assert not [name for name in files if name.endswith(".py")]
    assert files[f"{facts}licenses/LICENSE.txt"] == b"Thanks to all.\n"
    distribution = PathDistribution(folder / "site" / facts)
    assert (distribution.name, distribution.version, distribution.metadata["License-Expression"]) == (
        "ensue-en-names",
        "1.2",
        "CC-BY-SA-4.0",
    )
    assert distribution.metadata.get_all("License-File") == ["LICENSE.txt"]
    assert [(point.group, point.name) for point in distribution.entry_points] == [("ensue.models", "en-names")]
    log = [json.loads(line) for line in files["ensue_en_names/en-names/metrics.jsonl"].splitlines()]
    assert [record["kind"] for record in log] == ["valid", "test"][: len(log)]
    assert all(not record.get("sample") for record in log)
    assert not [name for name, content in files.items() if str(folder).encode() in content]


def test_an_installed_model_is_used_by_its_name(
    folder: Path, install: Callable[[Path], Path], ensue: Ensue, refused: Callable[..., str]
) -> None:
    assert "no models are installed" in ensue("models").err
    place = install(pack("tag-lstm-crf", "en-names", license="MIT", precision="int8"))
    installed = place / "ensue_en_names" / "en-names"
    assert local_run("en-names") == installed == installed_models()["en-names"]
    assert load("en-names", device="cpu").predict(TEXTS) == load("tag-lstm-crf", device="cpu").predict(TEXTS)
    result = ensue("predict", "en-names", stdin=b"Anna Novak sees Lima.\n").succeeded()
    assert result.out == ensue("predict", "tag-lstm-crf", stdin=b"Anna Novak sees Lima.\n").out
    assert refused("predict", "en-nams") == 'en-nams: no such run directory; did you mean "en-names"?'
    listed = ensue("models").out.splitlines()
    assert listed[1].split()[:2] == ["en-names", "tagger"]
    (model,) = map(json.loads, ensue("models", "--json").out.splitlines())
    assert (model["name"], model["license"], model["run"]) == ("en-names", "MIT", str(installed))
    assert model["bytes"] == sum(path.stat().st_size for path in installed.iterdir())
    recipe = installed / "recipe.toml"
    train = ["train", recipe, "--train", "names.txt", "--set", "train.steps=1", "--set", "data.valid=", "--threads", 1]
    assert ensue(*train, "--from", "en-names", "--out", "next").status == 0
    assert RunDirectory("next").config["origins"][0]["path"] == "en-names"
    assert ensue(*train, "--out", "en-names").status == 0, "the name of a model is a new directory for --out"
    assert (folder / "en-names" / "model.safetensors").is_file()
    assert local_run("en-names") == Path("en-names"), "a path wins"
    (installed / "config.json").write_text("{")
    assert "en-names/config.json: damaged" in refused("models")


def test_a_second_wheel_needs_no_license_and_does_not_replace_the_first(
    folder: Path, install: Callable[[Path], Path], refused: Callable[..., str], ensue: Ensue
) -> None:
    packing = ["pack", "tag-lstm-crf", "--wheel", "one"]
    assert refused(*packing) == "tag-lstm-crf: no license in the model card; expected --license, such as MIT"
    assert ensue(*packing, "--license", "MIT").status == 0
    (folder / "ensue_one-1.0-py3-none-any.whl").write_bytes(b"mine")
    assert "exists; --overwrite replaces it" in refused(*packing, "--license", "MIT")
    assert ensue(*packing, "--license", "MIT", "--overwrite").status == 0
    install(folder / "ensue_one-1.0-py3-none-any.whl")
    assert ensue("pack", "one", "--wheel", "two").status == 0
    install(folder / "ensue_two-1.0-py3-none-any.whl")
    assert {json.loads(line)["license"] for line in ensue("models", "--json").out.splitlines()} == {"MIT"}


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"wheel": "../en"}, 'the name is .../en.; expected a value such as "en-news"'),
        ({"wheel": "En"}, "the name is .En.; expected"),
        ({"version": "new"}, "the version is .new.; expected"),
        ({"license": "MIT\nName: x"}, "the license is .*; expected"),
        ({"precision": "int4"}, "the precision is .int4.; expected"),
        ({"out": "nowhere"}, "no folder nowhere"),
        ({"run": "nowhere"}, "nowhere/model.safetensors: no such file"),
        ({"tagger": "tag-lstm-crf"}, "expected a cutter and a tagger of words"),
    ],
)
def test_invalid_values_are_refused_and_nothing_is_written(folder: Path, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(EnsueError, match=problem):
        pack(**{"run": "tag-lstm-crf", "wheel": "en", "license": "MIT", **options})
    assert not [*folder.rglob("*.whl")]


def test_a_cutter_and_a_tagger_are_one_model(folder: Path, install: Callable[[Path], Path], ensue: Ensue) -> None:
    both = load("cut-lstm", device="cpu").before(load("tag-columns", device="cpu"))  # type: ignore[attr-defined]
    wheel = pack("cut-lstm", "raw", license="MIT", tagger="tag-columns", test="dev.conllu")
    install(wheel)
    packed: Any = load("raw", device="cpu")
    assert packed.predict(["I don't know. Do you?"]) == both.predict(["I don't know. Do you?"])
    assert packed.predict_json(["Go! Go."])[0]["sentences"][0]["words"]
    scores, as_before = ensue("evaluate", "raw", "dev.conllu", "--json").out, both.evaluate("dev.conllu").as_json()
    assert json.loads(scores) == json.loads(json.dumps(as_before))
    (model,) = map(json.loads, ensue("models", "--json").out.splitlines())
    assert model["scores"] == json.loads(scores)
    install(pack("raw", "again", precision="int8"))  # includes the tagger
    install(pack("again", "third"))
    assert load("third", device="cpu").predict(["Go!"]) == both.predict(["Go!"])  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["en", "en-vectors"])
def test_the_folder_of_a_package_describes_its_wheel(folder: Path, name: str) -> None:
    """`pip install ./models/en` takes the files of the wheel, which `make models` extracts there."""
    project = tomllib.loads((REPOSITORY / "models" / name / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (license_file,) = project["license-files"]
    Path("LICENSE.txt").write_text("A license.")
    facts = f"ensue_{name.replace('-', '_')}-{project['version']}.dist-info"
    with zipfile.ZipFile(pack("cut-lstm", name, license=project["license"], license_file="LICENSE.txt")) as wheel:
        assert wheel.read(license_file) == b"A license."
        metadata, points = (wheel.read(f"{facts}/{file}").decode() for file in ("METADATA", "entry_points.txt"))
    assert f"\nName: {project['name']}\n" in metadata
    assert [line for line in metadata.split("\n") if line.startswith("Requires-Dist")] == [
        f"Requires-Dist: {needed}" for needed in project["dependencies"]
    ]
    assert points.split() == ["[ensue.models]", name, "=", project["entry-points"]["ensue.models"][name]]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ARCHIVED_RUNS)
def test_every_kind_of_run_can_be_packed(tmp_path: Path, name: str, install: Callable[[Path], Path]) -> None:
    unpacked(name, tmp_path)
    run = tmp_path / name
    if not (run / "model.safetensors").exists():
        with pytest.raises(RunError):
            pack(run, "run", tmp_path, license="MIT")
        return
    install(pack(run, "run", tmp_path, license="MIT", precision="int8"))
    packed = load("run", device="cpu")
    assert type(packed) is type(load(run, device="cpu"))
    exact, rounded = (read_tensors(folder / "model.safetensors") for folder in (run, local_run("run")))
    for key, tensor in exact.items():
        bound: torch.Tensor | float = 0.0  # only matrices are rounded
        if tensor.dim() > 1:
            largest = tensor.flatten(1).abs().amax(1).reshape(-1, *[1] * (tensor.dim() - 1))
            bound = largest / 254 * (1 + 1e-5)
        assert ((rounded[key] - tensor).abs() <= bound).all(), key


@pytest.mark.parametrize("scales", [{"x:scales": torch.ones(3)}, {"y:scales": torch.ones(2)}])
def test_scales_of_other_shapes_are_refused_as_damaged(tmp_path: Path, scales: dict[str, torch.Tensor]) -> None:
    assert all(name.endswith(SCALES_SUFFIX) for name in scales)
    save_file({"x": torch.ones(2, 4, dtype=torch.int8), **scales}, tmp_path / "x.safetensors")
    with pytest.raises(RunError, match=r"damaged: .:scales is not the scale of each row"):
        read_tensors(tmp_path / "x.safetensors")


@pytest.mark.slow
def test_a_wheel_is_installed_with_pip_and_used_by_its_name(folder: Path) -> None:
    wheel = pack("tag-lstm-crf", "en-names", license="MIT")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    installing = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*installing, wheel], check=True)
    code = "import sys; sys.path += sys.argv[1:]; import ensue; print(ensue.load('en-names').predict(['Anna Novak.']))"
    paths = [REPOSITORY / "src", *(path for path in sys.path if path.endswith("-packages"))]
    output = subprocess.run([python, "-c", code, *paths], capture_output=True, text=True, check=True).stdout
    assert output.strip() == str(load("tag-lstm-crf", device="cpu").predict(["Anna Novak."]))  # type: ignore[attr-defined]
