"""A tagger of ensue beside spaCy's efficient pipeline: the same treebank, gold tokens, one thread, in turns.

    python benchmarks/tagging.py [RUN ...] [--recipe tag-lstm] [--seeds 3] [--set KEY=VALUE] [--treebank FOLDER]

RUN are trained run directories, of several seeds if there are several; without them the recipe is trained, once with
each seed. spaCy is installed in an environment of its own at the first time and trained as its documentation says
(`spacy init config --pipeline tagger,morphologizer --optimize efficiency`, `spacy train`), on documents of one sentence
with their gold tokens, with its seed 0; that takes five to fifteen minutes. Both are kept in the folder that `--spacy`
names. The development data choose the best weights of either side; the test data are only scored. Training seconds are
those that spaCy kept the processor busy, and for ensue those on the clock that its run directory has, the mean of the
runs.

What is timed: the sentences of the test data lie ready as words on both sides, and come out as a list of labels each.
spaCy works out a word's prefix, suffix and shape while a document is made, so that is not counted for it. ensue does so
the first time it meets a word: "first pass" begins knowing none, "later passes" know those of the test data. spaCy's
two components give XPOS, UPOS and features, without the tagger UPOS and features. A run of ensue gives one of them:
UPOS, or XPOS with `--set data.labels=xpos`. The ratio is the median over the rounds, in each of which every contestant
had its turn. One sentence at a time is a document that lies ready for spaCy, and the whole of `predict([words])` for
ensue.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from machine import describe_machine
from spacy_process import SpacyTagger

import ensue
from ensue.data.corpus.cache import cache_directory
from ensue.errors import EnsueError
from ensue.tasks.labeling.pipeline import LabelingPipeline

PARTS = ("train", "dev", "test")
LATENCY_WORDS, LATENCY_ROUNDS = 20, 5


class EnsueTagger:
    """Run directories of one recipe: the accuracy of all, the speed of the first."""

    def __init__(self, runs: list[Path], test: Path) -> None:
        self.runs, self.test = runs, test
        self.pipeline: LabelingPipeline = ensue.load(runs[0], device="cpu")
        self.sentences = list(self.pipeline.source(test))
        self.short = [list(s.words) for s in self.sentences if len(s.words) == LATENCY_WORDS]

    def accuracies(self) -> dict[str, list[float]]:
        """By the column that is labeled, "upos" or "xpos"; one of each run."""
        found: dict[str, list[float]] = defaultdict(list)
        for run in self.runs:
            pipeline: LabelingPipeline = ensue.load(run, device="cpu")
            found[pipeline.recipe.data.labels or "upos"].append(pipeline.evaluate(self.test).accuracy)
        return found

    def training_seconds(self) -> float:
        """The mean of the runs; as they were measured when they were trained."""
        return statistics.mean(max(record.get("seconds", 0.0) for record in records(run)) for run in self.runs)

    def first_pass(self) -> float:
        """Seconds for the whole test data, no word known."""
        self.pipeline.reader.memory.clear()
        return self.later_pass()

    def later_pass(self) -> float:
        """The same with the words that the pass before has met."""
        started = time.perf_counter()
        for answer in self.pipeline.label(self.sentences):
            assert answer.labels
        return time.perf_counter() - started

    def latency(self, *, new: bool) -> list[float]:
        """Milliseconds of each sentence of 20 words, one at a time, all of its words new or all met before."""
        found = []
        for words in self.short:
            if new:
                self.pipeline.reader.memory.clear()
            started = time.perf_counter()
            self.pipeline.predict([words])
            found.append(1e3 * (time.perf_counter() - started))
        return found


def records(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def in_turns(contestants: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, list[Any]]:
    """What each found in each round, after one that is not counted."""
    found: dict[str, list[Any]] = {name: [] for name in contestants}
    for number in range(rounds + 1):
        for name, measure in contestants.items():
            result = measure()
            if number:
                found[name].append(result)
    return found


def all_modules(folder: Path) -> dict[str, Path]:
    """The three files of a treebank as Universal Dependencies names them, packed or not."""
    found = {part: next(iter(sorted(folder.glob(f"*-ud-{part}.conllu*"))), None) for part in PARTS}
    missing = [part for part, path in found.items() if path is None]
    if missing:
        raise SystemExit(f"{folder}: no *-ud-{missing[0]}.conllu; --treebank names a folder of Universal Dependencies")
    return {part: path for part, path in found.items() if path is not None}


def trained(arguments: argparse.Namespace, treebank: Mapping[str, Path], folder: Path) -> list[Path]:
    """The recipe, once with each seed."""
    runs = [folder / f"{arguments.recipe}-{seed}" for seed in range(arguments.seeds)]
    for seed, run in enumerate(runs):
        print(f"training {arguments.recipe}, seed {seed} ...", file=sys.stderr)
        settings = [*arguments.settings, f"train.seed={seed}"]
        data = {"train": treebank["train"], "valid": treebank["dev"]}
        ensue.train(arguments.recipe, **data, out=run, settings=settings, device="cpu", threads=1, resume=run.exists())
    return runs


def measure(arguments: argparse.Namespace, runs: list[Path], treebank: Mapping[str, Path]) -> None:
    ours = EnsueTagger(runs, treebank["test"])
    with SpacyTagger(arguments.spacy, treebank) as theirs:
        versions = theirs.ask("versions")
        num_words = sum(len(sentence.words) for sentence in ours.sentences)
        assert num_words == versions["words"], f"{num_words} and {versions['words']} words: not the same test data"
        print(describe_machine(seed=0).rstrip() + f", spaCy {versions['spacy']}\n")
        contestants = {
            "spaCy, tagger + morphologizer": lambda: theirs.ask("both")["seconds"],
            "spaCy, morphologizer": lambda: theirs.ask("upos")["seconds"],
            "ensue, first pass": ours.first_pass,
            "ensue, later passes": ours.later_pass,
        }
        seconds = in_turns(contestants, arguments.rounds)
        spacy_scores = {name: [share] for name, share in theirs.ask("accuracy").items()}
        print_speed(
            seconds,
            num_words,
            {
                "spaCy, tagger + morphologizer": (theirs.training["processor_seconds"], spacy_scores),
                "ensue, first pass": (ours.training_seconds(), ours.accuracies()),
            },
        )
        milliseconds = in_turns(
            {
                "spaCy, tagger + morphologizer": lambda: theirs.ask("latency")["milliseconds"],
                "ensue, all words new": lambda: ours.latency(new=True),
                "ensue, words met before": lambda: ours.latency(new=False),
            },
            LATENCY_ROUNDS,
        )
        print_latency(milliseconds, len(ours.short))


def print_speed(
    seconds: dict[str, list[float]], num_words: int, trained: dict[str, tuple[float, dict[str, list[float]]]]
) -> None:
    """`trained`: seconds of training, and the accuracies by column, of those contestants that stand for a model."""
    rounds = len(next(iter(seconds.values())))
    print(
        f"| test data, {num_words:,} words | training s | UPOS % | XPOS % | words/s, best of {rounds} | times spaCy |"
    )
    print("|---|---|---|---|---|---|")
    first = next(iter(seconds.values()))
    for name, found in seconds.items():
        ratios = [theirs / ours for theirs, ours in zip(first, found, strict=True)]
        ratio = "1" if found is first else f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        training, scores = trained.get(name, (None, {}))
        cells = [spread(scores.get(column, [])) for column in ("upos", "xpos")]
        print(
            f"| {name} | {'' if training is None else f'{training:,.0f}'} | {' | '.join(cells)} "
            f"| {num_words / min(found):,.0f} | {ratio} |"
        )


def print_latency(milliseconds: dict[str, list[list[float]]], num_sentences: int) -> None:
    print(f"\n| one sentence of {LATENCY_WORDS} words ({num_sentences} of them) | median ms | 90th percentile ms |")
    print("|---|---|---|")
    for name, rounds in milliseconds.items():
        found = sorted(value for values in rounds for value in values)
        print(f"| {name} | {statistics.median(found):.2f} | {found[int(0.9 * len(found))]:.2f} |")


def spread(shares: list[float]) -> str:
    """In percent: the mean, and the standard deviation where there are several seeds."""
    if not shares:
        return ""
    mean = f"{100 * statistics.mean(shares):.2f}"
    return mean if len(shares) == 1 else f"{mean} ± {100 * statistics.stdev(shares):.2f} ({len(shares)} seeds)"


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN", help="trained run directories")
    parser.add_argument("--recipe", default="tag-lstm", help="what to train where no RUN is given")
    parser.add_argument("--seeds", type=int, default=3, help="how often")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--out", type=Path, help="keep the runs in this folder; default: they are removed")
    parser.add_argument("--treebank", type=Path, default=Path("../shared/data/ud_english_ewt"))
    parser.add_argument("--spacy", type=Path, default=cache_directory() / "benchmarks" / "spacy")
    parser.add_argument("--rounds", type=int, default=7)
    return parser.parse_args()


def main() -> None:
    torch.set_num_threads(1)
    arguments = read_arguments()
    treebank = all_modules(arguments.treebank)
    with tempfile.TemporaryDirectory() as folder:
        runs = arguments.runs or trained(arguments, treebank, arguments.out or Path(folder))
        measure(arguments, runs, treebank)


if __name__ == "__main__":
    try:
        main()
    except EnsueError as error:
        raise SystemExit(str(error)) from None
