"""spaCy's side of `tagging.py`, started by `spacy_process.py`: in spaCy's own environment, knowing nothing of ensue.

    python spacy_tagger.py convert TREEBANK.conllu DOCUMENTS.spacy
    python spacy_tagger.py serve MODEL TREEBANK.conllu

`convert` writes the words of a treebank as spaCy reads them in training: one document a sentence, gold tokens. `serve`
loads a trained model and then answers each line of stdin, the name of a measurement, with a line of JSON.
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
"""Sentences that go through the pipeline side by side: with 512 the fastest of 32 to 2,000 on development data; spaCy's
own 1,000 are a quarter slower."""
LATENCY_WORDS = 20


class Words(NamedTuple):
    """The columns of a sentence's words."""

    form: tuple[str, ...]
    upos: tuple[str, ...]
    xpos: tuple[str, ...]
    feats: tuple[str, ...]


def sentences(path: Path) -> Iterator[Words]:
    """The words of a CoNLL-U file, packed or not; multiword tokens (`3-4`) and empty nodes (`8.1`) are none."""
    opened = {".xz": lzma.open, ".gz": gzip.open}.get(path.suffix, open)
    with opened(path, "rt", encoding="utf-8") as file:
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
    """Without a word on blanks between words, spaCy takes the words as they are: `has_unknown_spaces`."""
    vocab = Vocab()
    docs = (
        Doc(vocab, words=list(words.form), pos=list(words.upos), tags=list(words.xpos), morphs=list(words.feats))
        for words in sentences(treebank)
    )
    DocBin(docs=docs).to_disk(documents)


class Measurements:
    """What `serve` can be asked for. The words of each sentence lie ready in documents before a clock starts."""

    def __init__(self, nlp: Language, treebank: Path) -> None:
        self.nlp, self.gold = nlp, list(sentences(treebank))
        self.short = [words for words in self.gold if len(words.form) == LATENCY_WORDS]

    def documents(self, gold: list[Words]) -> list[Doc]:
        return [Doc(self.nlp.vocab, words=list(words.form)) for words in gold]

    def versions(self) -> dict[str, Any]:
        return {"spacy": spacy.__version__, "words": sum(len(words.form) for words in self.gold)}

    def accuracy(self) -> dict[str, Any]:
        """Shares of the words whose UPOS and XPOS are right."""
        right = {"upos": 0, "xpos": 0}
        for doc, gold in zip(self.nlp.pipe(self.documents(self.gold)), self.gold, strict=True):
            right["upos"] += sum(word.pos_ == tag for word, tag in zip(doc, gold.upos, strict=True))
            right["xpos"] += sum(word.tag_ == tag for word, tag in zip(doc, gold.xpos, strict=True))
        return {name: count / self.versions()["words"] for name, count in right.items()}

    def both(self) -> dict[str, Any]:
        """Seconds that the whole treebank takes, with UPOS, FEATS and XPOS."""
        return self._pass()

    def upos(self) -> dict[str, Any]:
        """The same without the tagger, which has XPOS."""
        with self.nlp.select_pipes(disable=["tagger"]):
            return self._pass()

    def latency(self) -> dict[str, Any]:
        """Milliseconds of each sentence of 20 words, one at a time."""
        found = []
        for doc in self.documents(self.short):
            started = time.perf_counter()
            [word.pos_ for word in self.nlp(doc)]
            found.append(1e3 * (time.perf_counter() - started))
        return {"milliseconds": found}

    def _pass(self) -> dict[str, Any]:
        docs = self.documents(self.gold)
        started = time.perf_counter()
        for doc in self.nlp.pipe(docs, batch_size=BATCH_SIZE):
            [word.pos_ for word in doc]
        return {"seconds": time.perf_counter() - started}


def serve(model: Path, treebank: Path) -> None:
    """Measure what each line of stdin asks for."""
    measurements = Measurements(spacy.load(model), treebank)
    for line in sys.stdin:
        print(json.dumps(getattr(measurements, line.strip())()), flush=True)


if __name__ == "__main__":
    {"convert": convert, "serve": serve}[sys.argv[1]](*map(Path, sys.argv[2:]))
