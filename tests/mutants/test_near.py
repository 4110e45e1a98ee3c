"""The tests for mutants exist, and a mutant is relocated after a move of its line."""

from pathlib import Path

import pytest

from conftest import REPOSITORY
from mutants.near import GROUPS, TESTS_OF_GROUPS, missing, near

BEFORE = "def larger(a, b):\n    return a if a > b else b + 0\n"


@pytest.mark.slow
def test_tests_and_files_of_the_tables_exist() -> None:
    assert missing(REPOSITORY / "src" / "ensue", REPOSITORY / "tests") == []


def test_every_part_of_the_package_is_mutated() -> None:
    package = REPOSITORY / "src" / "ensue"
    folders = {folder for group in GROUPS.values() for folder in group}
    assert {path.name for path in package.iterdir() if list(path.glob("*.py"))} <= folders
    assert GROUPS.keys() == TESTS_OF_GROUPS.keys()


def test_the_nearest_tests_come_first() -> None:
    names = [Path(test).name for test in near(REPOSITORY / "tests", "nn/recurrent/lstm.py", "nn")]
    assert names == ["test_hand_worked.py", "test_recurrent_against_torch.py", "test_laws.py"]


def test_the_sample_is_fixed_and_relocated_after_a_move(tmp_path: Path) -> None:
    pytest.importorskip("cosmic_ray", reason="`make mutants` installs it")
    from mutants.sample import relocated, sample  # noqa: PLC0415

    (tmp_path / "nn").mkdir()
    (tmp_path / "nn" / "a.py").write_text(BEFORE)
    chosen = sample(tmp_path, GROUPS, 4, 0)
    assert chosen == sample(tmp_path, GROUPS, 4, 0)
    assert "ReplaceComparisonOperator_Gt_GtE" in {mutant.operator for _, mutant in chosen}
    (tmp_path / "engine").mkdir()
    (tmp_path / "nn" / "a.py").replace(tmp_path / "engine" / "b.py")
    (tmp_path / "engine" / "b.py").write_text(f"import math\n\n\n{BEFORE}")
    moved = relocated(tmp_path, GROUPS, chosen)
    assert [mutant.change for _, mutant in moved] == [mutant.change for _, mutant in chosen]
    assert {(group, mutant.path) for group, mutant in moved} == {("engine", "engine/b.py")}
