"""Classifiers of IMDb with few and with many labels: with and without a pretrained language model, and a bag of words.

    python benchmarks/fewer_labels.py DATA OUT [--seconds 2100] [--origin RUN] [--sizes 100 500 ...] [--models NAME ...]
        [--seeds 3] [--dev] [--set KEY=VALUE] [--picture docs/fewer-labels.svg]

DATA has `imdb/{train,test}.jsonl.xz` and `imdb/unsup.txt.xz`. The language model is trained for `--seconds` on the
unlabeled reviews and the texts of the training reviews; `--origin` names a trained language model to use instead. The
labeled reviews are a random sample, stratified by label, of the 22,500 training reviews of `text_sets.imdb`. Its 2,500
held-out reviews, of other films, select the best weights when all labels are used. With fewer labels the last weights
are taken, so that no further labels are used.

A model with fewer labels is scored on a fixed sample of 2,500 test reviews, a model with all labels on all 25,000. With
`--dev` all models are scored on held-out reviews, and none on test reviews. Everything is kept in OUT: finished
runs are not repeated, and the picture shows all results.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from classification import write_examples
from data_files import read_lines
from fewer_labels_picture import draw
from machine import describe_machine
from text_sets import Example, imdb
from trials import Trial

import ensue

ALL = 22_500
SIZES = (100, 500, 2_000, ALL)
LAYERS = ("encoder.d_model=512", "encoder.num_layers=1")
LANGUAGE_MODEL = (
    "tokenizer.splitter=simple", "tokenizer.lowercase=true", "tokenizer.max_size=20000",
    "tokens.d_embedding=256", "tokens.dropout_words=0.0", *LAYERS, "encoder.dropout=0.1", "encoder.dropout_input=0.1",
    "head.sampled=2000", "train.batch_size=64", "train.segment_length=80",
    "train.validations=7", "data.valid_characters=300000",
)  # fmt: skip
"""Settings of the language model. It has little dropout, since it is trained for only one or two epochs."""
TEXTS = ("data.splitter=simple", "data.max_tokens=300", "data.keep=both")


@dataclass(frozen=True)
class Model:
    """A recipe with its settings, and further settings by the number of labels."""

    recipe: str
    settings: tuple[str, ...]
    by_size: dict[int, tuple[str, ...]] = field(default_factory=dict)

    def settings_for(self, size: int, origin: Path) -> list[str]:
        validations = () if size == ALL else ("train.validations=1",)
        settings = (*self.settings, *validations, *self.by_size.get(size, ()))
        return [setting.replace("ORIGIN", json.dumps(str(origin))) for setting in settings]


MODELS = {
    "read": Model(
        "classify-pretrained", ("encoder.from=ORIGIN", *TEXTS, "train.learning_rate=0.001"),
        {100: ("train.epochs=20",), 500: ("train.epochs=10",), 2_000: ("train.epochs=4",),
         ALL: ("train.epochs=1", "train.batch_size=32", "train.batch_tokens=12000", "train.average=0.99",
               "encoder.dropout=0.3", "head.dropout=0.3", "train.validations=2")},
    ),
    "scratch": Model(
        "classify-lstm",
        (*TEXTS, *LAYERS, "directions.bidirectional=false", "features.d_words=256", "features.affixes=0",
         "features.dropout_words=0.1", "encoder.dropout=0.2", "encoder.dropout_input=0.2", "train.learning_rate=0.004"),
        {100: ("train.epochs=30",), 500: ("train.epochs=15",), 2_000: ("train.epochs=8",),
         ALL: ("train.epochs=3", "train.learning_rate=0.002")},
    ),
    "bag": Model(
        "classify-bag", (),
        {100: ("train.epochs=100",), 500: ("train.epochs=60",), 2_000: ("train.epochs=20",)},
    ),
}  # fmt: skip
"""The settings were chosen with `--dev`, seed 0."""
TITLES = {"read": "LSTM pretrained on reviews", "scratch": "the same LSTM from scratch", "bag": "bag of n-grams"}


class Reviews:
    """The labeled and unlabeled reviews of IMDb, which the methods write to files in a folder."""

    def __init__(self, data: Path, folder: Path) -> None:
        self.data, self.folder = data, folder
        self.train, self.dev, self.test = ([remove_markup(example) for example in part] for part in next(imdb(data)))

    def unlabeled(self) -> tuple[Path, Path]:
        """Write the training and validation texts of the language model, a review on each line. Return their paths."""
        texts = [join_lines(review) for review in read_lines(self.data, "imdb/unsup.txt")]
        valid = texts[::50]
        train = [text for number, text in enumerate(texts) if number % 50]
        train += [join_lines(example.texts[0]) for example in self.train]
        paths = self.folder / "unlabeled.txt", self.folder / "unlabeled-valid.txt"
        for path, part in zip(paths, (train, valid), strict=True):
            path.write_text("".join(f"{text}\n" for text in part), encoding="utf-8")
        return paths

    def labeled(self, size: int, seed: int) -> Path:
        """Write `size` training reviews, half of them of each label. Return the path."""
        reviews = self.train if size == ALL else sample_by_label(self.train, size, seed)
        return write_examples(reviews, self.folder / f"labeled-{size}-{seed}.jsonl")

    def held_out(self, size: int) -> Path:
        """Write the held-out reviews, or a sample of 1,000 if `size` is not ALL. Return the path."""
        reviews = self.dev if size == ALL else sample_by_label(self.dev, 1_000, 0)
        return write_examples(reviews, self.folder / f"held-out-{len(reviews)}.jsonl")

    def test_file(self, size: int) -> Path:
        """Write the test reviews, or a sample of 2,500 if `size` is not ALL. Return the path."""
        reviews = self.test if size == ALL else sample_by_label(self.test, 2_500, 0)
        return write_examples(reviews, self.folder / f"test-{len(reviews)}.jsonl")


def remove_markup(example: Example) -> Example:
    return example._replace(texts=tuple(text.replace("<br />", " ") for text in example.texts))


def join_lines(review: str) -> str:
    return " ".join(review.replace("<br />", " ").split())


def sample_by_label(examples: Sequence[Example], size: int, seed: int) -> list[Example]:
    """Return a random sample of `size` examples, with equal numbers for all labels."""
    generator, groups = random.Random(seed), defaultdict(list)
    for example in examples:
        groups[example.label].append(example)
    return [example for label in sorted(groups) for example in generator.sample(groups[label], size // len(groups))]


def train_language_model(reviews: Reviews, out: Path, seconds: float) -> Path:
    """Train a language model on the reviews unless its run is finished. Return the run."""
    if not (out / "README.md").exists():
        train, valid = reviews.unlabeled()
        settings = [*LANGUAGE_MODEL, f"train.seconds={seconds}"]
        ensue.train("word-lstm", train=train, valid=valid, out=out, settings=settings, threads=1, resume=out.exists())
    return out


Scores = dict[str, dict[str, dict[str, float]]]
"""Accuracies by model, number of labels and seed."""


def accuracies(
    arguments: argparse.Namespace, scores: Scores, reviews: Reviews, origin: Path
) -> Iterator[tuple[str, int, int, float]]:
    """Train each model without a score. Yield the model, the number of labels, the seed and the accuracy."""
    for size in arguments.sizes:
        held_out = reviews.held_out(size)
        scored = held_out if arguments.dev else reviews.test_file(size)
        for name in arguments.models:
            for seed in range(arguments.seeds):
                if str(seed) in scores.get(name, {}).get(str(size), {}):
                    continue
                print(f"{name}, {size} labels, seed {seed} ...", file=sys.stderr)
                settings = [*MODELS[name].settings_for(size, origin), *arguments.set, f"train.seed={seed}"]
                train = reviews.labeled(size, seed)
                trial = Trial(MODELS[name].recipe, str(train), str(held_out), str(scored), settings)
                yield name, size, seed, trial.scores(arguments.out / f"{name}-{size}-{seed}")["accuracy"]


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path, help="the folder of runs and scores")
    parser.add_argument("--seconds", type=float, default=2100, help="of training the language model")
    parser.add_argument("--origin", type=Path, help="a trained language model")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), choices=SIZES)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--dev", action="store_true", help="score held-out reviews, not the test reviews")
    parser.add_argument("--picture", type=Path, help="draw the curve here")
    return parser.parse_args()


def main() -> None:
    torch.set_num_threads(1)
    arguments = read_arguments()
    arguments.out.mkdir(parents=True, exist_ok=True)
    print(describe_machine(seed=0))
    file = arguments.out / ("scores-dev.json" if arguments.dev else "scores.json")
    scores: Scores = json.loads(file.read_text()) if file.exists() else {}
    reviews = Reviews(arguments.data, arguments.out)
    origin = arguments.origin or train_language_model(reviews, arguments.out / "read", arguments.seconds)
    for name, size, seed, accuracy in accuracies(arguments, scores, reviews, origin):
        scores.setdefault(name, {}).setdefault(str(size), {})[str(seed)] = accuracy
        file.write_text(json.dumps(scores, indent=1))
    print(f"| labels | {' | '.join(TITLES[name] for name in scores)} |\n|---|{'---|' * len(scores)}")
    for size in SIZES:
        cells = [format_mean(by_size(seeds).get(size, [])) for seeds in scores.values()]
        print(f"| {size:,} | {' | '.join(cells)} |")
    if arguments.picture:
        draw({TITLES[name]: by_size(seeds) for name, seeds in scores.items()}, arguments.picture)


def by_size(scores: dict[str, dict[str, float]]) -> dict[int, list[float]]:
    """Return the accuracies of a model in percent by the number of labels."""
    return {int(size): [100 * value for value in seeds.values()] for size, seeds in scores.items()}


def format_mean(values: list[float]) -> str:
    if not values:
        return "-"
    return f"{statistics.mean(values):.2f}" + (f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else "")


if __name__ == "__main__":
    main()
