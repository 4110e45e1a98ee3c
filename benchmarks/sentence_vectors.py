"""Vectors of sentences: a published model imported here, beside sentence-transformers on the same directory.

    python benchmarks/sentence_vectors.py MODEL STS_TEST [--dev STS_DEV]

MODEL is a directory of sentence-transformers, STS_TEST a file of the STS benchmark. Spearman's correlation of both is
scored once, in float32 and, where the processor has it, in bfloat16. Then all embed the same texts of mixed lengths in
turns, in one process, on one thread, by processor time. It needs `pip install sentence-transformers`.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

import ensue
from ensue.data.judgments import read_judged_texts
from ensue.engine import has_bfloat16
from ensue.metrics.scores import spearman
from ensue.processor import Precision
from ensue.tasks.vectors.contextual import cosines

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
    precisions: list[Precision] = ["float32", "bfloat16"] if has_bfloat16() else ["float32"]
    embed: dict[str, Callable[..., Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        ensue.import_run(arguments.model, run)
        for precision in precisions:
            ours = ensue.load(run, device="cpu", precision=precision)
            embed[f"ensue, {precision}"] = ours.embed
            options = {"dtype": getattr(torch, precision)}
            theirs = SentenceTransformer(str(arguments.model), device="cpu", model_kwargs=options)
            embed[f"sentence-transformers, {precision}"] = partial(theirs.encode, show_progress_bar=False)
    pairs = read_judged_texts(arguments.test)
    for name, function in embed.items():
        found = cosines(*np.split(function([*pairs.first, *pairs.second]), 2))
        print(
            f"{name}: Spearman {100 * spearman(found, np.array(pairs.scores)):.2f} on {len(found):,} pairs", flush=True
        )

    source = read_judged_texts(arguments.dev or arguments.test)
    texts = mixed_texts([*source.first, *source.second])
    lengths = [len(ours.coder.encode(text)) for text in texts]
    print(f"{len(texts)} texts, {np.mean(lengths):.1f} tokens on average, {max(lengths)} at most")
    seconds: dict[str, list[float]] = {name: [] for name in embed}
    for _ in range(ROUNDS):
        for name, function in embed.items():
            seconds[name].append(processor_seconds(lambda function=function: function(texts)))
    first = seconds["sentence-transformers, float32"]
    for name, found in seconds.items():
        ratios = [theirs / own for theirs, own in zip(first, found, strict=True)]
        spread = f"{median(ratios):.2f} × ({min(ratios):.2f} to {max(ratios):.2f})"
        print(f"{name}: {len(texts) / median(found):.1f} texts/s, to sentence-transformers in float32 {spread}")


if __name__ == "__main__":
    main()
