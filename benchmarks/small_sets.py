"""Seven sets with 1,000 labels each: bags alone and with a teacher, TF-IDF, static vectors, and a sentence model.

    python benchmarks/small_sets.py DATA SENTENCE_MODEL OUT [--sets NAME ...] [--seeds 3]

DATA is a folder with the data sets, SENTENCE_MODEL a run with `ensue embed`, such as the imported all-MiniLM-L6-v2. The
seed draws `UNIVERSE` texts of a set's training and development data (`text_sets.py`), of which the first 1,000 have
labels. The others are the pool, without labels. Seeds share one universe, and so its vectors. Models are tested on the
same `TESTED` texts. A text is cut off after `WORDS` words, for all models.

| model | what it is |
|---|---|
| tf-idf | words and pairs of words, logistic regression (scikit-learn) |
| bag | `classify-bag` |
| frozen | logistic regression on the sentence model's vectors |
| taught | `classify-bag`, taught by `frozen`, which also reads the pool |
| static | logistic regression on the vectors of a static student (`vectors-static`), of the words of all universes |

The strength of a regression is chosen by five folds of the 1,000, the settings of a bag (`BAGS`) by a fifth of them,
those of `taught` by the same fifth. What is chosen is trained on all 1,000, and the test is read once. A line of
OUT/results.jsonl is a result, and what is there is not measured again.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from classification import STRENGTHS, written
from machine import describe_machine
from text_sets import Example, Split, ag_news, cr, imdb, mpqa, mr, sst2, subj

import ensue

try:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegressionCV
    from sklearn.pipeline import make_pipeline
    from threadpoolctl import threadpool_limits
except ModuleNotFoundError as error:
    raise SystemExit(f"no {error.name}: this script needs scikit-learn, pip install 'ensue[test]'") from None

SETS: dict[str, Callable[[Path], Iterator[Split]]] = {
    "sst2": sst2, "cr": cr, "mr": mr, "subj": subj, "mpqa": mpqa, "ag-news": ag_news, "imdb": imdb,
}  # fmt: skip
LABELED, UNIVERSE, TESTED, WORDS = 1_000, 2_500, 1_000, 100
HELD_OUT = LABELED // 5
BAGS = {
    "words": ("head.ngrams=1", "train.epochs=40", "train.learning_rate=2.0"),
    "pairs": ("head.ngrams=2", "train.epochs=40", "train.learning_rate=2.0", "head.dropout_ngrams=0.5"),
}
PLAIN = ("features.min_count=1", "head.ngram_buckets=131072", "train.validations=1")
MODELS = ("tf-idf", "bag", "taught", "static", "frozen")


class Set:
    """A set as the models see it."""

    def __init__(self, name: str, data: Path) -> None:
        split = next(SETS[name](data))
        chance = random.Random(0)
        self.name = name
        self.universe = [cut(example) for example in chance.sample([*split.train, *split.dev], UNIVERSE)]
        self.test = [cut(example) for example in chance.sample(split.test, min(TESTED, len(split.test)))]

    @property
    def texts(self) -> list[str]:
        return [example.texts[0] for example in (*self.universe, *self.test)]

    def order(self, seed: int) -> list[int]:
        """The universe's texts; the first 1,000 have labels."""
        return random.Random(seed).sample(range(UNIVERSE), UNIVERSE)


def cut(example: Example) -> Example:
    return Example((" ".join(example.texts[0].replace("<br />", " ").split()[:WORDS]),), example.label)


class Bench:
    """The vectors of all texts, and the results, as files of a folder."""

    def __init__(self, data: Path, sentence_model: Path, out: Path) -> None:
        self.data, self.sentence_model, self.out = data, sentence_model, out
        out.mkdir(parents=True, exist_ok=True)
        self.results = out / "results.jsonl"

    @cached_property
    def sets(self) -> dict[str, Set]:
        return {name: Set(name, self.data) for name in SETS}

    @cached_property
    def static(self) -> Any:
        """The static student, of the words of all universes."""
        run = self.out / "static"
        if not (run / "README.md").exists():
            words = self.out / "words.txt"
            texts = [example.texts[0] for one in self.sets.values() for example in one.universe]
            words.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
            ensue.distill(self.sentence_model, "vectors-static", pool=words, out=run, device="cpu", overwrite=True)
        return ensue.load(run, device="cpu")

    def vectors(self, one: Set, kind: str) -> np.ndarray[Any, Any]:
        """Those of the universe, and behind them of the test texts."""
        path = self.out / f"{one.name}-{kind}.npy"
        if not path.exists():
            run: Any = self.static if kind == "static" else ensue.load(self.sentence_model, device="cpu")
            np.save(path, run.embed(one.texts))
        return np.load(path)

    def measure(self, name: str, model: str, seed: int) -> None:
        """Adds a line to the results."""
        one, started = self.sets[name], time.process_time()
        order = one.order(seed)
        labels = np.array([example.label for example in one.universe])
        gold = np.array([example.label for example in one.test])
        known, pool = order[:LABELED], order[LABELED:]
        texts = np.array(one.texts, object)
        chosen: Any
        if model == "tf-idf":
            vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\S+")
            fitted = make_pipeline(vectorizer, regression(seed)).fit(texts[known], labels[known])
            found, chosen = fitted.predict(texts[UNIVERSE:]), strength(fitted[-1])
        elif model in ("frozen", "static"):
            vectors = self.vectors(one, model)
            fitted = regression(seed).fit(vectors[known], labels[known])
            found, chosen = fitted.predict(vectors[UNIVERSE:]), strength(fitted)
        else:
            found, chosen = self.bag(one, known, pool if model == "taught" else [], seed)
        line = {"set": name, "model": model, "seed": seed, "accuracy": round(100 * float((found == gold).mean()), 2)}
        line |= {"chosen": chosen, "seconds": round(time.process_time() - started, 1)}
        with self.results.open("a", encoding="utf-8") as file:
            print(json.dumps(line), file=file)
        print(json.dumps(line), file=sys.stderr)

    def bag(self, one: Set, known: Sequence[int], pool: Sequence[int], seed: int) -> tuple[Any, str]:
        """A bag's answers on the test texts, and its settings, which a fifth of the labeled texts chose."""
        scores = {}
        for name, settings in BAGS.items():
            held_out = [one.universe[place] for place in known[:HELD_OUT]]
            answers = self._trained(one, known[HELD_OUT:], pool, held_out, settings, seed)
            scores[name] = sum(answer == example.label for answer, example in zip(answers, held_out, strict=True))
        best = max(scores, key=scores.__getitem__)
        return np.array(self._trained(one, known, pool, one.test, BAGS[best], seed)), best

    def _trained(
        self,
        one: Set,
        known: Sequence[int],
        pool: Sequence[int],
        asked: list[Example],
        settings: Sequence[str],
        seed: int,
    ) -> list[str]:
        """What a bag says that has learned from the `known` texts, and from a teacher's answers about all if a pool is
        there.
        """
        folder = self.out / "bag"
        shutil.rmtree(folder, ignore_errors=True)
        train = written([one.universe[place] for place in known], folder / "train.jsonl")
        options: dict[str, Any] = {"settings": [*PLAIN, *settings, f"train.seed={seed}"], "device": "cpu", "threads": 1}
        if not pool:
            options["settings"].append("data.valid_fraction=0.01")  # the last weights are taken
            student: Any = ensue.train("classify-bag", train=train, out=folder / "run", **options)
        else:
            vectors = self.vectors(one, "frozen")
            fitted = regression(seed).fit(vectors[known], [one.universe[place].label for place in known])
            read = [*known, *pool]
            shares = fitted.predict_proba(vectors[read])
            with (folder / "told.jsonl").open("w", encoding="utf-8") as file:
                for place, row in zip(read, shares.tolist(), strict=True):
                    said = dict(zip(fitted.classes_.tolist(), row, strict=True))
                    print(json.dumps({"text": one.universe[place].texts[0], "probabilities": said}), file=file)
            told = folder / "told.jsonl"
            valid = written([one.universe[place] for place in known[:HELD_OUT]], folder / "valid.jsonl")
            student = ensue.distill(
                told, "classify-bag", train=train, pool=told, valid=valid, out=folder / "run", **options
            )
        return [answer.label for answer in student.predict([example.texts[0] for example in asked])]


def regression(seed: int) -> Any:
    return LogisticRegressionCV(Cs=list(STRENGTHS), cv=5, max_iter=1000, random_state=seed)


def strength(fitted: Any) -> float:
    return float(np.ravel(fitted.C_)[0])


def read(results: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []


def table(found: list[dict[str, Any]]) -> Iterator[str]:
    """Accuracies: the mean, and the spread over seeds."""
    yield f"| set | {' | '.join(MODELS)} |"
    yield "|" + "---|" * (len(MODELS) + 1)
    for name in SETS:
        cells = []
        for model in MODELS:
            of = [one["accuracy"] for one in found if (one["set"], one["model"]) == (name, model)]
            spread = f" ± {statistics.stdev(of):.1f}" if len(of) > 1 else ""
            cells.append(f"{statistics.mean(of):.1f}{spread}" if of else "-")
        yield f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("sentence_model", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    bench = Bench(given.data, given.sentence_model, given.out)
    print(describe_machine(seed=0))
    with threadpool_limits(1):
        for seed in range(given.seeds):
            for name in given.sets:
                for model in given.models:
                    there = {(one["set"], one["model"], one["seed"]) for one in read(bench.results)}
                    if (name, model, seed) not in there:
                        bench.measure(name, model, seed)
    print("\n".join(table(read(bench.results))))


if __name__ == "__main__":
    main()
