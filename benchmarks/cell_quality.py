"""Quality of the recurrent cells: the recipes char-CELL with equal numbers of parameters and equal training time.

    python benchmarks/cell_quality.py TEXT [CELL ...] [--out FOLDER] [--parameters N] [--seconds S] [--seeds 0 1 2]

The first 90 % of TEXT are for training, the last 10 % for validation. The best validation score is reported. `d_model`
is chosen for the number of parameters. Of the sizes within 1 %, the size that is divisible by the highest power of two
is taken, since vectors of the processor have such sizes. The number of layers is that of the recipe. Unused weights of
a clockwork layer are not counted. All other settings are equal for all cells (`COMMON_SETTINGS`), except
`CELL_SETTINGS` and `--set`.

Seconds are processor time of the training process, so that the load of the machine does not shorten a run.

Each run is kept in FOLDER/CELL-seed-N, and each result is a line of FOLDER/results.jsonl. A run with a result is not
repeated, and an interrupted run is resumed. By default, all cells are trained with one seed before the next seed.
`--table` only prints the table.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from json_lines import append_json_line, best_validation, last_training, read_json_lines, read_metrics
from machine import describe_machine
from settings import merge_settings

from ensue.errors import EnsueError
from ensue.models.build_text import build_language_model
from ensue.nn import Clockwork
from ensue.recipe import read_recipe
from ensue.tasks.texts.corpus import read_corpus

CELLS = (
    "elman", "gru", "lstm", "peephole", "coupled", "layer-norm", "projected", "zoneout",
    "depth-gated", "grid", "clockwork", "mingru", "minlstm", "qrnn",
)  # fmt: skip
COMMON_SETTINGS = (
    "tokens.d_embedding=64", "encoder.dropout=0.4",
    "train.batch_size=32", "train.segment_length=32", "train.learning_rate=0.006", "train.warmup=0.03",
    "train.weight_decay=0.05", "train.beta1=0.8", "train.clip=0.5", "train.reset_state=0.02",
)  # fmt: skip
CELL_SETTINGS = {
    "elman": ("encoder.dropout=0.2", "train.learning_rate=0.002", "train.beta1=0.9"),
    "clockwork": ("encoder.dropout=0.2", "train.learning_rate=0.004"),
    **dict.fromkeys(("mingru", "minlstm", "qrnn"), ("encoder.dropout=0.2", "train.learning_rate=0.01")),
}
"""Further settings of some cells: for Elman those of the recipe, for the others the best ones in runs of 45 seconds."""
TOLERANCE = 0.01
ENSUE_WITH_PROCESSOR_CLOCK = "import time; time.perf_counter = time.process_time; from ensue.cli import main; main()"
"""The command `ensue` with processor time in place of wall-clock time."""
MAX_POWER_OF_TWO = 32
"""Sizes that this power of two divides are equally good."""


class Size(NamedTuple):
    d_model: int
    parameters: int


def choose_size(recipe: Any, vocabulary_size: int, wanted: int) -> Size:
    """Return the `d_model` for which a model has `wanted` parameters within TOLERANCE, and the number of parameters."""
    step = len(getattr(recipe.encoder, "periods", [1]))

    def count(number: int) -> int:
        changed = {"d_model": number * step} | (
            {"d_cell": 2 * number * step} if hasattr(recipe.encoder, "d_cell") else {}
        )
        model = build_language_model(
            recipe.tokens, recipe.encoder.model_copy(update=changed), vocabulary_size=vocabulary_size
        )
        return count_used_parameters(model)

    _, number = bracket(count, wanted * (1 - TOLERANCE))
    sizes: list[Size] = []
    while (parameters := count(number)) <= wanted * (1 + TOLERANCE):
        sizes.append(Size(number * step, parameters))
        number += 1
    if not sizes:
        raise SystemExit(f"no d_model of {recipe.encoder.kind} has {wanted:,} parameters within {TOLERANCE:.0%}")
    return max(sizes, key=lambda size: (power_of_two(size.d_model // step), -abs(size.parameters - wanted)))


def bracket(count: Callable[[int], int], wanted: float) -> tuple[int, int]:
    """Return two consecutive numbers: `count` is below `wanted` for the first one, and not for the second one.

    The first one is at least 1, even if its count is not below `wanted`.
    """
    low, high = 1, 2
    while count(high) < wanted:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(middle) < wanted else (low, middle)
    return low, high


def count_used_parameters(model: torch.nn.Module) -> int:
    """Return the number of trained parameters, without unused weights of clockwork layers."""
    unused = sum(int((~module.is_read).sum()) for module in model.modules() if isinstance(module, Clockwork))
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad) - unused


def power_of_two(number: int) -> int:
    """Return the largest power of two that divides a number, at most MAX_POWER_OF_TWO."""
    return min(number & -number, MAX_POWER_OF_TWO)


def cell_settings(cell: str, arguments: argparse.Namespace, vocabulary_size: int) -> tuple[list[str], Size]:
    """Return the settings of a cell without the seed, and its size."""
    budget = f"train.seconds={arguments.seconds:g}"
    settings = merge_settings(COMMON_SETTINGS, CELL_SETTINGS.get(cell, ()), [budget], arguments.settings)
    recipe: Any = read_recipe(f"char-{cell}", settings)
    size = choose_size(recipe, vocabulary_size, arguments.parameters)
    d_cell = [f"encoder.d_cell={2 * size.d_model}"] if hasattr(recipe.encoder, "d_cell") else []
    return [*settings, f"encoder.d_model={size.d_model}", *d_cell], size


def train(cell: str, seed: int, settings: Sequence[str], size: Size, arguments: argparse.Namespace) -> dict[str, Any]:
    """Train or resume a run in a separate process. Return the result."""
    run = arguments.out / f"{cell}-seed-{seed}"
    if not (run / "README.md").exists():
        changes = [part for setting in (*settings, f"train.seed={seed}") for part in ("--set", setting)]
        command = ["train", f"char-{cell}", "--train", str(arguments.text), "--out", str(run), *changes]
        fixed = ["--threads", "1", "--device", "cpu", "--resume"]
        subprocess.run([sys.executable, "-c", ENSUE_WITH_PROCESSOR_CLOCK, *command, *fixed], check=True)
    records = read_metrics(run)
    best, last = best_validation(records), last_training(records)
    config = json.loads((run / "config.json").read_text(encoding="utf-8"))
    recipe: Any = read_recipe(run / "recipe.toml")
    return {
        "cell": cell, "seed": seed, "settings": list(settings),
        "parameters": size.parameters, "d_model": size.d_model, "layers": recipe.encoder.num_layers,
        "seconds": last["seconds"], "steps": last["step"], "characters_per_second": last["tokens"] / last["seconds"],
        "nats_per_character": best["scores"]["nats_per_token"], "best_step": best["step"],
        "precision": config["runtime"]["precision"],
    }  # fmt: skip


def cells_and_seeds(arguments: argparse.Namespace) -> Iterator[tuple[str, int]]:
    """Yield cells and seeds in the order of the runs."""
    if arguments.order == "cell":
        yield from ((cell, seed) for cell in arguments.cells for seed in arguments.seeds)
    else:
        yield from ((cell, seed) for seed in arguments.seeds for cell in arguments.cells)


def run_all(arguments: argparse.Namespace, results: Path) -> list[dict[str, Any]]:
    """Train the runs without results. Return all results; each new result is appended to the file."""
    recipe: Any = read_recipe("char-lstm", train=str(arguments.text))
    vocabulary_size = read_corpus(recipe.data, recipe.tokenizer).tokenizer.vocabulary_size
    choices = {cell: cell_settings(cell, arguments, vocabulary_size) for cell in arguments.cells}
    selected = []
    for cell, seed in cells_and_seeds(arguments):
        settings, size = choices[cell]
        key = {"cell": cell, "seed": seed, "settings": settings}
        saved = [record for record in read_json_lines(results) if key.items() <= record.items()]
        if saved:
            selected.append(saved[-1])
        elif not arguments.table:
            print(f"{cell}, seed {seed}: d_model {size.d_model}, {size.parameters:,} parameters", file=sys.stderr)
            selected.append(train(cell, seed, settings, size, arguments))
            append_json_line(results, selected[-1])
    return selected


def print_table(results: Sequence[dict[str, Any]]) -> None:
    """Print a row for each cell, the best first."""
    print("| cell | parameters | d_model | layers | seeds | characters per second | nats per character |")
    print("|---|---|---|---|---|---|---|")
    cells: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        cells.setdefault(result["cell"], []).append(result)
    for cell, runs in sorted(cells.items(), key=lambda item: mean(item[1], "nats_per_character")):
        first, nats = runs[0], [run["nats_per_character"] for run in runs]
        spread = f" ± {statistics.stdev(nats):.4f}" if len(nats) > 1 else ""
        print(
            f"| {cell} | {first['parameters']:,} | {first['d_model']} | {first['layers']} | {len(runs)} "
            f"| {mean(runs, 'characters_per_second'):,.0f} | {statistics.mean(nats):.4f}{spread} |"
        )
    for precision in sorted({run["precision"] for run in results}):
        print(f"\n{precision}: {', '.join(sorted({run['cell'] for run in results if run['precision'] == precision}))}")


def mean(runs: Sequence[dict[str, Any]], key: str) -> float:
    return statistics.mean(run[key] for run in runs)


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, metavar="TEXT")
    parser.add_argument("cells", nargs="*", metavar="CELL", help=f"of {', '.join(CELLS)}; default: all")
    parser.add_argument("--out", type=Path, default=Path("cell-runs"), metavar="FOLDER")
    parser.add_argument("--parameters", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=300.0, help="of training, for each run")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument(
        "--order",
        choices=("seed", "cell"),
        default="seed",
        help="which runs come first: all cells of a seed, or all seeds of a cell",
    )
    parser.add_argument(
        "--set", dest="settings", action="append", default=[], metavar="KEY=VALUE", help="for all cells"
    )
    parser.add_argument("--table", action="store_true", help="only print the table of the results")
    arguments = parser.parse_intermixed_args()
    arguments.cells = arguments.cells or list(CELLS)
    if unknown := [cell for cell in arguments.cells if cell not in CELLS]:
        parser.error(f"no cell {unknown[0]}; known: {', '.join(CELLS)}")
    return arguments


def main() -> None:
    torch.set_num_threads(1)
    arguments = read_arguments()
    arguments.out.mkdir(parents=True, exist_ok=True)
    machine = describe_machine(seed=arguments.seeds[0])
    results = run_all(arguments, arguments.out / "results.jsonl")
    print(machine)
    if results:
        print_table(results)


if __name__ == "__main__":
    try:
        main()
    except EnsueError as error:
        raise SystemExit(str(error)) from None
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"ensue train ended with {error.returncode}") from None
