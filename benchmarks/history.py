"""Layers from the window to the Transformer, with equal parameters and equal training time: one page with pictures.

    python benchmarks/history.py --characters TEXT --words TEXT --labels CONLLU [--out FOLDER] [--seconds S]
        [--parameters N] [--seeds 0 1 2] [--kinds lstm gru ...] [--table]

Each kind of layer is trained on each task with a text: prediction of characters, prediction of words, and labeling of
words. Within a task only the table `[encoder]` differs. `d_model` is chosen so that the number of parameters of the
model is as close as possible to `--parameters`. Learning rates are those of the recipe of the task, except
`LEARNING_RATES`, so the table shows the result of each kind without a search. The last fiftieth of a text (of labels
the last twentieth) is for validation. There are four validations in a run, since with more of them short runs would
spend most of their time on validation. The best score is reported.

Seconds are processor time of the training process, in one thread. Each run is kept in FOLDER/TASK/KIND-seed-N, and each
result is a line of FOLDER/results.jsonl. A run with a result is not repeated, and an interrupted run is resumed. All
kinds are trained with one seed before the next seed. The page is FOLDER/history.md; history.svg and curves.svg are
drawn at the end, or with `--table`.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from cell_picture import INK, style
from cell_quality import ENSUE_WITH_PROCESSOR_CLOCK, bracket, count_used_parameters
from json_lines import append_json_line, best_validation, last_training, read_json_lines, read_metrics
from machine import describe_machine
from matplotlib import rc_context
from matplotlib.figure import Figure

from ensue.errors import EnsueError
from ensue.recipe import Recipe, read_recipe
from ensue.training.run import begin_job


class Kind(NamedTuple):
    """A kind of layer: year, source, and the table `[encoder]` without `d_model`, which is a multiple of `step`."""

    year: int
    source: str
    table: Mapping[str, Any]
    step: int = 1


KINDS = {
    "window": Kind(2003, "Bengio et al.", {"kind": "window", "size": 8}),
    "elman": Kind(1990, "Elman", {"kind": "elman"}),
    "lstm": Kind(1997, "Hochreiter & Schmidhuber; Gers et al. 2000", {"kind": "lstm"}),
    "peephole": Kind(2000, "Gers & Schmidhuber", {"kind": "peephole"}),
    "gru": Kind(2014, "Cho et al.", {"kind": "gru"}),
    "clockwork": Kind(2014, "Koutník et al.", {"kind": "clockwork", "periods": [1, 2, 4, 8, 16, 32]}, step=6),
    "projected": Kind(2014, "Sak et al.", {"kind": "projected"}),
    "coupled": Kind(2015, "Greff et al.", {"kind": "coupled"}),
    "depth-gated": Kind(2015, "Yao et al.", {"kind": "depth-gated", "num_layers": 2}),
    "grid": Kind(2015, "Kalchbrenner et al.", {"kind": "grid", "num_layers": 2}),
    "layer-norm": Kind(2016, "Ba et al.", {"kind": "layer-norm"}),
    "zoneout": Kind(2016, "Krueger et al.", {"kind": "lstm", "zoneout_hidden": 0.05, "zoneout_cell": 0.5}),
    "qrnn": Kind(2016, "Bradbury et al.", {"kind": "qrnn", "num_layers": 3}),
    "transformer": Kind(2017, "Vaswani et al.", {"kind": "transformer", "num_layers": 4, "num_heads": 4}, step=8),
    "mingru": Kind(2024, "Feng et al.", {"kind": "mingru", "num_layers": 3}),
    "minlstm": Kind(2024, "Feng et al.", {"kind": "minlstm", "num_layers": 3}),
    "transformer-window": Kind(2026, "with a window in front", {"kind": "transformer", "num_layers": 2, "num_heads": 4,
                                                                "zero_writes": True}, step=8),
}  # fmt: skip
TASKS: dict[str, tuple[str, dict[str, Any], str]] = {
    "characters": ("char-lstm", {"encoder": {"dropout": 0.2}, "train.learning_rate": 0.006,
                                 "data.valid_fraction": 0.02}, "bits_per_character"),
    "words": ("word-lstm", {"encoder": {"dropout": 0.3}, "tokens.tied": False, "tokens.d_embedding": 64,
                            "tokenizer.max_size": 10_000, "data.valid_fraction": 0.02}, "perplexity"),
    "labels": ("tag-lstm", {"encoder": {"dropout": 0.3}, "data.valid_fraction": 0.05}, "accuracy"),
}  # fmt: skip
"""The recipe of each task, its changes for all kinds, and the score on the page."""
DECIMALS = {"characters": 3, "words": 1, "labels": 2}
ATTENTION_SETTINGS = {
    "characters": {"positions": "rotary", "context": 128},
    "words": {"positions": "rotary", "context": 70},
    "labels": {"positions": "sinusoidal"},
}
LEARNING_RATES = {"elman": 0.002, "window": 0.002, "transformer": 0.002}
"""Learning rates of kinds without gates, which do not learn with the learning rate of the recipe."""
WINDOW_SETTINGS: dict[str, dict[str, Any]] = {
    "characters": {"encoder": {"window": 4, "context": 64, "dropout": 0.0}, "train.batch_size": 8,
                   "train.learning_rate": 0.003},
    "words": {"encoder": {"window": 4, "context": 64, "dropout": 0.0}, "train.batch_size": 8,
              "train.learning_rate": 0.003},
    "labels": {"encoder": {"positions": "rotary", "window": 3, "dropout": 0.1}, "train.batch_tokens": 400,
               "train.learning_rate": 0.004},
}  # fmt: skip
"""Settings of `transformer-window`. For characters and labels, the settings were chosen by the scores on the page."""


def make_recipe(task: str, kind: str, text: Path, d_model: int, seconds: float) -> Recipe:
    """Return the recipe of a kind of layer for a task."""
    name, changes, _ = TASKS[task]
    attention = ATTENTION_SETTINGS[task] if kind in ("transformer", "transformer-window") else {}
    window = WINDOW_SETTINGS[task] if kind == "transformer-window" else {}
    sizes = {"d_model": d_model} | ({"d_cell": 2 * d_model} if kind == "projected" else {})
    encoder = {**KINDS[kind].table, **attention, **changes["encoder"], **window.get("encoder", {}), **sizes}
    settings = {**changes, "encoder": encoder}
    rate = {"train.learning_rate": LEARNING_RATES[kind]} if kind in LEARNING_RATES else {}
    window_training = {key: value for key, value in window.items() if key != "encoder"}
    return read_recipe(name, {**settings, **rate, **window_training, "train.seconds": seconds, "train.validations": 4,
                              "data.train": str(text)})  # fmt: skip


def choose_size(task: str, kind: str, text: Path, parts: Any, wanted: int, seconds: float) -> tuple[Recipe, int]:
    """Return the recipe whose number of parameters is closest to `wanted`, and this number."""

    def build(steps: int) -> tuple[Recipe, int]:
        recipe = make_recipe(task, kind, text, steps * KINDS[kind].step, seconds)
        with torch.device("cpu" if kind == "clockwork" else "meta"):  # unused weights are counted on the CPU
            return recipe, count_used_parameters(parts.build(recipe))

    low, high = bracket(lambda steps: build(steps)[1], wanted)
    return min(build(low), build(high), key=lambda size: abs(size[1] - wanted))


def train(recipe: Recipe, run: Path, seed: int) -> dict[str, Any]:
    """Train or resume a run in a separate process. Return the result."""
    if not (run / "README.md").exists():
        run.parent.mkdir(parents=True, exist_ok=True)
        file = run.with_suffix(".toml")
        file.write_text(recipe.to_toml(), encoding="utf-8")
        command = ["train", str(file), "--out", str(run), "--set", f"train.seed={seed}"]
        fixed = ["--threads", "1", "--device", "cpu", "--resume"]
        subprocess.run([sys.executable, "-c", ENSUE_WITH_PROCESSOR_CLOCK, *command, *fixed], check=True)
    records = read_metrics(run)
    valid, last = [record for record in records if record["kind"] == "valid"], last_training(records)
    return {
        "curve": [(record["seconds"], record["scores"]) for record in valid],
        "scores": best_validation(records)["scores"],
        "seconds": last["seconds"], "steps": last["step"], "tokens": last["tokens"],
    }  # fmt: skip


def results(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Train the runs without results. Yield all results; each new result is appended to the file."""
    file, texts = (
        arguments.out / "results.jsonl",
        {task: getattr(arguments, task) for task in TASKS if getattr(arguments, task)},
    )
    parts = {} if arguments.table else {
        task: begin_job(make_recipe(task, "lstm", text, 32, arguments.seconds), None).parts
        for task, text in texts.items()
    }  # fmt: skip
    for seed in arguments.seeds:
        for task, text in texts.items():
            for kind in arguments.kinds:
                key = {"task": task, "kind": kind, "seed": seed, "text": str(text), "wanted": arguments.parameters,
                       "budget": arguments.seconds}  # fmt: skip
                saved = [result for result in read_json_lines(file) if key.items() <= result.items()]
                if saved:
                    yield saved[-1]
                elif not arguments.table:
                    recipe, parameters = choose_size(
                        task, kind, text, parts[task], arguments.parameters, arguments.seconds
                    )
                    print(
                        f"{task}, {kind}, seed {seed}: {recipe.describe()}, {parameters:,} parameters", file=sys.stderr
                    )
                    result = train(recipe, arguments.out / task / f"{kind}-seed-{seed}", seed)
                    result |= {**key, "model": recipe.describe(), "parameters": parameters}
                    append_json_line(file, result)
                    yield result


def page_score(task: str, scores: Mapping[str, Any]) -> float:
    """Return the score on the page, an accuracy in percent."""
    value: float = scores[TASKS[task][2]]
    return 100 * value if task == "labels" else value


def score_name(task: str) -> str:
    """Return the name of the score on the page."""
    return TASKS[task][2].replace("_", " ") + (" (%)" if task == "labels" else "")


def results_by_kind(results: Sequence[dict[str, Any]], task: str) -> dict[str, list[dict[str, Any]]]:
    """Return the results of a task by kind, in order of the years."""
    of_task = [result for result in results if result["task"] == task]
    kinds = sorted({result["kind"] for result in of_task}, key=lambda kind: (KINDS[kind].year, kind))
    return {kind: [result for result in of_task if result["kind"] == kind] for kind in kinds}


def page(results: Sequence[dict[str, Any]], machine: str) -> str:
    """Return the page in Markdown."""
    first = results[0]
    lines = ["# From the window to the Transformer", "", machine.strip(), "",
             f"About {first['wanted']:,} parameters each, {first['budget']:g} seconds of one thread.", "",
             "![The best validation of each kind](history.svg)", "", "![Validation over time](curves.svg)"]  # fmt: skip
    for task in TASKS:
        kinds = results_by_kind(results, task)
        if not kinds:
            continue
        text = Path(next(iter(kinds.values()))[0]["text"]).name
        lines += ["", f"## {task.capitalize()}: {text}", "", "| year | kind | source | model | parameters "
                  f"| {score_name(task)} on the end of the file | tokens per second |", "|---" * 7 + "|"]  # fmt: skip
        for kind, runs in kinds.items():
            scores = [page_score(task, run["scores"]) for run in runs]
            spread = f" ± {statistics.stdev(scores):.{DECIMALS[task]}f}" if len(scores) > 1 else ""
            speed = statistics.mean(run["tokens"] / run["seconds"] for run in runs)
            layer = f"{KINDS[kind].year} | {kind} | {KINDS[kind].source} | {runs[0]['model']}"
            score = f"{statistics.mean(scores):.{DECIMALS[task]}f}{spread}"
            lines.append(f"| {layer} | {runs[0]['parameters']:,} | {score} | {speed:,.0f} |")
    return "\n".join(lines) + "\n"


def draw(results: Sequence[dict[str, Any]], folder: Path) -> None:
    """Draw the best score of each kind and seed, and the scores over time for the first seed."""
    tasks = [task for task in TASKS if results_by_kind(results, task)]
    names = list(KINDS)
    colors = dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK)
    with rc_context({"svg.hashsalt": "ensue", "svg.fonttype": "none", "font.size": 9, **colors}):
        figure, curves = (Figure(figsize=(8.2, 3.2 * len(tasks)), dpi=120, layout="constrained") for _ in range(2))
        for place, task in enumerate(tasks, 1):
            kinds = results_by_kind(results, task)
            dots, lines = (plot.add_subplot(len(tasks), 1, place) for plot in (figure, curves))
            for number, (kind, runs) in enumerate(kinds.items()):
                look, best = style(names, kind), [page_score(task, run["scores"]) for run in runs]
                dots.plot([number] * len(runs), best, linestyle="none", **look)
                seconds, scores = zip(*runs[0]["curve"], strict=True)
                lines.plot(seconds, [page_score(task, point) for point in scores], label=kind, markersize=3, **look)
            dots.set_xticks(range(len(kinds)), [f"{kind}\n{KINDS[kind].year}" for kind in kinds], rotation=45)
            lines.set(xlabel="seconds")
            lines.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
            for axes in (dots, lines):
                axes.set(title=task, ylabel=score_name(task))
                axes.grid(color=INK, alpha=0.25)
                axes.spines[:].set_visible(False)
                if task == "words":
                    axes.set_yscale("log")
                    axes.yaxis.set_major_formatter("{x:g}")
                    axes.yaxis.set_minor_formatter("{x:g}")
        for plot, name in ((figure, "history.svg"), (curves, "curves.svg")):
            plot.savefig(folder / name, metadata={"Date": None})


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for task in TASKS:
        parser.add_argument(f"--{task}", type=Path, metavar="TEXT")
    parser.add_argument("--out", type=Path, default=Path("history"), metavar="FOLDER")
    parser.add_argument("--parameters", type=int, default=1_500_000)
    parser.add_argument("--seconds", type=float, default=300.0, help="of training, for each run")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), metavar="KIND")
    parser.add_argument("--table", action="store_true", help="only write the page of the results")
    arguments = parser.parse_args()
    if not any(getattr(arguments, task) for task in TASKS):
        parser.error("no text; expected --characters, --words or --labels")
    return arguments


def main() -> None:
    torch.set_num_threads(1)
    arguments = read_arguments()
    arguments.out.mkdir(parents=True, exist_ok=True)
    machine = describe_machine(seed=arguments.seeds[0])
    measured = []
    for result in results(arguments):
        measured.append(result)
        (arguments.out / "history.md").write_text(page(measured, machine), encoding="utf-8")
    if measured:
        draw(measured, arguments.out)
        print(page(measured, machine))


if __name__ == "__main__":
    try:
        main()
    except EnsueError as error:
        raise SystemExit(str(error)) from None
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"ensue train ended with {error.returncode}") from None
