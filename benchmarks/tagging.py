"""A tagger of ensue beside spaCy's efficient pipeline, on one treebank with gold tokens, in one thread, in turns.

    python benchmarks/tagging.py [RUN ...] [--recipe tag-lstm] [--seeds 3] [--set KEY=VALUE] [--treebank FOLDER]

RUN are trained run directories of several seeds. Without RUN, the recipe is trained with each seed. On the first use,
spaCy is installed in a separate environment and trained with seed 0 as its documentation describes (`spacy init config
--pipeline tagger,morphologizer --optimize efficiency`, `spacy train`), on documents of one sentence with gold tokens.
This takes five to fifteen minutes. The environment and the model are kept in the folder that `--spacy` names. The
development data select the best weights of both sides, and the test data are scored. The training seconds of spaCy are
processor time, those of ensue are the mean wall-clock seconds in the run directories.

The input of both sides is the words of the test sentences in memory, and the output is a list of labels for each
sentence. spaCy computes the prefix, the suffix and the shape of a word when a document is made, before the timing
starts. ensue computes the features of a word once, and caches them: the "first pass" starts with an empty cache, and
"later passes" have the words of the test data in the cache. Both components of spaCy together predict XPOS, UPOS and
features; without the tagger, UPOS and features. A run of ensue predicts UPOS, or XPOS with `--set data.labels=xpos`.
Ratios are medians over the rounds, in which all programs take turns. With one sentence at a time, the input is a
document for spaCy, and ensue is timed in `predict([words])`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from json_lines import training_seconds
from machine import describe_machine
from settings import merge_settings
from spacy_process import SpacyTagger
from timing import elapsed, ratios, take_turns

import ensue
from ensue.data.corpus.cache import cache_directory
from ensue.errors import EnsueError

PARTS = ("train", "dev", "test")
LATENCY_WORDS, LATENCY_ROUNDS = 20, 5


class EnsueTagger:
    """Runs of one recipe: the accuracy of all runs, and the speed of the first run."""

    def __init__(self, runs: list[Path], test: Path) -> None:
        self.runs, self.test = runs, test
        self.pipeline: Any = ensue.load(runs[0], device="cpu")
        self.sentences = list(self.pipeline.source(test))
        self.short = [list(s.words) for s in self.sentences if len(s.words) == LATENCY_WORDS]

    def accuracies(self) -> dict[str, list[float]]:
        """Return the accuracy of each run, by the predicted column "upos" or "xpos"."""
        accuracies: dict[str, list[float]] = defaultdict(list)
        for run in self.runs:
            pipeline: Any = ensue.load(run, device="cpu")
            accuracies[pipeline.recipe.data.labels or "upos"].append(pipeline.evaluate(self.test).accuracy)
        return accuracies

    def training_seconds(self) -> float:
        """Return the mean seconds of training of the runs."""
        return statistics.mean(map(training_seconds, self.runs))

    def first_pass(self) -> float:
        """Return the seconds of the test data with an empty cache of words."""
        self.pipeline.reader.memory.clear()
        return self.later_pass()

    def later_pass(self) -> float:
        """Return the seconds of the test data with the words of earlier passes in the cache."""
        started = time.perf_counter()
        for answer in self.pipeline.label(self.sentences):
            assert answer.labels
        return time.perf_counter() - started

    def latency(self, *, empty_cache: bool) -> list[float]:
        """Return the milliseconds of each sentence of 20 words, with an empty cache or with all words in the cache."""
        milliseconds = []
        for words in self.short:
            if empty_cache:
                self.pipeline.reader.memory.clear()
            milliseconds.append(1e3 * elapsed(partial(self.pipeline.predict, [words]), time.perf_counter))
        return milliseconds


def treebank_files(folder: Path) -> dict[str, Path]:
    """Return the three files of a treebank of Universal Dependencies, compressed or not."""
    paths = {part: path for part in PARTS for path in sorted(folder.glob(f"*-ud-{part}.conllu*"))[:1]}
    missing = [part for part in PARTS if part not in paths]
    if missing:
        raise SystemExit(f"{folder}: no *-ud-{missing[0]}.conllu; --treebank names a folder of Universal Dependencies")
    return paths


def train(arguments: argparse.Namespace, treebank: Mapping[str, Path], folder: Path) -> list[Path]:
    """Train the recipe with each seed. Return the runs."""
    runs = [folder / f"{arguments.recipe}-{seed}" for seed in range(arguments.seeds)]
    for seed, run in enumerate(runs):
        print(f"training {arguments.recipe}, seed {seed} ...", file=sys.stderr)
        settings = merge_settings(arguments.settings, [f"train.seed={seed}"])
        data = {"train": treebank["train"], "valid": treebank["dev"]}
        ensue.train(arguments.recipe, **data, out=run, settings=settings, device="cpu", threads=1, resume=run.exists())
    return runs


def measure(arguments: argparse.Namespace, runs: list[Path], treebank: Mapping[str, Path]) -> None:
    """Print the tables of both sides."""
    ours = EnsueTagger(runs, treebank["test"])
    with SpacyTagger(arguments.spacy, treebank) as theirs:
        versions = theirs.measure("versions")
        num_words = sum(len(sentence.words) for sentence in ours.sentences)
        assert num_words == versions["words"], f"{num_words} and {versions['words']} words: not the same test data"
        print(describe_machine(seed=0).rstrip() + f", spaCy {versions['spacy']}\n")
        programs = {
            "spaCy, tagger + morphologizer": lambda: theirs.measure("both")["seconds"],
            "spaCy, morphologizer": lambda: theirs.measure("upos")["seconds"],
            "ensue, first pass": ours.first_pass,
            "ensue, later passes": ours.later_pass,
        }
        seconds = take_turns(programs, arguments.rounds, warm_up=1)
        spacy_scores = {name: [share] for name, share in theirs.measure("accuracy").items()}
        print_speed(
            seconds,
            num_words,
            {
                "spaCy, tagger + morphologizer": (theirs.training["processor_seconds"], spacy_scores),
                "ensue, first pass": (ours.training_seconds(), ours.accuracies()),
            },
        )
        milliseconds = take_turns(
            {
                "spaCy, tagger + morphologizer": lambda: theirs.measure("latency")["milliseconds"],
                "ensue, no word in the cache": lambda: ours.latency(empty_cache=True),
                "ensue, all words in the cache": lambda: ours.latency(empty_cache=False),
            },
            LATENCY_ROUNDS,
            warm_up=1,
        )
        print_latency(milliseconds, len(ours.short))


def print_speed(
    seconds: dict[str, list[float]], num_words: int, models: dict[str, tuple[float, dict[str, list[float]]]]
) -> None:
    """Print the table of speeds. `models` has the training seconds and the accuracies by column of the models."""
    rounds = len(next(iter(seconds.values())))
    print(
        f"| test data, {num_words:,} words | training s | UPOS % | XPOS % | words/s, best of {rounds} | times spaCy |"
    )
    print("|---|---|---|---|---|---|")
    first = next(iter(seconds.values()))
    for name, values in seconds.items():
        rounds_ratios = ratios(first, values)
        spread = f"({min(rounds_ratios):.2f} to {max(rounds_ratios):.2f})"
        ratio = "1" if values is first else f"{statistics.median(rounds_ratios):.2f} {spread}"
        training, scores = models.get(name, (None, {}))
        cells = [format_shares(scores.get(column, [])) for column in ("upos", "xpos")]
        print(
            f"| {name} | {'' if training is None else f'{training:,.0f}'} | {' | '.join(cells)} "
            f"| {num_words / min(values):,.0f} | {ratio} |"
        )


def print_latency(milliseconds: dict[str, list[list[float]]], num_sentences: int) -> None:
    """Print the table of latencies."""
    print(f"\n| one sentence of {LATENCY_WORDS} words ({num_sentences} of them) | median ms | 90th percentile ms |")
    print("|---|---|---|")
    for name, rounds in milliseconds.items():
        ordered = sorted(value for values in rounds for value in values)
        print(f"| {name} | {statistics.median(ordered):.2f} | {ordered[int(0.9 * len(ordered))]:.2f} |")


def format_shares(shares: list[float]) -> str:
    """Return the mean in percent, with the standard deviation for several seeds."""
    if not shares:
        return ""
    mean = f"{100 * statistics.mean(shares):.2f}"
    return mean if len(shares) == 1 else f"{mean} ± {100 * statistics.stdev(shares):.2f} ({len(shares)} seeds)"


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN", help="trained run directories")
    parser.add_argument("--recipe", default="tag-lstm", help="the recipe to train if no RUN is given")
    parser.add_argument("--seeds", type=int, default=3, help="the number of runs")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--out", type=Path, help="the folder in which runs are kept; default: they are removed")
    parser.add_argument("--treebank", type=Path, default=Path("../shared/data/ud_english_ewt"))
    parser.add_argument("--spacy", type=Path, default=cache_directory() / "benchmarks" / "spacy")
    parser.add_argument("--rounds", type=int, default=7)
    return parser.parse_args()


def main() -> None:
    torch.set_num_threads(1)
    arguments = read_arguments()
    treebank = treebank_files(arguments.treebank)
    with tempfile.TemporaryDirectory() as folder:
        runs = arguments.runs or train(arguments, treebank, arguments.out or Path(folder))
        measure(arguments, runs, treebank)


if __name__ == "__main__":
    try:
        main()
    except EnsueError as error:
        raise SystemExit(str(error)) from None
