"""UD English-EWT: phrases inside of phrases, by a tagger of nested spans, and the outermost ones by a flat tagger, too.

    python benchmarks/nested_spans.py DATA OUT [--epochs 8]

DATA has `ud_english_ewt/en_ewt-ud-{train,dev,test}.conllu.xz`. The spans follow from the heads. NP is a noun or pronoun
with what depends on it, without conjuncts, case marks, punctuation and clauses around it. PP is an NP with its case
mark. CL is a dependent clause of two words or more. Spans with gaps are left out. What is in OUT is not repeated.
"""

from __future__ import annotations

import argparse
import json
import lzma
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from machine import describe_machine

import ensue

AROUND = {
    "punct", "cc", "conj", "case", "mark", "cop", "nsubj", "csubj", "aux", "advcl", "parataxis", "discourse",
    "vocative", "dep", "orphan", "reparandum", "expl", "dislocated",
}  # fmt: skip
CLAUSES = {"acl", "advcl", "ccomp", "csubj", "xcomp"}
Span = tuple[int, int, str]


def sentences(path: Path) -> Iterable[list[list[str]]]:
    """The words of each sentence, with all their columns."""
    with lzma.open(path, "rt", encoding="utf-8") as file:
        blocks = file.read().split("\n\n")
    rows = ([line.split("\t") for line in block.splitlines()] for block in blocks)
    return [[row for row in some if row[0].isdigit()] for some in rows if some]


def phrases(rows: list[list[str]]) -> set[Span]:
    """The spans of words that are phrases."""
    relations = [row[7].split(":")[0] for row in rows]
    children: list[list[int]] = [[] for _ in rows]
    for place, row in enumerate(rows):
        if row[6] != "0":
            children[int(row[6]) - 1].append(place)

    def whole(place: int) -> set[int]:
        return {place}.union(*map(whole, children[place]))

    found: set[Span] = set()

    def add(inside: set[int], label: str) -> None:
        if max(inside) - min(inside) + 1 == len(inside):
            found.add((min(inside), max(inside) + 1, label))

    for place, row in enumerate(rows):
        if row[3] in ("NOUN", "PROPN", "PRON") and relations[place] not in ("flat", "fixed", "compound"):
            inside = {place}.union(*(whole(child) for child in children[place] if relations[child] not in AROUND))
            add(inside, "NP")
            marks = [child for child in children[place] if relations[child] == "case" and child < min(inside)]
            if marks and max(inside) - min(inside) + 1 == len(inside):
                add(inside.union(*map(whole, marks)), "PP")
        if relations[place] in CLAUSES and len(whole(place)) > 1:
            add(whole(place), "CL")
    return found


def outermost(spans: Iterable[Any]) -> list[Any]:
    """The spans that begin outside of those before, the longer first."""
    kept: list[Any] = []
    for span in sorted(spans, key=lambda span: (span[0], -span[1], span[2])):
        if not kept or span[0] >= kept[-1][1]:
            kept.append(span)
    return kept


def written(some: Iterable[list[list[str]]], path: Path, *, outer: bool) -> str:
    """The path of a file with the text and spans of sentences."""
    lines = []
    for rows in some:
        words = [row[1].replace(" ", "_") for row in rows]
        starts = [sum(map(len, words[:place])) + place for place in range(len(words))]
        spans = outermost(phrases(rows)) if outer else sorted(phrases(rows))
        places = [[starts[first], starts[last - 1] + len(words[last - 1]), label] for first, last, label in spans]
        lines.append(json.dumps({"text": " ".join(words), "spans": places}) + "\n")
    path.write_text("".join(lines), encoding="utf-8")
    return str(path)


def score(right: list[list[Any]], said: list[list[Any]]) -> str:
    """Precision, recall and F1 over all spans."""
    both = zip(right, said, strict=True)
    hits = sum(len(set(map(tuple, a)) & set(map(tuple, b))) for a, b in both)
    gold, predicted = sum(map(len, right)), sum(map(len, said))
    return f"P {hits / predicted:.2%}  R {hits / gold:.2%}  F1 {2 * hits / (gold + predicted):.2%}"


def main() -> None:
    """Prints the scores of both taggers on all spans and on the outermost ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--epochs", type=int, default=8)
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    print(describe_machine(seed=0))
    parts = {
        part: sentences(asked.data / f"ud_english_ewt/en_ewt-ud-{part}.conllu.xz") for part in ("train", "dev", "test")
    }
    settings: dict[str, Any] = {
        "data.splitter": "whitespace", "train.epochs": asked.epochs, "train.validations": asked.epochs,
    }  # fmt: skip
    for recipe, outer in (("tag-nested", False), ("tag-lstm-crf", True)):
        run = asked.out / recipe
        files = [written(some, asked.out / f"{recipe}.{part}.jsonl", outer=outer) for part, some in parts.items()]
        if not run.exists():
            ensue.train(recipe, train=files[0], valid=files[1], out=run, threads=1, settings=settings)
        tagger = ensue.load(run)
        for part in ("dev", "test"):
            rows = [json.loads(line) for line in (asked.out / f"tag-nested.{part}.jsonl").read_text().splitlines()]
            right = [row["spans"] for row in rows]
            said = [
                [[s.start, s.end, s.label] for s in answer.spans]
                for answer in tagger.predict([r["text"] for r in rows])
            ]
            print(f"{recipe} {part}, all spans: {score(right, said)}")
            print(f"{recipe} {part}, outermost: {score(*(list(map(outermost, some)) for some in (right, said)))}")


if __name__ == "__main__":
    main()
