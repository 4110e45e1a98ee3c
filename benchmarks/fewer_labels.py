"""IMDb with few labels and with many: a classifier that begins from a language model, one that does not, and a bag.

    python benchmarks/fewer_labels.py DATA OUT [--seconds 2100] [--origin RUN] [--sizes 100 500 ...] [--models NAME ...]
        [--seeds 3] [--dev] [--set KEY=VALUE] [--picture docs/fewer-labels.svg]

DATA has `imdb/{train,test}.jsonl.xz` and `imdb/unsup.txt.xz`. The language model reads the reviews without labels and
the texts of the training reviews for `--seconds`, unless `--origin` is one that is there already. The labeled reviews
are drawn with the seed, as many of each label, from the training reviews that `text_sets.imdb` leaves; all of them are
22,500. The 2,500 that it holds out, of other films, choose nothing but the weights where all labels are used; with
fewer, the last weights are taken. So many labels as there are, and no more, are learned from.

A model of fewer labels is scored on 2,500 test reviews that are drawn once, one of all labels on all 25,000; with
`--dev` all are scored on held-out reviews, and no test review is read. Everything is kept in OUT: what is there is not
repeated, and the picture is drawn of all that is there.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from classification import written
from fewer_labels_picture import draw
from machine import describe_machine
from text_sets import Example, imdb, lines
from trials import Trial

import ensue

ALL = 22_500
SIZES = (100, 500, 2_000, ALL)
SHAPE = ("encoder.d_model=512", "encoder.num_layers=1")
READING = (
    "tokenizer.splitter=simple", "tokenizer.lowercase=true", "tokenizer.max_size=20000",
    "tokens.d_embedding=256", "tokens.dropout_words=0.0", *SHAPE, "encoder.dropout=0.1", "encoder.dropout_input=0.1",
    "head.sampled=2000", "train.batch_size=64", "train.segment_length=80",
    "train.validations=7", "data.valid_characters=300000",
)  # fmt: skip
"""The language model: one epoch or two of a text in which each word is new, so little dropout."""
TEXTS = ("data.splitter=simple", "data.max_tokens=300", "data.keep=both")


@dataclass(frozen=True)
class Model:
    """A recipe, its settings, and those of a number of labels."""

    recipe: str
    settings: tuple[str, ...]
    by_size: dict[int, tuple[str, ...]] = field(default_factory=dict)

    def settings_for(self, size: int, origin: Path) -> list[str]:
        validations = () if size == ALL else ("train.validations=1",)
        chosen = (*self.settings, *validations, *self.by_size.get(size, ()))
        return [setting.replace("ORIGIN", json.dumps(str(origin))) for setting in chosen]


MODELS = {
    "read": Model(
        "classify-pretrained", ("encoder.from=ORIGIN", *TEXTS, "train.learning_rate=0.001"),
        {100: ("train.epochs=20",), 500: ("train.epochs=10",), 2_000: ("train.epochs=4",),
         ALL: ("train.epochs=1", "train.batch_size=32", "train.batch_tokens=12000", "train.average=0.99",
               "encoder.dropout=0.3", "head.dropout=0.3", "train.validations=2")},
    ),
    "scratch": Model(
        "classify-lstm",
        (*TEXTS, *SHAPE, "directions.bidirectional=false", "features.d_words=256", "features.affixes=0",
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
TITLES = {"read": "LSTM that has read reviews", "scratch": "the same LSTM from scratch", "bag": "bag of n-grams"}


class Reviews:
    """The reviews as files in a folder, each written when it is asked for."""

    def __init__(self, data: Path, folder: Path) -> None:
        self.data, self.folder = data, folder
        self.train, self.dev, self.test = ([plain(example) for example in part] for part in next(imdb(data)))

    def unlabeled(self) -> tuple[Path, Path]:
        """The text of the language model, a review on each line, and a fiftieth of the unlabeled ones to validate."""
        texts = [one_line(review) for review in lines(self.data, "imdb/unsup.txt")]
        valid = texts[::50]
        train = [text for number, text in enumerate(texts) if number % 50]
        train += [one_line(example.texts[0]) for example in self.train]
        paths = self.folder / "unlabeled.txt", self.folder / "unlabeled-valid.txt"
        for path, part in zip(paths, (train, valid), strict=True):
            path.write_text("".join(f"{text}\n" for text in part), encoding="utf-8")
        return paths

    def labeled(self, size: int, seed: int) -> Path:
        """So many training reviews, half of them of each label."""
        chosen = self.train if size == ALL else drawn(self.train, size, seed)
        return written(chosen, self.folder / f"labeled-{size}-{seed}.jsonl")

    def held_out(self, size: int) -> Path:
        chosen = self.dev if size == ALL else drawn(self.dev, 1_000, 0)
        return written(chosen, self.folder / f"held-out-{len(chosen)}.jsonl")

    def tested(self, size: int) -> Path:
        chosen = self.test if size == ALL else drawn(self.test, 2_500, 0)
        return written(chosen, self.folder / f"test-{len(chosen)}.jsonl")


def plain(example: Example) -> Example:
    return example._replace(texts=tuple(text.replace("<br />", " ") for text in example.texts))


def one_line(review: str) -> str:
    return " ".join(review.replace("<br />", " ").split())


def drawn(examples: Sequence[Example], size: int, seed: int) -> list[Example]:
    """So many examples, as many of each label."""
    labels = sorted({example.label for example in examples})
    chance = random.Random(seed)
    return [
        example
        for label in labels
        for example in chance.sample([one for one in examples if one.label == label], size // len(labels))
    ]


def language_model(reviews: Reviews, out: Path, seconds: float) -> Path:
    """A language model of the reviews, trained unless it is there."""
    if not (out / "README.md").exists():
        train, valid = reviews.unlabeled()
        settings = [*READING, f"train.seconds={seconds}"]
        ensue.train("word-lstm", train=train, valid=valid, out=out, settings=settings, threads=1, resume=out.exists())
    return out


Scores = dict[str, dict[str, dict[str, float]]]
"""Accuracies by the name of the model, the number of labels and the seed."""


def accuracies(
    given: argparse.Namespace, known: Scores, reviews: Reviews, origin: Path
) -> Iterator[tuple[str, int, int, float]]:
    """The model, the number of labels, the seed and the accuracy of each run that is asked for and not known."""
    for size in given.sizes:
        held_out = reviews.held_out(size)
        scored = held_out if given.dev else reviews.tested(size)
        for name in given.models:
            for seed in range(given.seeds):
                if str(seed) in known.get(name, {}).get(str(size), {}):
                    continue
                print(f"{name}, {size} labels, seed {seed} ...", file=sys.stderr)
                settings = [*MODELS[name].settings_for(size, origin), *given.set, f"train.seed={seed}"]
                train = reviews.labeled(size, seed)
                trial = Trial(MODELS[name].recipe, str(train), str(held_out), str(scored), settings)
                yield name, size, seed, trial.scores(given.out / f"{name}-{size}-{seed}")["accuracy"]


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path, help="the folder of runs and scores")
    parser.add_argument("--seconds", type=float, default=2100, help="of training the language model")
    parser.add_argument("--origin", type=Path, help="a language model that is there already")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), choices=SIZES)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--dev", action="store_true", help="score held-out reviews, not the test reviews")
    parser.add_argument("--picture", type=Path, help="draw the curve here")
    return parser.parse_args()


def main() -> None:
    torch.set_num_threads(1)
    given = read_arguments()
    given.out.mkdir(parents=True, exist_ok=True)
    print(describe_machine(seed=0))
    kept = given.out / ("scores-dev.json" if given.dev else "scores.json")
    scores: Scores = json.loads(kept.read_text()) if kept.exists() else {}
    reviews = Reviews(given.data, given.out)
    origin = given.origin or language_model(reviews, given.out / "read", given.seconds)
    for name, size, seed, accuracy in accuracies(given, scores, reviews, origin):
        scores.setdefault(name, {}).setdefault(str(size), {})[str(seed)] = accuracy
        kept.write_text(json.dumps(scores, indent=1))
    print(f"| labels | {' | '.join(TITLES[name] for name in scores)} |\n|---|{'---|' * len(scores)}")
    for size in SIZES:
        cells = [spread(by_size(found).get(size, [])) for found in scores.values()]
        print(f"| {size:,} | {' | '.join(cells)} |")
    if given.picture:
        draw({TITLES[name]: by_size(found) for name, found in scores.items()}, given.picture)


def by_size(found: dict[str, dict[str, float]]) -> dict[int, list[float]]:
    """Accuracies of a model in per cent."""
    return {int(size): [100 * value for value in seeds.values()] for size, seeds in found.items()}


def spread(values: list[float]) -> str:
    if not values:
        return "-"
    return f"{statistics.mean(values):.2f}" + (f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else "")


if __name__ == "__main__":
    main()
