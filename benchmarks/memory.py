"""Peak resident memory of training on texts of growing size: it must not grow with them.

    python benchmarks/memory.py [RECIPE] [MEGABYTES ...]

Each text is written to a temporary folder (give it room with TMPDIR), trained on for a hundred steps in a process of
its own with a cache of its own, and removed.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from machine import describe_machine

SEED = 0
WORDS = 20_000
BLOCK = 1 << 20
DISTINCT_BLOCKS = 16


def write_text(path: Path, megabytes: int) -> None:
    """Lines of made-up words, some frequent and most rare; sixteen megabytes of them over and over."""
    random_numbers = random.Random(SEED)
    letters = "etaoinshrdlcumwfgypbvkjxqz"
    words = ["".join(random_numbers.choices(letters, k=random_numbers.randint(2, 9))) for _ in range(WORDS)]
    weights = [1 / (rank + 10) for rank in range(WORDS)]
    blocks = []
    for _ in range(DISTINCT_BLOCKS):
        drawn = random_numbers.choices(words, weights, k=BLOCK // 6)
        text = "".join(word + (" " if i % 12 else ".\n") for i, word in enumerate(drawn))
        blocks.append(text[:BLOCK].ljust(BLOCK, "\n"))
    with path.open("w", encoding="ascii") as file:
        for number in range(megabytes):
            file.write(blocks[number % DISTINCT_BLOCKS])


def peak_megabytes(recipe: str, path: Path, folder: Path) -> tuple[float, float]:
    """Peak resident MB of a training run, and its seconds."""
    command = [sys.executable, "-m", "ensue", "train", recipe, "--train", str(path), "--out", str(folder / "run")]
    command += ["--threads", "1", "--set", "train.steps=100", "--set", "train.validations=1"]
    command += ["--set", "data.valid_characters=100000"]
    started = time.perf_counter()
    process = subprocess.Popen(
        command, env={**os.environ, "ENSUE_CACHE": str(folder / "cache")}, stderr=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} ended with {status}")
    return usage.ru_maxrss / 1024, time.perf_counter() - started


def main() -> None:
    recipe = sys.argv[1] if len(sys.argv) > 1 else "char-lstm"
    sizes = [int(size) for size in sys.argv[2:]] or [20, 200, 2000]
    print(describe_machine(seed=SEED))
    print(f"| text, MB | peak resident MB of `{recipe}` | seconds |")
    print("|---|---|---|")
    for megabytes in sizes:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            write_text(folder / "text.txt", megabytes)
            peak, seconds = peak_megabytes(recipe, folder / "text.txt", folder)
            print(f"| {megabytes:,} | {peak:,.0f} | {seconds:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
