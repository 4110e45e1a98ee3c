"""10^7 labeled texts of 40 words: the time and memory of two processes that train on them from the cache.

No such texts are read: random numbers are put into the cache in place of the texts of a small file, and the n-grams
are not weighed. Then `ensue train` finds them there, as after `ensue prepare`.

    python benchmarks/large_labeled.py --texts 1e7
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from unittest.mock import patch

import numpy as np

from ensue.data.compact_texts import Texts, slices_of
from ensue.recipe import read_recipe
from ensue.tasks.classification.data import Documents
from ensue.tasks.contract.data_set import Split, prepare_examples

WORDS, FORMS, LABELS = 40, 300_000, 4


def drawn(count: int, seed: int) -> Documents:
    """Texts of about WORDS words, each with one label."""
    generator, found = np.random.default_rng(seed), Documents.none(1)
    texts, labels = found.columns["text 0"], found.columns["labels"]
    filled(texts, [f"w{number}" for number in range(FORMS)], generator.integers(WORDS // 2, 3 * WORDS // 2, count),
           generator)  # fmt: skip
    filled(labels, [f"label {number}" for number in range(LABELS)], np.ones(count, np.int64), generator)
    for flag in ("cut", "empty"):
        found.columns[flag].add(np.zeros(count, np.int8))
    found.columns["groups"].values.append("")
    found.columns["groups"].numbers.add(np.zeros(count, np.int32))
    return found


def made(count: int) -> Split[Documents]:
    """So many texts for training, and some for validation."""
    return Split(drawn(count, 0), drawn(10_000, 1).select(np.arange(10_000)), "random", None)


def filled(column: Texts, values: list[str], lengths: np.ndarray, generator: np.random.Generator) -> None:
    """Fills a column with texts of random words of these lengths."""
    column.words.values.extend(values)
    ends = np.cumsum(lengths)
    for piece in slices_of(int(ends[-1])):
        column.words.numbers.add(generator.integers(0, len(values), piece.stop - piece.start, np.int32))
    column._starts.add(ends)


def train(settings: list[str], processes: int, out: Path) -> None:
    """Trains, and says when the first step began and the most memory of each process that had torch."""
    command = [sys.executable, "-m", "ensue", "train", "classify-bag", "--processes", str(processes), "--out", str(out)]
    began, most, first = time.perf_counter(), dict[int, int](), dict[int, str]()
    born = dict[int, float]()
    with (out.parent / f"{out.name}.log").open("w") as log:
        running = subprocess.Popen([*command, *settings], stdout=log, stderr=log)
        while running.poll() is None:
            for process in family(running.pid):
                most[process] = max(most.get(process, 0), peak(process))
                born.setdefault(process, time.perf_counter())
                if process not in first and (out / "metrics.jsonl").exists():
                    since = time.perf_counter() - born[process]
                    first[process] = f"{since:.1f} s, {processor_seconds(process):.1f} of processor time"
            time.sleep(0.05)
    if running.returncode:
        sys.exit((out.parent / f"{out.name}.log").read_text())
    print(f"{time.perf_counter() - began:.1f} s in all", flush=True)
    for process in sorted(most, key=lambda process: most[process])[-processes:]:
        print(f"  a process: {most[process] / 1000:.0f} MB; first step after {first[process]}", flush=True)


def family(process: int) -> list[int]:
    """A process and all that come from it."""
    try:
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return []
    return [process, *(own for child in children for own in family(int(child)))]


def peak(process: int) -> int:
    """The most memory of a process so far, in kilobytes."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0)


def processor_seconds(process: int) -> float:
    """The processor time of a process so far."""
    try:
        own = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(own[11]) + int(own[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=float, default=1e7)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--starts", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where the cache goes; it is kept and used again")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        os.environ |= {"ENSUE_CACHE": str(folder), "OMP_NUM_THREADS": "1"}
        path = folder / f"{asked.texts:g}.tsv"
        if not path.exists():
            path.write_text("label\ttext\n" + "a\tsome words\nb\tother words\n" * 100_000)
        settings = {"data.train": str(path), "train.steps": 100, "data.valid_fraction": 0.001}
        with (
            patch("ensue.tasks.classification.data.DocumentData._split", lambda self, source: made(int(asked.texts))),
            patch("ensue.tasks.classification.job.weigh_ngrams", lambda *args, **named: None),
        ):
            print(prepare_examples(read_recipe("classify-bag", settings)), flush=True)
        given = [f"--set={key}={value}" for key, value in settings.items() if key != "data.train"]
        for start in range(asked.starts):
            train([f"--train={path}", *given], asked.processes, Path(temporary) / f"run{start}")


if __name__ == "__main__":
    main()
