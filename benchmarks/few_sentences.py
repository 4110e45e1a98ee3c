"""Taggers from 50 to 1,000 labeled sentences, beside CRFsuite.

    python benchmarks/few_sentences.py DATA OUT [--sets NAME ...] [--sizes 50 100 300 1000] [--draws 3]
        [--methods NAME ...]

DATA is the folder of the data sets. Names (CoNLL-2003, testa), chunks (CoNLL-2000, test), parts of speech (UD
English-EWT and Chinese-GSD, dev) and Chinese resumes (dev) are read as words and labels, without other columns. A draw
takes `size` training sentences at random, the same for all methods, which are tested on the same sentences. ensue's
methods are recipes with their defaults. CRFsuite (`pip install python-crfsuite`) has words, affixes, shapes and flags
of the word, words, shapes and flags of its neighbors, and the words two positions away; its L2 factor is chosen by
three folds. spaCy, for spans of English words, is installed in OUT/spacy and trained there by `spacy_few.py`. Each
result is a line of OUT/results.jsonl; a result that is there is not measured again. The script prints means and
standard deviations over the draws, with the processor seconds of training, in one thread.
"""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from few_examples import Result, measure_all, train_recipe
from spacy_process import learn_from_few

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
    """Return the sentences of a file in columns or CoNLL-U. Spans are in the scheme iobes."""
    sentences: list[Sentence] = [[]]
    for line in "".join(decode(path, "")).split("\n"):
        fields = line.split("\t" if words else None)
        if not line.strip():
            sentences.append([])
        elif fields[0] != "-DOCSTART-" and (not words or fields[0].isdecimal()):
            sentences[-1].append((fields[words], fields[labels]))
    if words:
        return list(filter(None, sentences))
    return [in_iobes(sentence) for sentence in sentences if len(sentence) > 3]


def read_set(name: str, data: Path) -> tuple[list[Sentence], list[Sentence]]:
    """Return the sentences for training and for testing."""
    train, test, words, labels = SETS[name]
    return read(data / train, words, labels), read(data / test, words, labels)


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
        answers, truth = set(spans(labels)), set(spans(gold))
        if not has_spans:
            answers, truth = set(enumerate(labels)), set(enumerate(gold))  # type: ignore[arg-type]
        both, right, predicted = both + len(answers & truth), right + len(truth), predicted + len(answers)
    return 2 * both / max(1, right + predicted)


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

    start = time.process_time()
    folds = [([s for n, s in enumerate(train) if n % 3 != fold], train[fold::3]) for fold in range(3)]
    means = {factor: statistics.mean(fitted(*fold, factor) for fold in folds) for factor in FACTORS}
    best = max(FACTORS, key=means.__getitem__)
    return {"score": fitted(train, test, best), "seconds": time.process_time() - start, "factor": best}


def measure(name: str, method: str, train: Sequence[Sentence], test: Sequence[Sentence], folder: Path) -> Result:
    """Fit a method, and return its score and seconds."""
    if method == PEER:
        return by_crfsuite(train, test, folder, has_spans="upos" not in name)
    if method == SPACY:
        if "upos" in name:
            raise SystemExit(f"spaCy is measured on spans, and {name} has parts of speech; --sets names the others")
        parts = ([tuple(zip(*sentence, strict=True)) for sentence in part] for part in (train, test))
        result = learn_from_few("ner", *parts, folder)
        gold = ([label for _, label in sentence] for sentence in test)
        return {"score": score(zip(gold, result.pop("answers"), strict=True), has_spans=True), **result}
    files = [write(sentences, folder / f"{kind}.txt") for kind, sentences in (("train", train), ("test", test))]
    settings = {"data.format": "columns"}
    return train_recipe(method, *files, folder / "run", "accuracy" if "upos" in name else "f1", **settings)


if __name__ == "__main__":
    sets = {name: partial(read_set, name) for name in SETS}
    measure_all(__doc__, sets, [*RECIPES, PEER, SPACY], measure, draws=3, tested=1_500, defaults=["tag-linear", PEER])
