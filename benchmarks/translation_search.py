"""BLEU of a translator by the width of the beam, and by the length of the sentence.

    python benchmarks/translation_search.py widths  SOURCES REFERENCES RUN [--widths 1 2 4 ...]
    python benchmarks/translation_search.py lengths SOURCES REFERENCES RUN [RUN ...] --plot PATH.svg

`widths` prints a row for each width and length penalty: BLEU, the length of the outputs relative to the references, the
mean log-probability of an output, and the number of empty outputs. `lengths` prints and plots BLEU by the number of
words of the source. Use development data, since these scores choose the width.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import sacrebleu
import torch
from cell_picture import COLORS, INK
from machine import describe_machine
from matplotlib import rc_context
from matplotlib.figure import Figure

import ensue
from ensue.data.decoding import decode

EDGES = (1, 8, 10, 12, 14, 16, 20, 41)


def read_text_lines(path: str) -> list[str]:
    return "".join(decode(Path(path), "utf-8")).splitlines()


def bleu(outputs: Sequence[str], references: Sequence[str]) -> float:
    return sacrebleu.corpus_bleu(list(outputs), [list(references)]).score


def widths(run: str, sources: list[str], references: list[str], beam_widths: Sequence[int]) -> None:
    """Print a row for each length penalty and width."""
    model = ensue.load(run)
    words = sum(len(text.split()) for text in references)
    print("| width | length penalty | BLEU | length / reference's | log-probability, nats | empty |")
    print("|---|---|---|---|---|---|")
    for penalty in (0.0, 1.0):
        for width in beam_widths:
            outputs = model.with_search(width=width, length_penalty=penalty).predict(sources)
            texts = [output.text for output in outputs]
            length = sum(len(text.split()) for text in texts) / words
            nats = statistics.mean(output.log_probability for output in outputs)
            empty = sum(not text.strip() for text in texts)
            print(f"| {width} | {penalty:g} | {bleu(texts, references):.2f} | {length:.3f} | {nats:.2f} | {empty} |")
            sys.stdout.flush()


def lengths(runs: Sequence[str], sources: list[str], references: list[str], plot: Path) -> None:
    """Print and plot BLEU by the number of words of the source."""
    groups = np.digitize([len(text.split()) for text in sources], EDGES)
    curves = {}
    for run in runs:
        texts = [output.text for output in ensue.load(run).predict(sources)]
        curves[Path(run).name] = [
            bleu([texts[n] for n in rows], [references[n] for n in rows])
            for group in range(1, len(EDGES))
            if len(rows := np.flatnonzero(groups == group))
        ]
    present = [group for group in range(1, len(EDGES)) if (groups == group).any()]
    names = [f"{EDGES[group - 1]}–{EDGES[group] - 1}" for group in present]
    print(f"| words of the source | sentences | {' | '.join(curves)} |")
    print("|---|---|" + "---|" * len(curves))
    for place, (group, name) in enumerate(zip(present, names, strict=True)):
        scores = " | ".join(f"{curve[place]:.1f}" for curve in curves.values())
        print(f"| {name} | {(groups == group).sum()} | {scores} |")
    draw(curves, names, plot)


def draw(curves: dict[str, list[float]], names: Sequence[str], path: Path) -> None:
    with rc_context({"svg.hashsalt": "ensue", "text.color": INK, "axes.edgecolor": INK, "font.size": 9}):
        figure = Figure(figsize=(7.2, 3.6), dpi=120, layout="constrained")
        figure.patch.set_alpha(0)
        axes = figure.subplots()
        axes.patch.set_alpha(0)
        for color, (name, curve) in zip(COLORS, curves.items(), strict=False):
            axes.plot(names, curve, color=color, marker="o", markersize=4, label=name)
        axes.set(ylim=(0, None))
        axes.set_xlabel("words of the source", color=INK)
        axes.set_ylabel("BLEU", color=INK)
        axes.tick_params(colors=INK, length=0)
        axes.grid(axis="y", color=INK, alpha=0.25)
        axes.spines[:].set_visible(False)
        axes.legend(frameon=False, labelcolor=INK)
        figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("widths", "lengths"))
    parser.add_argument("sources")
    parser.add_argument("references")
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--widths", type=int, nargs="+", default=[1, 2, 3, 5, 10, 20, 50, 100])
    parser.add_argument("--plot", type=Path, default=Path("bleu-by-length.svg"))
    arguments = parser.parse_args()
    print(describe_machine(seed=0), file=sys.stderr)
    torch.set_num_threads(1)
    sources, references = read_text_lines(arguments.sources), read_text_lines(arguments.references)
    if arguments.what == "widths":
        widths(arguments.runs[0], sources, references, arguments.widths)
    else:
        lengths(arguments.runs, sources, references, arguments.plot)


if __name__ == "__main__":
    main()
