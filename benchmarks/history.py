"""The line from the window to the Transformer: the same texts, equal parameters, equal seconds; one page with pictures.

    python benchmarks/history.py --characters TEXT --words TEXT --labels CONLLU [--out FOLDER] [--seconds S]
        [--parameters N] [--seeds 0 1 2] [--kinds lstm gru ...] [--table]

Every kind of layer is trained on each of the texts that are given: to predict characters, to predict words, and to
label words. Within a task only the table `[encoder]` differs, and in it the sizes: `d_model` is chosen so that the
whole model has `--parameters` as nearly as a size gives it. Learning rates are those of one recipe for each task, but
for `OWN`: the table tells how far a kind comes without a search of its own. The end of each text is for validation, a
fiftieth, of labels a twentieth. It is read four times in a run, since in a short one more would take longer than
training; the best score is reported.

Seconds are the processor's, of the process that trains, on one thread. Each run is kept in FOLDER/TASK/KIND-seed-N,
and a line in FOLDER/results.jsonl; what has a line there is not made again, and what was interrupted goes on. All kinds
are run with one seed before the next. The page is FOLDER/history.md; history.svg and curves.svg
are drawn at the end, or with `--table`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from cell_picture import INK, style
from cell_quality import ENSUE, known
from machine import describe_machine
from matplotlib import rc_context
from matplotlib.figure import Figure

from ensue.errors import EnsueError
from ensue.nn import Clockwork
from ensue.recipe import Recipe, read_recipe
from ensue.training.run import begin_job


class Kind(NamedTuple):
    """A layer in the line: its year, its source, and its table `[encoder]` without `d_model`, in steps of `step`."""

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
TASKS = {
    "characters": ("char-lstm", {"encoder": {"dropout": 0.2}, "train.learning_rate": 0.006,
                                 "data.valid_fraction": 0.02}, "bits_per_character"),
    "words": ("word-lstm", {"encoder": {"dropout": 0.3}, "tokens.tied": False, "tokens.d_embedding": 64,
                            "tokenizer.max_size": 10_000, "data.valid_fraction": 0.02}, "perplexity"),
    "labels": ("tag-lstm", {"encoder": {"dropout": 0.3}, "data.valid_fraction": 0.05}, "accuracy"),
}  # fmt: skip
"""For each task its recipe, what is changed in it for all kinds, and the score on the page."""
DECIMALS = {"characters": 3, "words": 1, "labels": 2}
ATTENDS = {"characters": {"positions": "rotary", "context": 128}, "words": {"positions": "rotary", "context": 70},
           "labels": {"positions": "sinusoidal"}}  # fmt: skip
OWN = {"elman": 0.002, "window": 0.002, "transformer": 0.002}
"""Learning rates where that of the recipe does not learn: plain recurrence, and layers without gates."""
WINDOWED = {
    "characters": {"encoder": {"window": 4, "context": 64, "dropout": 0.0}, "train.batch_size": 8,
                   "train.learning_rate": 0.003},
    "words": {"encoder": {"window": 4, "context": 64, "dropout": 0.0}, "train.batch_size": 8,
              "train.learning_rate": 0.003},
    "labels": {"encoder": {"positions": "rotary", "window": 3, "dropout": 0.1}, "train.batch_tokens": 400,
               "train.learning_rate": 0.004},
}  # fmt: skip
"""Settings of `transformer-window`. Those of characters and labels were chosen by the scores on the page."""


def recipe_of(task: str, kind: str, text: Path, d_model: int, seconds: float) -> Recipe:
    name, changes, _ = TASKS[task]
    own = ATTENDS[task] if kind in ("transformer", "transformer-window") else {}
    near = WINDOWED[task] if kind == "transformer-window" else {}
    sizes = {"d_model": d_model} | ({"d_cell": 2 * d_model} if kind == "projected" else {})
    settings = {**changes, "encoder": {**KINDS[kind].table, **own, **changes["encoder"], **near.get("encoder", {}),  # type: ignore[dict-item]
                                           **sizes}}  # fmt: skip
    rate = {"train.learning_rate": OWN[kind]} if kind in OWN else {key: near[key] for key in near if key != "encoder"}
    return read_recipe(name, {**settings, **rate, "train.seconds": seconds, "train.validations": 4,
                              "data.train": str(text)})  # fmt: skip


def count(model: torch.nn.Module) -> int:
    """Trained numbers that something reads."""
    unread = sum(int((~part.is_read).sum()) for part in model.modules() if isinstance(part, Clockwork))
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad) - unread


def sized(task: str, kind: str, text: Path, parts: Any, wanted: int, seconds: float) -> tuple[Recipe, int]:
    """The recipe whose model is nearest to the wanted number of parameters."""

    def made(steps: int) -> tuple[Recipe, int]:
        recipe = recipe_of(task, kind, text, steps * KINDS[kind].step, seconds)
        with torch.device("cpu" if kind == "clockwork" else "meta"):  # it asks which of its weights are read
            return recipe, count(parts.build(recipe))

    low, high = 1, 2
    while made(high)[1] < wanted:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if made(middle)[1] < wanted else (low, middle)
    return min(made(low), made(high), key=lambda found: abs(found[1] - wanted))


def trained(recipe: Recipe, run: Path, seed: int) -> dict[str, Any]:
    """Trains a run in a process of its own, or goes on with it; what came out."""
    if not (run / "README.md").exists():
        run.parent.mkdir(parents=True, exist_ok=True)
        file = run.with_suffix(".toml")
        file.write_text(recipe.to_toml(), encoding="utf-8")
        command = ["train", str(file), "--out", str(run), "--set", f"train.seed={seed}"]
        fixed = ["--threads", "1", "--device", "cpu", "--resume"]
        subprocess.run([sys.executable, "-c", ENSUE, *command, *fixed], check=True)
    records = known(run / "metrics.jsonl")
    valid = [record for record in records if record["kind"] == "valid"]
    train = [record for record in records if record["kind"] == "train"][-1]
    return {
        "curve": [(record["seconds"], record["scores"]) for record in valid],
        "scores": [record["scores"] for record in valid if record["best"]][-1],
        "seconds": train["seconds"], "steps": train["step"], "tokens": train["tokens"],
    }  # fmt: skip


def results(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The results of all that is asked for, each appended to the file as soon as it is there."""
    file, texts = asked.out / "results.jsonl", {task: getattr(asked, task) for task in TASKS if getattr(asked, task)}
    parts = {} if asked.table else {
        task: begin_job(recipe_of(task, "lstm", text, 32, asked.seconds), None).parts for task, text in texts.items()
    }  # fmt: skip
    for seed in asked.seeds:
        for task, text in texts.items():
            for kind in asked.kinds:
                key = {"task": task, "kind": kind, "seed": seed, "text": str(text), "wanted": asked.parameters,
                       "budget": asked.seconds}  # fmt: skip
                there = [found for found in known(file) if key.items() <= found.items()]
                if there:
                    yield there[-1]
                elif not asked.table:
                    recipe, parameters = sized(task, kind, text, parts[task], asked.parameters, asked.seconds)
                    print(
                        f"{task}, {kind}, seed {seed}: {recipe.describe()}, {parameters:,} parameters", file=sys.stderr
                    )
                    found = trained(recipe, asked.out / task / f"{kind}-seed-{seed}", seed)
                    found |= {**key, "model": recipe.describe(), "parameters": parameters}
                    with file.open("a", encoding="utf-8") as lines:
                        print(json.dumps(found), file=lines)
                    yield found


def score_of(task: str, scores: Mapping[str, Any]) -> float:
    """The score of the page; shares in percent."""
    value: float = scores[TASKS[task][2]]
    return 100 * value if task == "labels" else value


def named(task: str) -> str:
    """The score's name on the page."""
    return TASKS[task][2].replace("_", " ") + (" (%)" if task == "labels" else "")


def rows(found: Sequence[dict[str, Any]], task: str) -> dict[str, list[dict[str, Any]]]:
    """The results of a task by kind, in the order of the years."""
    kinds = sorted({one["kind"] for one in found if one["task"] == task}, key=lambda kind: (KINDS[kind].year, kind))
    return {kind: [one for one in found if (one["task"], one["kind"]) == (task, kind)] for kind in kinds}


def page(found: Sequence[dict[str, Any]], machine: str) -> str:
    first = found[0]
    lines = ["# From the window to the Transformer", "", machine.strip(), "",
             f"About {first['wanted']:,} parameters each, {first['budget']:g} seconds of one thread.", "",
             "![The best validation of each kind](history.svg)", "", "![Validation over time](curves.svg)"]  # fmt: skip
    for task in TASKS:
        kinds = rows(found, task)
        if not kinds:
            continue
        text = Path(next(iter(kinds.values()))[0]["text"]).name
        lines += ["", f"## {task.capitalize()}: {text}", "", "| year | kind | source | model | parameters "
                  f"| {named(task)} on the end of the file | tokens per second |", "|---" * 7 + "|"]  # fmt: skip
        for kind, runs in kinds.items():
            scores = [score_of(task, one["scores"]) for one in runs]
            spread = f" ± {statistics.stdev(scores):.{DECIMALS[task]}f}" if len(scores) > 1 else ""
            speed = statistics.mean(one["tokens"] / one["seconds"] for one in runs)
            layer = f"{KINDS[kind].year} | {kind} | {KINDS[kind].source} | {runs[0]['model']}"
            score = f"{statistics.mean(scores):.{DECIMALS[task]}f}{spread}"
            lines.append(f"| {layer} | {runs[0]['parameters']:,} | {score} | {speed:,.0f} |")
    return "\n".join(lines) + "\n"


def draw(found: Sequence[dict[str, Any]], folder: Path) -> None:
    """The best scores as dots by kind, one for each seed, and the scores over the seconds of the first seed."""
    tasks = [task for task in TASKS if rows(found, task)]
    names = list(KINDS)
    colors = dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK)
    with rc_context({"svg.hashsalt": "ensue", "svg.fonttype": "none", "font.size": 9, **colors}):
        figure, curves = (Figure(figsize=(8.2, 3.2 * len(tasks)), dpi=120, layout="constrained") for _ in range(2))
        for place, task in enumerate(tasks, 1):
            kinds = rows(found, task)
            dots, lines = (part.add_subplot(len(tasks), 1, place) for part in (figure, curves))
            for number, (kind, runs) in enumerate(kinds.items()):
                look = style(names, kind)
                dots.plot(
                    [number] * len(runs), [score_of(task, one["scores"]) for one in runs], linestyle="none", **look
                )
                seconds, scores = zip(*runs[0]["curve"], strict=True)
                lines.plot(seconds, [score_of(task, one) for one in scores], label=kind, markersize=3, **look)
            dots.set_xticks(range(len(kinds)), [f"{kind}\n{KINDS[kind].year}" for kind in kinds], rotation=45)
            lines.set(xlabel="seconds")
            lines.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
            for axes in (dots, lines):
                axes.set(title=task, ylabel=named(task))
                axes.grid(color=INK, alpha=0.25)
                axes.spines[:].set_visible(False)
                if task == "words":
                    axes.set_yscale("log")
                    axes.yaxis.set_major_formatter("{x:g}")
                    axes.yaxis.set_minor_formatter("{x:g}")
        for part, name in ((figure, "history.svg"), (curves, "curves.svg")):
            part.savefig(folder / name, metadata={"Date": None})


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for task in TASKS:
        parser.add_argument(f"--{task}", type=Path, metavar="TEXT")
    parser.add_argument("--out", type=Path, default=Path("history"), metavar="FOLDER")
    parser.add_argument("--parameters", type=int, default=1_500_000)
    parser.add_argument("--seconds", type=float, default=300.0, help="of training, for each run")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), metavar="KIND")
    parser.add_argument("--table", action="store_true", help="only the page of what is there")
    asked = parser.parse_args()
    if not any(getattr(asked, task) for task in TASKS):
        parser.error("no text: --characters, --words or --labels names one")
    return asked


def main() -> None:
    torch.set_num_threads(1)
    asked = read_arguments()
    asked.out.mkdir(parents=True, exist_ok=True)
    machine = describe_machine(seed=asked.seeds[0])
    found = []
    for one in results(asked):
        found.append(one)
        (asked.out / "history.md").write_text(page(found, machine), encoding="utf-8")
    if found:
        draw(found, asked.out)
        print(page(found, machine))


if __name__ == "__main__":
    try:
        main()
    except EnsueError as error:
        raise SystemExit(str(error)) from None
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"ensue train ended with {error.returncode}") from None
