"""Speed of training and of translating beside JoeyNMT and CTranslate2, in turns in one process, one thread.

    python benchmarks/translation_speed.py training DATA [--peers FOLDER]
    python benchmarks/translation_speed.py search DATA RUN [--peers FOLDER]
    python benchmarks/translation_speed.py latency DATA RUN [--peers FOLDER]
    python benchmarks/translation_speed.py steps DATA RUN [--peers FOLDER]

DATA is a folder with `multi30k/{train,val,test_2016_flickr}.{en,de}` (or .gz), RUN a trained `translate-transformer`,
FOLDER the `site-packages` in which joeynmt 2.3 and ctranslate2 are installed, unless they are importable already.

`training`: target tokens for each second of processor time, whole steps on the same batches. JoeyNMT's models have the
shape of ours: a Transformer of 3 + 3 layers of 256; an LSTM of 512 features that attends to a bidirectional one
of 256, without input feeding, nothing tied. `search`: test 2016 from ids to ids with 5 beams, all with the weights of
RUN. `latency`: one sentence at a time from text to text (CTranslate2: from ids to ids), greedy. `steps`: ensue and
CTranslate2 alone, from ids to ids, outputs of 14 tokens each, so that any RUN will do.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import sacrebleu
import torch
from machine import describe_machine
from quality import found
from translation_peers import (
    CTranslate,
    Ids,
    JoeyTraining,
    import_from,
    joey_outputs,
    joey_training_batch,
    joey_weights,
)

import ensue
from ensue.data.buckets import by_length
from ensue.data.compact_texts import Ragged
from ensue.data.decoding import decode
from ensue.engine import CachedWeights
from ensue.processor import Precision
from ensue.recipe import read_recipe
from ensue.runs.directory import RunDirectory
from ensue.runs.reporter import Reporter
from ensue.tasks.sequence_to_sequence.job import SequenceToSequenceJob
from ensue.tasks.sequence_to_sequence.task import MAX_SEARCH_ROWS, MAX_SEARCH_TOKENS, Sources
from ensue.training.device import use_mode
from ensue.training.loop import Trainer
from ensue.training.machine import machine_profile, nearest_workload

SEED, WIDTH, TOKENS = 0, 5, 14
STEPS, WARM = 24, 2
"""Steps of each model that are measured, after those that warm up."""
ROUNDS = 2
JOEY_SENTENCES = 100
"""JoeyNMT reads the whole prefix again at each step; every fifth sentence is enough to time it."""
SINGLE = 10
"""Every tenth sentence is translated alone."""
SIZES = ("d_model=256", "d_feedforward=512", "num_layers=3")
LARGER = (
    "tokenizer.max_size=4000", "tokens.d_embedding=256",
    *(f"{side}.{size}" for side in ("encoder", "decoder") for size in SIZES),
)  # fmt: skip
SHAPES = {"Transformer": ("translate-transformer", LARGER), "LSTM": ("translate-lstm", ("tokens.tied=none",))}


class Training:
    """The trainer of a run, with the way to compute that this machine's profile has for it."""

    def __init__(self, recipe: Any, job: SequenceToSequenceJob, folder: Path, precision: Precision | None) -> None:
        torch.manual_seed(SEED)
        model = job.parts.build(recipe)
        job.prepare(model)
        workload = nearest_workload(recipe, job.parts.coder.target.vocabulary_size)
        self.way = machine_profile().best(workload, precision=precision, threads=1)
        self.trainer = Trainer(
            model, job.task, recipe.train, RunDirectory(folder), precision=self.way.precision, reporter=Reporter()
        )

    def step(self) -> None:
        with use_mode(self.way):
            self.trainer.step()


def training(data: Path) -> None:
    paths = {part: ",".join(found(data, f"multi30k/{name}.{side}") for side in ("en", "de"))
             for part, name in (("train", "train"), ("valid", "val"))}  # fmt: skip
    print(f"| model | arithmetic | JoeyNMT, tokens/s | ensue, tokens/s | ratio |\n{'|---' * 5}|")
    for shape, (name, settings) in SHAPES.items():
        recipe = read_recipe(name, [*settings, "train.steps=100000"], **paths)
        job = SequenceToSequenceJob(recipe)
        with tempfile.TemporaryDirectory() as folder:
            ours = [Training(recipe, job, Path(folder), precision) for precision in ("float32", None)]
            rates = training_rates(recipe, job, ours)
        for training, rate in zip(ours, rates[1:], strict=True):
            print(
                f"| {shape} | {training.way.precision} | {rates[0]:,.0f} | {rate:,.0f} | {rate / rates[0]:.2f} |",
                flush=True,
            )


def training_rates(recipe: Any, job: SequenceToSequenceJob, ours: Sequence[Training]) -> list[float]:
    """Target tokens for each second of JoeyNMT, and of each of `ours`."""
    coder = job.parts.coder
    torch.manual_seed(SEED)
    theirs = JoeyTraining(recipe, coder.target)
    seconds, tokens = [0.0] * (1 + len(ours)), 0
    for number in range(WARM + STEPS):
        unread = job.task.lazy_batch(number, torch.device("cpu"))
        batch = unread.all_rows

        def joey_step(batch: Any = batch) -> None:
            theirs.step(joey_training_batch(batch, coder.target))

        taken = [timed(step) for step in (joey_step, *(one.step for one in ours))]
        if number >= WARM:
            seconds = [total + new for total, new in zip(seconds, taken, strict=True)]
            tokens += unread.count
    return [tokens / total for total in seconds]


def timed(function: Callable[[], object]) -> float:
    """Seconds of processor time."""
    started = time.process_time()
    function()
    return time.process_time() - started


class Translators:
    """The weights of one run in all three."""

    def __init__(self, run: str, data: Path) -> None:
        self.ours = ensue.load(run).with_search(width=WIDTH, length_penalty=1.0)
        self.tokens = self.ours.coder.target
        self.theirs = joey_weights(self.ours.model, self.ours.recipe, self.tokens)
        self.compiled = CTranslate(self.ours.model, self.ours.recipe, self.tokens)
        self.texts, self.references = (
            "".join(decode(Path(found(data, f"multi30k/test_2016_flickr.{side}")), "utf-8")).splitlines()
            for side in ("en", "de")
        )
        self.sources = [self.ours.coder.encode((text,))[0] for text in self.texts]
        self.most = max(self.ours.limits(Sources(Ragged.of(self.sources))))

    def by_ensue(self, numbers: Sequence[int]) -> list[list[int]]:
        found = self.ours.hypotheses(Sources(Ragged.of(self.sources[number] for number in numbers)))
        return [list(best.ids) for best, *_ in found]

    def by_joey(self, numbers: Sequence[int]) -> list[list[int]]:
        """In batches of similar length, as ours."""
        rows = [self.sources[number].tolist() for number in numbers]
        outputs: list[list[int]] = [[] for _ in rows]
        lengths = Ragged.of(self.sources[number] for number in numbers).lengths
        for places in by_length(lengths, batch_size=MAX_SEARCH_ROWS, batch_tokens=MAX_SEARCH_TOKENS):
            batch = [rows[place] for place in places]
            for place, ids in zip(places, joey_outputs(self.theirs, batch, self.tokens, width=WIDTH), strict=True):
                outputs[place] = ids
        return outputs

    def by_ctranslate(self, numbers: Sequence[int]) -> list[list[int]]:
        """It sorts by length itself."""
        rows = [self.sources[number].tolist() for number in numbers]
        return self.compiled.outputs(rows, width=WIDTH, batch_size=MAX_SEARCH_ROWS, max_tokens=self.most)

    def bleu(self, outputs: Sequence[Ids], numbers: Sequence[int]) -> float:
        texts = [self.ours.coder.decode(ids) for ids in outputs]
        score: float = sacrebleu.corpus_bleu(texts, [[self.references[number] for number in numbers]]).score
        return score


def search(run: str, data: Path) -> None:
    all_of = Translators(run, data)
    whole = list(range(len(all_of.sources)))
    some = whole[:: len(whole) // JOEY_SENTENCES]
    ways = {"ensue": (all_of.by_ensue, whole), "CTranslate2": (all_of.by_ctranslate, whole),
            "JoeyNMT": (all_of.by_joey, some), "ensue, the same sentences": (all_of.by_ensue, some)}  # fmt: skip
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    outputs: dict[str, list[list[int]]] = {}
    for translate, numbers in ways.values():
        translate(numbers[:20])
    for turn in range(ROUNDS):
        for name, (translate, numbers) in ways.items():
            if name == "JoeyNMT" and turn == ROUNDS - 1:
                continue  # it is slow
            seconds[name].append(timed(lambda: outputs.update({name: translate(numbers)})))  # noqa: B023
    print(f"| beam {WIDTH} | sentences | sentences/s | tokens/s | BLEU | outputs as ensue |\n{'|---' * 6}|")
    for name, (_, numbers) in ways.items():
        least = statistics.median(seconds[name])
        mine = outputs["ensue" if numbers is whole else "ensue, the same sentences"]
        same = statistics.mean(a == b for a, b in zip(outputs[name], mine, strict=True))
        tokens = sum(len(ids) + 1 for ids in outputs[name])
        print(f"| {name} | {len(numbers):,} | {len(numbers) / least:.1f} | {tokens / least:,.0f} "
              f"| {all_of.bleu(outputs[name], numbers):.2f} | {same:.1%} |")  # fmt: skip


def latency(run: str, data: Path) -> None:
    all_of = Translators(run, data)
    greedy = all_of.ours.with_search(width=1)
    numbers = range(0, len(all_of.sources), SINGLE)
    most = all_of.most
    ways: dict[str, Callable[[int], object]] = {
        "ensue": lambda number: greedy.predict([all_of.texts[number]]),
        "CTranslate2": lambda number: all_of.compiled.outputs(
            [all_of.sources[number].tolist()], width=1, batch_size=1, max_tokens=most
        ),
        "JoeyNMT": lambda number: joey_outputs(
            all_of.theirs, [all_of.sources[number].tolist()], all_of.tokens, width=1
        ),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    with CachedWeights().used():
        for number in (*numbers[:5], *numbers):
            for name, translate in ways.items():
                seconds[name].append(timed(lambda: translate(number)))  # noqa: B023
    print(f"| greedy, one sentence | median ms | 9 of 10 within ms |\n{'|---' * 3}|")
    for name, taken in seconds.items():
        tenths = statistics.quantiles(taken[5:], n=10)
        print(f"| {name} | {1e3 * statistics.median(taken[5:]):.1f} | {1e3 * tenths[-1]:.1f} |")


def steps(run: str, data: Path) -> None:
    ours = ensue.load(run).with_search(width=WIDTH, length_penalty=1.0, min_tokens=TOKENS, max_tokens=TOKENS)
    compiled = CTranslate(ours.model, ours.recipe, ours.coder.target)
    texts = "".join(decode(Path(found(data, "multi30k/test_2016_flickr.en")), "utf-8")).splitlines()[:256]
    rows = [ours.coder.encode((text,))[0] for text in texts]
    print(f"| sources | beam | ensue ms | CTranslate2 ms | ratio |\n{'|---' * 5}|")
    for width in (1, WIDTH):
        pipeline = ours.with_search(width=width)
        for count, rounds in ((len(rows), 4), (1, 60)):
            seconds: list[list[float]] = [[], []]
            with CachedWeights().used():
                for number in range(rounds):
                    some = (rows[number % 40 :] + rows[: number % 40])[:count]

                    def by_ensue(some: Any = some, pipeline: Any = pipeline) -> object:
                        return pipeline.hypotheses(Sources(Ragged.of(some)))

                    def by_ctranslate(some: Any = some, width: int = width) -> object:
                        return compiled.outputs(
                            [row.tolist() for row in some], width=width, batch_size=MAX_SEARCH_ROWS, max_tokens=TOKENS,
                            min_tokens=TOKENS,
                        )  # fmt: skip

                    for taken, search in zip(seconds, (by_ensue, by_ctranslate), strict=True):
                        taken.append(timed(search))
            mine, theirs = (1e3 * min(taken) for taken in seconds)
            print(f"| {count} | {width} | {mine:,.1f} | {theirs:,.1f} | {theirs / mine:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("training", "search", "latency", "steps"))
    parser.add_argument("data", type=Path)
    parser.add_argument("run", nargs="?")
    parser.add_argument("--peers", type=Path)
    given = parser.parse_args()
    if (given.run is None) != (given.what == "training"):
        parser.error(f"{given.what} needs {'no' if given.run else 'a'} RUN")
    import_from(given.peers)
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    print(describe_machine(seed=SEED))
    if given.what == "training":
        training(given.data)
    else:
        {"search": search, "latency": latency, "steps": steps}[given.what](given.run, given.data)


if __name__ == "__main__":
    main()
