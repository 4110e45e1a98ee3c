"""Cases of run directories: files truncated, altered, exchanged between runs, missing, or not regular files."""

import hashlib
import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

import numpy as np
from safetensors.numpy import load_file, save_file

from fuzz import frame_runs, odd
from fuzz.case import Case, Outcome
from fuzz.damage import damaged
from fuzz.material import LANGUAGE_MODELS, MASKED, SEQUENCES, Material, Run
from fuzz.places import forbid, put_special_path
from fuzz.supervisor import outcomes
from fuzz.values import altered, as_json


def arrange(choose: Random, case: Case, material: Material) -> None:
    run = material.run(choose)
    copy = case.folder / "run"
    shutil.copytree(run.path, copy)
    for _ in range(choose.choice([1, 1, 1, 2])):
        files = sorted(path for path in copy.rglob("*") if path.is_file() and not path.is_symlink())
        if files and choose.random() < 0.9:
            spoil(choose, choose.choice(files), material)
        else:
            forbid(choose, case, choose.choice([copy, *copy.rglob("*")]))
    is_signed = choose.random() < 0.5
    if is_signed:
        sign(copy)
    if choose.random() < 0.3:
        _resumed(choose, case)
        return
    question = choose.choice(questions(run))
    case.arguments = question
    if not is_signed:
        case.checks.append(partial(_same, material.answers.get((run.path.name, *question))))


def questions(run: Run) -> list[list[str]]:
    """Return commands for the model in the folder `run`."""
    if run.task == LANGUAGE_MODELS:
        write = ["generate", "run", "--max-tokens", "5", "--seed", "1"]
        return [
            write, [*write, "--prompt", "the cat"], ["score", "run", str(run.data)],
            ["evaluate", "run", str(run.data)], ["inspect", "run", "the cat"],
        ]  # fmt: skip
    if run.task == MASKED:
        asked = [[command, "run", str(run.data)] for command in ("embed", "evaluate", "score")]
        return [*asked, ["inspect", "run", "the [MASK]"]]
    if run.task == SEQUENCES:
        asked = [["predict", "run", str(run.data)], ["predict", "run", str(run.data), "--n-best", "2", "--beams", "3"]]
        return [*asked, ["evaluate", "run", str(run.data)], ["score", "run", str(run.data)]]
    if run.task in frame_runs.TABLES:
        return frame_runs.questions(run.task, str(run.data))
    look = ["inspect", "run", *["the cat"] * (1 + (run.path.name == "pairs"))]
    return [["predict", "run", str(run.data)], ["evaluate", "run", str(run.data)], look]


def answers(material: Material, folder: Path) -> dict[tuple[str, ...], bytes]:
    """Return the outputs of undamaged runs."""
    folder.mkdir()
    asked = [(run, question) for run in material.runs for question in questions(run)]
    cases = []
    for number, (run, question) in enumerate(asked):
        case = Case(str(number), folder / str(number), question)
        case.folder.mkdir()
        (case.folder / "run").symlink_to(run.path)
        cases.append(case)
    outputs = {outcome.case.name: outcome.out for outcome in outcomes(cases)}
    return {(run.path.name, *question): outputs[str(number)] for number, (run, question) in enumerate(asked)}


def _same(expected: bytes | None, outcome: Outcome) -> str | None:
    """Return a fault unless a damaged run is refused or gives its old output."""
    return None if expected in (None, outcome.out) else "another answer: from files that were altered"


def sign(run: Path) -> None:
    """Update the manifests with the digests of damaged files, so that readers reach the files."""
    for path in filter(Path.is_file, run.rglob("manifest.json")):  # a pipe or a device may be endless
        try:
            content = json.loads(path.read_text())
            for name, entry in content["files"].items():
                if (path.parent / name).is_file():
                    data = (path.parent / name).read_bytes()
                    entry |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            path.write_text(json.dumps(content))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue  # the manifest is damaged


def _resumed(choose: Random, case: Case) -> None:
    """Arrange a training that continues, or starts again."""
    task_of_settings = ["--set", f"train.steps={choose.choice([2, 40, 41])}"]
    options = choose.choice([["--resume"], ["--resume", *task_of_settings], ["run/recipe.toml", "--overwrite"]])
    case.arguments = ["train", *options, "--out", "run", "--threads", "1", "--device", "cpu"]
    case.writes_progress = True
    case.may_change = {"run"}


def spoil(choose: Random, path: Path, material: Material) -> None:
    """Damage, alter, exchange or remove the file."""
    damages: list[Callable[[], None]] = [
        partial(_damage, choose, path),
        partial(_exchange, choose, path, material),
        partial(_remove, choose, path),
    ]
    if path.suffix in (".json", ".jsonl"):
        damages += [partial(_alter_json, choose, path)] * 6
    if path.suffix == ".safetensors":
        damages += [partial(_alter_tensors, choose, path)] * 3
    choose.choice(damages)()


def _damage(choose: Random, path: Path) -> None:
    path.write_bytes(damaged(choose, path.read_bytes(), max_changes=3))


def _exchange(choose: Random, path: Path, material: Material) -> None:
    """Replace the file by one of another run, usually of the same name."""
    others = [file for run in material.runs for file in run.path.rglob("*") if file.is_file()]
    same = [file for file in others if file.name == path.name]
    shutil.copyfile(choose.choice(same if same and choose.random() < 0.8 else others), path)


def _remove(choose: Random, path: Path) -> None:
    """Remove the file, or put a special path in its place."""
    path = choose.choice([path, path, path, path.parent]) if path.parent.name.startswith("step-") else path
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    if choose.random() < 0.7:
        put_special_path(choose, path)


def _alter_json(choose: Random, path: Path) -> None:
    try:
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.suffix == ".jsonl" else None
        document = lines or json.loads(path.read_text())
    except (ValueError, RecursionError):
        return _damage(choose, path)  # the file has been damaged before
    changed = altered(choose, document)
    if lines and isinstance(changed, list):
        path.write_bytes(b"".join(as_json(choose, line) + b"\n" for line in changed))
    else:
        path.write_bytes(as_json(choose, changed))
    return None


def _alter_tensors(choose: Random, path: Path) -> None:
    try:
        tensors = load_file(path)
    except Exception:  # the file has been damaged before
        return _damage(choose, path)
    if not tensors:
        tensors = {"0": np.zeros((2, 3), np.float32)}
    name = choose.choice(list(tensors))
    tensor = tensors[name]
    match choose.randrange(7):
        case 0:
            tensors[
                choose.choice([name + "x", "", "0", "0.exp_avg", "a.b", "-1.step", "9" * 30, odd.string(choose)])
            ] = tensors.pop(name)
        case 1:
            tensors[name] = tensor.reshape(-1)[: max(1, tensor.size // 2)]
        case 2:
            tensors[name] = tensor.astype(choose.choice([np.float64, np.float16, np.int64, np.uint8, np.bool_]))
        case 3:
            tensors[name] = np.full_like(tensor, choose.choice([np.nan, np.inf, -1e30, 0]))
        case 4:
            tensors[name] = tensor[None]
        case 5:
            del tensors[name]
        case 6:
            tensors[name] = choose.choice(list(tensors.values()))
    contents = {key.encode("utf-8", "replace").decode(): np.array(value, order="C") for key, value in tensors.items()}
    save_file(contents, path)
    return None
