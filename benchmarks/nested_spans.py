"""Nested phrases of UD English-EWT, by a tagger of nested spans; outermost phrases also by a flat tagger.

    python benchmarks/nested_spans.py DATA OUT [--epochs 8]

DATA has `ud_english_ewt/en_ewt-ud-{train,dev,test}.conllu.xz`. The spans are derived from the dependency trees. An NP
is a noun or pronoun with its dependents, except conjuncts, case marks, punctuation and the relations of clauses. A PP
is an NP with its case mark. A CL is a dependent clause of at least two words. Discontinuous spans are left out.
Finished runs in OUT are not repeated.
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

EXCLUDED_RELATIONS = {
    "punct", "cc", "conj", "case", "mark", "cop", "nsubj", "csubj", "aux", "advcl", "parataxis", "discourse",
    "vocative", "dep", "orphan", "reparandum", "expl", "dislocated",
}  # fmt: skip
CLAUSES = {"acl", "advcl", "ccomp", "csubj", "xcomp"}
Span = tuple[int, int, str]


def sentences(path: Path) -> Iterable[list[list[str]]]:
    """Return the sentences as lists of words, each with all columns."""
    with lzma.open(path, "rt", encoding="utf-8") as file:
        blocks = file.read().split("\n\n")
    rows = ([line.split("\t") for line in block.splitlines()] for block in blocks)
    return [[row for row in sentence if row[0].isdigit()] for sentence in rows if sentence]


def phrases(rows: list[list[str]]) -> set[Span]:
    """Return the phrases of a sentence as spans of words."""
    relations = [row[7].split(":")[0] for row in rows]
    children: list[list[int]] = [[] for _ in rows]
    for place, row in enumerate(rows):
        if row[6] != "0":
            children[int(row[6]) - 1].append(place)

    def subtree(place: int) -> set[int]:
        return {place}.union(*map(subtree, children[place]))

    spans: set[Span] = set()

    def add(words: set[int], label: str) -> None:
        if max(words) - min(words) + 1 == len(words):
            spans.add((min(words), max(words) + 1, label))

    for place, row in enumerate(rows):
        if row[3] in ("NOUN", "PROPN", "PRON") and relations[place] not in ("flat", "fixed", "compound"):
            words = {place}.union(
                *(subtree(child) for child in children[place] if relations[child] not in EXCLUDED_RELATIONS)
            )
            add(words, "NP")
            marks = [child for child in children[place] if relations[child] == "case" and child < min(words)]
            if marks and max(words) - min(words) + 1 == len(words):
                add(words.union(*map(subtree, marks)), "PP")
        if relations[place] in CLAUSES and len(subtree(place)) > 1:
            add(subtree(place), "CL")
    return spans


def outermost(spans: Iterable[Any]) -> list[Any]:
    """Return the spans that no other span covers, from left to right."""
    selected: list[Any] = []
    for span in sorted(spans, key=lambda span: (span[0], -span[1], span[2])):
        if not selected or span[0] >= selected[-1][1]:
            selected.append(span)
    return selected


def write(sentences: Iterable[list[list[str]]], path: Path, *, outer: bool) -> str:
    """Write the texts and spans of sentences. Return the path."""
    lines = []
    for rows in sentences:
        words = [row[1].replace(" ", "_") for row in rows]
        starts = [sum(map(len, words[:place])) + place for place in range(len(words))]
        spans = outermost(phrases(rows)) if outer else sorted(phrases(rows))
        places = [[starts[first], starts[last - 1] + len(words[last - 1]), label] for first, last, label in spans]
        lines.append(json.dumps({"text": " ".join(words), "spans": places}) + "\n")
    path.write_text("".join(lines), encoding="utf-8")
    return str(path)


def score(gold: list[list[Any]], predicted: list[list[Any]]) -> str:
    """Return precision, recall and F1 over all spans."""
    hits = sum(len(set(map(tuple, a)) & set(map(tuple, b))) for a, b in zip(gold, predicted, strict=True))
    num_gold, num_predicted = sum(map(len, gold)), sum(map(len, predicted))
    return f"P {hits / num_predicted:.2%}  R {hits / num_gold:.2%}  F1 {2 * hits / (num_gold + num_predicted):.2%}"


def main() -> None:
    """Print the scores of both taggers on all spans and on outermost spans."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--epochs", type=int, default=8)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    print(describe_machine(seed=0))
    parts = {
        part: sentences(arguments.data / f"ud_english_ewt/en_ewt-ud-{part}.conllu.xz")
        for part in ("train", "dev", "test")
    }
    settings: dict[str, Any] = {
        "data.splitter": "whitespace", "train.epochs": arguments.epochs, "train.validations": arguments.epochs,
    }  # fmt: skip
    for recipe, outer in (("tag-nested", False), ("tag-lstm-crf", True)):
        run = arguments.out / recipe
        files = [write(rows, arguments.out / f"{recipe}.{part}.jsonl", outer=outer) for part, rows in parts.items()]
        if not run.exists():
            ensue.train(recipe, train=files[0], valid=files[1], out=run, threads=1, settings=settings)
        tagger = ensue.load(run)
        for part in ("dev", "test"):
            rows = [json.loads(line) for line in (arguments.out / f"tag-nested.{part}.jsonl").read_text().splitlines()]
            gold = [row["spans"] for row in rows]
            predicted = [
                [[s.start, s.end, s.label] for s in answer.spans]
                for answer in tagger.predict([r["text"] for r in rows])
            ]
            print(f"{recipe} {part}, all spans: {score(gold, predicted)}")
            print(f"{recipe} {part}, outermost: {score(*(list(map(outermost, spans)) for spans in (gold, predicted)))}")


if __name__ == "__main__":
    main()
