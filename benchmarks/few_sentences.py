"""Taggers from 50 to 1,000 labeled sentences, beside CRFsuite.

    python benchmarks/few_sentences.py DATA OUT [--sets NAME ...] [--sizes 50 100 300 1000] [--draws 3]
        [--methods NAME ...]

DATA is the folder of the data sets. Names (CoNLL-2003, testa), chunks (CoNLL-2000, test), parts of speech (UD
English-EWT, dev) and Chinese resumes (dev) are read as words and labels, without other columns. A draw takes `size`
training sentences at random, the same for all methods, which are tested on the same sentences. ensue's methods are
recipes with their defaults. CRFsuite (`pip install python-crfsuite`) has words, affixes, shapes and flags of the word,
words, shapes and flags of its neighbors, and the words two positions away; its L2 factor is chosen by three folds.
Each result is a line of OUT/results.jsonl; a result that is there is not measured again. The script prints means and
standard deviations over the draws, with the seconds of training, in one thread.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from machine import describe_machine

import ensue
from ensue.data.decoding import decoded
from ensue.text.schemes import convert, spans

SETS = {
    "names": ("conll2003/eng.train.xz", "conll2003/eng.testa.xz", 0, -1),
    "chunks": ("conll2000/train.txt.xz", "conll2000/test.txt.xz", 0, -1),
    "upos": ("ud_english_ewt/en_ewt-ud-train.conllu.xz", "ud_english_ewt/en_ewt-ud-dev.conllu.xz", 1, 3),
    "resumes": ("resume_ner_zh/train.char.bmes.xz", "resume_ner_zh/dev.char.bmes", 0, -1),
}
"""The training file, the test file, and the columns of words and labels."""
RECIPES = ("tag-linear", "tag-lstm-crf", "tag-lstm")
PEER = "CRFsuite"
FACTORS = (0.003, 0.03, 0.3)
TESTED = 1_500
Sentence = list[tuple[str, str]]
Result = dict[str, Any]


def read(path: Path, words: int, labels: int) -> list[Sentence]:
    """Return the sentences of a file in columns or CoNLL-U. Spans are in the scheme iobes."""
    sentences: list[Sentence] = [[]]
    for line in "".join(decoded(path, "")).split("\n"):
        fields = line.split("\t" if words else None)
        if not line.strip():
            sentences.append([])
        elif fields[0] != "-DOCSTART-" and (not words or fields[0].isdecimal()):
            sentences[-1].append((fields[words], fields[labels]))
    if words:
        return list(filter(None, sentences))
    return [in_iobes(sentence) for sentence in sentences if len(sentence) > 3]


def in_iobes(sentence: Sentence) -> Sentence:
    """Return the sentence with its spans in the scheme iobes."""
    labels = convert([re.sub("^M-", "I-", label) for _, label in sentence], "iobes")
    return [(word, label) for (word, _), label in zip(sentence, labels, strict=True)]


def write(sentences: Sequence[Sentence], path: Path) -> Path:
    path.write_text("\n".join("".join(f"{word}\t{label}\n" for word, label in sentence) for sentence in sentences))
    return path


def score(pairs: Iterator[tuple[list[str], list[str]]], *, has_spans: bool) -> float:
    """Return the F1 of spans, or the accuracy, for pairs of correct and predicted labels."""
    both = right = predicted = 0
    for gold, labels in pairs:
        found, truth = set(spans(labels)), set(spans(gold))
        if not has_spans:
            found, truth = set(enumerate(labels)), set(enumerate(gold))  # type: ignore[arg-type]
        both, right, predicted = both + len(found & truth), right + len(truth), predicted + len(found)
    return 2 * both / max(1, right + predicted)


def by_recipe(recipe: str, train: Path, test: Path, out: Path, name: str) -> Result:
    """Train a recipe, and return its score, seconds, bytes of weights, and validation score."""
    start = time.perf_counter()
    settings = {"data.format": "columns"}
    model = ensue.train(recipe, train=str(train), out=out, threads=1, overwrite=True, settings=settings)
    seconds, kind = time.perf_counter() - start, "accuracy" if name == "upos" else "f1"
    torch.set_num_threads(1)
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    estimate = [record["scores"][kind] for record in records if record["kind"] == "valid"][-1]
    return {
        "score": model.evaluate(str(test)).as_json()[kind], "seconds": seconds, "estimate": estimate,
        "bytes": (out / "model.safetensors").stat().st_size,
    }  # fmt: skip


def form(word: str, *, affixes: bool) -> list[str]:
    """Return the features of a word."""
    shape = re.sub(r"\d", "d", re.sub(r"[^\W\d_]", lambda letter: "X" if letter[0].isupper() else "x", word))
    folded = re.sub(r"\d", "0", word)
    short = re.sub(r"(.)\1+", r"\1", shape)
    features = [f"word={folded.lower()}", f"cased={folded}", f"shape={shape}", f"short={short}"]
    if affixes:
        features += [f"{n}-={folded.lower()[:n]}" for n in range(1, 5)]
        features += [f"-{n}={folded.lower()[-n:]}" for n in range(1, 5)]
    flags = {"upper": word.isupper(), "title": word.istitle(), "digit": word.isdigit(), "hyphen": "-" in word}
    return features + [name for name, holds in flags.items() if holds]


def features_of(sentence: Sentence) -> list[list[str]]:
    """Return CRFsuite's features of each word."""
    words = [word for word, _ in sentence]
    near = [form(word, affixes=False) for word in words]
    rows = [[f"0:{feature}" for feature in form(word, affixes=True)] for word in words]
    for place, row in enumerate(rows):
        for offset in (-2, -1, 1, 2):
            if 0 <= place + offset < len(words):
                row += [f"{offset}:{feature}" for feature in near[place + offset][: 1 if abs(offset) == 2 else None]]
    return rows


def by_crfsuite(train: Sequence[Sentence], test: Sequence[Sentence], out: Path, *, has_spans: bool) -> Result:
    """Fit CRFsuite, and return its score and seconds."""
    try:
        import pycrfsuite  # noqa: PLC0415
    except ModuleNotFoundError:
        raise SystemExit("no pycrfsuite: pip install python-crfsuite, or choose other --methods") from None

    def fitted(sentences: Sequence[Sentence], tested: Sequence[Sentence], factor: float) -> float:
        trainer = pycrfsuite.Trainer(algorithm="lbfgs", verbose=False)
        for sentence in sentences:
            trainer.append(features_of(sentence), [label for _, label in sentence])
        trainer.set_params({"c1": 0.0, "c2": factor, "max_iterations": 100})
        trainer.train(str(out / "crfsuite"))
        tagger = pycrfsuite.Tagger()
        tagger.open(str(out / "crfsuite"))
        answers = (([label for _, label in sentence], tagger.tag(features_of(sentence))) for sentence in tested)
        return score(answers, has_spans=has_spans)

    start = time.perf_counter()
    folds = [([s for n, s in enumerate(train) if n % 3 != fold], train[fold::3]) for fold in range(3)]
    means = {factor: statistics.mean(fitted(*fold, factor) for fold in folds) for factor in FACTORS}
    best = max(FACTORS, key=means.__getitem__)
    found = fitted(train, test, best)
    return {"score": found, "seconds": time.perf_counter() - start, "factor": best}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--sizes", nargs="+", type=int, default=[50, 100, 300, 1_000])
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--methods", nargs="+", choices=[*RECIPES, PEER], default=["tag-linear", PEER])
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=options.out))  # several of these programs may write to one OUT
    file = options.out / "results.jsonl"
    results = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    keys = ("set", "size", "draw", "method")
    measured = {tuple(result[key] for key in keys) for result in results}
    print(describe_machine(seed=0))
    for name in options.sets:
        *files, words, labels = SETS[name]
        everything, test = (read(options.data / file, words, labels) for file in files)
        test = random.Random(0).sample(test, min(TESTED, len(test)))
        tested = write(test, folder / "test.txt")
        for size in options.sizes:
            for draw in range(options.draws):
                train = random.Random(draw).sample(everything, size)
                path = write(train, folder / "train.txt")
                for method in options.methods:
                    key = (name, size, draw, method)
                    if key in measured:
                        continue
                    result = (
                        by_crfsuite(train, test, folder, has_spans=name != "upos")
                        if method == PEER
                        else by_recipe(method, path, tested, folder / "run", name)
                    )
                    results.append(dict(zip(keys, key, strict=True)) | result)
                    with file.open("a") as opened:
                        print(json.dumps(results[-1]), file=opened)
    shutil.rmtree(folder)
    show(results, options)


def show(results: list[Result], options: argparse.Namespace) -> None:
    """Print a table: a row for each set and size, a column for each method."""
    print(f"| data | sentences | {' | '.join(options.methods)} |\n|---|---|{'---|' * len(options.methods)}")
    cells = defaultdict(list)
    for result in results:
        cells[result["set"], result["size"], result["method"]].append(result)
    for name in options.sets:
        for size in options.sizes:
            row = []
            for method in options.methods:
                scores = [100 * result["score"] for result in cells[name, size, method]]
                seconds = statistics.mean(result["seconds"] for result in cells[name, size, method])
                row.append(f"{statistics.mean(scores):.1f} ± {statistics.pstdev(scores):.1f}, {seconds:.1f} s")
            print(f"| {name} | {size} | {' | '.join(row)} |")


if __name__ == "__main__":
    main()
