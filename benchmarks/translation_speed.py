"""Speed of training and translation beside JoeyNMT and CTranslate2, in turns in one process and one thread.

    python benchmarks/translation_speed.py training DATA [--peers FOLDER]
    python benchmarks/translation_speed.py search DATA RUN [--peers FOLDER]
    python benchmarks/translation_speed.py latency DATA RUN [--peers FOLDER]
    python benchmarks/translation_speed.py steps DATA RUN [--peers FOLDER]

DATA is a folder with `multi30k/{train,val,test_2016_flickr}.{en,de}` (or .gz). RUN is a trained
`translate-transformer`. FOLDER is the `site-packages` in which joeynmt 2.3 and ctranslate2 are installed, if this
environment lacks them.

- training: target tokens per second of processor time, in whole steps on the same batches. Models of JoeyNMT have the
  sizes of ensue's: a Transformer with 3 + 3 layers of 256 features; an LSTM of 512 features with attention to a
  bidirectional LSTM of 256 features, without input feeding and without tied weights
- search: test 2016 from ids to ids with 5 beams and the weights of RUN
- latency: one sentence at a time with greedy search, from text to text (for CTranslate2 and JoeyNMT from ids to ids)
- steps: ensue and CTranslate2 from ids to ids, with 14 tokens in each output, so that RUN need not be well trained
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import sacrebleu
import torch
from data_files import data_path
from machine import describe_machine
from timing import elapsed
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
from ensue.data.buckets import batch_by_length
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

SEED, WIDTH, OUTPUT_TOKENS = 0, 5, 14
NUM_STEPS, WARM_UP_STEPS = 24, 2
NUM_ROUNDS = 2
NUM_JOEY_SENTENCES = 100
"""JoeyNMT is measured on a part of the sentences, since it recomputes the whole prefix at each step."""
LATENCY_STEP = 10
"""`latency` translates every tenth sentence."""
SIZES = ("d_model=256", "d_feedforward=512", "num_layers=3")
LARGER = (
    "tokenizer.max_size=4000", "tokens.d_embedding=256",
    *(f"{side}.{size}" for side in ("encoder", "decoder") for size in SIZES),
)  # fmt: skip
SHAPES = {"Transformer": ("translate-transformer", LARGER), "LSTM": ("translate-lstm", ("tokens.tied=none",))}


class Training:
    """The trainer of a run, with the mode of this machine's profile."""

    def __init__(self, recipe: Any, job: SequenceToSequenceJob, folder: Path, precision: Precision | None) -> None:
        torch.manual_seed(SEED)
        model = job.parts.build(recipe)
        job.prepare(model)
        workload = nearest_workload(recipe, job.parts.coder.target.vocabulary_size)
        self.mode = machine_profile().best(workload, precision=precision, threads=1)
        self.trainer = Trainer(
            model, job.task, recipe.train, RunDirectory(folder), precision=self.mode.precision, reporter=Reporter()
        )

    def step(self) -> None:
        with use_mode(self.mode):
            self.trainer.step()


def training(data: Path) -> None:
    """Print the tokens per second of training."""
    paths = {part: ",".join(data_path(data, f"multi30k/{name}.{side}") for side in ("en", "de"))
             for part, name in (("train", "train"), ("valid", "val"))}  # fmt: skip
    print(f"| model | precision | JoeyNMT, tokens/s | ensue, tokens/s | ratio |\n{'|---' * 5}|")
    for shape, (name, settings) in SHAPES.items():
        recipe: Any = read_recipe(name, [*settings, "train.steps=100000"], **paths)
        job = SequenceToSequenceJob(recipe)
        with tempfile.TemporaryDirectory() as folder:
            ours = [Training(recipe, job, Path(folder), precision) for precision in ("float32", None)]
            rates = training_rates(recipe, job, ours)
        for training, rate in zip(ours, rates[1:], strict=True):
            print(
                f"| {shape} | {training.mode.precision} | {rates[0]:,.0f} | {rate:,.0f} | {rate / rates[0]:.2f} |",
                flush=True,
            )


def training_rates(recipe: Any, job: SequenceToSequenceJob, ours: Sequence[Training]) -> list[float]:
    """Return the target tokens per second of JoeyNMT, and of each trainer in `ours`."""
    coder = job.parts.coder
    torch.manual_seed(SEED)
    theirs = JoeyTraining(recipe, coder.target)
    seconds, tokens = [0.0] * (1 + len(ours)), 0
    for number in range(WARM_UP_STEPS + NUM_STEPS):
        unread = job.task.lazy_batch(number, torch.device("cpu"))
        batch = unread.all_rows

        def joey_step(batch: Any = batch) -> None:
            theirs.step(joey_training_batch(batch, coder.target))

        taken = [elapsed(step) for step in (joey_step, *(trainer.step for trainer in ours))]
        if number >= WARM_UP_STEPS:
            seconds = [total + new for total, new in zip(seconds, taken, strict=True)]
            tokens += unread.count
    return [tokens / total for total in seconds]


class Translators:
    """The translators of ensue, JoeyNMT and CTranslate2 with the weights of one run."""

    def __init__(self, run: str, data: Path) -> None:
        self.ours: Any = ensue.load(run).with_search(width=WIDTH, length_penalty=1.0)
        self.tokens = self.ours.coder.target
        self.theirs = joey_weights(self.ours.model, self.ours.recipe, self.tokens)
        self.compiled = CTranslate(self.ours.model, self.ours.recipe, self.tokens)
        self.texts, self.references = (
            "".join(decode(Path(data_path(data, f"multi30k/test_2016_flickr.{side}")), "utf-8")).splitlines()
            for side in ("en", "de")
        )
        self.sources = [self.ours.coder.encode((text,))[0] for text in self.texts]
        self.max_tokens = max(self.ours.limits(Sources(Ragged.of(self.sources))))

    def by_ensue(self, numbers: Sequence[int]) -> list[list[int]]:
        hypotheses = self.ours.hypotheses(Sources(Ragged.of(self.sources[number] for number in numbers)))
        return [list(best.ids) for best, *_ in hypotheses]

    def by_joey(self, numbers: Sequence[int]) -> list[list[int]]:
        """Translate in batches of similar length, like ensue."""
        rows = [self.sources[number].tolist() for number in numbers]
        outputs: list[list[int]] = [[] for _ in rows]
        lengths = Ragged.of(self.sources[number] for number in numbers).lengths
        for places in batch_by_length(lengths, batch_size=MAX_SEARCH_ROWS, batch_tokens=MAX_SEARCH_TOKENS):
            batch = [rows[place] for place in places]
            for place, ids in zip(places, joey_outputs(self.theirs, batch, self.tokens, width=WIDTH), strict=True):
                outputs[place] = ids
        return outputs

    def by_ctranslate(self, numbers: Sequence[int]) -> list[list[int]]:
        """Translate in one call; CTranslate2 sorts by length."""
        rows = [self.sources[number].tolist() for number in numbers]
        return self.compiled.outputs(rows, width=WIDTH, batch_size=MAX_SEARCH_ROWS, max_tokens=self.max_tokens)

    def bleu(self, outputs: Sequence[Ids], numbers: Sequence[int]) -> float:
        texts = [self.ours.coder.decode(ids) for ids in outputs]
        score: float = sacrebleu.corpus_bleu(texts, [[self.references[number] for number in numbers]]).score
        return score


def search(run: str, data: Path) -> None:
    """Print the speed and BLEU of translation."""
    translators = Translators(run, data)
    all_numbers = list(range(len(translators.sources)))
    some = all_numbers[:: len(all_numbers) // NUM_JOEY_SENTENCES]
    programs = {
        "ensue": (translators.by_ensue, all_numbers),
        "CTranslate2": (translators.by_ctranslate, all_numbers),
        "JoeyNMT": (translators.by_joey, some),
        "ensue, the same sentences": (translators.by_ensue, some),
    }
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    outputs: dict[str, list[list[int]]] = {}
    for translate, numbers in programs.values():
        translate(numbers[:20])
    for turn in range(NUM_ROUNDS):
        for name, (translate, numbers) in programs.items():
            if name == "JoeyNMT" and turn == NUM_ROUNDS - 1:
                continue  # JoeyNMT is slow
            seconds[name].append(elapsed(lambda: outputs.update({name: translate(numbers)})))  # noqa: B023
    print(f"| beam {WIDTH} | sentences | sentences/s | tokens/s | BLEU | outputs equal to ensue |\n{'|---' * 6}|")
    for name, (_, numbers) in programs.items():
        median = statistics.median(seconds[name])
        expected = outputs["ensue" if numbers is all_numbers else "ensue, the same sentences"]
        same = statistics.mean(a == b for a, b in zip(outputs[name], expected, strict=True))
        tokens = sum(len(ids) + 1 for ids in outputs[name])
        print(f"| {name} | {len(numbers):,} | {len(numbers) / median:.1f} | {tokens / median:,.0f} "
              f"| {translators.bleu(outputs[name], numbers):.2f} | {same:.1%} |")  # fmt: skip


def latency(run: str, data: Path) -> None:
    """Print the time of single sentences."""
    translators = Translators(run, data)
    greedy = translators.ours.with_search(width=1)
    numbers = range(0, len(translators.sources), LATENCY_STEP)
    programs: dict[str, Callable[[int], object]] = {
        "ensue": lambda number: greedy.predict([translators.texts[number]]),
        "CTranslate2": lambda number: translators.compiled.outputs(
            [translators.sources[number].tolist()], width=1, batch_size=1, max_tokens=translators.max_tokens
        ),
        "JoeyNMT": lambda number: joey_outputs(
            translators.theirs, [translators.sources[number].tolist()], translators.tokens, width=1
        ),
    }
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    with CachedWeights().used():
        for number in (*numbers[:5], *numbers):
            for name, translate in programs.items():
                seconds[name].append(elapsed(lambda: translate(number)))  # noqa: B023
    print(f"| greedy, one sentence | median ms | 90th percentile ms |\n{'|---' * 3}|")
    for name, taken in seconds.items():
        tenths = statistics.quantiles(taken[5:], n=10)
        print(f"| {name} | {1e3 * statistics.median(taken[5:]):.1f} | {1e3 * tenths[-1]:.1f} |")


def steps(run: str, data: Path) -> None:
    """Print the time of batches with outputs of equal length."""
    ours: Any = ensue.load(run).with_search(
        width=WIDTH, length_penalty=1.0, min_tokens=OUTPUT_TOKENS, max_tokens=OUTPUT_TOKENS
    )
    compiled = CTranslate(ours.model, ours.recipe, ours.coder.target)
    texts = "".join(decode(Path(data_path(data, "multi30k/test_2016_flickr.en")), "utf-8")).splitlines()[:256]
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
                            [row.tolist() for row in some], width=width, batch_size=MAX_SEARCH_ROWS,
                            max_tokens=OUTPUT_TOKENS, min_tokens=OUTPUT_TOKENS,
                        )  # fmt: skip

                    for taken, search in zip(seconds, (by_ensue, by_ctranslate), strict=True):
                        taken.append(elapsed(search))
            milliseconds, peer = (1e3 * min(taken) for taken in seconds)
            print(f"| {count} | {width} | {milliseconds:,.1f} | {peer:,.1f} | {peer / milliseconds:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("training", "search", "latency", "steps"))
    parser.add_argument("data", type=Path)
    parser.add_argument("run", nargs="?")
    parser.add_argument("--peers", type=Path)
    arguments = parser.parse_args()
    if (arguments.run is None) != (arguments.what == "training"):
        parser.error(f"{arguments.what} needs {'no' if arguments.run else 'a'} RUN")
    import_from(arguments.peers)
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    print(describe_machine(seed=SEED))
    if arguments.what == "training":
        training(arguments.data)
    else:
        {"search": search, "latency": latency, "steps": steps}[arguments.what](arguments.run, arguments.data)


if __name__ == "__main__":
    main()
