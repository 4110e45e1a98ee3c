"""Sentence vectors of an imported model, beside sentence-transformers with the same model.

    python benchmarks/sentence_vectors.py MODEL STS_TEST [--dev STS_DEV]

MODEL is a directory of sentence-transformers, STS_TEST a file of the STS benchmark. Both sides are scored by Spearman's
correlation in float32, and in bfloat16 if the processor multiplies in it. Then they embed the same texts of mixed
lengths in turns, in one process and one thread; speeds are by processor time. The script needs `pip install
sentence-transformers`.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from machine import describe_machine
from timing import ratios, time_in_turns

import ensue
from ensue.data.judgments import read_judged_texts
from ensue.engine import has_bfloat16
from ensue.metrics.scores import spearman
from ensue.processor import Precision
from ensue.tasks.vectors.contextual import cosines

NUM_TEXTS, NUM_TURNS = 400, 5


def mixed_texts(sentences: list[str]) -> list[str]:
    """Return texts of one to six sentences."""
    generator = random.Random(0)
    generator.shuffle(sentences)
    texts: list[str] = []
    remaining = iter(sentences)
    while len(texts) < NUM_TEXTS and (first := next(remaining, None)) is not None:
        texts.append(" ".join([first, *(next(remaining, "") for _ in range(generator.choice([0, 0, 0, 1, 3, 5])))]))
    return texts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--dev", type=Path, help="the file with the texts for the speed; default: STS_TEST")
    arguments = parser.parse_args()
    from sentence_transformers import SentenceTransformer  # noqa: PLC0415

    torch.set_num_threads(1)
    print(describe_machine(seed=0))
    precisions: list[Precision] = ["float32", "bfloat16"] if has_bfloat16() else ["float32"]
    embed: dict[str, Callable[..., Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        ensue.import_run(arguments.model, run)
        for precision in precisions:
            model: Any = ensue.load(run, device="cpu", precision=precision)
            embed[f"ensue, {precision}"] = model.embed
            options = {"dtype": getattr(torch, precision)}
            peer = SentenceTransformer(str(arguments.model), device="cpu", model_kwargs=options)
            embed[f"sentence-transformers, {precision}"] = partial(peer.encode, show_progress_bar=False)
    pairs = read_judged_texts(arguments.test)
    for name, function in embed.items():
        similarities = cosines(*np.split(function([pair.texts[side] for side in (0, 1) for pair in pairs]), 2))
        correlation = spearman(similarities, np.array([pair.score for pair in pairs]))
        print(f"{name}: Spearman {100 * correlation:.2f} on {len(pairs):,} pairs", flush=True)

    source = read_judged_texts(arguments.dev or arguments.test)
    texts = mixed_texts([pair.texts[side] for side in (0, 1) for pair in source])
    lengths = [len(model.coder.encode(text)) for text in texts]
    print(f"{len(texts)} texts, {np.mean(lengths):.1f} tokens on average, {max(lengths)} at most")
    seconds = time_in_turns({name: partial(function, texts) for name, function in embed.items()}, NUM_TURNS)
    for name, values in seconds.items():
        turns = ratios(seconds["sentence-transformers, float32"], values)
        ratio = f"{median(turns):.2f} × ({min(turns):.2f} to {max(turns):.2f})"
        print(f"{name}: {len(texts) / median(values):.1f} texts/s, {ratio} of sentence-transformers in float32")


if __name__ == "__main__":
    main()
