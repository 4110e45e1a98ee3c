"""Damaged runs, also with correct checksums, are errors of one line."""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import ensue
from ensue.errors import EnsueError, RunError
from ensue.parsing import MAX_FILE_BYTES
from ensue.runs.checkpoint import complete_checkpoints
from ensue.runs.directory import RunDirectory
from ensue.runs.manifest import Manifest, entry_of
from ensue.runs.reporter import MetricsLog
from ensue.runs.schema import ManifestContent
from ensue.runs.weights import read_tensors, write_tensors
from training.classifiers import TEXTS
from training.taggers import TAGGED
from training.tiny import run_tiny, seal, tiny_recipe, words
from training.tiny_pairs import pair_recipe, pairs
from training.tiny_texts import classifying, columns, tagging, tsv

ODD: list[Any] = [None, -1, 10**30, 0.5, float("nan"), "x", [], {}, True, [[[1]]]]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    (folder / "text.txt").write_text(words(800))
    (folder / "names.txt").write_text(columns(TAGGED))
    (folder / "topics.tsv").write_text(tsv(TEXTS))
    (folder / "pairs.tsv").write_text(pairs(20))
    run_tiny(tiny_recipe(folder / "text.txt", steps=2), folder / "language")
    run_tiny(tagging(folder / "names.txt", steps=2), folder / "tagger")
    run_tiny(classifying(folder / "topics.tsv", steps=2), folder / "classifier")
    run_tiny(pair_recipe(folder / "pairs.tsv", train={"steps": 2}), folder / "translator")
    return folder


def read_whole(run: Path) -> str:
    """Return all that is read of a run except its weights; "" for an error."""
    try:
        directory = RunDirectory(run)
        assert directory.recipe
        assert directory.parts
        return directory.card + json.dumps([*MetricsLog(directory.metrics).records()])
    except RunError:
        return ""


@pytest.mark.parametrize("kind", ["link", "pipe", "huge"])
def test_links_pipes_and_huge_files_of_a_run_are_refused(runs: Path, tmp_path: Path, kind: str) -> None:
    """A run of someone else could otherwise reveal a secret file, block the reader, or exhaust memory."""
    (tmp_path / "secret").write_text("a key")
    for name in sorted(path.name for path in (runs / "tagger").iterdir() if path.suffix and path.name != ".lock"):
        path = shutil.copytree(runs / "tagger", tmp_path / name) / name
        content = path.read_bytes()
        path.unlink()
        if kind == "link":
            path.symlink_to("../secret")
        elif kind == "pipe":
            os.mkfifo(path)
        else:
            path.write_bytes(content)
            os.truncate(path, MAX_FILE_BYTES + 1)
        answer = read_whole(path.parent)
        assert "a key" not in answer
        assert kind == "link" or not answer or name in ("README.md", "model.safetensors"), name
    assert read_whole(runs / "tagger")


def altered(content: Any) -> Iterator[Any]:
    """Yield copies of a document in which one value is missing or another one, also in nested lists and tables."""
    if isinstance(content, dict):
        for key, value in list(content.items())[:8]:
            yield {name: part for name, part in content.items() if name != key}
            yield from ({**content, key: odd} for odd in ODD)
            yield from ({**content, key: part} for part in altered(value))
    elif isinstance(content, list):
        for place in range(min(2, len(content))):
            yield from ([*content[:place], odd, *content[place + 1 :]] for odd in ODD)
            yield [*content, content[place]]


def error_of_loading(run: Path) -> str:
    """Return the error of loading the run, which must be one line; "" for none."""
    try:
        ensue.load(run, device="cpu")
    except EnsueError as error:
        line = str(error)
    else:
        return ""
    assert "\n" not in line
    assert len(line) < 500
    return line


def without_locations(labels: bytes) -> bytes:
    content = json.loads(labels)
    return json.dumps(content | {"names": [name for name in content["names"] if not name.endswith("LOC")]}).encode()


FILES = ["model.safetensors", "config.json", "recipe.toml", "tokenizer.json", "manifest.json", "labels.json"]
DAMAGES: list[tuple[str, Callable[[bytes], bytes], str]] = [
    *((name, lambda content: content[: len(content) // 2], f"{name}: damaged: ") for name in FILES),
    ("config.json", lambda content: content.replace(b'"format_version": 3', b'"format_version": 4'), "4 is newer than"),
    ("config.json", lambda content: content.replace(b'"format_version": 3', b'"format_version": 2'), "2 is older than"),
    ("recipe.toml", lambda content: content + b" ", "altered since it was written"),
    ("labels.json", without_locations, "labels.json: damaged"),
]


def test_a_missing_truncated_or_altered_file_is_an_error_of_one_line(runs: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(runs / "tagger", tmp_path / "run"))
    for name, alter, expected in DAMAGES:
        good = (run / name).read_bytes()
        (run / name).unlink()
        assert name in error_of_loading(run)
        (run / name).write_bytes(alter(good))
        assert expected in error_of_loading(run)
        (run / name).write_bytes(good)
    assert error_of_loading(run) == ""


CONTRADICTIONS = [
    (
        "language",
        "config.json",
        '"vocabulary_size": ',
        '"vocabulary_size": 1',
        r"tokenizer\.json: \d+ symbols; the model",
    ),
    (
        "tagger",
        "recipe.toml",
        "contextual = []",
        'contextual = ["origin"]',
        "no origin 'origin', which recipe.toml lists",
    ),
]


@pytest.mark.parametrize(("name", "file", "old", "new", "expected"), CONTRADICTIONS, ids=["tokenizer", "origin"])
def test_contradicting_files_are_an_error_of_one_line(
    name: str, file: str, old: str, new: str, expected: str, runs: Path, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(runs / name, tmp_path / "run"))
    text = (run / file).read_text()
    assert old in text
    (run / file).write_text(text.replace(old, new))
    seal(run)
    assert re.search(expected, error_of_loading(run))


@pytest.mark.slow
@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "labels.json", "manifest.json"])
@pytest.mark.parametrize("name", ["language", "tagger", "classifier", "translator"])
def test_runs_with_any_changed_value_load_or_give_one_line(name: str, file: str, runs: Path, tmp_path: Path) -> None:
    if not (runs / name / file).exists():
        return
    run = Path(shutil.copytree(runs / name, tmp_path / "run"))
    good = json.loads((run / file).read_text())
    manifest = Manifest(run)
    files = manifest.content().files
    refused = 0
    for content in [*altered(good), *ODD]:
        (run / file).write_text(json.dumps(content))
        if file != "manifest.json":
            manifest.write(ManifestContent(files={**files, file: entry_of(run / file)}))
        refused += error_of_loading(run) != ""
    assert refused > 20


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ('{"names": ' + "[" * 400 + "]" * 400 + "}", "unsupported JSON: nested"),
        ('{"names": [{"a": 1, "b": 2, "a": 3}]}', "ambiguous JSON: an object has the key 'a' twice"),
    ],
    ids=["deep", "a key twice"],
)
def test_odd_documents_are_errors_of_one_line(content: str, fault: str, runs: Path, tmp_path: Path) -> None:
    for file in ("labels.json", "tokenizer.json", "config.json", "manifest.json"):
        run = Path(shutil.copytree(runs / "tagger", tmp_path / file))
        (run / file).write_text(content)
        if file != "manifest.json":
            seal(run)
        with pytest.raises(RunError, match=rf"{file}: damaged: {fault}"):
            ensue.load(run, device="cpu")


def change_progress(**changes: Any) -> Callable[[Path], None]:
    def change(checkpoint: Path) -> None:
        path = checkpoint / "progress.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return change


def change_tensors(file: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[Path], None]:
    return lambda checkpoint: write_tensors(checkpoint / file, change(read_tensors(checkpoint / file)))


CHECKPOINTS: dict[str, tuple[Callable[[Path], None], str]] = {
    "steps a text": (change_progress(step="2"), "progress.json: damaged: step: "),
    "no such counter": (change_progress(other=2), "progress.json: damaged: other: "),
    "no parts": (change_progress(parts=0), "progress.json: damaged: parts: "),
    "seconds not a number": (change_progress(seconds=float("nan")), "progress.json: damaged: seconds: "),
    "another parameter": (
        change_tensors("optimizer.safetensors", lambda t: {f"9{key}": value for key, value in t.items()}),
        "optimizer.safetensors: does not match the model",
    ),
    "another size": (
        change_tensors("optimizer.safetensors", lambda t: {k: v[:1] if v.dim() else v for k, v in t.items()}),
        "optimizer.safetensors: does not match the model",
    ),
    "another optimizer": (
        change_tensors("optimizer.safetensors", lambda t: {k: v for k, v in t.items() if k.endswith("exp_avg")}),
        "optimizer.safetensors: does not match the optimizer: expected exp_avg, exp_avg_sq, step, found exp_avg",
    ),
    "half a state": (
        change_tensors("state.safetensors", lambda t: dict(list(t.items())[:1])),
        "state.safetensors: does not match the state of the",
    ),
    "rows of a state": (
        change_tensors("state.safetensors", lambda t: {key: value[:1].clone() for key, value in t.items()}),
        "state.safetensors: does not match the state of the",
    ),
    "types of a state": (
        change_tensors("state.safetensors", lambda t: {key: value.to(torch.uint8) for key, value in t.items()}),
        "state.safetensors: does not match the state of the model: in torch.uint8, expected torch.float32",
    ),
    "types of moments": (
        change_tensors("optimizer.safetensors", lambda t: {key: value.double() for key, value in t.items()}),
        "optimizer.safetensors: does not match the model",
    ),
    "weights renamed": (
        change_tensors("model.safetensors", lambda t: {f"x{key}": value for key, value in t.items()}),
        "model.safetensors: not the weights of this model",
    ),
}  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize("damage", list(CHECKPOINTS))
def test_a_damaged_checkpoint_is_an_error_of_one_line(damage: str, runs: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(runs / "language", tmp_path / "run"))
    checkpoint = complete_checkpoints(run / "checkpoints")[-1]
    change, expected = CHECKPOINTS[damage]
    change(checkpoint)
    seal(checkpoint)
    with pytest.raises(RunError, match=expected) as caught:
        run_tiny(None, run, resume=True)
    assert "\n" not in str(caught.value)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "line",
    ["{", "[]", '{"kind": "train"}', '{"kind": "valid", "step": "x"}', "[" * 400, "\udc80", '{"step": 1, "step": 2}'],
)
def test_invalid_metrics_are_an_error_of_one_line(line: str, runs: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(runs / "language", tmp_path / "run"))
    with (run / "metrics.jsonl").open("r+", errors="surrogateescape") as file:
        lines = file.read().splitlines()
        lines[0] = line
        file.seek(0)
        file.truncate()
        file.write("\n".join(lines) + "\n")
    checkpoint = complete_checkpoints(run / "checkpoints")[-1]
    manifest = Manifest(checkpoint)
    manifest.write(manifest.content().model_copy(update={"log": entry_of(run / "metrics.jsonl")}))
    with pytest.raises(RunError, match=r"metrics.jsonl:1: damaged: ") as caught:
        run_tiny(None, run, resume=True)
    assert "\n" not in str(caught.value)


def test_unreadable_weights_are_not_reported_as_missing(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is simulated, since root may read everything."""
    run = Path(shutil.copytree(runs / "language", tmp_path / "run"))
    original = Path.open

    def refused(self: Path, *args: Any, **kwargs: Any) -> Any:
        if self.name == "model.safetensors":
            raise PermissionError(13, "Permission denied", str(self))
        return original(self, *args, **kwargs)

    monkeypatch.setattr(Path, "open", refused)
    with pytest.raises(RunError, match=r"model.safetensors: cannot be read \(Permission denied\)$"):
        ensue.load(run, device="cpu")
    with pytest.raises(RunError, match=r"model.safetensors: cannot be read \(Permission denied\)$"):
        run_tiny(None, run, resume=True)


def test_weights_have_the_permissions_of_other_files(runs: Path) -> None:
    modes = {(runs / "language" / name).stat().st_mode for name in ("model.safetensors", "config.json")}
    assert len(modes) == 1


def test_a_lexicon_with_other_columns_is_an_error_of_one_line(runs: Path, tmp_path: Path) -> None:
    """Loading and resuming the run give the error."""
    run = Path(shutil.copytree(runs / "tagger", tmp_path / "run"))
    content = json.loads((run / "tokenizer.json").read_text())
    (run / "tokenizer.json").write_text(json.dumps(content | {"columns": {"2": ["<unk>", "a"]}}))
    seal(run)
    for use in (lambda: ensue.load(run, device="cpu"), lambda: run_tiny(None, run, resume=True)):
        with pytest.raises(RunError, match=r"tokenizer\.json: does not match the model: columns '2'"):
            use()
