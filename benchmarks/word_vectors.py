"""Word vectors of ensue beside gensim's: the same text, the same settings, one thread, in turns, by processor time.

    python benchmarks/word_vectors.py TEXT [--kinds cbow skip-gram] [--rounds 3] [--epochs 5] [--seeds 0 1 2]
        [--questions FILE ...] [--only-speed]

gensim has to be installed beside ensue. TEXT is cut into words once, lowercased, a line for a line, into a file that
both read: words between blanks, those that occur 5 times or more, contexts of up to 5 words on their line, 5 words of
noise, 100 numbers, frequent words left out from a share of 0.001 on, a learning rate that falls from 0.025.

What is timed is an epoch of training with all counted and encoded: for ensue steps from ids to changed vectors, for
gensim `train`, from lists of words and, as it is often faster, from the file itself (`corpus_file`). Words a second are
words of the text by seconds of the processor in all threads. The ratio is the median over the rounds, in each of which
everybody has a turn. Scores are those of ensue's own `evaluate` on both sides' vectors, the mean over the seeds.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gensim
import torch
from gensim.models import Word2Vec
from machine import describe_machine

from ensue.data.sources import TextSource
from ensue.extensions.word_vectors.job import WordVectorsJob
from ensue.extensions.word_vectors.model import SampledVectors
from ensue.extensions.word_vectors.pipeline import WordTable, build_word_table, read_questions
from ensue.extensions.word_vectors.task import SampledTask
from ensue.recipe import validate_recipe
from ensue.text.tokenizer import splitter_pattern

RATE, SMALLEST_RATE = 0.025, 0.0001


class Ours:
    """A model of ensue and its task."""

    def __init__(self, text: Path, kind: str, seed: int) -> None:
        document = {
            "task": "word-vectors",
            "data": {"train": str(text)},
            "tokenizer": {"min_count": 5, "splitter": "whitespace"},
            "vectors": {"kind": kind},
            "train": {"epochs": 1, "seed": seed},
        }
        self.job = WordVectorsJob(validate_recipe(document, where="benchmark"))  # type: ignore[arg-type]
        torch.manual_seed(seed)
        self.model: SampledVectors = self.job.build_model()
        assert isinstance(self.job.task, SampledTask)
        self.task, self.step = self.job.task, 0

        self._update(0.0)  # compiles

    def train(self, epochs: int) -> None:
        """Trains for so many epochs, over which the learning rate falls."""
        steps = epochs * self.task.steps_per_epoch
        for done in range(steps):
            self._update(RATE - (RATE - SMALLEST_RATE) * done / steps)
            self.step += 1

    def _update(self, rate: float) -> None:
        self.task.update(self.model, self.task.lazy_batch(self.step, torch.device("cpu")), None, rate)

    def table(self) -> WordTable:
        """The words with their vectors."""
        return build_word_table(self.model, self.job.parts.tokenizer, self.job.recipe.vectors)


class Theirs:
    """A model of gensim."""

    def __init__(self, text: Path, lines: list[list[str]], kind: str, seed: int, *, from_file: bool = False) -> None:
        self.model: Any = Word2Vec(
            vector_size=100, window=5, negative=5, min_count=5, sample=1e-3, sg=int(kind == "skip-gram"), workers=1,
            alpha=RATE, min_alpha=SMALLEST_RATE, seed=seed, compute_loss=False,
        )  # fmt: skip
        self.model.build_vocab(lines)
        self.text, self.lines, self.from_file = text, lines, from_file

    def train(self, epochs: int) -> None:
        """Trains for so many epochs, over which the learning rate falls."""
        if self.from_file:
            words = sum(map(len, self.lines))
            self.model.train(
                corpus_file=str(self.text), total_words=words, total_examples=len(self.lines), epochs=epochs
            )
        else:
            self.model.train(self.lines, total_examples=len(self.lines), epochs=epochs)

    def table(self) -> WordTable:
        """The words with their vectors."""
        return WordTable(self.model.wv.index_to_key, self.model.wv.vectors)


def seconds(work: Callable[[], object]) -> float:
    """Processor seconds of all threads."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def lines_of(location: str) -> Iterator[list[str]]:
    """The words of each line that has any, as the splitter "simple" finds them."""
    split, words = splitter_pattern("simple"), []
    for chunk in TextSource(location).chunks():
        for word in split.findall(chunk.lower()):
            if word == "\n":
                yield from [words] if words else []
                words = []
            elif word != "<unk>":
                words.append(word)
    yield from [words] if words else []


def show_speed(text: Path, lines: list[list[str]], kind: str, rounds: int) -> None:
    """Prints words a second of everybody, and the ratio to gensim's faster way."""
    words = sum(map(len, lines))
    contestants: dict[str, Ours | Theirs] = {
        "ensue": Ours(text, kind, 0),
        "gensim": Theirs(text, lines, kind, 0),
        "gensim, corpus_file": Theirs(text, lines, kind, 0, from_file=True),
    }
    taken: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, contestant in contestants.items():
            taken[name].append(seconds(lambda contestant=contestant: contestant.train(1)))  # type: ignore[misc]
    for name, found in taken.items():
        ratio = statistics.median(theirs / ours for ours, theirs in zip(taken["ensue"], found, strict=True))
        speed = words / statistics.median(found)
        print(f"| {kind} | {name} | {speed:,.0f} | {ratio:.2f} |", flush=True)


def show_scores(text: Path, lines: list[list[str]], kind: str, arguments: argparse.Namespace) -> None:
    """Prints the scores of both sides, the mean over the seeds and their range."""
    makers: dict[str, Callable[[int], Ours | Theirs]] = {
        "ensue": lambda seed: Ours(text, kind, seed),
        "gensim": lambda seed: Theirs(text, lines, kind, seed),
    }
    for name, make in makers.items():
        found: dict[str, list[float]] = {file: [] for file in arguments.questions}
        for seed in arguments.seeds:
            contestant = make(seed)
            contestant.train(arguments.epochs)
            table = contestant.table()
            for file, values in found.items():
                scores = table.score(read_questions(file), file).as_json()
                values.append(100 * scores["spearman" if "spearman" in scores else "accuracy"])
        cells = (f"{statistics.mean(values):.1f} ({min(values):.1f} to {max(values):.1f})" for values in found.values())
        print(f"| {kind} | {name} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("--kinds", nargs="+", default=["cbow", "skip-gram"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--questions", nargs="+", default=[])
    parser.add_argument("--only-speed", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    lines = list(lines_of(arguments.text))
    words = sum(map(len, lines))
    print(f"{words:,} words, gensim {gensim.__version__}, {describe_machine(seed=arguments.seeds[0])}")
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text.txt"
        text.write_text("".join(" ".join(words) + "\n" for words in lines), encoding="utf-8")
        if arguments.rounds:
            print("\n| kind | by | words/s | ensue is faster by |\n|---|---|---|---|")
            for kind in arguments.kinds:
                show_speed(text, lines, kind, arguments.rounds)
        if arguments.questions and not arguments.only_speed:
            names = [Path(file).name for file in arguments.questions]
            print(f"\n| kind | by | {' | '.join(names)} |\n|---|---|{'---|' * len(names)}")
            for kind in arguments.kinds:
                show_scores(text, lines, kind, arguments)


if __name__ == "__main__":
    sys.exit(main())
