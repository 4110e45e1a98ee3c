"""Peak resident memory of training on texts of growing size, which must not grow with the size.

    python benchmarks/memory.py [RECIPE] [MEGABYTES ...]

Each text is written to a temporary folder; TMPDIR can name a folder with enough space. A separate process with its own
cache trains on it for 100 steps. Then the text is removed.
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
NUM_WORDS = 20_000
BLOCK_BYTES = 1 << 20
NUM_BLOCKS = 16


def write_text(path: Path, megabytes: int) -> None:
    """Write lines of artificial words with a Zipfian distribution; 16 different megabytes are repeated."""
    generator = random.Random(SEED)
    letters = "etaoinshrdlcumwfgypbvkjxqz"
    words = ["".join(generator.choices(letters, k=generator.randint(2, 9))) for _ in range(NUM_WORDS)]
    weights = [1 / (rank + 10) for rank in range(NUM_WORDS)]
    blocks = []
    for _ in range(NUM_BLOCKS):
        sample = generator.choices(words, weights, k=BLOCK_BYTES // 6)
        text = "".join(word + (" " if i % 12 else ".\n") for i, word in enumerate(sample))
        blocks.append(text[:BLOCK_BYTES].ljust(BLOCK_BYTES, "\n"))
    with path.open("w", encoding="ascii") as file:
        for number in range(megabytes):
            file.write(blocks[number % NUM_BLOCKS])


def peak_megabytes(recipe: str, path: Path, folder: Path) -> tuple[float, float]:
    """Train. Return the peak resident memory in MB, and the seconds."""
    command = [sys.executable, "-m", "ensue", "train", recipe, "--train", str(path), "--out", str(folder / "run")]
    command += ["--threads", "1", "--set", "train.steps=100", "--set", "train.validations=1"]
    command += ["--set", "data.valid_characters=100000"]
    start = time.perf_counter()
    process = subprocess.Popen(
        command, env={**os.environ, "ENSUE_CACHE": str(folder / "cache")}, stderr=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} ended with {status}")
    return usage.ru_maxrss / 1024, time.perf_counter() - start


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
