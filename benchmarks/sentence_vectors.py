"""Vectors of sentences: a published model imported here, beside sentence-transformers on the same directory.

    python benchmarks/sentence_vectors.py MODEL STS_TEST [--dev STS_DEV]

MODEL is a directory of sentence-transformers, STS_TEST a file of the STS benchmark. Spearman's correlation of both is
scored once. Then both embed the same texts of mixed lengths in turns, in one process, on one thread, by processor time.
It needs `pip install sentence-transformers`.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

import ensue
from ensue.data.judgments import read_judged_texts
from ensue.metrics.words import spearman
from ensue.tasks.vectors.text_vectors import cosines

TEXTS, ROUNDS = 400, 5


def mixed_texts(sentences: list[str]) -> list[str]:
    """Sentences, alone or up to six joined, drawn with a seed."""
    draw = random.Random(0)
    draw.shuffle(sentences)
    texts, rest = [], iter(sentences)
    while len(texts) < TEXTS and (first := next(rest, None)) is not None:
        texts.append(" ".join([first, *(next(rest, "") for _ in range(draw.choice([0, 0, 0, 1, 3, 5])))]))
    return texts


def processor_seconds(work: Callable[[], Any]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--dev", type=Path, help="texts for the speed; default: those of the test")
    arguments = parser.parse_args()
    from sentence_transformers import SentenceTransformer  # noqa: PLC0415

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        ensue.import_run(arguments.model, Path(folder) / "run")
        ours = ensue.load(Path(folder) / "run", device="cpu")
    theirs = SentenceTransformer(str(arguments.model), device="cpu")
    pairs = read_judged_texts(arguments.test)
    for name, embed in (("ensue", ours.embed), ("sentence-transformers", theirs.encode)):
        vectors = embed([*pairs.first, *pairs.second])
        found = cosines(*np.split(vectors, 2))
        print(
            f"{name}: Spearman {100 * spearman(found, np.array(pairs.scores)):.2f} on {len(found):,} pairs", flush=True
        )

    source = read_judged_texts(arguments.dev or arguments.test)
    texts = mixed_texts([*source.first, *source.second])
    lengths = [len(ours.coder.encode(text)) for text in texts]
    print(f"{len(texts)} texts, {np.mean(lengths):.1f} tokens on average, {max(lengths)} at most")
    ours.embed(texts[:20]), theirs.encode(texts[:20])
    ratios = []
    for _ in range(ROUNDS):
        a = processor_seconds(lambda: ours.embed(texts))
        b = processor_seconds(lambda: theirs.encode(texts, show_progress_bar=False))
        ratios.append(b / a)
        print(
            f"ensue {len(texts) / a:.1f} texts/s, sentence-transformers {len(texts) / b:.1f}, {b / a:.2f} ×", flush=True
        )
    print(f"median {median(ratios):.2f} ×, {min(ratios):.2f} to {max(ratios):.2f}")


if __name__ == "__main__":
    main()
