"""The fuzzer finds what is planted, finds nothing where nothing is, and finds nothing in the package."""

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
import ensue.extensions.surveying.summary  # what every case would import
from conftest import REPOSITORY
from fuzz import bombs, data_files, process, recipes
from fuzz.case import Case
from fuzz.command_lines import promises_json
from fuzz.material import Material
from fuzz.supervisor import outcomes
from fuzz.verdict import Finding, judge

TEXT = "the cat\nsat\n"


def judged(*cases: Case) -> list[Finding | None]:
    return [judge(outcome) for outcome in outcomes(cases)]


def data(folder: Path, name: str, path: str = "text.txt") -> Case:
    """`ensue data` on a text."""
    case = Case(name, folder / name, ["data", path])
    case.folder.mkdir()
    (case.folder / "text.txt").write_text(TEXT)
    return case


def kept_waiting() -> None:
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
    wrong: "KeyError", os.abort: "signal 6", kept_waiting: "hang", greedy: "memory", silent: "no line",
    talkative: "2 lines", destructive: "changed", careless: "left over", unheard: "OSError",
}  # fmt: skip


def found_bugs(folder: Path, bugs: list[Callable[[], None]]) -> dict[str, str]:
    cases = [data(folder, bug.__name__) for bug in bugs]
    for case, bug in zip(cases, bugs, strict=True):
        case.action, case.patience = bug, 0.5 if bug is kept_waiting else 60
    findings = map(judge, outcomes(cases, processes=2))
    return {finding.name: finding.what for finding in findings if finding}


@pytest.mark.slow
def test_planted_bugs_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fuzz.verdict.PEAK_MIB", 350)
    expected = {bug.__name__: what for bug, what in PLANTED.items()}
    assert found_bugs(tmp_path, list(PLANTED)) == expected


@pytest.mark.slow
def test_a_case_that_computes_for_ever_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "CPU_SECONDS", 1)
    assert found_bugs(tmp_path, [computing]) == {"computing": "hang"}


@pytest.mark.slow
def test_a_bug_of_a_reader_is_found_where_it_is_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    well, refused = data(tmp_path, "well"), data(tmp_path, "refused", "nothing")
    assert judged(well, refused) == [None, None]
    monkeypatch.setattr(ensue.data.detection.kind, "_detect_in_lines", lambda *arguments: {}["label"])
    (finding,) = judged(data(tmp_path, "wrong"))
    assert finding is not None
    assert (finding.what, finding.where) == ("KeyError", "ensue/data/detection/kind.py detect")


def test_a_case_is_a_function_of_its_seed(tmp_path: Path) -> None:
    made = []
    for name in ("one", "other"):
        case = Case(name, tmp_path / name)
        case.folder.mkdir()
        data_files.looked_at(Random("7/data:3"), case, Material(tmp_path, []))
        made.append((case.arguments, case.stdin, sorted(path.name for path in case.folder.rglob("*"))))
    assert made[0] == made[1]


@pytest.mark.parametrize("first", [["--version"], ["-h"], ["predict", "--help"]])
def test_json_is_not_expected_of_what_wins_over_a_command(first: list[str]) -> None:
    assert promises_json(["predict", "run", "--json"])
    assert not promises_json([*first, "run", "--json"])


@pytest.mark.parametrize("numbers", [range(21, 22), pytest.param(range(20, 26), marks=pytest.mark.slow)])
def test_nothing_is_found_in_a_few_cases(numbers: range, tmp_path: Path) -> None:
    cases = []
    for number in numbers:
        case = Case(str(number), tmp_path / str(number))
        case.folder.mkdir()
        arrange = [data_files.looked_at, data_files.read_back, recipes.read_back][number % 3]
        arrange(Random(number), case, Material(tmp_path, []))
        cases.append(case)
    assert judged(*cases) == [None] * len(numbers)


def bomb(folder: Path, name: str, size: int = bombs.LARGEST) -> Case:
    case = Case(name, folder / name)
    case.folder.mkdir(parents=True)
    bombs.put(case, name, size)
    return case


def test_small_bombs_take_bounded_time_and_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample, of one kind of shape each."""
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
def test_a_reader_without_bounds_is_found(
    name: str, bound: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bombs, "SECONDS", 5)
    assert judged(bomb(tmp_path, name)) == [None]
    monkeypatch.setattr(bound, 1 << 30)
    (finding,) = judged(bomb(tmp_path / "unbounded", name))
    assert finding is not None
    assert finding.what == "hang"


@pytest.mark.slow
def test_nothing_is_found_in_200_cases(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY / "tests")])}
    command = [sys.executable, "-m", "fuzz", "--cases", "200", "--seed", "2026"]
    result = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    assert re.search(r"^0 findings", result.stdout, re.MULTILINE), result.stdout + result.stderr
    assert result.returncode == 0
