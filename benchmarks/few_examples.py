"""The loop over sets, sizes and samples in the benchmarks with few labeled examples, and the table of their results."""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from json_lines import append_json_line, read_json_lines, read_metrics
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
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    file = arguments.out / "results.jsonl"
    results = read_json_lines(file)
    keys = ("set", "size", "draw", "method")
    measured = {tuple(result[key] for key in keys) for result in results}
    print(describe_machine(seed=0))
    for name in arguments.sets:
        examples, test = sets[name](arguments.data)
        test = random.Random(0).sample(test, min(tested, len(test)))
        for size in arguments.sizes:
            for draw in range(arguments.draws):
                train = random.Random(draw).sample(examples, size)
                for method in arguments.methods:
                    key = (name, size, draw, method)
                    if key in measured:
                        continue
                    with tempfile.TemporaryDirectory(dir=arguments.out) as folder:
                        result = measure(name, method, train, test, Path(folder))
                    results.append(dict(zip(keys, key, strict=True)) | result)
                    append_json_line(file, results[-1])
    print_table(results, arguments)


def train_recipe(recipe: str, train: Path, test: Path, out: Path, score: str, **settings: Any) -> Result:
    """Train a recipe, and test the model.

    Returns:
        The score of the test, the estimate of the score by validation or cross-validation, the processor seconds of
        training and of the test, and the bytes of the model. If the task has them: the calibration error, chrF++, and
        the standard error of the estimate.
    """
    start = time.process_time()
    model = ensue.train(recipe, train=str(train), out=out, threads=1, overwrite=True, settings=settings)
    seconds, start = time.process_time() - start, time.process_time()
    torch.set_num_threads(1)
    scores = model.evaluate(str(test)).as_json()
    valid = [record["scores"] for record in read_metrics(out) if record["kind"] == "valid"][-1]
    sources = {"calibration_error": scores, "chrf": scores, "standard_error": valid}
    optional = {name: source[name] for name, source in sources.items() if name in source}
    patterns = ("*.json", "*.toml", "*.safetensors")
    return {
        "score": scores[score], "seconds": seconds, "test_seconds": time.process_time() - start,
        "estimate": valid.get("expected", valid.get(score)),
        "bytes": sum(file.stat().st_size for pattern in patterns for file in out.glob(pattern)), **optional,
    }  # fmt: skip


def print_table(results: Sequence[Result], arguments: argparse.Namespace) -> None:
    """Print a table with a row for each set and size, and a column for each method. Scores are multiplied by 100."""
    print(f"| data | examples | {' | '.join(arguments.methods)} |\n|---|---|{'---|' * len(arguments.methods)}")
    cells = defaultdict(list)
    for result in results:
        cells[result["set"], result["size"], result["method"]].append(result)
    for name in arguments.sets:
        for size in arguments.sizes:
            row = []
            for method in arguments.methods:
                scores = [100 * result["score"] for result in cells[name, size, method]]
                seconds = statistics.mean(result["seconds"] for result in cells[name, size, method])
                row.append(f"{statistics.mean(scores):.1f} ± {statistics.pstdev(scores):.1f}, {seconds:.1f} s")
            print(f"| {name} | {size} | {' | '.join(row)} |")
