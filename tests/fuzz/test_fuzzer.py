"""The fuzzer reports planted bugs and no others, and none in the package."""

import hashlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

import ensue.data.detection.kind
import ensue.extensions.surveying.summary  # every case would import it
from conftest import REPOSITORY
from fuzz import bombs, data_files, process, recipes
from fuzz.case import Case
from fuzz.command_lines import promises_json
from fuzz.material import Material
from fuzz.run_directories import sign
from fuzz.supervisor import outcomes
from fuzz.verdict import Finding, judge

TEXT = "the cat\nsat\n"


def judged(*cases: Case) -> list[Finding | None]:
    return [judge(outcome) for outcome in outcomes(cases)]


def data(folder: Path, name: str, path: str = "text.txt") -> Case:
    """Return a case of `ensue data` on a text."""
    case = Case(name, folder / name, ["data", path])
    case.folder.mkdir()
    (case.folder / "text.txt").write_text(TEXT)
    return case


def waiting() -> None:
    time.sleep(60)


def computing() -> None:
    while True:
        pass


def greedy() -> None:
    b"x" * (500 << 20)


def silent() -> None:
    sys.exit(2)


def talkative() -> None:
    print("one\nensue: two", file=sys.stderr)
    sys.exit(2)


def destructive() -> None:
    Path("text.txt").write_text("the cat\n")


def careless() -> None:
    Path("text.txt.partial").touch()


def wrong() -> None:
    raise KeyError("label")


def unheard() -> None:
    print("warned", file=sys.stdout)
    os.close(1)


PLANTED: dict[Callable[[], None], str] = {
    wrong: "KeyError", os.abort: "signal 6", waiting: "hang", greedy: "memory", silent: "no line",
    talkative: "2 lines", destructive: "changed", careless: "left over", unheard: "OSError",
}  # fmt: skip


def faults_of_bugs(folder: Path, functions: list[Callable[[], None]]) -> dict[str, str]:
    cases = [data(folder, function.__name__) for function in functions]
    for case, function in zip(cases, functions, strict=True):
        case.action, case.wait_seconds = function, 0.5 if function is waiting else 60
    findings = map(judge, outcomes(cases, processes=2))
    return {finding.name: finding.fault for finding in findings if finding}


@pytest.mark.slow
def test_planted_bugs_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzz.verdict.PEAK_MIB", 350)
    expected = {bug.__name__: fault for bug, fault in PLANTED.items()}
    assert faults_of_bugs(tmp_path, list(PLANTED)) == expected


@pytest.mark.slow
def test_a_case_that_computes_forever_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "CPU_SECONDS", 1)
    assert faults_of_bugs(tmp_path, [computing]) == {"computing": "hang"}


@pytest.mark.slow
def test_only_a_bug_of_a_reader_is_reported_with_its_location(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    well, refused = data(tmp_path, "well"), data(tmp_path, "refused", "nothing")
    assert judged(well, refused) == [None, None]
    monkeypatch.setattr(ensue.data.detection.kind, "_detect_in_lines", lambda *arguments: {}["label"])
    (finding,) = judged(data(tmp_path, "wrong"))
    assert finding is not None
    assert (finding.fault, finding.location) == ("KeyError", "ensue/data/detection/kind.py detect")


def test_a_case_is_a_function_of_its_seed(tmp_path: Path) -> None:
    drawn_cases = []
    for name in ("one", "other"):
        case = Case(name, tmp_path / name)
        case.folder.mkdir()
        data_files.arrange_data_command(Random("7/data:3"), case, Material(tmp_path, []))
        drawn_cases.append((case.arguments, case.stdin, sorted(path.name for path in case.folder.rglob("*"))))
    assert drawn_cases[0] == drawn_cases[1]


def test_a_signed_manifest_has_the_digests_of_the_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"xy")
    (tmp_path / "manifest.json").write_text('{"files": {"a": {"bytes": 1, "sha256": "0"}}, "id": "b"}')
    sign(tmp_path)
    entry = {"bytes": 2, "sha256": hashlib.sha256(b"xy").hexdigest()}
    assert json.loads((tmp_path / "manifest.json").read_text()) == {"files": {"a": entry}, "id": "b"}


@pytest.mark.parametrize("first", [["--version"], ["-h"], ["predict", "--help"]])
def test_json_is_not_expected_of_help_and_version(first: list[str]) -> None:
    assert promises_json(["predict", "run", "--json"])
    assert not promises_json([*first, "run", "--json"])


@pytest.mark.parametrize("numbers", [range(21, 22), pytest.param(range(20, 26), marks=pytest.mark.slow)])
def test_a_few_cases_have_no_fault(numbers: range, tmp_path: Path) -> None:
    cases = []
    for number in numbers:
        case = Case(str(number), tmp_path / str(number))
        case.folder.mkdir()
        arrange = [data_files.arrange_data_command, data_files.arrange_round_trip, recipes.arrange_round_trip][
            number % 3
        ]
        arrange(Random(number), case, Material(tmp_path, []))
        cases.append(case)
    assert judged(*cases) == [None] * len(numbers)


def bomb(folder: Path, name: str, size: int = bombs.LARGEST) -> Case:
    case = Case(name, folder / name)
    case.folder.mkdir(parents=True)
    bombs.put(case, name, size)
    return case


def test_small_bombs_take_bounded_time_and_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sample has one bomb of each kind of shape."""
    monkeypatch.setattr(bombs, "SECONDS", 1)
    names = ["width.conll", "blanks.txt", "tuple.json", "units.tmx"]
    assert judged(*(bomb(tmp_path, name, bombs.LARGEST // 8) for name in names)) == [None] * len(names)


@pytest.mark.slow
@pytest.mark.parametrize("name", bombs.NAMES)
def test_shape_bombs_take_bounded_time_and_memory(name: str, tmp_path: Path) -> None:
    assert judged(bomb(tmp_path, name)) == [None]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "bound"),
    [("width.conll", "ensue.data.lines.MAX_COLUMNS"), ("rows.csv.xz", "ensue.data.decoding.MAX_RATIO")],
)
def test_unbounded_readers_are_reported(name: str, bound: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bombs, "SECONDS", 5)
    assert judged(bomb(tmp_path, name)) == [None]
    monkeypatch.setattr(bound, 1 << 30)
    (finding,) = judged(bomb(tmp_path / "unbounded", name))
    assert finding is not None
    assert finding.fault == "hang"


@pytest.mark.slow
def test_two_hundred_cases_have_no_fault(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY / "tests")])}
    command = [sys.executable, "-m", "fuzz", "--cases", "200", "--seed", "2026"]
    result = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    assert re.search(r"^0 findings", result.stdout, re.MULTILINE), result.stdout + result.stderr
    assert result.returncode == 0
