"""The memory of training does not grow with the size of the text or the number of batch shapes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from training.tiny import words

ENSUE = [sys.executable, "-c", "import sys, ensue.cli; sys.exit(ensue.cli.main())"]
TOLERANCE_BYTES = 40_000_000


def write_text(path: Path, size: int) -> Path:
    """Write a text of `size` characters in pieces."""
    piece = words(200_000)
    with path.open("w") as file:
        for _ in range(size // len(piece)):
            file.write(piece)
        file.write(piece[: size % len(piece)])
    return path


def peak_bytes(recipe: str, text: Path, run: Path, *settings: str) -> int:
    sets = [part for setting in settings for part in ("--set", setting)]
    arguments = [*ENSUE, "train", recipe, "--train", str(text), "--out", str(run), "--threads", "1", *sets]
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["char-lstm", "char-transformer", "word-lstm", "bpe-transformer"])
def test_memory_does_not_grow_with_the_text(recipe: str, tmp_path: Path) -> None:
    sizes = ["encoder.d_model=16", "tokens.d_embedding=16"]
    budget = ["train.steps=5", "train.precision=float32", "data.valid_characters=20000", "train.validations=1"]
    peaks = [
        peak_bytes(recipe, write_text(tmp_path / f"{size}.txt", size), tmp_path / f"run{size}", *sizes, *budget)
        for size in (5_000_000, 60_000_000)
    ]
    assert peaks[1] - peaks[0] < TOLERANCE_BYTES, peaks


SHAPES = """
import torch
from ensue.training.device import ComputeMode, use_mode

def num_pages():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1])

weight = torch.randn(512, 128, requires_grad=True)
with use_mode(ComputeMode(precision="bfloat16")):
    for rows in range(100, 500):
        with torch.autocast("cpu", torch.bfloat16):
            y = torch.nn.functional.linear(torch.randn(rows, 128), weight)
        y.float().sum().backward()
        begin = num_pages() if rows == 200 else begin if rows > 200 else 0
print(num_pages() - begin)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
def test_memory_does_not_grow_with_the_shapes_of_batches() -> None:
    environment = {name: value for name, value in os.environ.items() if "CACHE_CAPACITY" not in name}
    result = subprocess.run([sys.executable, "-c", SHAPES], env=environment, capture_output=True, text=True, check=True)
    assert int(result.stdout) * os.sysconf("SC_PAGE_SIZE") < TOLERANCE_BYTES * 2
