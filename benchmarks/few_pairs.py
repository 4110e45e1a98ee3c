"""Inflection and translation from few pairs.

    python benchmarks/few_pairs.py DATA OUT [--sets NAME ...] [--sizes 300 1000 3000] [--draws 1] [--methods NAME ...]

DATA is the folder of the data sets. Sets: SIGMORPHON 2017 in four languages (3,000 training words: "medium" and the
first other words of "high"), scored by the share of right forms on its development words; Multi30k English to German,
scored by BLEU on 300 sentences of its validation part. A draw takes `size` training pairs at random, the same for all
methods.
ensue's methods are recipes with their defaults, or with the settings of `METHODS`. The peer `affix rules` is the
baseline of SIGMORPHON 2017 (Cotterell et al. 2017), written from its description. Each result is a line of
OUT/results.jsonl; a result that is there is not measured again.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from few_examples import Result, measure_all, train_recipe
from text_sets import lines

LANGUAGES = ("english", "german", "turkish", "finnish")
PEER = "affix rules"
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "transduce-lstm": ("transduce-lstm", {}),
    "transduce-few": ("transduce-few", {}),
    "translate-lstm": ("translate-lstm", {}),
    "translate-transformer": ("translate-transformer", {}),
    "small translate-lstm": (
        "translate-lstm",
        {
            "tokenizer.max_size": 1_000, "encoder.dropout": 0.5, "decoder.dropout": 0.5, "decoder.d_model": 256,
            "train.epochs": 30, "train.batch_tokens": 1_000, "train.validations": 5,
        },
    ),
}  # fmt: skip
Pair = tuple[str, ...]


def read_inflection(language: str, data: Path) -> tuple[list[Pair], list[Pair]]:
    """Return the training and the development words: lemma, form and features."""
    parts = ("train-medium", "train-high", "dev")
    medium, high, dev = ([tuple(line.split("\t")) for line in lines(data, _path(language, part))] for part in parts)
    known = set(medium)
    return medium + [pair for pair in high if pair not in known][: 3_000 - len(medium)], dev


def _path(language: str, part: str) -> str:
    return f"sigmorphon2017/{language}-{part}"


def read_translation(data: Path) -> tuple[list[Pair], list[Pair]]:
    """Return the training and the validation sentences of Multi30k, English and German."""
    train, valid = (
        list(zip(lines(data, f"multi30k/{part}.en"), lines(data, f"multi30k/{part}.de"), strict=True))
        for part in ("train", "val")
    )
    return train, valid[:300]


SETS = {**{language: partial(read_inflection, language) for language in LANGUAGES}, "multi30k": read_translation}


class AffixRules:
    """Rules that change the ends and the beginnings of lemmas, by the features of the form (Cotterell et al. 2017)."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self.endings: dict[str, Counter[Pair]] = defaultdict(Counter)
        self.beginnings: dict[str, Counter[Pair]] = defaultdict(Counter)
        for lemma, form, features in pairs:
            columns = align(lemma, form)
            gaps = [not (a and b) for a, b in columns]
            stem = gaps.index(False) if False in gaps else 0
            self.beginnings[features][join(columns[:stem])] += 1
            for start in range(stem, len(columns) + 1):
                self.endings[features][join(columns[start:])] += 1

    def inflect(self, lemma: str, features: str) -> str:
        """Return the form by the longest ending that has a rule, and the most frequent rule of the beginning."""
        rules = [item for item in self.endings[features].items() if lemma.endswith(item[0][0])]
        if not rules:
            return lemma
        (old, new), _ = max(rules, key=lambda item: (len(item[0][0]), item[1]))
        form = lemma[: len(lemma) - len(old)] + new
        rules = [item for item in self.beginnings[features].items() if form.startswith(item[0][0])]
        (old, new), _ = max(rules, key=lambda item: item[1], default=(("", ""), 0))
        return new + form[len(old) :]


def align(source: str, target: str) -> list[Pair]:
    """Return the columns of a Levenshtein alignment, with an empty string for a gap."""
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
    """Return the source and the target of columns."""
    return "".join(a for a, _ in columns), "".join(b for _, b in columns)


def measure(name: str, method: str, train: Sequence[Pair], test: Sequence[Pair], folder: Path) -> Result:
    """Fit a method, and return its score and seconds."""
    if method == PEER and name not in LANGUAGES:
        raise SystemExit(f"{PEER} are for inflection; name the translators by --methods")
    if method == PEER:
        start = time.process_time()
        rules = AffixRules(train)
        right = sum(rules.inflect(lemma, features) == form for lemma, form, features in test)
        return {"score": right / len(test), "seconds": time.process_time() - start}
    files = [folder / f"{part}.tsv" for part in ("train", "test")]
    for file, pairs in zip(files, (train, test), strict=True):
        file.write_text("".join("\t".join(pair) + "\n" for pair in pairs), encoding="utf-8")
    recipe, settings = METHODS[method]
    inflects = name in LANGUAGES
    settings = {"data.format": "sigmorphon" if inflects else "tsv", **settings}
    result = train_recipe(recipe, *files, folder / "run", "exact_match" if inflects else "bleu", **settings)
    return result | {"score": result["score"] / 100}


if __name__ == "__main__":
    defaults = ["transduce-few", "transduce-lstm", PEER]
    measure_all(__doc__, SETS, [*METHODS, PEER], measure, draws=1, tested=1_000, defaults=defaults)
