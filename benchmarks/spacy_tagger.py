"""spaCy's side of `tagging.py`, which `spacy_process.py` starts in an environment without ensue.

    python spacy_tagger.py convert TREEBANK.conllu DOCUMENTS.spacy
    python spacy_tagger.py serve MODEL TREEBANK.conllu

`convert` writes a treebank in the training format of spaCy, with one document per sentence and gold tokens. `serve`
loads a trained model, reads names of measurements from stdin, and writes a line of JSON for each.
"""

from __future__ import annotations

import gzip
import json
import lzma
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import spacy
from spacy.language import Language
from spacy.tokens import Doc, DocBin
from spacy.vocab import Vocab

BATCH_SIZE = 256
"""Sentences per batch. On development data, 256 and 512 are the fastest of 32 to 2,000; spaCy's default of 1,000 is a
quarter slower."""
LATENCY_WORDS = 20


class Words(NamedTuple):
    """The columns of a sentence's words."""

    form: tuple[str, ...]
    upos: tuple[str, ...]
    xpos: tuple[str, ...]
    feats: tuple[str, ...]


def sentences(path: Path) -> Iterator[Words]:
    """Yield the sentences of a CoNLL-U file, without multiword tokens (`3-4`) and empty nodes (`8.1`)."""
    open_file = {".xz": lzma.open, ".gz": gzip.open}.get(path.suffix, open)
    with open_file(path, "rt", encoding="utf-8") as file:
        rows: list[list[str]] = []
        for line in [*file, "\n"]:
            fields = line.rstrip("\n").split("\t")
            if fields[0].isdigit():
                rows.append(fields)
            elif fields == [""] and rows:
                form, _, upos, xpos, feats = tuple(zip(*rows, strict=True))[1:6]
                yield Words(form, upos, xpos, feats)
                rows = []


def convert(treebank: Path, documents: Path) -> None:
    """Write a treebank as documents of spaCy. Without spaces, `has_unknown_spaces` of a document is true."""
    vocab = Vocab()
    docs = (
        Doc(vocab, words=list(words.form), pos=list(words.upos), tags=list(words.xpos), morphs=list(words.feats))
        for words in sentences(treebank)
    )
    DocBin(docs=docs).to_disk(documents)


class Measurements:
    """The measurements of `serve`. Documents are made before the timing starts."""

    def __init__(self, nlp: Language, treebank: Path) -> None:
        self.nlp, self.gold = nlp, list(sentences(treebank))
        self.short = [words for words in self.gold if len(words.form) == LATENCY_WORDS]

    def documents(self, gold: list[Words]) -> list[Doc]:
        return [Doc(self.nlp.vocab, words=list(words.form)) for words in gold]

    def versions(self) -> dict[str, Any]:
        return {"spacy": spacy.__version__, "words": sum(len(words.form) for words in self.gold)}

    def accuracy(self) -> dict[str, Any]:
        """Return the accuracies of UPOS and XPOS."""
        right = {"upos": 0, "xpos": 0}
        for doc, gold in zip(self.nlp.pipe(self.documents(self.gold)), self.gold, strict=True):
            right["upos"] += sum(word.pos_ == tag for word, tag in zip(doc, gold.upos, strict=True))
            right["xpos"] += sum(word.tag_ == tag for word, tag in zip(doc, gold.xpos, strict=True))
        return {name: count / self.versions()["words"] for name, count in right.items()}

    def both(self) -> dict[str, Any]:
        """Return the seconds of the whole treebank, with UPOS, FEATS and XPOS."""
        return self._measure()

    def upos(self) -> dict[str, Any]:
        """Return the seconds of the whole treebank without the tagger, which predicts XPOS."""
        with self.nlp.select_pipes(disable=["tagger"]):
            return self._measure()

    def latency(self) -> dict[str, Any]:
        """Return the milliseconds of each sentence of 20 words, one sentence at a time."""
        milliseconds = []
        for doc in self.documents(self.short):
            started = time.perf_counter()
            [word.pos_ for word in self.nlp(doc)]
            milliseconds.append(1e3 * (time.perf_counter() - started))
        return {"milliseconds": milliseconds}

    def _measure(self) -> dict[str, Any]:
        docs = self.documents(self.gold)
        started = time.perf_counter()
        for doc in self.nlp.pipe(docs, batch_size=BATCH_SIZE):
            [word.pos_ for word in doc]
        return {"seconds": time.perf_counter() - started}


def serve(model: Path, treebank: Path) -> None:
    """Make the measurement on each line of stdin."""
    measurements = Measurements(spacy.load(model), treebank)
    for line in sys.stdin:
        print(json.dumps(getattr(measurements, line.strip())()), flush=True)


if __name__ == "__main__":
    {"convert": convert, "serve": serve}[sys.argv[1]](*map(Path, sys.argv[2:]))
