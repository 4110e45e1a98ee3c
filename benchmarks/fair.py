"""The fair table: every layer with the same number of trials, and then the same seconds, at equal parameters.

    python benchmarks/fair.py --characters TEXT --labels TRAIN DEV [--words TRAIN DEV] [--translation TRAIN DEV]
        [--frames TRAIN DEV] [--kinds lstm gru ...] [--trials 8] [--trial-seconds 60] [--seconds 300] [--seeds 0 1 2]
        [--out FOLDER] [--results FILE]
    python benchmarks/fair.py --page docs [--results FILE]

For each kind of layer and each task that is given, `ensue search` makes the trials: a number of layers, whose size
gives the model the parameters of the task, a dropout and a learning rate. What the best trial had is then trained with
each seed. A part of TRAIN is for validation, which chooses trials and weights. DEV is scored once by each of the last
runs; that is the table. Of a single TEXT the last fiftieth is DEV.

Seconds are the processor's, of one thread. Every trial and every run has a line in FILE; what has a line there is not
made again, and what was interrupted goes on, in FOLDER. So FILE can be filled in several sessions, and by several
processors, each of which has tables of its own. `--page` writes fair.md and its pictures of what is in FILE.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import history
import torch
from cell_picture import INK, style
from cell_quality import known
from history import Kind, count
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
    """A task: its recipe, what is changed in it for all kinds, and its score, of which `unit` makes the page's."""

    recipe: str
    changes: Mapping[str, Any]
    parameters: int
    score: str
    decimals: int
    unit: float = 1.0
    context: int = 0
    """The length of the blocks of running text that attention reads; a batch has as many tokens as that of others."""
    layers: str = "encoder"
    """The table of the layers."""


TASKS = {
    "characters": Task("char-lstm", {"data.valid_fraction": 0.02}, 500_000, "bits_per_character", 3, context=64),
    "words": Task("word-lstm", {"data.valid_fraction": 0.02, "tokens.tied": False, "tokens.d_embedding": 64},
                  2_000_000, "perplexity", 1, context=70),
    "labels": Task("tag-lstm", {"data.valid_fraction": 0.05}, 1_500_000, "accuracy", 2, unit=100.0),
    "translation": Task("summarize-lm", {"data.valid_fraction": 0.02, "tokens.d_embedding": 128,
                                         "train.batch_tokens": 2000}, 1_500_000, "nats_per_token", 3, layers="decoder"),
    "frames": Task("predict-frames", {"data.valid_fraction": 0.05}, 500_000, "nats_per_frame", 2),
}  # fmt: skip
"""Translators are decoders alone, which read the source and then write, so that a layer does all by itself."""
HIGHER = ("accuracy",)
"""Scores of which the highest is the best."""
ATTENDS = {"num_heads": 4, "positions": "rotary", "dropout_attention": 0.0}
KINDS = {
    **{name: kind._replace(table={**kind.table, **(ATTENDS if kind.table["kind"] == "transformer" else {})})
       for name, kind in history.KINDS.items()},
    "mogrifier": Kind(2020, "Melis et al.", {"kind": "mogrifier"}),
    "lem": Kind(2022, "Rusch et al.", {"kind": "lem"}),
    "lru": Kind(2023, "Orvieto et al.", {"kind": "lru"}),
    "transformer-gated": Kind(2023, "Touvron et al.", {"kind": "transformer", **ATTENDS, "norm_kind": "rms",
                                                       "activation": "silu", "gated": True}, step=8),
    "slstm": Kind(2024, "Beck et al.", {"kind": "slstm"}),
    "mlstm": Kind(2024, "Beck et al.", {"kind": "mlstm"}),
    "hgrn2": Kind(2024, "Qin et al.", {"kind": "hgrn2"}),
    "gated-deltanet": Kind(2025, "Yang et al.", {"kind": "gated-deltanet"}),
    "rwkv7": Kind(2025, "Peng et al.", {"kind": "rwkv7"}),
}  # fmt: skip
KINDS["transformer-window"].table["window"] = 4  # type: ignore[index]
DEPTHS, DROPOUTS, RATES = (1, 2, 4), Range(0.0, 0.5), Range(0.001, 0.016, log=True)
EVEN = 8
"""Sizes are multiples of it, as vectors of the processor are; of a clockwork layer, whose modules share them, of 24."""


class Cell(NamedTuple):
    """A kind of layer that learns a task from `train` and is scored on `dev`, with a number of parameters."""

    task: str
    kind: str
    train: str
    dev: str
    parameters: int

    @property
    def key(self) -> dict[str, Any]:
        """How the results name it. No path: other machines have others."""
        names = {"train": Path(self.train).name, "dev": Path(self.dev).name}
        return {"task": self.task, "kind": self.kind, **names, "wanted": self.parameters}

    def recipe(self, d_model: int, num_layers: int, **budget: Any) -> Recipe:
        """The recipe before anything is chosen; `budget` has keys of `[train]`."""
        task, table = TASKS[self.task], {**KINDS[self.kind].table, "d_model": d_model, "num_layers": num_layers}
        common = read_recipe(task.recipe).train
        if task.context and table["kind"] == "transformer":
            table["context"] = task.context
            budget["batch_size"] = round(common.batch_size * common.segment_length / task.context)  # type: ignore[attr-defined]
        changes = {**task.changes, task.layers: table, "data.train": self.train}
        return read_recipe(task.recipe, changes | {f"train.{name}": value for name, value in budget.items()})

    def tables(self) -> list[dict[str, Any]]:
        """For each number of layers their table, with the size that makes the parameters."""
        parts = begin_job(self.recipe(EVEN * 3, 1), None).parts
        step = EVEN * 3 if self.kind == "clockwork" else EVEN

        def made(d_model: int, num_layers: int) -> int:
            with torch.device("cpu" if self.kind == "clockwork" else "meta"):  # it asks which of its weights are read
                return count(parts.build(self.recipe(d_model, num_layers)))

        found = []
        for layers in DEPTHS:
            low, high = step, 2 * step
            while made(high, layers) < self.parameters:
                low, high = high, 2 * high
            while high - low > step:
                middle = (low + high) // 2 // step * step
                low, high = (middle, high) if made(middle, layers) < self.parameters else (low, middle)
            size = min(low, high, key=lambda size: abs(made(size, layers) - self.parameters))
            table = getattr(self.recipe(size, layers), TASKS[self.task].layers)
            found.append(table.model_dump(exclude_unset=True))
        return found


class Results:
    """The file of the results: a line for each trial and for each run."""

    def __init__(self, file: Path, asked: argparse.Namespace) -> None:
        self.file = file
        self.budget = {"trials": asked.trials, "trial_seconds": asked.trial_seconds, "processor": processor_name()}

    def of(self, key: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The lines with this key and the budget."""
        wanted = self.budget | key
        return [line for line in known(self.file) if wanted.items() <= line.items()]

    def add(self, key: Mapping[str, Any], found: Mapping[str, Any]) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        made = {"load": round(os.getloadavg()[2], 1), "date": date.today().isoformat(), "torch": torch.__version__}
        with self.file.open("a", encoding="utf-8") as lines:
            print(json.dumps({**key, **self.budget, **found, **made}), file=lines)


def chosen(cell: Cell, results: Results, asked: argparse.Namespace) -> dict[str, Any]:
    """The settings of the best trial, after the trials that are still to be made."""
    if len(results.of(cell.key | {"what": "trial"})) < asked.trials:
        layers, tables = TASKS[cell.task].layers, cell.tables()
        space = {layers: Choice(tuple(tables)), f"{layers}.dropout": DROPOUTS, "train.learning_rate": RATES}
        base = cell.recipe(tables[0]["d_model"], DEPTHS[0], seconds=asked.trial_seconds, validations=2)

        def on_trial(result: TrialResult) -> None:
            key = cell.key | {"what": "trial", "number": result.number}
            if result.state != "interrupted" and not results.of(key):
                results.add(key, {"values": result.values, "state": result.state, "score": result.score})
                print(f"{cell.task}, {cell.kind}, trial {result.number}: {result.score}", file=sys.stderr, flush=True)

        folder = asked.out / cell.task / f"{cell.kind}-trials-{asked.trial_seconds:g}"
        if not search(
            base, space, folder, trials=asked.trials, prune=False, on_trial=on_trial, device="cpu", threads=1
        ):
            raise KeyboardInterrupt
    trials = results.of(cell.key | {"what": "trial"})
    if len(trials) < asked.trials:
        raise SystemExit(f"{results.file} lacks trials that {folder} has; remove that folder")
    ended = [trial for trial in trials if trial["score"] is not None]
    if not ended:
        raise SystemExit(f"{cell.task}, {cell.kind}: no trial came to its end: {trials[0]['state']}")
    return dict(min(ended, key=lambda trial: trial["score"])["values"])


def trained(cell: Cell, values: Mapping[str, Any], seed: int, asked: argparse.Namespace) -> dict[str, Any]:
    """Trains a run with the settings of the best trial, or goes on with it; what came out."""
    task, run = TASKS[cell.task], asked.out / cell.task / f"{cell.kind}-{asked.seconds:g}-seed-{seed}"
    base = cell.recipe(EVEN * 3, 1, seconds=asked.seconds, validations=asked.validations, seed=seed)
    recipe = read_recipe(base, values)
    if not (run / "README.md").exists():
        outcome = train_run(recipe, run, resume=run.exists(), device="cpu", threads=1, on_start=keep_freed_memory)
        if outcome.reason == "interrupted":
            raise KeyboardInterrupt
    model = ensue.load(run)
    records = known(run / "metrics.jsonl")
    last = [record for record in records if record["kind"] == "train"][-1]
    rate = last["tokens"] / last["step"]
    return {
        "score": task.unit * model.evaluate(cell.dev).as_json()[task.score],
        "curve": [[round(record["seconds"], 1), round(record["step"] * rate),
                   round(task.unit * record["scores"][task.score], 4)]
                  for record in records if record["kind"] == "valid"],
        "model": recipe.describe(), "parameters": count(model.model), "tokens": last["tokens"],
        "spent": last["seconds"], "values": values,
    }  # fmt: skip


def run_all(asked: argparse.Namespace) -> None:
    """Makes all that is asked for and has no line yet."""
    time.perf_counter = time.process_time  # seconds of training are the processor's
    warnings.filterwarnings("error", "no compiled cells")  # as where cc is too slow: such a run is not like the others
    keep_freed_memory()
    results = Results(asked.results, asked)
    for kind in asked.kinds:
        for task, (train, dev) in data_of(asked).items():
            cell = Cell(task, kind, train, dev, asked.parameters or TASKS[task].parameters)
            for seed in asked.seeds:
                key = cell.key | {"what": "run", "seconds": asked.seconds, "seed": seed}
                if not results.of(key):
                    results.add(key, trained(cell, chosen(cell, results, asked), seed, asked))
                    print(
                        f"{task}, {kind}, seed {seed}: {results.of(key)[0]['score']:.4f}", file=sys.stderr, flush=True
                    )


def data_of(asked: argparse.Namespace) -> dict[str, tuple[str, str]]:
    """TRAIN and DEV of each task; of a single text both are written into the folder of the runs."""
    found = {}
    for task in TASKS:
        paths = getattr(asked, task) or []
        if len(paths) == 1:
            text = Path(paths[0]).read_text(encoding="utf-8")
            end = len(text) - len(text) // 50
            paths = [str(asked.out / part / Path(paths[0]).name) for part in ("train", "dev")]
            for path, part in zip(paths, (text[:end], text[end:]), strict=True):
                Path(path).parent.mkdir(parents=True, exist_ok=True)
                Path(path).write_text(part, encoding="utf-8")
        if paths:
            found[task] = (paths[0], paths[1])
    return found


BUDGET = ("processor", "trials", "trial_seconds", "seconds")
"""What the runs of a table have in common."""


def page(runs: Sequence[dict[str, Any]]) -> str:
    """A section for each budget, and in it a table for each task."""
    lines = [ABOUT]
    for number, (budget, some) in enumerate(grouped(runs, *BUDGET).items(), 1):
        processor, trials, trial_seconds, seconds = budget
        lines += [f"## {processor}, {seconds:g} seconds", "",
                  f"Each layer had {trials} trials of {trial_seconds:g} seconds, and then a run of {seconds:g} seconds "
                  "for each seed.",
                  f"One thread, torch {span(some, 'torch')}, {span(some, 'date')}, a load of {span(some, 'load')} in "
                  "the 15 minutes before each end."]  # fmt: skip
        if seconds < FULL:
            lines += [f"A table of full length has {FULL} seconds. There was no time for them here."]
        lines += ["", f"![Validation over seconds and over tokens]({picture(number)})"]
        for task, ours in grouped(some, "task").items():
            lines += ["", *table(TASKS[task], task, ours)]
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
    --frames "recordings/*_[1-4][0-9].wav" "recordings/*_[5-9].wav" --trial-seconds 30
python benchmarks/fair.py --page docs
```

The first command appends its results to `benchmarks/results/fair.jsonl`, and can be stopped and resumed. The second
command writes this page from these results. [Another page](history.md) compares layers with equal time, but without a
search.
"""
FULL = 300


def grouped(runs: Iterable[dict[str, Any]], *keys: str) -> dict[Any, list[dict[str, Any]]]:
    """The runs by the values of keys, or by that of a single one."""
    found: dict[Any, list[dict[str, Any]]] = {}
    for run in runs:
        values = tuple(run[key] for key in keys)
        found.setdefault(values if len(keys) > 1 else values[0], []).append(run)
    return found


def span(runs: Sequence[dict[str, Any]], key: str) -> str:
    """The smallest and the largest value."""
    return " to ".join(
        str(value) for value in dict.fromkeys((min(run[key] for run in runs), max(run[key] for run in runs)))
    )


def picture(number: int) -> str:
    return "fair.svg" if number == 1 else f"fair-{number}.svg"


def table(task: Task, name: str, runs: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The best kind first."""
    train, dev = runs[0]["train"], runs[0]["dev"]
    score = f"{named(task)} of {'the last fiftieth of ' * (dev == train)}`{dev}`"
    kinds = grouped(runs, "kind")
    means = {kind: statistics.mean(run["score"] for run in ours) for kind, ours in kinds.items()}
    yield from (f"### {name.capitalize()}: `{train}`", "")
    yield f"| kind | source | year | model | dropout | learning rate | parameters | {score} | seeds | tokens per s |"
    yield "|---" * 10 + "|"
    for kind in sorted(kinds, key=means.__getitem__, reverse=task.score in HIGHER):
        ours, values = kinds[kind], kinds[kind][0]["values"]
        scores = [run["score"] for run in ours]
        spread = f" ± {statistics.stdev(scores):.{task.decimals}f}" if len(scores) > 1 else ""
        speed = statistics.mean(run["tokens"] / run["spent"] for run in ours)
        chosen = f"{ours[0]['model']} | {values[f'{task.layers}.dropout']:.2f} | {values['train.learning_rate']:.4f}"
        shown = f"{ours[0]['parameters']:,} | {means[kind]:.{task.decimals}f}{spread} | {len(ours)} | {speed:,.0f}"
        yield f"| {kind} | {KINDS[kind].source} | {KINDS[kind].year} | {chosen} | {shown} |"


def named(task: Task) -> str:
    """The score's name on the page."""
    return task.score.replace("_", " ") + (" (%)" if task.unit == 100 else "")


def draw(runs: Sequence[dict[str, Any]], path: Path) -> None:
    """For each task the scores of validation, means over the seeds, over seconds and over tokens."""
    tasks, names = grouped(runs, "task"), list(KINDS)
    colors = dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK)
    with rc_context({"svg.hashsalt": "ensue", "svg.fonttype": "none", "font.size": 9, **colors}):
        figure = Figure(figsize=(8.2, 3.2 * len(tasks)), dpi=120, layout="constrained")
        panels = figure.subplots(len(tasks), 2, sharey="row", squeeze=False)
        for (task, some), (by_seconds, by_tokens) in zip(tasks.items(), panels, strict=True):
            for kind, ours in grouped(some, "kind").items():
                points = zip(*(run["curve"] for run in ours), strict=False)  # fewer where validation took too long
                seconds, tokens, scores = zip(*(map(statistics.mean, zip(*point, strict=True)) for point in points),
                                              strict=True)  # fmt: skip
                for axes, along in ((by_seconds, seconds), (by_tokens, tokens)):
                    axes.plot(along, scores, label=kind, markersize=3, **style(names, kind))
            by_seconds.set(title=task, xlabel="seconds", ylabel=named(TASKS[task]))
            by_tokens.set(xlabel="tokens")
            by_tokens.xaxis.set_major_formatter(EngFormatter(sep=" "))
            by_tokens.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
            for axes in (by_seconds, by_tokens):
                axes.grid(color=INK, alpha=0.25)
                axes.spines[:].set_visible(False)
        figure.patch.set_alpha(0)
        figure.savefig(path, metadata={"Date": None})


def write_page(file: Path, folder: Path) -> None:
    """The page and a picture for each budget."""
    runs = [line for line in known(file) if line["what"] == "run"]
    (folder / "fair.md").write_text(page(runs), encoding="utf-8")
    for number, some in enumerate(grouped(runs, *BUDGET).values(), 1):
        draw(some, folder / picture(number))


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for task in TASKS:
        parser.add_argument(f"--{task}", nargs="+", metavar="DATA", help="TRAIN and DEV, or a text")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), metavar="KIND")
    parser.add_argument("--trials", type=int, default=8, help="for each kind and task")
    parser.add_argument("--trial-seconds", type=float, default=60.0)
    parser.add_argument("--seconds", type=float, default=300.0, help="of the last runs")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--validations", type=int, default=8, help="in a last run: the points of its curve")
    parser.add_argument("--parameters", type=int, help="in place of those of each task")
    parser.add_argument("--out", type=Path, default=Path("fair-runs"), metavar="FOLDER")
    parser.add_argument(
        "--results", type=Path, default=Path(__file__).parent / "results" / "fair.jsonl", metavar="FILE"
    )
    parser.add_argument("--page", type=Path, metavar="FOLDER", help="only write the page, into FOLDER")
    return parser.parse_args()


def main() -> None:
    torch.set_num_threads(1)
    asked = read_arguments()
    if asked.page:
        write_page(asked.results, asked.page)
    else:
        run_all(asked)


if __name__ == "__main__":
    try:
        main()
    except (EnsueError, Notice) as error:
        raise SystemExit(str(error)) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
