"""Sets of labeled texts, divided into training, development and test data.

| name | training | development | test |
|---|---|---|---|
| sst2 | the sentences of stsa.binary, without phrases | its dev | its test |
| sms | four fifths | a tenth of them, held out | one fifth; five folds, so that each message is tested once |
| cola | in_domain_train | in_domain_dev | out_of_domain_dev |
| mrpc | train | a tenth of it, held out | test |
| rte | train | dev | test, of another division than in GLUE |
| ag-news | four fifths of the test file | a tenth of them, held out | one fifth |
| imdb | train | a tenth of it, held out | test |
| cr, mr, subj, mpqa | four fifths of the file, which has no division | a tenth of them, held out | one fifth |
| names | four fifths of both lists of first names | a tenth of them, held out | one fifth |

Held-out data are sampled with seed 0, stratified by label. For IMDb they are not sampled, since the training and test
data are reviews of different films: a random part of the training data would share films with the rest, and its
accuracy would be two points too high. The reviews of a film have consecutive ids, so the reviews with
`id % 2500 < 250` of each label are held out. A text of AG News is the title and the description. Equal texts are never
divided: one in eight messages of SMS spam occurs more than once.
"""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from data_files import read_lines

SPLIT_SEED = 0


class Example(NamedTuple):
    """A text or a pair of texts, and its label."""

    texts: tuple[str, ...]
    label: str


class Split(NamedTuple):
    train: list[Example]
    dev: list[Example]
    test: list[Example]


def sst2(data: Path) -> Iterator[Split]:
    parts = (read_lines(data, f"sst/stsa.binary.{part}") for part in ("train", "dev", "test"))
    yield Split(*([Example((text,), label) for label, _, text in (line.partition(" ") for line in p)] for p in parts))


def sms(data: Path) -> Iterator[Split]:
    rows = (line.partition("\t") for line in read_lines(data, "sms_spam/SMSSpamCollection"))
    folds = stratified_parts([Example((text,), label) for label, _, text in rows], 5)
    for number, test in enumerate(folds):
        yield hold_out_dev([example for fold in folds[:number] + folds[number + 1 :] for example in fold], test)


def cola(data: Path) -> Iterator[Split]:
    names = ("in_domain_train", "in_domain_dev", "out_of_domain_dev")
    parts = ([line.split("\t") for line in read_lines(data, f"cola/{name}.tsv")] for name in names)
    yield Split(*([Example((text,), label) for _, label, _, text in rows] for rows in parts))


def mrpc(data: Path) -> Iterator[Split]:
    names = ("train", "test")
    parts = ([line.split("\t") for line in read_lines(data, f"mrpc/msr_paraphrase_{name}.txt")[1:]] for name in names)
    yield hold_out_dev(*([Example((first, second), label) for label, _, _, first, second in rows] for rows in parts))


def rte(data: Path) -> Iterator[Split]:
    parts = (
        [line.split("\t") for line in read_lines(data, f"rte_resplit/{n}.tsv")[1:]] for n in ("train", "dev", "test")
    )
    yield Split(*([Example((first, second), label) for _, first, second, label in rows] for rows in parts))


def names(data: Path) -> Iterator[Split]:
    rows = (
        (name.strip(), label) for label in ("female", "male") for name in read_lines(data, f"names_gender/{label}.txt")
    )
    yield hold_out_test([Example((name,), label) for name, label in rows if name])


def ag_news(data: Path) -> Iterator[Split]:
    rows = csv.reader(read_lines(data, "ag_news_test_only/test.csv"))
    yield hold_out_test([Example((f"{title} {description}",), label) for label, title, description in rows])


def imdb(data: Path) -> Iterator[Split]:
    train: list[Example] = []
    dev: list[Example] = []
    for review in map(json.loads, read_lines(data, "imdb/train.jsonl")):
        number = int(review["id"].partition("_")[0])
        (dev if number % 2500 < 250 else train).append(Example((review["text"],), review["label"]))
    reviews = map(json.loads, read_lines(data, "imdb/test.jsonl"))
    yield Split(train, dev, [Example((review["text"],), review["label"]) for review in reviews])


def divide_file(data: Path, name: str, *, encoding: str = "utf-8-sig") -> Iterator[Split]:
    """Divide a file with a label, a blank and a text on each line."""
    rows = (line.partition(" ") for line in read_lines(data, name, encoding) if line)
    yield hold_out_test([Example((text,), label) for label, _, text in rows])


cr = partial(divide_file, name="cr/custrev.all")
mr = partial(divide_file, name="mr/rt-polarity.all", encoding="cp1252")
subj = partial(divide_file, name="subj/subj.all", encoding="cp1252")
mpqa = partial(divide_file, name="mpqa/mpqa.all")


def stratified_parts(examples: Iterable[Example], count: int) -> list[list[Example]]:
    """Divide examples at random into parts with the same shares of labels. Equal texts are in one part."""
    shuffled = list(examples)
    random.Random(SPLIT_SEED).shuffle(shuffled)
    shuffled.sort(key=lambda example: example.label)
    part_numbers: dict[tuple[str, ...], int] = {}
    parts: list[list[Example]] = [[] for _ in range(count)]
    for example in shuffled:
        parts[part_numbers.setdefault(example.texts, len(part_numbers) % count)].append(example)
    return parts


def hold_out_dev(train: Iterable[Example], test: Iterable[Example]) -> Split:
    """Return a split with a tenth of the training data as development data."""
    dev, *others = stratified_parts(train, 10)
    return Split([example for part in others for example in part], dev, list(test))


def hold_out_test(examples: Iterable[Example]) -> Split:
    """Return a split with a fifth of the examples as test data, and a tenth of the others as development data."""
    test, *others = stratified_parts(examples, 5)
    return hold_out_dev([example for part in others for example in part], test)
