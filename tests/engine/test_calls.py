"""Single calls of layers take at most about 15 % longer than those of torch.nn."""

import subprocess
import sys

import pytest

from engine.twins import needs_compiler
from pages import REPOSITORY

MIN_RATIO = 0.85


def ratios(*options: str) -> dict[tuple[str, str], float]:
    """Return the ratios of torch.nn's time to ensue's, by B and T, in a process without the type checks of tests."""
    command = [sys.executable, str(REPOSITORY / "benchmarks" / "calls.py"), *options]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = [line.split(" | ") for line in printed.splitlines() if line.startswith(f"| {options[1]} ")]
    return {(batch, length): float(ratio) for _, batch, length, _, _, _, ratio, _ in rows}


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("d", ["64", "128", "256", "512"])
@pytest.mark.parametrize("name", ["LSTM", "GRU", "Elman"])
def test_calls_are_as_fast_as_those_of_torch(name: str, d: str) -> None:
    """Slow shapes are timed again, for longer."""
    options = "--layers", name, "--widths", d
    measured = ratios(*options, "--seconds", "0.05")
    assert len(measured) == 16
    slow = [place for place, ratio in measured.items() if ratio < MIN_RATIO]
    again = {(b, t): ratios(*options, "--batches", b, "--lengths", t, "--seconds", "2")[b, t] for b, t in slow}
    assert not {place: ratio for place, ratio in again.items() if ratio < MIN_RATIO}
