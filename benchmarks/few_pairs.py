"""Inflection and translation from few pairs.

    python benchmarks/few_pairs.py DATA OUT --sizes 300 1000 3000 [--sets NAME ...] [--draws 1] [--methods NAME ...]

DATA is the folder of the data sets. One set is SIGMORPHON 2017 in four languages, scored by the share of right forms on
its development words; the 3,000 training words are those of "medium" and the first other words of "high". The other set
is Multi30k from English to German, scored by BLEU on 300 validation sentences. A draw is a random sample of `size`
training pairs, the same for all methods. Methods of ensue are recipes. The peer `affix rules` is a reimplementation of
the baseline of SIGMORPHON 2017 (Cotterell et al. 2017). Each result is a line of OUT/results.jsonl; a finished result
is not measured again.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from data_files import read_lines
from few_examples import Result, measure_all, train_recipe

LANGUAGES = ("english", "german", "turkish", "finnish")
PEER = "affix rules"
METHODS = ("transduce-lstm", "transduce-few", "translate-lstm", "translate-transformer", "translate-few")
Pair = tuple[str, ...]


def read_inflection(language: str, data: Path) -> tuple[list[Pair], list[Pair]]:
    """Return the training and the development words: lemma, form and features."""
    parts = ("train-medium", "train-high", "dev")
    medium, high, dev = (
        [tuple(line.split("\t")) for line in read_lines(data, _path(language, part))] for part in parts
    )
    in_medium = set(medium)
    return medium + [pair for pair in high if pair not in in_medium][: 3_000 - len(medium)], dev


def _path(language: str, part: str) -> str:
    return f"sigmorphon2017/{language}-{part}"


def read_translation(data: Path) -> tuple[list[Pair], list[Pair]]:
    """Return the training and the validation sentences of Multi30k, English and German."""
    train, valid = (
        list(zip(read_lines(data, f"multi30k/{part}.en"), read_lines(data, f"multi30k/{part}.de"), strict=True))
        for part in ("train", "val")
    )
    return train, valid[:300]


SETS = {**{language: partial(read_inflection, language) for language in LANGUAGES}, "multi30k": read_translation}


class AffixRules:
    """Rules that change suffixes and prefixes of lemmas, for each set of features (Cotterell et al. 2017)."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self.suffixes: dict[str, Counter[Pair]] = defaultdict(Counter)
        self.prefixes: dict[str, Counter[Pair]] = defaultdict(Counter)
        for lemma, form, features in pairs:
            columns = align(lemma, form)
            gaps = [not (a and b) for a, b in columns]
            stem = gaps.index(False) if False in gaps else 0
            self.prefixes[features][join(columns[:stem])] += 1
            for start in range(stem, len(columns) + 1):
                self.suffixes[features][join(columns[start:])] += 1

    def inflect(self, lemma: str, features: str) -> str:
        """Apply the rule of the longest matching suffix, and the most frequent rule of a matching prefix."""
        rules = [item for item in self.suffixes[features].items() if lemma.endswith(item[0][0])]
        if not rules:
            return lemma
        (old, new), _ = max(rules, key=lambda item: (len(item[0][0]), item[1]))
        form = lemma[: len(lemma) - len(old)] + new
        rules = [item for item in self.prefixes[features].items() if form.startswith(item[0][0])]
        (old, new), _ = max(rules, key=lambda item: item[1], default=(("", ""), 0))
        return new + form[len(old) :]


def align(source: str, target: str) -> list[Pair]:
    """Return the columns of a Levenshtein alignment: pairs of characters, with an empty string for a gap."""
    costs = [[i + j if not i * j else 0 for j in range(len(target) + 1)] for i in range(len(source) + 1)]
    for i, a in enumerate(source, 1):
        for j, b in enumerate(target, 1):
            costs[i][j] = min(costs[i - 1][j - 1] + (a != b), costs[i - 1][j] + 1, costs[i][j - 1] + 1)
    columns, i, j = [], len(source), len(target)
    while i or j:
        if i and j and costs[i][j] == costs[i - 1][j - 1] + (source[i - 1] != target[j - 1]):
            i, j = i - 1, j - 1
            columns.append((source[i], target[j]))
        elif i and costs[i][j] == costs[i - 1][j] + 1:
            i -= 1
            columns.append((source[i], ""))
        else:
            j -= 1
            columns.append(("", target[j]))
    return columns[::-1]


def join(columns: Sequence[Pair]) -> Pair:
    """Return the source string and the target string of columns."""
    return "".join(a for a, _ in columns), "".join(b for _, b in columns)


def measure(name: str, method: str, train: Sequence[Pair], test: Sequence[Pair], folder: Path) -> Result:
    """Train a method. Return its score and seconds."""
    if method == PEER and name not in LANGUAGES:
        raise SystemExit(f"{PEER} are for inflection only; choose other --methods for {name}")
    if method == PEER:
        start = time.process_time()
        rules = AffixRules(train)
        right = sum(rules.inflect(lemma, features) == form for lemma, form, features in test)
        return {"score": right / len(test), "seconds": time.process_time() - start}
    train_file, test_file = folder / "train.tsv", folder / "test.tsv"
    for file, pairs in ((train_file, train), (test_file, test)):
        file.write_text("".join("\t".join(pair) + "\n" for pair in pairs), encoding="utf-8")
    inflects = name in LANGUAGES
    settings = {"data.format": "sigmorphon" if inflects else "tsv"}
    score = "exact_match" if inflects else "bleu"
    result = train_recipe(method, train_file, test_file, folder / "run", score, **settings)
    return result | {"score": result["score"] / 100}


if __name__ == "__main__":
    defaults = ["transduce-few", "transduce-lstm", PEER]
    measure_all(__doc__, SETS, [*METHODS, PEER], measure, draws=1, tested=1_000, defaults=defaults)
