"""Five models that read the same text for equal seconds, and how much each helps a tagger.

    python benchmarks/equal_time.py DATA OUT [--seconds 1200] [--models elmo ...] [--uses conll2003 ...] [--pairs 200]
        [--dev] [--table]

The text is what DATA has of running English: IMDb's reviews without labels, WikiText-2, Gutenberg and Brown, about 16
million words; a hundredth of its lines is for validation. Each model reads it for `--seconds` of one thread. `elmo` and
`taglm` are one bidirectional language model with other places in the tagger, so it is trained once. Then taggers get
the frozen layers of each as features, as those who proposed it did: names of CoNLL-2003 and chunks of CoNLL-2000 (F1),
and parts of speech of UD English-EWT (accuracy); `none` is without features. `--pairs` of each paradigm of BLiMP
(0: none) are scored by what has probabilities of words.

The weights of a tagger are chosen on development data (of CoNLL-2000 a tenth of the training data), and its test data
are scored once; with `--dev` the development data are scored instead. Everything is kept in OUT: what is there is not
repeated, what was interrupted goes on, and the table is that of all that is there.
"""

from __future__ import annotations

import argparse
import json
import sys
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from fewer_labels import one_line
from machine import describe_machine
from pretrained import CONLL2003, EWT
from quality import found
from text_sets import lines
from trials import Trial

import ensue
from ensue.data.decoding import load_bytes
from ensue.errors import EnsueError


@dataclass(frozen=True)
class Reader:
    """A model that reads: the name of its run, its recipe and settings, and how its layers join a tagger's features."""

    run: str
    recipe: str
    settings: tuple[str, ...] = ()
    joined: tuple[str, ...] = ()


SUBWORDS = ("tokenizer.max_size=8192", "encoder.num_layers=4", "encoder.d_model=256", "encoder.num_heads=4")
READERS = {
    "elmo": Reader("both-ways", "elmo-small"),
    "taglm": Reader("both-ways", "elmo-small", (), ("contextual_at=first-layer", "contextual_layers=[-1]")),
    "context2vec": Reader("context2vec", "context2vec", ("tokenizer.max_size=30000",)),
    "masked": Reader("masked", "bert-mini", ("tokenizer.lowercase=false",)),
    "causal": Reader("causal", "bpe-transformer", (*SUBWORDS, "tokens.d_embedding=256", "train.learning_rate=0.001")),
}
USES = {
    "conll2003": (
        "tag-lstm-crf",
        CONLL2003,
        ("features.columns=[2,3]", "train.epochs=12", "train.validations=12"),
        "f1",
    ),
    "conll2000": ("tag-lstm-crf", ("conll2000/train.txt", "", "conll2000/test.txt"), ("features.columns=[2]",), "f1"),
    "ewt": ("tag-lstm", EWT, (), "accuracy"),
}
"""The recipe, the paths, the settings and the score."""


def running_text(data: Path) -> Iterator[str]:
    """The lines of all texts."""
    yield from map(one_line, lines(data, "imdb/unsup.txt"))
    yield from (line.strip() for line in lines(data, "wikitext-2/train.txt") if line.strip())
    for book in sorted((data / "gutenberg").glob("*.txt*")):
        yield from paragraphs(text_of(load_bytes(book)).splitlines())
    for line in lines(data, "brown/brown.tagged.tsv"):
        yield " ".join(token.rpartition("/")[0] for token in line.split("\t")[2].split())


def text_of(content: bytes) -> str:
    """A book in UTF-8, or else in Latin-1."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content.decode("latin-1")


def paragraphs(found_lines: Sequence[str]) -> Iterator[str]:
    """The paragraphs of a book, each on a line."""
    some: list[str] = []
    for line in [*found_lines, ""]:
        if line.strip():
            some.append(line.strip())
        elif some:
            yield " ".join(some)
            some = []


def texts(data: Path, out: Path) -> tuple[Path, Path]:
    """The text to read and that of validation."""
    paths = out / "text.txt", out / "valid.txt"
    if not paths[1].exists():
        parts: tuple[list[str], list[str]] = ([], [])
        for number, line in enumerate(running_text(data)):
            parts[number % 100 == 0].append(line + "\n")
        for path, part in zip(paths, parts, strict=True):
            path.write_text("".join(part), encoding="utf-8")
    return paths


def read(reader: Reader, data: Path, out: Path, seconds: float) -> Path:
    """The run of a model that has read."""
    run = out / reader.run
    if not (run / "README.md").exists():
        train, valid = texts(data, out)
        settings = (
            *reader.settings,
            f"train.seconds={seconds:g}",
            "train.validations=4",
            "data.valid_characters=300000",
        )
        ensue.train(reader.recipe, train=train, valid=valid, out=run, threads=1, settings=settings, resume=run.exists())
    return run


def minimal_pairs(run: Path, data: Path, out: Path, count: int) -> float | None:
    """The share of BLiMP's pairs whose better sentence is the more probable one; None for a model of contexts."""
    file = out / f"blimp-{count}.jsonl"
    if not file.exists():
        with tarfile.open(data / "blimp" / "blimp.tar.xz") as archive:
            members = [archive.extractfile(one) for one in archive if one.name.endswith(".jsonl")]
            file.write_bytes(b"".join(line for member in members if member for line in islice(member, count)))
    try:
        return float(ensue.load(run).minimal_pairs(file).total.accuracy)
    except EnsueError as error:
        print(f"{run.name}: {error}", file=sys.stderr)
        return None


def tagged(name: str, use: str, run: Path | None, given: argparse.Namespace) -> dict[str, Any]:
    """The scores of a tagger with the layers of a run, or without any."""
    recipe, paths, settings, score = USES[use]
    if run is not None:
        joined = (f"contextual=[{json.dumps(str(run.resolve()))}]", *READERS[name].joined)
        settings = (*settings, *(f"features.{setting}" for setting in joined))
    train, valid, test = (found(given.data, path) if path else "" for path in paths)
    scored = valid if given.dev and valid else test
    scores = Trial(recipe, train, valid, scored, settings).scores(given.out / f"{use}-{name}")
    return {"score": 100 * scores[score], "seconds": scores["seconds"]}


def results(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A result for each use of each model, appended to the file as soon as it is there."""
    file = given.out / "results.jsonl"
    there = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    yield from there
    for use in [*given.uses, *(["blimp"] if given.pairs else [])]:
        for name in given.models:
            key = {"model": name, "use": use, "dev": given.dev, "budget": given.seconds}
            if given.table or any(key.items() <= one.items() for one in there) or (name, use) == ("none", "blimp"):
                continue
            run = None if name == "none" else read(READERS[name], given.data, given.out, given.seconds)
            if use == "blimp":
                share = minimal_pairs(run, given.data, given.out, given.pairs) if run else None
                one = {**key, "score": None if share is None else 100 * share}
            else:
                one = {**key, **tagged(name, use, run, given)}
            with file.open("a", encoding="utf-8") as written:
                print(json.dumps(one), file=written)
            yield one


def table(rows: Sequence[dict[str, Any]]) -> str:
    """A row for each model, a column for each use."""
    uses = list(dict.fromkeys(row["use"] for row in rows))
    scores = {(row["model"], row["use"]): row["score"] for row in rows}
    head = [f"| model | {' | '.join(uses)} |", "|---" * (len(uses) + 1) + "|"]
    names = [name for name in ("none", *READERS) if any(row["model"] == name for row in rows)]
    cells = [[scores.get((name, use)) for use in uses] for name in names]
    return "\n".join([*head, *(
        f"| {name} | {' | '.join('-' if score is None else f'{score:.2f}' for score in row)} |"
        for name, row in zip(names, cells, strict=True)
    )])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=1200.0, help="of reading, for each model")
    parser.add_argument("--models", nargs="+", choices=["none", *READERS], default=["none", *READERS])
    parser.add_argument("--uses", nargs="*", choices=USES, default=list(USES))
    parser.add_argument("--pairs", type=int, default=200, help="of each paradigm of BLiMP")
    parser.add_argument("--dev", action="store_true", help="score the development data instead of the test data")
    parser.add_argument("--table", action="store_true", help="only the table of what is there")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    print(describe_machine(seed=0), file=sys.stderr)
    rows = list(results(given))
    print(table(rows))


if __name__ == "__main__":
    main()
