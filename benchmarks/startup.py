"""Seconds from the command line to the first answer, beside `python -c "import torch"`, in turns.

    python benchmarks/startup.py TAGGER LANGUAGE_MODEL [--turns 7]

Both are run directories. Wall seconds are what a person waits for; processor seconds are also right while others want
the cores. Ratios are medians over turns, each to the import of torch in the same turn.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from machine import describe_machine

SENTENCE = b"Who was it ?\n"


class Seconds(NamedTuple):
    wall: float
    processor: float


def seconds(arguments: list[str], stdin: bytes = b"") -> Seconds:
    """Of one process, from its start to its end."""
    before, begun = os.times(), time.perf_counter()
    subprocess.run([sys.executable, *arguments], input=stdin, stdout=subprocess.DEVNULL, check=True)
    wall, after = time.perf_counter() - begun, os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return Seconds(wall, used)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tagger", type=Path)
    parser.add_argument("language_model", type=Path)
    parser.add_argument("--turns", type=int, default=7)
    options = parser.parse_args()
    tagger, language_model = map(str, (options.tagger, options.language_model))
    ensue = ["-m", "ensue"]
    commands = {
        'python -c "import torch"': (["-c", "import torch"], b""),
        "ensue predict TAGGER": ([*ensue, "predict", tagger], SENTENCE),
        "ensue generate LM --max-tokens 10": ([*ensue, "generate", language_model, "--max-tokens", "10"], b""),
        "ensue score LM": ([*ensue, "score", language_model], SENTENCE),
        "ensue recipes": ([*ensue, "recipes"], b""),
        "ensue --help": ([*ensue, "--help"], b""),
    }
    turns = [{name: seconds(*command) for name, command in commands.items()} for _ in range(options.turns + 1)][1:]
    torch = next(iter(commands))
    print(describe_machine(seed=0))
    print("\n| command | seconds | to `import torch` | processor seconds | to `import torch` |\n|---|---|---|---|---|")
    for name in commands:
        columns = []
        for place in range(2):
            columns.append(f"{statistics.median(turn[name][place] for turn in turns):.2f}")
            columns.append(f"{statistics.median(turn[name][place] / turn[torch][place] for turn in turns):.2f} ×")
        print(f"| `{name}` | {' | '.join(columns)} |")


if __name__ == "__main__":
    main()
