"""Taggers from 50 to 1,000 labeled sentences, beside CRFsuite and spaCy.

    python benchmarks/few_sentences.py DATA OUT [--sets NAME ...] [--sizes 50 100 300 1000] [--draws 3]
        [--methods NAME ...]

DATA is the folder of the data sets. The sets are named entities (CoNLL-2003, testa), chunks (CoNLL-2000, test), parts
of speech (UD English-EWT and Chinese-GSD, dev) and Chinese resumes (dev). Only words and labels are read, no other
columns. A draw is a random sample of `size` training sentences, the same for all methods. All methods are tested on the
same sentences, at most 1,500. Methods of ensue are recipes with their default settings. The features of CRFsuite (`pip
install python-crfsuite`) are the word with its affixes, shape and flags, its neighbors with their shapes and flags, and
the words two positions away; three-fold cross-validation chooses its L2 factor. spaCy, which is measured on spans only,
is installed in OUT/spacy and trained there by `spacy_few.py`. Each result is a line of OUT/results.jsonl; a finished
result is not measured again. The script prints means and standard deviations over the draws, and the processor seconds
of training, in one thread.
"""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from few_examples import Result, measure_all, train_recipe
from spacy_process import train_spacy

from ensue.data.decoding import decode
from ensue.text.schemes import convert, spans

SETS = {
    "names": ("conll2003/eng.train.xz", "conll2003/eng.testa.xz", 0, -1),
    "chunks": ("conll2000/train.txt.xz", "conll2000/test.txt.xz", 0, -1),
    "upos": ("ud_english_ewt/en_ewt-ud-train.conllu.xz", "ud_english_ewt/en_ewt-ud-dev.conllu.xz", 1, 3),
    "upos-gsd": ("ud_chinese_gsd_v1.4/zh-ud-train.conllu.xz", "ud_chinese_gsd_v1.4/zh-ud-dev.conllu.xz", 1, 3),
    "resumes": ("resume_ner_zh/train.char.bmes.xz", "resume_ner_zh/dev.char.bmes", 0, -1),
}
"""The training file, the test file, and the columns of words and labels."""
RECIPES = ("tag-linear", "tag-lstm-crf", "tag-lstm")
PEER, SPACY = "CRFsuite", "spaCy"
FACTORS = (0.003, 0.03, 0.3)
Sentence = list[tuple[str, str]]


def read(path: Path, words: int, labels: int) -> list[Sentence]:
    """Return the sentences of a file in columns or CoNLL-U. The labels of spans are converted to the scheme iobes."""
    sentences: list[Sentence] = [[]]
    for line in "".join(decode(path, "")).split("\n"):
        fields = line.split("\t" if words else None)
        if not line.strip():
            sentences.append([])
        elif fields[0] != "-DOCSTART-" and (not words or fields[0].isdecimal()):
            sentences[-1].append((fields[words], fields[labels]))
    if words:
        return list(filter(None, sentences))
    return [convert_to_iobes(sentence) for sentence in sentences if len(sentence) > 3]


def read_set(name: str, data: Path) -> tuple[list[Sentence], list[Sentence]]:
    """Return the sentences for training and for testing."""
    train, test, words, labels = SETS[name]
    return read(data / train, words, labels), read(data / test, words, labels)


def convert_to_iobes(sentence: Sentence) -> Sentence:
    """Return the sentence with labels in the scheme iobes."""
    labels = convert([re.sub("^M-", "I-", label) for _, label in sentence], "iobes")
    return [(word, label) for (word, _), label in zip(sentence, labels, strict=True)]


def write(sentences: Sequence[Sentence], path: Path) -> Path:
    path.write_text("\n".join("".join(f"{word}\t{label}\n" for word, label in sentence) for sentence in sentences))
    return path


def score(pairs: Iterator[tuple[list[str], list[str]]], *, has_spans: bool) -> float:
    """Return the F1 of spans, or the accuracy, for pairs of correct and predicted labels."""
    num_right = num_gold = num_predicted = 0
    for gold, labels in pairs:
        items: Callable[[list[str]], Any] = spans if has_spans else enumerate
        gold_items, predicted_items = set(items(gold)), set(items(labels))
        num_right += len(gold_items & predicted_items)
        num_gold, num_predicted = num_gold + len(gold_items), num_predicted + len(predicted_items)
    return 2 * num_right / max(1, num_gold + num_predicted)


def word_features(word: str, *, affixes: bool) -> list[str]:
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


def sentence_features(sentence: Sentence) -> list[list[str]]:
    """Return CRFsuite's features of each word."""
    words = [word for word, _ in sentence]
    near = [word_features(word, affixes=False) for word in words]
    rows = [[f"0:{feature}" for feature in word_features(word, affixes=True)] for word in words]
    for place, row in enumerate(rows):
        for offset in (-2, -1, 1, 2):
            if 0 <= place + offset < len(words):
                row += [f"{offset}:{feature}" for feature in near[place + offset][: 1 if abs(offset) == 2 else None]]
    return rows


def by_crfsuite(train: Sequence[Sentence], test: Sequence[Sentence], out: Path, *, has_spans: bool) -> Result:
    """Train CRFsuite. Return its score and seconds."""
    try:
        import pycrfsuite  # noqa: PLC0415
    except ModuleNotFoundError:
        raise SystemExit("no pycrfsuite: pip install python-crfsuite, or choose other --methods") from None

    def fit_and_score(sentences: Sequence[Sentence], tested: Sequence[Sentence], factor: float) -> float:
        trainer = pycrfsuite.Trainer(algorithm="lbfgs", verbose=False)
        for sentence in sentences:
            trainer.append(sentence_features(sentence), [label for _, label in sentence])
        trainer.set_params({"c1": 0.0, "c2": factor, "max_iterations": 100})
        trainer.train(str(out / "crfsuite"))
        tagger = pycrfsuite.Tagger()
        tagger.open(str(out / "crfsuite"))
        answers = (([label for _, label in sentence], tagger.tag(sentence_features(sentence))) for sentence in tested)
        return score(answers, has_spans=has_spans)

    start = time.process_time()
    folds = [([s for n, s in enumerate(train) if n % 3 != fold], train[fold::3]) for fold in range(3)]
    means = {factor: statistics.mean(fit_and_score(*fold, factor) for fold in folds) for factor in FACTORS}
    best = max(FACTORS, key=means.__getitem__)
    return {"score": fit_and_score(train, test, best), "seconds": time.process_time() - start, "factor": best}


def measure(name: str, method: str, train: Sequence[Sentence], test: Sequence[Sentence], folder: Path) -> Result:
    """Train a method. Return its score and seconds."""
    if method == PEER:
        return by_crfsuite(train, test, folder, has_spans="upos" not in name)
    if method == SPACY:
        if "upos" in name:
            raise SystemExit(f"{name} has parts of speech; spaCy is measured on spans only; choose other --sets")
        train_rows, test_rows = ([tuple(zip(*sentence, strict=True)) for sentence in part] for part in (train, test))
        result = train_spacy("ner", train_rows, test_rows, folder)
        gold = ([label for _, label in sentence] for sentence in test)
        return {"score": score(zip(gold, result.pop("answers"), strict=True), has_spans=True), **result}
    train_file, test_file = write(train, folder / "train.txt"), write(test, folder / "test.txt")
    settings: dict[str, Any] = {"data.format": "columns"}
    return train_recipe(
        method, train_file, test_file, folder / "run", "accuracy" if "upos" in name else "f1", **settings
    )


if __name__ == "__main__":
    sets = {name: partial(read_set, name) for name in SETS}
    measure_all(__doc__, sets, [*RECIPES, PEER, SPACY], measure, draws=3, tested=1_500, defaults=["tag-linear", PEER])
