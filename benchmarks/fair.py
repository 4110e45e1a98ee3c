"""The fair table: kinds of layers with equal numbers of parameters, equal numbers of trials and equal training time.

    python benchmarks/fair.py --characters TEXT --labels TRAIN DEV [--words TRAIN DEV] [--translation TRAIN DEV]
        [--frames TRAIN DEV] [--kinds lstm gru ...] [--trials 8] [--trial-seconds 60] [--seconds 300] [--seeds 0 1 2]
        [--out FOLDER] [--results FILE]
    python benchmarks/fair.py --page docs [--results FILE]

For each kind of layer and each task with data, the search of `ensue search` makes the trials. It varies the number of
layers, the dropout and the learning rate; the size of a layer follows from the number of parameters of the task. The
settings of the best trial are then trained with each seed. A part of TRAIN is for validation, which selects trials and
weights. The table has the scores of these final runs on DEV. If a single TEXT is given, its last fiftieth is DEV.

Seconds are processor time of one thread. Each trial and each run is a line of FILE. A trial or run with a line is not
repeated, and interrupted ones are resumed from FOLDER. So FILE can be filled in several sessions and on several
processors; each processor has its own tables. `--page` writes fair.md and its pictures from FILE.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import history
import torch
from cell_picture import INK, style
from cell_quality import bracket, count_used_parameters
from history import Kind
from json_lines import append_json_line, last_training, read_json_lines, read_metrics
from machine import processor_name
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

import ensue
from ensue.errors import EnsueError
from ensue.extensions.experiments.search import TrialResult, search
from ensue.extensions.experiments.space import Choice, Range
from ensue.notices import Notice
from ensue.processor import keep_freed_memory
from ensue.recipe import Recipe, read_recipe
from ensue.training.run import begin_job, train_run


class Task(NamedTuple):
    """A task: its recipe, the changes of the recipe for all kinds, and its score; the page multiplies it by `unit`."""

    recipe: str
    changes: Mapping[str, Any]
    parameters: int
    score: str
    decimals: int
    unit: float = 1.0
    context: int = 0
    """The length of the blocks of running text for attention. A batch has as many tokens as with other kinds."""
    layers: str = "encoder"
    """The name of the table of the layers."""


TASKS = {
    "characters": Task("char-lstm", {"data.valid_fraction": 0.02}, 500_000, "bits_per_character", 3, context=64),
    "words": Task("word-lstm", {"data.valid_fraction": 0.02, "tokens.tied": False, "tokens.d_embedding": 64},
                  2_000_000, "perplexity", 1, context=70),
    "labels": Task("tag-lstm", {"data.valid_fraction": 0.05}, 1_500_000, "accuracy", 2, unit=100.0),
    "translation": Task("summarize-lm", {"data.valid_fraction": 0.02, "tokens.d_embedding": 128,
                                         "train.batch_tokens": 2000}, 1_500_000, "nats_per_token", 3, layers="decoder"),
    "frames": Task("predict-frames", {"data.valid_fraction": 0.05}, 500_000, "nats_per_frame", 2),
}  # fmt: skip
"""The translator is a decoder without an encoder, so that its score depends on only one kind of layer."""
HIGHER_IS_BETTER = ("accuracy",)
"""Scores whose maximum is the best."""
ATTENTION = {"num_heads": 4, "positions": "rotary", "dropout_attention": 0.0}
KINDS = {
    **{name: kind._replace(table={**kind.table, **(ATTENTION if kind.table["kind"] == "transformer" else {})})
       for name, kind in history.KINDS.items()},
    "mogrifier": Kind(2020, "Melis et al.", {"kind": "mogrifier"}),
    "lem": Kind(2022, "Rusch et al.", {"kind": "lem"}),
    "lru": Kind(2023, "Orvieto et al.", {"kind": "lru"}),
    "transformer-gated": Kind(2023, "Touvron et al.", {"kind": "transformer", **ATTENTION, "norm_kind": "rms",
                                                       "activation": "silu", "gated": True}, step=8),
    "slstm": Kind(2024, "Beck et al.", {"kind": "slstm"}),
    "mlstm": Kind(2024, "Beck et al.", {"kind": "mlstm"}),
    "hgrn2": Kind(2024, "Qin et al.", {"kind": "hgrn2"}),
    "gated-deltanet": Kind(2025, "Yang et al.", {"kind": "gated-deltanet"}),
    "rwkv7": Kind(2025, "Peng et al.", {"kind": "rwkv7"}),
}  # fmt: skip
KINDS["transformer-window"].table["window"] = 4  # type: ignore[index]
DEPTHS, DROPOUTS, RATES = (1, 2, 4), Range(0.0, 0.5), Range(0.001, 0.016, log=True)
SIZE_STEP = 8
"""Sizes are multiples of this number, like vectors of the processor; those of clockwork layers are multiples of 24."""


class Cell(NamedTuple):
    """A cell of the table: a kind of layer on a task, with training data, scored data and the number of parameters."""

    task: str
    kind: str
    train: str
    dev: str
    parameters: int

    @property
    def key(self) -> dict[str, Any]:
        """The keys of the cell in the results. File names are without folders, which differ between machines."""
        names = {"train": Path(self.train).name, "dev": Path(self.dev).name}
        return {"task": self.task, "kind": self.kind, **names, "wanted": self.parameters}

    def recipe(self, d_model: int, num_layers: int, **budget: Any) -> Recipe:
        """Return the recipe before the search. `budget` has keys of `[train]`."""
        task, table = TASKS[self.task], {**KINDS[self.kind].table, "d_model": d_model, "num_layers": num_layers}
        common = read_recipe(task.recipe).train
        if task.context and table["kind"] == "transformer":
            table["context"] = task.context
            budget["batch_size"] = round(common.batch_size * common.segment_length / task.context)  # type: ignore[attr-defined]
        changes = {**task.changes, task.layers: table, "data.train": self.train}
        return read_recipe(task.recipe, changes | {f"train.{name}": value for name, value in budget.items()})

    def tables(self) -> list[dict[str, Any]]:
        """Return the table of the layers for each number of layers, with the size for the number of parameters."""
        parts = begin_job(self.recipe(SIZE_STEP * 3, 1), None).parts
        step = SIZE_STEP * 3 if self.kind == "clockwork" else SIZE_STEP

        def count(steps: int, num_layers: int) -> int:
            with torch.device("cpu" if self.kind == "clockwork" else "meta"):  # unused weights are counted on the CPU
                return count_used_parameters(parts.build(self.recipe(steps * step, num_layers)))

        tables = []
        for layers in DEPTHS:
            sizes = bracket(partial(count, num_layers=layers), self.parameters)
            steps = min(sizes, key=lambda steps: abs(count(steps, layers) - self.parameters))
            table = getattr(self.recipe(steps * step, layers), TASKS[self.task].layers)
            tables.append(table.model_dump(exclude_unset=True))
        return tables


class Results:
    """The file of results, with a line for each trial and each run."""

    def __init__(self, file: Path, arguments: argparse.Namespace) -> None:
        self.file = file
        self.budget = {
            "trials": arguments.trials,
            "trial_seconds": arguments.trial_seconds,
            "processor": processor_name(),
        }

    def select(self, key: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the lines with this key and the budget."""
        wanted = {**self.budget, **key}
        return [line for line in read_json_lines(self.file) if wanted.items() <= line.items()]

    def add(self, key: Mapping[str, Any], result: Mapping[str, Any]) -> None:
        """Append a line, with the load of the machine, the date and the version of torch."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        conditions = {
            "load": round(os.getloadavg()[2], 1),
            "date": date.today().isoformat(),
            "torch": torch.__version__,
        }
        append_json_line(self.file, {**key, **self.budget, **result, **conditions})


def best_settings(cell: Cell, results: Results, arguments: argparse.Namespace) -> dict[str, Any]:
    """Run the missing trials. Return the settings of the best trial."""
    folder = arguments.out / cell.task / f"{cell.kind}-trials-{arguments.trial_seconds:g}"
    if len(results.select(cell.key | {"what": "trial"})) < arguments.trials:
        layers, tables = TASKS[cell.task].layers, cell.tables()
        space = {layers: Choice(tuple(tables)), f"{layers}.dropout": DROPOUTS, "train.learning_rate": RATES}
        base = cell.recipe(tables[0]["d_model"], DEPTHS[0], seconds=arguments.trial_seconds, validations=2)

        def on_trial(result: TrialResult) -> None:
            key = cell.key | {"what": "trial", "number": result.number}
            if result.state != "interrupted" and not results.select(key):
                results.add(key, {"values": result.values, "state": result.state, "score": result.score})
                print(f"{cell.task}, {cell.kind}, trial {result.number}: {result.score}", file=sys.stderr, flush=True)

        if not search(
            base, space, folder, trials=arguments.trials, prune=False, on_trial=on_trial, device="cpu", threads=1
        ):
            raise KeyboardInterrupt
    trials = results.select(cell.key | {"what": "trial"})
    if len(trials) < arguments.trials:
        raise SystemExit(f"{results.file} lacks trials of {folder}; remove this folder to repeat them")
    finished = [trial for trial in trials if trial["score"] is not None]
    if not finished:
        raise SystemExit(f"{cell.task}, {cell.kind}: no trial has a score: {trials[0]['state']}")
    return dict(min(finished, key=lambda trial: trial["score"])["values"])


def train_best(cell: Cell, values: Mapping[str, Any], seed: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Train or resume a run with the settings of the best trial. Return the result."""
    task, run = TASKS[cell.task], arguments.out / cell.task / f"{cell.kind}-{arguments.seconds:g}-seed-{seed}"
    base = cell.recipe(SIZE_STEP * 3, 1, seconds=arguments.seconds, validations=arguments.validations, seed=seed)
    recipe = read_recipe(base, values)
    if not (run / "README.md").exists():
        outcome = train_run(recipe, run, resume=run.exists(), device="cpu", threads=1, on_start=keep_freed_memory)
        if outcome.reason == "interrupted":
            raise KeyboardInterrupt
    model = ensue.load(run)
    records = read_metrics(run)
    last = last_training(records)
    rate = last["tokens"] / last["step"]
    return {
        "score": task.unit * model.evaluate(cell.dev).as_json()[task.score],
        "curve": [[round(record["seconds"], 1), round(record["step"] * rate),
                   round(task.unit * record["scores"][task.score], 4)]
                  for record in records if record["kind"] == "valid"],
        "model": recipe.describe(), "parameters": count_used_parameters(model.model), "tokens": last["tokens"],
        "spent": last["seconds"], "values": values,
    }  # fmt: skip


def run_all(arguments: argparse.Namespace) -> None:
    """Run the trials and train the runs that have no line in the results."""
    time.perf_counter = time.process_time  # seconds of training are processor time
    warnings.filterwarnings("error", "no compiled cells")  # such a run is not comparable with the others
    keep_freed_memory()
    results = Results(arguments.results, arguments)
    for kind in arguments.kinds:
        for task, (train, dev) in task_data(arguments).items():
            cell = Cell(task, kind, train, dev, arguments.parameters or TASKS[task].parameters)
            for seed in arguments.seeds:
                key = cell.key | {"what": "run", "seconds": arguments.seconds, "seed": seed}
                if not results.select(key):
                    results.add(key, train_best(cell, best_settings(cell, results, arguments), seed, arguments))
                    print(
                        f"{task}, {kind}, seed {seed}: {results.select(key)[0]['score']:.4f}",
                        file=sys.stderr,
                        flush=True,
                    )


def task_data(arguments: argparse.Namespace) -> dict[str, tuple[str, str]]:
    """Return TRAIN and DEV of each task. A single text is divided into two files in the folder of the runs."""
    data = {}
    for task in TASKS:
        paths = getattr(arguments, task) or []
        if len(paths) == 1:
            text = Path(paths[0]).read_text(encoding="utf-8")
            end = len(text) - len(text) // 50
            paths = [str(arguments.out / part / Path(paths[0]).name) for part in ("train", "dev")]
            for path, part in zip(paths, (text[:end], text[end:]), strict=True):
                Path(path).parent.mkdir(parents=True, exist_ok=True)
                Path(path).write_text(part, encoding="utf-8")
        if paths:
            data[task] = (paths[0], paths[1])
    return data


BUDGET = ("processor", "trials", "trial_seconds", "seconds")
"""The keys that are equal for all runs of a table."""


def page(runs: Sequence[dict[str, Any]]) -> str:
    """Return the page in Markdown: a section for each budget, with a table for each task."""
    lines = [ABOUT, RESULTS]
    for number, (budget, budget_runs) in enumerate(grouped(runs, *BUDGET).items(), 1):
        processor, trials, trial_seconds, seconds = budget
        lines += [f"## {processor}, {seconds:g} seconds", "",
                  f"Each layer had {trials} trials of {trial_seconds:g} seconds, and then a run of {seconds:g} seconds "
                  "for each seed.",
                  f"One thread, torch {span(budget_runs, 'torch')}, {span(budget_runs, 'date')}, "
                  f"a load of {span(budget_runs, 'load')} in the 15 minutes before each end."]  # fmt: skip
        lines += ["", f"![Validation over seconds and over tokens]({picture_name(number)})"]
        for task, task_runs in grouped(budget_runs, "task").items():
            lines += ["", *table(TASKS[task], task, task_runs)]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


ABOUT = """# A fair table of layers

This page compares kinds of layers under equal conditions: the same number of trials, the same training time, and
about the same number of parameters. For each kind, `ensue search` selects the number of layers, the dropout and the
learning rate. With more layers, each layer is smaller. The first ten trials are drawn at random, with the same values
for all kinds. The settings of the best trial are then trained with each seed.

Trials and weights are selected on the end of the training data, or for frames on a random part of the training data.
The scores in the tables are on other data, which are named in the column header, and which were not used for any
selection. Test data were not used.

Seconds are processor time. Within a task, batches have the same number of tokens, and all other settings are those of
the task's recipe. The translator is a [decoder](glossary.md#decoder) without an encoder, which reads the source and
then generates the target, so that the score depends only on one kind of layer. Kinds that are missing in a table were
not trained for lack of time. All kinds in a table had the same number of trials.

```text
python benchmarks/fair.py --characters input.txt --words ptb.train.txt ptb.valid.txt \\
    --labels en_ewt-ud-train.conllu en_ewt-ud-dev.conllu --translation train.en,train.de val.en,val.de \\
    --frames "recordings/*_[1-4][0-9].wav" "recordings/*_[5-9].wav" \\
    --trials 6 --trial-seconds 10 --seconds 60 --seeds 0
python benchmarks/fair.py --page docs
```

The first command made the first table, and with `--trials 8 --trial-seconds 30` and no other options the second. The
command appends its results to `benchmarks/results/fair.jsonl`, and can be stopped and resumed. The last command writes
this page from these results. [Another page](history.md) compares layers with equal time, but without a search.
"""
RESULTS = """## Results

- In 60 seconds the LSTM has the best score in four of five tasks. The GRU, the Mogrifier and the QRNN are better on
  characters.
- The QRNN is among the four best layers in each task. The LRU is not the best layer in any task.
- The Transformer gains most from a longer run: with 300 seconds it is the best layer for words and translation.
- Of the eight layers with results in all tasks, the Elman layer is last in characters, labels and frames. The sLSTM is
  last in translation, and the Mogrifier in words.
- The sLSTM and the mLSTM train on a quarter as many characters per second as the GRU, so they see less text.
- The first table has one seed. In the second table, the seeds of a layer differ by up to 0.03 bits per character, 0.15
  points of accuracy and 0.03 nats per token. So smaller differences may be chance.
- With 60 seconds, minGRU and mLSTM have results in two tasks only; HGRN2, RWKV-7 and gated DeltaNet have none yet.
"""


def grouped(runs: Iterable[dict[str, Any]], *keys: str) -> dict[Any, list[dict[str, Any]]]:
    """Group runs by the values of keys, or by the value of a single key."""
    groups: dict[Any, list[dict[str, Any]]] = {}
    for run in runs:
        values = tuple(run[key] for key in keys)
        groups.setdefault(values if len(keys) > 1 else values[0], []).append(run)
    return groups


def span(runs: Sequence[dict[str, Any]], key: str) -> str:
    """Return the smallest and the largest value."""
    values = [run[key] for run in runs]
    return " to ".join(map(str, dict.fromkeys((min(values), max(values)))))


def picture_name(number: int) -> str:
    return "fair.svg" if number == 1 else f"fair-{number}.svg"


def table(task: Task, name: str, runs: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of a table, the best kind first."""
    train, dev = runs[0]["train"], runs[0]["dev"]
    score = f"{score_name(task)} of {'the last fiftieth of ' * (dev == train)}`{dev}`"
    kinds = grouped(runs, "kind")
    means = {kind: statistics.mean(run["score"] for run in seeds) for kind, seeds in kinds.items()}
    yield from (f"### {name.capitalize()}: `{train}`", "")
    yield f"| kind | source | year | model | dropout | learning rate | parameters | {score} | seeds | tokens per s |"
    yield "|---" * 10 + "|"
    for kind in sorted(kinds, key=means.__getitem__, reverse=task.score in HIGHER_IS_BETTER):
        seeds, values = kinds[kind], kinds[kind][0]["values"]
        scores = [run["score"] for run in seeds]
        spread = f" ± {statistics.stdev(scores):.{task.decimals}f}" if len(scores) > 1 else ""
        speed = statistics.mean(run["tokens"] / run["spent"] for run in seeds)
        settings = f"{seeds[0]['model']} | {values[f'{task.layers}.dropout']:.2f} | {values['train.learning_rate']:.4f}"
        results = f"{seeds[0]['parameters']:,} | {means[kind]:.{task.decimals}f}{spread} | {len(seeds)} | {speed:,.0f}"
        yield f"| {kind} | {KINDS[kind].source} | {KINDS[kind].year} | {settings} | {results} |"


def score_name(task: Task) -> str:
    """Return the name of the score on the page."""
    return task.score.replace("_", " ") + (" (%)" if task.unit == 100 else "")


def draw(runs: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw the mean validation score over seconds and over tokens for each task."""
    tasks, names = grouped(runs, "task"), list(KINDS)
    colors = dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK)
    with rc_context({"svg.hashsalt": "ensue", "svg.fonttype": "none", "font.size": 9, **colors}):
        figure = Figure(figsize=(8.2, 3.2 * len(tasks)), dpi=120, layout="constrained")
        panels = figure.subplots(len(tasks), 2, sharey="row", squeeze=False)
        for (task, task_runs), (by_seconds, by_tokens) in zip(tasks.items(), panels, strict=True):
            for kind, seeds in grouped(task_runs, "kind").items():
                points = zip(*(run["curve"] for run in seeds), strict=False)  # slow validation gives fewer points
                seconds, tokens, scores = zip(*(map(statistics.mean, zip(*point, strict=True)) for point in points),
                                              strict=True)  # fmt: skip
                for axes, x in ((by_seconds, seconds), (by_tokens, tokens)):
                    axes.plot(x, scores, label=kind, markersize=3, **style(names, kind))
            by_seconds.set(title=task, xlabel="seconds", ylabel=score_name(TASKS[task]))
            by_tokens.set(xlabel="tokens")
            by_tokens.xaxis.set_major_formatter(EngFormatter(sep=" "))
            by_tokens.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
            for axes in (by_seconds, by_tokens):
                axes.grid(color=INK, alpha=0.25)
                axes.spines[:].set_visible(False)
        figure.patch.set_alpha(0)
        figure.savefig(path, metadata={"Date": None})


def write_page(file: Path, folder: Path) -> None:
    """Write the page, and a picture for each budget."""
    runs = sorted((line for line in read_json_lines(file) if line["what"] == "run"), key=itemgetter("seconds"))
    (folder / "fair.md").write_text(page(runs), encoding="utf-8")
    for number, budget_runs in enumerate(grouped(runs, *BUDGET).values(), 1):
        draw(budget_runs, folder / picture_name(number))


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for task in TASKS:
        parser.add_argument(f"--{task}", nargs="+", metavar="DATA", help="TRAIN and DEV, or a text")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), metavar="KIND")
    parser.add_argument("--trials", type=int, default=8, help="for each kind and task")
    parser.add_argument("--trial-seconds", type=float, default=60.0)
    parser.add_argument("--seconds", type=float, default=300.0, help="of each final run")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument(
        "--validations",
        type=int,
        default=8,
        help="the number of validations in a final run, which are the points of its curve",
    )
    parser.add_argument("--parameters", type=int, help="the number of parameters, in place of that of the task")
    parser.add_argument("--out", type=Path, default=Path("fair-runs"), metavar="FOLDER")
    parser.add_argument(
        "--results", type=Path, default=Path(__file__).parent / "results" / "fair.jsonl", metavar="FILE"
    )
    parser.add_argument("--page", type=Path, metavar="FOLDER", help="only write the page, into FOLDER")
    return parser.parse_args()


def main() -> None:
    torch.set_num_threads(1)
    arguments = read_arguments()
    if arguments.page:
        write_page(arguments.results, arguments.page)
    else:
        run_all(arguments)


if __name__ == "__main__":
    try:
        main()
    except (EnsueError, Notice) as error:
        raise SystemExit(str(error)) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
