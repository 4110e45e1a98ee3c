"""Training on 10^7 labeled texts of 40 words from the cache: the time and the memory of two processes.

The texts are random numbers, which are written into the cache in place of the texts of a small file, without weights of
n-grams. Then `ensue train` reads them from the cache, as after `ensue prepare`.

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
from typing import Any
from unittest.mock import patch

import numpy as np
from machine import describe_machine

from ensue.data.compact_texts import Texts, slices_of
from ensue.recipe import read_recipe
from ensue.tasks.classification.data import Documents
from ensue.tasks.contract.data_set import Split, prepare_examples

MEAN_WORDS, NUM_FORMS, NUM_LABELS = 40, 300_000, 4


def random_documents(count: int, seed: int) -> Documents:
    """Return random texts of about MEAN_WORDS words, each with one label."""
    generator, documents = np.random.default_rng(seed), Documents.empty(1)
    columns: Any = documents.columns
    texts, labels = columns["text 0"], columns["labels"]
    lengths = generator.integers(MEAN_WORDS // 2, 3 * MEAN_WORDS // 2, count)
    fill(texts, [f"w{number}" for number in range(NUM_FORMS)], lengths, generator)
    fill(labels, [f"label {number}" for number in range(NUM_LABELS)], np.ones(count, np.int64), generator)
    for flag in ("cut", "empty"):
        columns[flag].add(np.zeros(count, np.int8))
    columns["groups"].values.append("")
    columns["groups"].numbers.add(np.zeros(count, np.int32))
    return documents


def random_split(count: int) -> Split[Documents]:
    """Return `count` texts for training, and 10,000 texts for validation."""
    return Split(random_documents(count, 0), random_documents(10_000, 1).select(np.arange(10_000)), "random", None)


def fill(column: Texts, values: list[str], lengths: np.ndarray, generator: np.random.Generator) -> None:
    """Fill a column with texts of random words."""
    column.words.values.extend(values)
    ends = np.cumsum(lengths)
    for part in slices_of(int(ends[-1])):
        column.words.numbers.add(generator.integers(0, len(values), part.stop - part.start, np.int32))
    column._starts.add(ends)


def train(settings: list[str], processes: int, out: Path) -> None:
    """Train. Print the time before the first step and the peak memory of the largest processes."""
    command = [sys.executable, "-m", "ensue", "train", "classify-bag", "--processes", str(processes), "--out", str(out)]
    start, peaks, first_steps = time.perf_counter(), dict[int, int](), dict[int, str]()
    starts = dict[int, float]()
    with (out.parent / f"{out.name}.log").open("w") as log:
        running = subprocess.Popen([*command, *settings], stdout=log, stderr=log)
        while running.poll() is None:
            for process in process_tree(running.pid):
                peaks[process] = max(peaks.get(process, 0), peak_kilobytes(process))
                starts.setdefault(process, time.perf_counter())
                if process not in first_steps and (out / "metrics.jsonl").exists():
                    since = time.perf_counter() - starts[process]
                    first_steps[process] = f"{since:.1f} s, {processor_seconds(process):.1f} of processor time"
            time.sleep(0.05)
    if running.returncode:
        sys.exit((out.parent / f"{out.name}.log").read_text())
    print(f"{time.perf_counter() - start:.1f} s in total", flush=True)
    for process in sorted(peaks, key=lambda process: peaks[process])[-processes:]:
        print(
            f"  process {process}: {peaks[process] / 1000:.0f} MB; first step after {first_steps[process]}", flush=True
        )


def process_tree(process: int) -> list[int]:
    """Return a process and its descendants."""
    try:
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return []
    return [process, *(descendant for child in children for descendant in process_tree(int(child)))]


def peak_kilobytes(process: int) -> int:
    """Return the peak memory of a process until now, in kilobytes."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0)


def processor_seconds(process: int) -> float:
    """Return the processor time of a process until now."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=float, default=1e7)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--starts", type=int, default=2, help="the number of runs")
    parser.add_argument("--folder", type=Path, help="the folder of the cache, which is kept and reused")
    arguments = parser.parse_args()
    print(describe_machine(seed=0))
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        os.environ |= {"ENSUE_CACHE": str(folder), "OMP_NUM_THREADS": "1"}
        path = folder / f"{arguments.texts:g}.tsv"
        if not path.exists():
            path.write_text("label\ttext\n" + "a\tsome words\nb\tother words\n" * 100_000)
        settings = {"data.train": str(path), "train.steps": 100, "data.valid_fraction": 0.001}
        with (
            patch(
                "ensue.tasks.classification.data.DocumentData._split",
                lambda self, source: random_split(int(arguments.texts)),
            ),
            patch("ensue.tasks.classification.job.weigh_ngrams", lambda *args, **named: None),
        ):
            print(prepare_examples(read_recipe("classify-bag", settings)), flush=True)
        options = [f"--set={key}={value}" for key, value in settings.items() if key != "data.train"]
        for start in range(arguments.starts):
            train([f"--train={path}", *options], arguments.processes, Path(temporary) / f"run{start}")


if __name__ == "__main__":
    main()
