"""Every layer, and what is no layer, on arguments in many forms, in a process of its own: see `border_cases`."""

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]


def run(seed: int, share: float) -> int:
    """How many cases ended well, if all did."""
    path = [str(TESTS.parent / "src"), str(TESTS)]
    program = f"import sys; sys.path[:0] = {path}; from nn.border_cases import main; main({seed}, {share})"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    said = ended.stdout.splitlines()
    wrong = [line for line in said if line.startswith("WRONG")]
    last = said[-1] if said else "nothing"
    assert ended.returncode == 0, f"status {ended.returncode} at: {last}\n{ended.stderr[-2000:]}"
    assert not wrong, "\n".join(wrong[:20])
    return int(last.removeprefix("done "))


def test_some_cases_end_well() -> None:
    assert run(seed=0, share=0.01) > 200


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_all_cases_end_well(seed: int) -> None:
    assert run(seed, share=1.0) > 20_000
