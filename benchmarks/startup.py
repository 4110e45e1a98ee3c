"""Seconds of commands from start to end, beside `python -c "import torch"`, in turns.

    python benchmarks/startup.py TAGGER LANGUAGE_MODEL [--turns 7]

TAGGER and LANGUAGE_MODEL are run directories. Wall-clock seconds are what a user waits for; processor seconds do not
depend on the load of the machine. A ratio is the median over turns, relative to the import of torch in the same turn.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

from machine import describe_machine
from timing import ratios, take_turns

SENTENCE = b"Who was it ?\n"


class Seconds(NamedTuple):
    wall: float
    processor: float


def run(arguments: list[str], stdin: bytes = b"") -> Seconds:
    """Run Python with arguments. Return the seconds from start to end."""
    before, start = os.times(), time.perf_counter()
    subprocess.run([sys.executable, *arguments], input=stdin, stdout=subprocess.DEVNULL, check=True)
    wall, after = time.perf_counter() - start, os.times()
    processor = after.children_user + after.children_system - before.children_user - before.children_system
    return Seconds(wall, processor)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tagger", type=Path)
    parser.add_argument("language_model", type=Path)
    parser.add_argument("--turns", type=int, default=7)
    arguments = parser.parse_args()
    tagger, language_model = map(str, (arguments.tagger, arguments.language_model))
    ensue = ["-m", "ensue"]
    commands = {
        'python -c "import torch"': (["-c", "import torch"], b""),
        "ensue predict TAGGER": ([*ensue, "predict", tagger], SENTENCE),
        "ensue generate LM --max-tokens 10": ([*ensue, "generate", language_model, "--max-tokens", "10"], b""),
        "ensue score LM": ([*ensue, "score", language_model], SENTENCE),
        "ensue recipes": ([*ensue, "recipes"], b""),
        "ensue --help": ([*ensue, "--help"], b""),
    }
    measures = {name: partial(run, *command) for name, command in commands.items()}
    seconds = take_turns(measures, arguments.turns, warm_up=1)
    torch = next(iter(commands))
    print(describe_machine(seed=0))
    print("\n| command | seconds | ÷ `import torch` | processor seconds | ÷ `import torch` |\n|---|---|---|---|---|")
    for name in commands:
        columns = []
        for clock in ("wall", "processor"):
            values, imports = ([getattr(turn, clock) for turn in seconds[key]] for key in (name, torch))
            columns += [f"{statistics.median(values):.2f}", f"{statistics.median(ratios(values, imports)):.2f} ×"]
        print(f"| `{name}` | {' | '.join(columns)} |")


if __name__ == "__main__":
    main()
