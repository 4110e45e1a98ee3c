"""Edge cases of arguments: calls of layers and other objects in a separate process, from `border_cases`."""

import sys
from pathlib import Path

import jaxtyping
import pytest

from forked import FORK
from nn.border_cases import main


def run(seed: int, share: float, folder: Path) -> int:
    """Run the cases and return their number; fail if one has a problem."""
    path = folder / "log"

    def cases() -> None:
        jaxtyping.config.update("jaxtyping_disable", True)  # as for users, so that layers raise their own errors
        with path.open("w") as sys.stdout:
            main(seed, share)

    process = FORK.Process(target=cases)
    process.start()
    process.join()
    lines = path.read_text().splitlines()
    wrong = [line for line in lines if line.startswith("WRONG")]
    last = lines[-1] if lines else "nothing"
    assert process.exitcode == 0, f"status {process.exitcode} at: {last}"
    assert not wrong, "\n".join(wrong[:20])
    return int(last.removeprefix("done "))


@pytest.mark.slow
def test_a_sample_of_all_cases_has_no_problem(tmp_path: Path) -> None:
    assert run(1, 0.3, tmp_path) > 6_000
