"""Word vectors of ensue beside gensim, with the same text and settings, in one thread, in turns.

    python benchmarks/word_vectors.py TEXT [--kinds cbow skip-gram] [--rounds 3] [--epochs 5] [--seeds 0 1 2]
        [--questions FILE ...] [--only-speed]

gensim must be installed in the environment of ensue. TEXT is lowercased and divided into words once, line by line, and
both sides read the resulting file. Settings: a minimum count of 5, windows of up to 5 words within a line, 5 negative
samples, 100 dimensions, subsampling of frequent words with the threshold 0.001, and a learning rate that falls from
0.025.

One epoch of training is timed, after counting and encoding. For ensue it is the steps from ids to updated vectors. For
gensim it is `train` from lists of words, and from the file (`corpus_file`), which is often faster. Words per second are
the words of the text divided by the processor seconds of all threads. Ratios are medians over the rounds, in which all
programs take turns. The vectors of both sides are scored by ensue; scores are means over the seeds.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import gensim
import torch
from gensim.models import Word2Vec
from machine import describe_machine
from timing import ratios, time_in_turns

from ensue.data.sources import TextSource
from ensue.extensions.word_vectors.job import WordVectorsJob
from ensue.extensions.word_vectors.model import SampledVectors
from ensue.extensions.word_vectors.pipeline import WordTable, build_word_table, read_questions
from ensue.extensions.word_vectors.task import SampledTask
from ensue.recipe import validate_recipe
from ensue.text.tokenizer import splitter_pattern

RATE, MIN_RATE = 0.025, 0.0001


class EnsueModel:
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

        self._update(0.0)  # compiles the functions in C

    def train(self, epochs: int) -> None:
        """Train for some epochs, over which the learning rate falls."""
        steps = epochs * self.task.steps_per_epoch
        for number in range(steps):
            self._update(RATE - (RATE - MIN_RATE) * number / steps)
            self.step += 1

    def _update(self, rate: float) -> None:
        self.task.update(self.model, self.task.lazy_batch(self.step, torch.device("cpu")), None, rate)

    def table(self) -> WordTable:
        """Return the words with their vectors."""
        return build_word_table(self.model, self.job.parts.tokenizer, self.job.recipe.vectors)


class GensimModel:
    """A model of gensim."""

    def __init__(self, text: Path, lines: list[list[str]], kind: str, seed: int, *, from_file: bool = False) -> None:
        self.model: Any = Word2Vec(
            vector_size=100, window=5, negative=5, min_count=5, sample=1e-3, sg=int(kind == "skip-gram"), workers=1,
            alpha=RATE, min_alpha=MIN_RATE, seed=seed, compute_loss=False,
        )  # fmt: skip
        self.model.build_vocab(lines)
        self.text, self.lines, self.from_file = text, lines, from_file

    def train(self, epochs: int) -> None:
        """Train for some epochs, over which the learning rate falls."""
        if self.from_file:
            words = sum(map(len, self.lines))
            self.model.train(
                corpus_file=str(self.text), total_words=words, total_examples=len(self.lines), epochs=epochs
            )
        else:
            self.model.train(self.lines, total_examples=len(self.lines), epochs=epochs)

    def table(self) -> WordTable:
        """Return the words with their vectors."""
        return WordTable(self.model.wv.index_to_key, self.model.wv.vectors)


def read_sentences(location: str) -> Iterator[list[str]]:
    """Yield the words of each nonempty line, with the splitter "simple"."""
    split = splitter_pattern("simple")
    words: list[str] = []
    for chunk in TextSource(location).chunks():
        for word in split.findall(chunk.lower()):
            if word == "\n":
                yield from [words] if words else []
                words = []
            elif word != "<unk>":
                words.append(word)
    yield from [words] if words else []


def show_speed(text: Path, lines: list[list[str]], kind: str, rounds: int) -> None:
    """Print the words per second of all programs, and the speed of ensue relative to each."""
    words = sum(map(len, lines))
    models: dict[str, EnsueModel | GensimModel] = {
        "ensue": EnsueModel(text, kind, 0),
        "gensim": GensimModel(text, lines, kind, 0),
        "gensim, corpus_file": GensimModel(text, lines, kind, 0, from_file=True),
    }
    seconds = time_in_turns({name: partial(model.train, 1) for name, model in models.items()}, rounds)
    for name, values in seconds.items():
        ratio, speed = statistics.median(ratios(values, seconds["ensue"])), words / statistics.median(values)
        print(f"| {kind} | {name} | {speed:,.0f} | {ratio:.2f} |", flush=True)


def show_scores(text: Path, lines: list[list[str]], kind: str, arguments: argparse.Namespace) -> None:
    """Print the scores of both sides: the mean and the range over the seeds."""
    makers: dict[str, Callable[[int], EnsueModel | GensimModel]] = {
        "ensue": lambda seed: EnsueModel(text, kind, seed),
        "gensim": lambda seed: GensimModel(text, lines, kind, seed),
    }
    for name, make in makers.items():
        scores: dict[str, list[float]] = {file: [] for file in arguments.questions}
        for seed in arguments.seeds:
            model = make(seed)
            model.train(arguments.epochs)
            table = model.table()
            for file, values in scores.items():
                result = table.score(read_questions(file)).as_json()
                values.append(100 * result["spearman" if "spearman" in result else "accuracy"])
        cells = (
            f"{statistics.mean(values):.1f} ({min(values):.1f} to {max(values):.1f})" for values in scores.values()
        )
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
    lines = list(read_sentences(arguments.text))
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
    main()
