"""What the recurrent cells are worth: the recipes char-CELL at equal numbers of parameters and equal seconds.

    python benchmarks/cell_quality.py TEXT [CELL ...] [--out FOLDER] [--parameters N] [--seconds S] [--seeds 0 1 2]

The first 90 % of TEXT are for training, the last 10 % for validation; what is reported is the best validation. A
recipe's `d_model` is chosen for the number of parameters: of the sizes within 1 % one that a high power of two divides,
since vectors of the processor are such. Layers are the recipe's. Weights of a clockwork network that nothing reads do
not count. Everything else is the same for all cells (`COMMON`) but for `OWN` and `--set`.

Seconds are the processor's, of the process that trains: a neighbor on the machine does not shorten a run.

Each run is kept in FOLDER/CELL-seed-N and a line in FOLDER/results.jsonl; a run with a line there is not made again and
one that was interrupted goes on. By default one seed of all cells is run before the next. `--table` runs nothing.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from machine import describe_machine

from ensue.errors import EnsueError
from ensue.models.build_text import build_language_model
from ensue.nn import Clockwork
from ensue.recipe import Recipe, read_recipe
from ensue.tasks.texts.corpus import read_corpus

CELLS = (
    "elman", "gru", "lstm", "peephole", "coupled", "layer-norm", "projected", "zoneout",
    "depth-gated", "grid", "clockwork", "mingru", "minlstm", "qrnn",
)  # fmt: skip
COMMON = (
    "tokens.d_embedding=64", "encoder.dropout=0.4",
    "train.batch_size=32", "train.segment_length=32", "train.learning_rate=0.006", "train.warmup=0.03",
    "train.weight_decay=0.05", "train.beta1=0.8", "train.clip=0.5", "train.reset_state=0.02",
)  # fmt: skip
OWN = {
    "elman": ("encoder.dropout=0.2", "train.learning_rate=0.002", "train.beta1=0.9"),
    "clockwork": ("encoder.dropout=0.2", "train.learning_rate=0.004"),
    **dict.fromkeys(("mingru", "minlstm", "qrnn"), ("encoder.dropout=0.2", "train.learning_rate=0.01")),
}
"""Settings that differ from COMMON: Elman has its recipe's, the others were chosen in runs of 45 s (docs/log)."""
TOLERANCE = 0.01
ENSUE = "import time; time.perf_counter = time.process_time; from ensue.cli import main; main()"
"""The command `ensue` with the processor's clock."""
EVEN = 32
"""The power of two from which on sizes are all alike."""


class Size(NamedTuple):
    d_model: int
    parameters: int


def size_of(recipe: Recipe, vocabulary_size: int, wanted: int) -> Size:
    """The d_model whose model has `wanted` parameters, within TOLERANCE."""
    step = len(getattr(recipe.encoder, "periods", [1]))

    def count(number: int) -> int:
        changed = {"d_model": number * step} | (
            {"d_cell": 2 * number * step} if hasattr(recipe.encoder, "d_cell") else {}
        )
        model = build_language_model(
            recipe.tokens, recipe.encoder.model_copy(update=changed), vocabulary_size=vocabulary_size
        )
        return read_parameters(model)

    low, high = 1, 2
    while count(high) < wanted * (1 - TOLERANCE):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(middle) < wanted * (1 - TOLERANCE) else (low, middle)
    found: list[Size] = []
    while (parameters := count(high)) <= wanted * (1 + TOLERANCE):
        found.append(Size(high * step, parameters))
        high += 1
    if not found:
        raise SystemExit(f"no d_model of {recipe.encoder.kind} has {wanted:,} parameters within {TOLERANCE:.0%}")
    return max(found, key=lambda size: (evenness(size.d_model // step), -abs(size.parameters - wanted)))


def read_parameters(model: torch.nn.Module) -> int:
    """Trained numbers that something reads."""
    unread = sum(int((~part.is_read).sum()) for part in model.modules() if isinstance(part, Clockwork))
    return sum(parameter.numel() for parameter in model.parameters()) - unread


def evenness(number: int) -> int:
    """The largest power of two in it, up to EVEN."""
    return min(number & -number, EVEN)


def settings_of(cell: str, arguments: argparse.Namespace, vocabulary_size: int) -> tuple[list[str], Size]:
    """What a cell is trained with, but for the seed."""
    budget = f"train.seconds={arguments.seconds:g}"
    settings = [*COMMON, *OWN.get(cell, ()), budget, *arguments.settings]
    recipe = read_recipe(f"char-{cell}", settings)
    size = size_of(recipe, vocabulary_size, arguments.parameters)
    own_cells = [f"encoder.d_cell={2 * size.d_model}"] if hasattr(recipe.encoder, "d_cell") else []
    return [*settings, f"encoder.d_model={size.d_model}", *own_cells], size


def train(cell: str, seed: int, settings: Sequence[str], size: Size, arguments: argparse.Namespace) -> dict[str, Any]:
    """Train one in a process of its own, or go on with it; what came out."""
    run = arguments.out / f"{cell}-seed-{seed}"
    if not (run / "README.md").exists():
        changes = [part for setting in (*settings, f"train.seed={seed}") for part in ("--set", setting)]
        command = ["train", f"char-{cell}", "--train", str(arguments.text), "--out", str(run), *changes]
        fixed = ["--threads", "1", "--device", "cpu", "--resume"]
        subprocess.run([sys.executable, "-c", ENSUE, *command, *fixed], check=True)
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    best = [record for record in records if record["kind"] == "valid" and record["best"]][-1]
    last = [record for record in records if record["kind"] == "train"][-1]
    config = json.loads((run / "config.json").read_text(encoding="utf-8"))
    encoder = read_recipe(run / "recipe.toml").encoder
    return {
        "cell": cell, "seed": seed, "settings": list(settings),
        "parameters": size.parameters, "d_model": size.d_model, "layers": encoder.num_layers,
        "seconds": last["seconds"], "steps": last["step"], "characters_per_second": last["tokens"] / last["seconds"],
        "nats_per_character": best["scores"]["nats_per_token"], "best_step": best["step"],
        "precision": config["runtime"]["precision"],
    }  # fmt: skip


def known(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def in_order(arguments: argparse.Namespace) -> Iterator[tuple[str, int]]:
    if arguments.order == "cell":
        yield from ((cell, seed) for cell in arguments.cells for seed in arguments.seeds)
    else:
        yield from ((cell, seed) for seed in arguments.seeds for cell in arguments.cells)


def run_all(arguments: argparse.Namespace, results: Path) -> list[dict[str, Any]]:
    """The results of all that is asked for, each appended to the file as soon as it is there."""
    recipe = read_recipe("char-lstm", train=str(arguments.text))
    vocabulary_size = read_corpus(recipe.data, recipe.tokenizer).tokenizer.vocabulary_size
    chosen = {cell: settings_of(cell, arguments, vocabulary_size) for cell in arguments.cells}
    found = []
    for cell, seed in in_order(arguments):
        settings, size = chosen[cell]
        same = [r for r in known(results) if (r["cell"], r["seed"], r["settings"]) == (cell, seed, settings)]
        if same:
            found.append(same[-1])
        elif not arguments.table:
            print(f"{cell}, seed {seed}: d_model {size.d_model}, {size.parameters:,} parameters", file=sys.stderr)
            found.append(train(cell, seed, settings, size, arguments))
            with results.open("a", encoding="utf-8") as file:
                print(json.dumps(found[-1]), file=file)
    return found


def print_table(found: Sequence[dict[str, Any]]) -> None:
    """A row for each cell, the best first."""
    print("| cell | parameters | d_model | layers | seeds | characters per second | nats per character |")
    print("|---|---|---|---|---|---|---|")
    cells = {result["cell"]: [other for other in found if other["cell"] == result["cell"]] for result in found}
    for cell, runs in sorted(cells.items(), key=lambda item: mean(item[1], "nats_per_character")):
        first, nats = runs[0], [run["nats_per_character"] for run in runs]
        spread = f" ± {statistics.stdev(nats):.4f}" if len(nats) > 1 else ""
        print(
            f"| {cell} | {first['parameters']:,} | {first['d_model']} | {first['layers']} | {len(runs)} "
            f"| {mean(runs, 'characters_per_second'):,.0f} | {statistics.mean(nats):.4f}{spread} |"
        )
    for precision in sorted({run["precision"] for run in found}):
        print(f"\n{precision}: {', '.join(sorted({run['cell'] for run in found if run['precision'] == precision}))}")


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
    parser.add_argument("--order", choices=("seed", "cell"), default="seed", help="what is finished first")
    parser.add_argument(
        "--set", dest="settings", action="append", default=[], metavar="KEY=VALUE", help="for all cells"
    )
    parser.add_argument("--table", action="store_true", help="only the table of what is there")
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
    found = run_all(arguments, arguments.out / "results.jsonl")
    print(machine)
    if found:
        print_table(found)


if __name__ == "__main__":
    try:
        main()
    except EnsueError as error:
        raise SystemExit(str(error)) from None
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"ensue train ended with {error.returncode}") from None
