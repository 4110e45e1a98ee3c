"""Law: commands read several locations, as a folder or one after another, for a run of each task."""

import json
import re
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

import ensue
from ensue.errors import EnsueError
from ensue.recipe import validate_recipe
from ensue.tasks.contract.data_set import fingerprints_of
from ensue.training.run import begin_job
from kept_runs.answers import answer, are_alike
from kept_runs.make import ARCHIVES, RUNS, small, unpacked, write_training_data

QUICK = ("char-lstm", "classify-bag")
READING = ("predict", "evaluate", "score", "embed")
STORED = sorted(path.name.removesuffix(".tar.xz") for path in ARCHIVES.iterdir())


def copied(location: str, folder: str) -> str:
    """Copy a file, a folder, or two aligned files into a folder, and return the location."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    names = [*location.split(","), *(["images"] if location == "captions.csv" else [])]  # the table refers to them
    for name in names:
        (shutil.copytree if Path(name).is_dir() else shutil.copy)(name, Path(folder, name))
    return ",".join(f"{folder}/{name}" for name in location.split(","))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in STORED]
)
def test_several_locations_are_read_in_order(name: str, tmp_path: Path, in_tmp_path: None) -> None:
    for number, asked in enumerate(unpacked(name, tmp_path)):
        command, run, *rest = asked["command"].split()
        if command not in READING or run == "again":
            continue
        first, second = (copied(rest[0], f"both{number}/{location}") for location in (1, 2))
        output = answer(" ".join([command, run, first, second, *rest[1:]]))
        expected = ["".join(answer(" ".join([command, run, location, *rest[1:]])) for location in (first, second))]
        if Path(first).is_file():
            with suppress(EnsueError):  # some formats are not read from a folder
                expected.append(answer(" ".join([command, run, f"both{number}", *rest[1:]])))
        if command != "evaluate":
            assert any(are_alike(output, each) for each in expected), (output, expected)
            continue
        assert are_alike(output, expected[1]) if len(expected) > 1 else output != expected[0]
        if not rest[2:]:
            scores = ensue.load(run, device="cpu").evaluate([first, second])
            assert are_alike(json.dumps(scores.as_json(), default=float) + "\n", output)


FIRST = {(made.recipe, made.data): name for name, made in reversed(RUNS.items()) if "origin" not in str(made.settings)}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in FIRST.values()]
)
def test_training_reads_several_locations_and_reports_common_texts(name: str, in_tmp_path: None) -> None:
    write_training_data()
    data = RUNS[name].data
    for key in ["train"] if name.startswith("vectors") else ["train", "valid"]:  # vectors are scored on word pairs
        document = small(RUNS[name]).model_dump(exclude_none=True)
        document["data"][key] = [data, copied(data, f"copy/{key}")]
        job = begin_job(validate_recipe(document, where=name), None)
        assert {*fingerprints_of(job)} >= {key}
        assert key == "train" or [note for note in job.notes if re.search(r"^(\d+) of \1 .* training data, too", note)]
