"""How much of a training step the system spends on memory, for every recipe: its seconds beside those of the program.

    python benchmarks/allocator.py FOLDER [RECIPE ...]

FOLDER has the real data sets. Each recipe trains on some thousand lines of them with its own sizes and one thread, in a
process of its own: as a program that uses the library, and as `ensue train`, which keeps what it frees. Two steps
come first; then steps are counted until they have taken a second of processor time.
"""

from __future__ import annotations

import gzip
import lzma
import multiprocessing
import resource
import sys
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from machine import describe_machine
from quality import found

from ensue.processor import keep_freed_memory
from ensue.ranks import ProcessGroup, use_process_group
from ensue.recipe import read_recipe, recipe_names
from ensue.recipe.tables import Recipe
from ensue.runs.directory import RunDirectory
from ensue.runs.reporter import Reporter
from ensue.training.device import use_mode
from ensue.training.gradients import Gradients
from ensue.training.loop import Trainer
from ensue.training.run import begin_job, train_run
from ensue.training.runtime import choose_runtime

SECONDS, FIRST = 1.0, 2
LITTLE = 0.03
"""Where the system takes less of the program's time, it is not measured what keeping memory would save."""
SMALLER = {"bert-base": {"train.batch_size": 8}, "bert-large": {"train.batch_size": 4}}
"""Batches that a small machine has room for."""


def lines(data: Path, name: str, count: int) -> list[str]:
    """The first lines of a file of the data."""
    path = found(data, name)
    opened = lzma.open if path.endswith(".xz") else gzip.open if path.endswith(".gz") else open
    with opened(path, "rt", encoding="utf-8") as file:  # type: ignore[operator]
        return list(islice(file, count))


def make_data(data: Path, folder: Path) -> None:
    """Files of every kind that recipes read."""
    texts = {
        "running.txt": lines(data, "wikitext-2/train.txt", 6_000),
        "texts.tsv": [line.replace(" ", "\t", 1) for line in lines(data, "sst/stsa.fine.train", 9_000)],
        "sentences.conll": lines(data, "conll2000/train.txt", 100_000),
        "pairs.tsv": [
            f"{one.strip()}\t{other}"
            for one, other in zip(*(lines(data, f"multi30k/train.{end}", 7_000) for end in ("de", "en")), strict=True)
        ],
    }
    kept = [line.split("\t") for line in lines(data, "mrpc/msr_paraphrase_train.txt", 5_000)[1:]]
    texts["paraphrases.tsv"] = [
        "label\ttext1\ttext2\n",
        *(f"{row[0].lstrip(chr(65279))}\t{row[3]}\t{row[4]}" for row in kept),
    ]
    for name, content in texts.items():
        (folder / name).write_text("".join(content), encoding="utf-8")
    pixels, digits = (
        np.frombuffer(gzip.decompress(Path(found(data, f"mnist_t10k/t10k-{part}")).read_bytes()), np.uint8, offset=skip)
        for part, skip in (("images-idx3-ubyte", 16), ("labels-idx1-ubyte", 8))
    )
    images = pixels.reshape(-1, 28, 28).astype(np.float32)[:2000] / 255
    np.save(folder / "images.npy", images)
    np.savez(folder / "digits.npz", frames=images, labels=[str(digit) for digit in digits[:2000]])
    rows = [f"{n},{','.join(map(str, row))},{digits[n]}" for n in range(500) for row in images[n].round(2)]
    (folder / "frames.csv").write_text("\n".join([f"series,{','.join(f'x{n}' for n in range(28))},label", *rows, ""]))


def file_of(name: str) -> str:
    """The file that a recipe trains on."""
    kind = name.partition("-")[0]
    if name in ("draw", "caption-lstm", "read-glimpses"):
        return "images.npy" if name == "draw" else "digits.npz"
    if name.endswith("-frames") or kind in ("storn", "vrnn"):
        return "frames.csv"
    if name == "classify-pairs":
        return "paraphrases.tsv"
    of_kind = {"tag": "sentences.conll", "classify": "texts.tsv"}
    return of_kind.get(kind, "pairs.tsv" if "decoder" in read_recipe(name).model_dump() else "running.txt")


def recipe_of(name: str, folder: Path) -> Recipe:
    """The recipe with its data."""
    settings = {"data.train": str(folder / file_of(name)), **SMALLER.get(name, {})}
    if name.endswith("-pretrained"):
        settings |= {"encoder.from": str(folder / "origin")}
    return read_recipe(name, settings)


def measure(name: str, folder: Path, keeps: bool, answer: Any) -> None:
    """Sends the seconds of the program and of the system in a step, and the most memory in MB."""
    if keeps:
        assert keep_freed_memory()
    recipe = recipe_of(name, folder)
    if name.endswith("-pretrained") and not (folder / "origin").exists():
        origin = {"data.train": str(folder / "running.txt"), "train.steps": 2, "train.validations": 1}
        train_run(read_recipe("bert-mini", origin), folder / "origin", threads=1)
    with use_process_group(ProcessGroup()), tempfile.TemporaryDirectory() as run:
        job = begin_job(recipe, None)
        model = job.build_model()
        runtime = choose_runtime(recipe, getattr(model, "vocabulary_size", 0), None, device="cpu", threads=1, say=print)
        computed = Gradients(model, job.task, seed=0, precision=runtime.precision, group=ProcessGroup())
        trainer = Trainer(
            model, job.task, recipe.train, RunDirectory(run), precision=runtime.precision, reporter=Reporter(),
            gradients=computed,
        )  # fmt: skip
        trainer.log.append = lambda *_, **__: None  # type: ignore[method-assign]
        with use_mode(runtime):
            for _ in range(FIRST):
                trainer.step()
            before = resource.getrusage(resource.RUSAGE_SELF)
            steps, user, system, now = 0, 0.0, 0.0, before
            while user + system < SECONDS:
                trainer.step()
                now, steps = resource.getrusage(resource.RUSAGE_SELF), steps + 1
                user, system = now.ru_utime - before.ru_utime, now.ru_stime - before.ru_stime
    answer.send((user / steps, system / steps, now.ru_maxrss / 1024))


def main() -> None:
    data, names = Path(sys.argv[1]), sys.argv[2:] or recipe_names()
    print(describe_machine(seed=0))
    print("| recipe | program | system | peak MB | keeping: program | system | peak MB |\n|---|" + "---|" * 6)
    context = multiprocessing.get_context("fork")  # what is imported once serves all
    with tempfile.TemporaryDirectory() as folder:
        make_data(data, Path(folder))
        for name in names:
            found_of = []
            for keeps in (False, True):
                here, there = context.Pipe(duplex=False)
                process = context.Process(target=measure, args=(name, Path(folder), keeps, there))
                process.start()
                there.close()
                process.join()
                if process.exitcode == 0:
                    user, system, peak = here.recv()
                    found_of.append(f"{1000 * user:.1f} | {1000 * system:.1f} | {peak:.0f}")
                    if system < LITTLE * user:
                        found_of.append("| |")
                        break
            print(f"| {name} | {' | '.join(found_of)} |", flush=True)


if __name__ == "__main__":
    main()
