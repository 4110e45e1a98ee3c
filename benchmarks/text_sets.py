"""Sets of labeled texts, each divided into training, development and test data.

| name | training | development | test |
|---|---|---|---|
| sst2 | the sentences of stsa.binary, no phrases | its dev | its test |
| sms | four fifths | a tenth of them, held out | the last fifth; five folds, so that every message is tested once |
| cola | in_domain_train | in_domain_dev | out_of_domain_dev |
| mrpc | train | a tenth of it, held out | test |
| rte | train | dev | test, of a division that is not that of GLUE |
| ag-news | four fifths of the test file | a tenth of them, held out | the last fifth |
| imdb | train | a tenth of it, held out | test |
| cr, mr, subj, mpqa | four fifths of the file, which has no division | a tenth of them, held out | the last fifth |
| names | four fifths of both lists of first names | a tenth of them, held out | the last fifth |

What is held out is drawn with seed 0, with its part of every label; but for IMDb. There training and test data are of
different films, while a random part of the training data shares its films with the rest and is two points too easy.
The reviews of a film have consecutive ids, so those with `id % 2500 < 250` of each label are held out. AG News is title
and description as one text. A text that comes twice is in one share only: one in eight messages of SMS spam does.
"""

from __future__ import annotations

import csv
import gzip
import json
import lzma
import random
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from quality import found

SPLIT_SEED = 0


class Example(NamedTuple):
    """A text or a pair of them, and the label."""

    texts: tuple[str, ...]
    label: str


class Split(NamedTuple):
    train: list[Example]
    dev: list[Example]
    test: list[Example]


def sst2(data: Path) -> Iterator[Split]:
    parts = (lines(data, f"sst/stsa.binary.{part}") for part in ("train", "dev", "test"))
    yield Split(*([Example((text,), label) for label, _, text in (line.partition(" ") for line in p)] for p in parts))


def sms(data: Path) -> Iterator[Split]:
    rows = (line.partition("\t") for line in lines(data, "sms_spam/SMSSpamCollection"))
    folds = shares([Example((text,), label) for label, _, text in rows], 5)
    for number, test in enumerate(folds):
        yield with_dev([example for fold in folds[:number] + folds[number + 1 :] for example in fold], test)


def cola(data: Path) -> Iterator[Split]:
    names = ("in_domain_train", "in_domain_dev", "out_of_domain_dev")
    parts = ([line.split("\t") for line in lines(data, f"cola/{name}.tsv")] for name in names)
    yield Split(*([Example((text,), label) for _, label, _, text in rows] for rows in parts))


def mrpc(data: Path) -> Iterator[Split]:
    names = ("train", "test")
    parts = ([line.split("\t") for line in lines(data, f"mrpc/msr_paraphrase_{name}.txt")[1:]] for name in names)
    yield with_dev(*([Example((first, second), label) for label, _, _, first, second in rows] for rows in parts))


def rte(data: Path) -> Iterator[Split]:
    parts = ([line.split("\t") for line in lines(data, f"rte_resplit/{n}.tsv")[1:]] for n in ("train", "dev", "test"))
    yield Split(*([Example((first, second), label) for _, first, second, label in rows] for rows in parts))


def names(data: Path) -> Iterator[Split]:
    rows = ((name.strip(), label) for label in ("female", "male") for name in lines(data, f"names_gender/{label}.txt"))
    test, *rest = shares([Example((name,), label) for name, label in rows if name], 5)
    yield with_dev([example for share in rest for example in share], test)


def ag_news(data: Path) -> Iterator[Split]:
    rows = csv.reader(lines(data, "ag_news_test_only/test.csv"))
    test, *rest = shares([Example((f"{title} {description}",), label) for label, title, description in rows], 5)
    yield with_dev([example for share in rest for example in share], test)


def imdb(data: Path) -> Iterator[Split]:
    train: list[Example] = []
    dev: list[Example] = []
    for review in map(json.loads, lines(data, "imdb/train.jsonl")):
        number = int(review["id"].partition("_")[0])
        (dev if number % 2500 < 250 else train).append(Example((review["text"],), review["label"]))
    reviews = map(json.loads, lines(data, "imdb/test.jsonl"))
    yield Split(train, dev, [Example((review["text"],), review["label"]) for review in reviews])


def undivided(data: Path, name: str, *, encoding: str = "utf-8-sig") -> Iterator[Split]:
    """A file of a label, a blank and a text on each line, which comes without a division."""
    rows = (line.partition(" ") for line in lines(data, name, encoding) if line)
    test, *rest = shares([Example((text,), label) for label, _, text in rows], 5)
    yield with_dev([example for share in rest for example in share], test)


cr = partial(undivided, name="cr/custrev.all")
mr = partial(undivided, name="mr/rt-polarity.all", encoding="cp1252")
subj = partial(undivided, name="subj/subj.all", encoding="cp1252")
mpqa = partial(undivided, name="mpqa/mpqa.all")


def lines(data: Path, name: str, encoding: str = "utf-8-sig") -> list[str]:
    """Those of a file that may be packed; without line ends and without a byte order mark."""
    path = Path(found(data, name))
    opened = {".xz": lzma.open, ".gz": gzip.open}.get(path.suffix, open)
    with opened(path, "rt", encoding=encoding, newline="\n") as file:
        return [line.rstrip("\r\n") for line in file]


def shares(examples: Iterable[Example], count: int) -> list[list[Example]]:
    """The examples in random order, dealt out label by label, so that every share has its part of each. Equal texts are
    in one share.
    """
    shuffled = list(examples)
    random.Random(SPLIT_SEED).shuffle(shuffled)
    shuffled.sort(key=lambda example: example.label)
    share_of: dict[tuple[str, ...], int] = {}
    dealt: list[list[Example]] = [[] for _ in range(count)]
    for example in shuffled:
        dealt[share_of.setdefault(example.texts, len(share_of) % count)].append(example)
    return dealt


def with_dev(train: Iterable[Example], test: Iterable[Example]) -> Split:
    """A tenth of the training data is held out."""
    dev, *rest = shares(train, 10)
    return Split([example for share in rest for example in share], dev, list(test))
