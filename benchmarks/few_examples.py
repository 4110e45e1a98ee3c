"""The loop over sets, sizes and draws of the benchmarks with few labeled examples, and the table of their results."""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from machine import describe_machine

import ensue

Result = dict[str, Any]
Read = Callable[[Path], tuple[Sequence[Any], Sequence[Any]]]
"""A function that reads the examples for training and for testing from the folder of the data sets."""
Measure = Callable[[str, str, Sequence[Any], Sequence[Any], Path], Result]
"""A function of a set, a method, training examples, test examples and a folder for files."""


def measure_all(
    documentation: str | None, sets: Mapping[str, Read], methods: Sequence[str], measure: Measure, *,
    draws: int, tested: int, defaults: Sequence[str],
) -> None:  # fmt: skip
    """Read the command line, measure what OUT/results.jsonl does not have, and print the table."""
    parser = argparse.ArgumentParser(description=(documentation or "").partition("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--sets", nargs="+", choices=sets, default=list(sets))
    parser.add_argument("--sizes", nargs="+", type=int, default=[50, 100, 300, 1_000])
    parser.add_argument("--draws", type=int, default=draws)
    parser.add_argument("--methods", nargs="+", choices=methods, default=list(defaults))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=options.out))  # several of these programs may write to one OUT
    file = options.out / "results.jsonl"
    results = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    keys = ("set", "size", "draw", "method")
    measured = {tuple(result[key] for key in keys) for result in results}
    print(describe_machine(seed=0))
    for name in options.sets:
        everything, test = sets[name](options.data)
        test = random.Random(0).sample(test, min(tested, len(test)))
        for size in options.sizes:
            for draw in range(options.draws):
                train = random.Random(draw).sample(everything, size)
                for method in options.methods:
                    key = (name, size, draw, method)
                    if key in measured:
                        continue
                    results.append(dict(zip(keys, key, strict=True)) | measure(name, method, train, test, folder))
                    with file.open("a") as opened:
                        print(json.dumps(results[-1]), file=opened)
    shutil.rmtree(folder)
    print_table(results, options)


def train_recipe(recipe: str, train: Path, test: Path, out: Path, score: str, **settings: Any) -> Result:
    """Train a recipe. Return its score, its validated or cross-validated estimate, the calibration error, the standard
    error of the estimate and chrF++ if there are any, the bytes of its files, and the processor seconds of training and
    of the test.
    """
    start = time.process_time()
    model = ensue.train(recipe, train=str(train), out=out, threads=1, overwrite=True, settings=settings)
    seconds, start = time.process_time() - start, time.process_time()
    torch.set_num_threads(1)
    scores = model.evaluate(str(test)).as_json()
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    valid = [record["scores"] for record in records if record["kind"] == "valid"][-1]
    sources = {"calibration_error": scores, "chrf": scores, "standard_error": valid}
    further = {name: source[name] for name, source in sources.items() if name in source}
    used = ("*.json", "*.toml", "*.safetensors")
    return {
        "score": scores[score], "seconds": seconds, "test_seconds": time.process_time() - start,
        "estimate": valid.get("expected", valid.get(score)),
        "bytes": sum(file.stat().st_size for pattern in used for file in out.glob(pattern)), **further,
    }  # fmt: skip


def print_table(results: Sequence[Result], options: argparse.Namespace) -> None:
    """Print a table: a row for each set and size, a column for each method."""
    print(f"| data | examples | {' | '.join(options.methods)} |\n|---|---|{'---|' * len(options.methods)}")
    cells = defaultdict(list)
    for result in results:
        cells[result["set"], result["size"], result["method"]].append(result)
    for name in options.sets:
        for size in options.sizes:
            row = []
            for method in options.methods:
                scores = [100 * result["score"] for result in cells[name, size, method]]
                seconds = statistics.mean(result["seconds"] for result in cells[name, size, method])
                row.append(f"{statistics.mean(scores):.1f} ± {statistics.pstdev(scores):.1f}, {seconds:.1f} s")
            print(f"| {name} | {size} | {' | '.join(row)} |")
