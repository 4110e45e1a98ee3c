"""Every layer, and what is not a layer, on arguments in many forms, in a process of its own: see `border_cases`."""

import sys
from pathlib import Path

import jaxtyping
import pytest

from forked import FORK
from nn.border_cases import main


def run(seed: int, share: float, folder: Path) -> int:
    """How many cases ended well, if all did."""
    path = folder / "said"

    def cases() -> None:
        jaxtyping.config.update("jaxtyping_disable", True)  # as at use, where no checker stands before a layer's words
        with path.open("w") as sys.stdout:
            main(seed, share)

    process = FORK.Process(target=cases)
    process.start()
    process.join()
    said = path.read_text().splitlines()
    wrong = [line for line in said if line.startswith("WRONG")]
    last = said[-1] if said else "nothing"
    assert process.exitcode == 0, f"status {process.exitcode} at: {last}"
    assert not wrong, "\n".join(wrong[:20])
    return int(last.removeprefix("done "))


@pytest.mark.slow
def test_a_third_of_all_cases_end_well(tmp_path: Path) -> None:
    assert run(1, 0.3, tmp_path) > 6_000
